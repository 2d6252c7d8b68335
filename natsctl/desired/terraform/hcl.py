"""HCL text as blocks and attributes, with the line of each; expressions stay as the parser's nodes.

Tree-sitter continues after a mistake, so that all mistakes of a file are reported at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from natsctl.api.locations import Location
from natsctl.desired.assets import Fault

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


MAX_SHOWN = 40
"""Characters of an unreadable text in a fault."""


@dataclass(frozen=True, slots=True)
class Attribute:
    name: str
    value: Node
    place: Location


@dataclass(frozen=True, slots=True)
class Block:
    """`TYPE "LABEL" { … }`; a file is a block without type. Duplicates in it are reported when it is read."""

    type: str
    labels: tuple[str, ...]
    place: Location
    attributes: list[Attribute] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)


def parse(file: str, text: bytes) -> tuple[Block, list[Fault]]:
    root = _parser().parse(text).root_node
    whole = Block("", (), Location(file, 1))
    for body in (child for child in root.children if child.type == "body"):
        _fill(whole, body, file)
    return whole, _faults(root, file, text) if root.has_error else []


def text_of(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def line_of(node: Node) -> int:
    return int(node.start_point[0]) + 1


@cache
def _parser() -> Parser:
    import tree_sitter_hcl
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_hcl.language()))


def _fill(block: Block, body: Any, file: str) -> None:
    for child in body.named_children:
        if child.type == "attribute" and len(child.named_children) == 2:
            name, value = child.named_children
            block.attributes.append(
                Attribute(text_of(name), value, Location(file, line_of(child), f"$.{text_of(name)}"))
            )
        elif child.type == "block":
            block.blocks.append(_block(child, file))


def _block(node: Any, file: str) -> Block:
    words = [text_of(child).strip('"') for child in node.named_children if child.type in ("identifier", "string_lit")]
    kind, *labels = words or [""]
    block = Block(kind, tuple(labels), Location(file, line_of(node), ".".join(("$", *words))))
    for body in (child for child in node.named_children if child.type == "body"):
        _fill(block, body, file)
    return block


def _broken(node: Any) -> Iterator[Any]:
    """Return the outermost nodes that the parser inserted or could not place."""
    for child in node.children:
        if child.is_error or child.is_missing:
            yield child
        elif child.has_error:
            yield from _broken(child)


def _faults(root: Any, file: str, text: bytes) -> list[Fault]:
    """Return one fault for each line that could not be read, quoting it."""
    lines = text.decode(errors="replace").splitlines() or [""]
    broken = sorted({min(line_of(node), len(lines)) for node in _broken(root)})
    return [Fault(Location(file, line), f"no HCL: cannot read {_shown(lines[line - 1])}") for line in broken]


def _shown(line: str) -> str:
    near = " ".join(line.split())
    return repr(near if len(near) <= MAX_SHOWN else near[: MAX_SHOWN - 1] + "…")
