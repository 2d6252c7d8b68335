"""Terraform's JSON syntax (`.tf.json`), as the blocks and attributes of HCL.

JSON does not say whether an object is a block or a map: the provider's schema does. Texts are templates, as in quotes.
Source: https://developer.hashicorp.com/terraform/language/syntax/json
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from natsctl.api.documents import read_json
from natsctl.api.locations import LocatedDict, LocatedList, Location, Step, TextError, spelled
from natsctl.desired.assets import Fault
from natsctl.desired.terraform.hcl import Block, parse
from natsctl.desired.terraform.provider import Nested, Schema

SUFFIX: Final = ".tf.json"
_LABELS: Final = {"resource": 2, "data": 2, "variable": 1, "output": 1, "module": 1, "provider": 1}
"""Types of blocks, and how many levels of names follow them."""
_COMMENT: Final = "//"
_INTERPOLATION: Final = re.compile(r"\$\$\{|%%\{|[$%]\{")
_BLOCKS_ANYWHERE: Final = frozenset(("lifecycle", "timeouts", "connection", "provisioner"))


def parse_json(file: str, text: bytes, schemas: Mapping[str, Schema]) -> tuple[Block, list[Fault]]:
    whole = Block("", (), Location(file, 1))
    faults: list[Fault] = []

    def report(line: int, path: Sequence[Step], reason: str) -> None:
        faults.append(Fault(Location(file, line, "$" + "".join(map(spelled, path))), reason))

    try:
        documents = [value for _, value in read_json(text.decode("utf-8-sig"), report, None)]
    except UnicodeDecodeError:
        return whole, [Fault(Location(file, 1), "not UTF-8 text")]
    except TextError as fault:
        return whole, [Fault(Location(file, fault.line), fault.reason)]
    if len(documents) != 1 or not isinstance(documents[0], LocatedDict):
        return whole, [Fault(Location(file, 1), "expected one object, a Terraform configuration")]
    reader = _JsonBlockReader(file, schemas, faults)
    for kind, value in documents[0].items():
        if kind != _COMMENT:
            whole.blocks.extend(reader.blocks(kind, (), value, documents[0].lines[kind], _LABELS.get(kind, 0)))
    return whole, faults


class _JsonBlockReader:
    def __init__(self, file: str, schemas: Mapping[str, Schema], faults: list[Fault]) -> None:
        self._file, self._schemas, self._faults = file, schemas, faults

    def blocks(self, kind: str, labels: tuple[str, ...], value: Any, line: int, names: int) -> Iterator[Block]:
        """Yield the blocks below a key: `names` levels of names, then one body or a list of bodies."""
        if isinstance(value, LocatedList):
            for item, at in zip(value, value.lines, strict=True):
                yield from self.blocks(kind, labels, item, at, names)
        elif not isinstance(value, LocatedDict):
            self._faults.append(Fault(Location(self._file, line, ".".join(("$", kind, *labels))), "expected an object"))
        elif names:
            for name, inner in value.items():
                if name != _COMMENT:
                    yield from self.blocks(kind, (*labels, name), inner, value.lines[name], names - 1)
        else:
            schema = self._schemas.get(labels[0], {}) if kind == "resource" else {}
            yield self._block(kind, labels, value, line, schema)

    def _block(self, kind: str, labels: tuple[str, ...], body: LocatedDict, line: int, schema: Schema) -> Block:
        block = Block(kind, labels, Location(self._file, line, ".".join(("$", kind, *labels))))
        for name, value in body.items():
            known, at = schema.get(name), body.lines[name]
            if name == _COMMENT:
                continue
            if isinstance(known, Nested):
                block.blocks.extend(self._nested(name, (), value, at, known.schema))
            elif name == "dynamic" and isinstance(value, LocatedDict):
                for label, inner in value.items():
                    nested = schema.get(label)
                    inside: Schema = {"content": nested} if isinstance(nested, Nested) else {}
                    block.blocks.extend(self._nested(name, (label,), inner, value.lines[label], inside))
            elif name in _BLOCKS_ANYWHERE and kind == "resource":
                block.blocks.extend(self._nested(name, (), value, at, {}))
            else:
                plain = (kind, name) in (("variable", "type"), ("dynamic", "iterator"))
                self._attribute(block, name, value if plain else _expression(value), at)
        return block

    def _nested(self, kind: str, labels: tuple[str, ...], value: Any, line: int, schema: Schema) -> Iterator[Block]:
        items = zip(value, value.lines, strict=True) if isinstance(value, LocatedList) else ((value, line),)
        for item, at in items:
            if isinstance(item, LocatedDict):
                yield self._block(kind, labels, item, at, schema)
            elif item is not None:
                self._faults.append(Fault(Location(self._file, at, f"$.{kind}"), "expected an object"))

    def _attribute(self, block: Block, name: str, expression: str, line: int) -> None:
        parsed, wrong = parse(self._file, b"\n" * (line - 1) + f"{name} = {expression}\n".encode())
        if wrong or len(parsed.attributes) != 1:
            self._faults.append(Fault(Location(self._file, line, f"{block.place.path}.{name}"), "cannot be read"))
        else:
            block.attributes.append(parsed.attributes[0])


def _expression(value: Any) -> str:
    """Return a JSON value as an expression of HCL, in one line."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_template(key)} = {_expression(value[key])}' for key in value)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_expression, value))}]"
    return _template(value) if isinstance(value, str) else json.dumps(value)


def _template(text: str) -> str:
    """Return a text in quotes, its interpolations as they are."""
    parts, at = ['"'], 0
    while match := _INTERPOLATION.search(text, at):
        parts.append(_quoted(text[at : match.start()]))
        escaped = len(match[0]) == len("$${")
        at = match.end() if escaped else _end_of(text, match.end())
        parts.append(text[match.start() : at])
    return "".join((*parts, _quoted(text[at:]), '"'))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _end_of(text: str, at: int) -> int:
    """Return the position after the brace that closes an interpolation, or the end of the text."""
    depth = 1
    while at < len(text) and depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at
