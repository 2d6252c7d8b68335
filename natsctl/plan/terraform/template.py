"""The pieces of a quoted text or a heredoc: what stands there, and the expressions between it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from natsctl.plan.terraform.syntax import text_of
from natsctl.plan.terraform.values import ExpressionError

if TYPE_CHECKING:
    from tree_sitter import Node

Part: TypeAlias = "str | Node"

_ESCAPE: Final = re.compile(r'\\(?:([nrt"\\])|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))|\$\$\{|%%\{')
_BRACE: Final = re.compile(r"\$\$\{|%%\{")
_CHARS: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}


def pieces(node: Node) -> list[Part]:
    """Return texts, unescaped, and the expressions of `${…}`.

    Raises ExpressionError for directives such as `%{ if … }`.
    """
    if node.type == "heredoc_template":
        return _heredoc(node)
    start, end = node.children[0].end_byte, node.children[-1].start_byte
    raw = _raw(node, start, end)
    return [part if not isinstance(part, str) else _ESCAPE.sub(_escaped, part) for part in raw if part != ""]


def _raw(node: Node, start: int, end: int) -> list[Part]:
    """Return raw texts and expressions, cut by the positions of these, as the parser drops spaces beside them."""
    source, at = node.text or b"", start
    parts: list[Part] = []
    for child in node.named_children:
        if child.type == "template_directive":
            raise ExpressionError("directives such as %{ if } can not be worked out here: write the text instead")
        if child.type == "template_interpolation":
            parts.append(source[at - node.start_byte : child.start_byte - node.start_byte].decode())
            parts.append(_inner(child))
            at = child.end_byte
    parts.append(source[at - node.start_byte : end - node.start_byte].decode())
    return parts


def _inner(interpolation: Any) -> Any:
    inner = next((child for child in interpolation.named_children if child.type == "expression"), None)
    if inner is None:
        raise ExpressionError(f"can not read {text_of(interpolation)!r}")
    return inner


def _heredoc(node: Node) -> list[Part]:
    """Return the lines between the two words; after `<<-` without the indentation that all of them share."""
    opening, closing = (child for child in node.children if child.type == "heredoc_identifier")
    source = node.text or b""
    start = source.index(b"\n", opening.end_byte - node.start_byte) + 1 + node.start_byte
    end = source.rindex(b"\n", 0, closing.start_byte - node.start_byte) + 1 + node.start_byte
    parts = _raw(node, start, max(start, end))
    if text_of(node.children[0]).startswith("<<-"):
        parts = _dedented(parts)
    return [part if not isinstance(part, str) else _BRACE.sub(lambda found: found[0][1:], part) for part in parts]


def _dedented(parts: list[Part]) -> list[Part]:
    marked = "".join(part if isinstance(part, str) else "\0" for part in parts)
    lines = [line for line in marked.split("\n") if line.strip(" \t")]
    least = min((len(line) - len(line.lstrip(" \t")) for line in lines), default=0)
    texts = "\n".join(line[least:] for line in marked.split("\n")).split("\0")
    inner = [part for part in parts if not isinstance(part, str)]
    mixed: list[Part] = [texts[0]]
    for expression, text in zip(inner, texts[1:], strict=True):
        mixed += [expression, text]
    return mixed


def _escaped(found: re.Match[str]) -> str:
    if found[0].endswith("{"):
        return found[0][1:]
    return _CHARS[found[1]] if found[1] else chr(int(found[2] or found[3], 16))
