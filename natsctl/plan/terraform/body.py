"""The values of a resource, whether they came from HCL or from a state, and what they make by its schema."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from natsctl.plan.asset import Place
from natsctl.plan.terraform.schema import Field, Nested, Schema
from natsctl.plan.terraform.values import ExpressionError, said
from natsctl.plan.wanted import Fault


@dataclass(slots=True)
class Body:
    """The evaluated content of the braces; `unread` are attributes whose faults are reported already."""

    place: Place
    values: dict[str, Any] = field(default_factory=dict)
    blocks: dict[str, list[Body]] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)

    def place_of(self, name: str) -> Place:
        """Return the location of an attribute or block."""
        return self.places.get(name, self.place)._replace(path=f"{self.place.path}.{name}")

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute; null counts as not given."""
        value = self.values.get(name)
        return default if value is None else value


def filled(body: Body, schema: Schema, faults: list[Fault]) -> dict[str, Any]:
    """Return the configuration of a body; faults are added, and their attributes left out.

    Values without effect on the wire (zero, "", false, an empty list) are left out as well.
    """
    _tell_unknown(body, schema, faults)
    config: dict[str, Any] = {}
    for name, one in schema.items():
        if isinstance(one, Nested):
            value = _nested(body, name, one, faults)
        else:
            value = _attribute(body, name, one, faults)
        if value and one.path:
            _put(config, one.path, value)
    return config


def _attribute(body: Body, name: str, one: Field, faults: list[Fault]) -> Any:
    value = body.get(name, one.default)
    if value is None:
        if one.required and name not in body.unread:
            faults.append(Fault(body.place_of(name), f"{name} is missing"))
        return None
    try:
        found = one.read(value)
        if one.choices and found not in one.choices:
            words = ", ".join(choice or '""' for choice in one.choices)
            raise ExpressionError(f"expected one of {words}, got {said(found)}")
    except ExpressionError as error:
        faults.append(Fault(body.place_of(name), str(error)))
        return None
    return found


def _nested(body: Body, name: str, one: Nested, faults: list[Fault]) -> Any:
    found = body.blocks.get(name, [])
    if one.most and len(found) > one.most:
        faults.append(Fault(body.place_of(name), f"only one {name} can be given, there are {len(found)}"))
    made = [filled(inner, one.schema, faults) for inner in found]
    if not one.most or one.path == "subject_transforms":
        return made
    return made[0] if made else None


def _put(config: dict[str, Any], path: str, value: Any) -> None:
    *above, last = path.split(".")
    for word in above:
        config = config.setdefault(word, {})
    config[last] = value


def _tell_unknown(body: Body, schema: Schema, faults: list[Fault]) -> None:
    attributes = {name for name, one in schema.items() if isinstance(one, Field)}
    blocks = schema.keys() - attributes
    wrong = [("attribute", name, attributes) for name in body.values.keys() | body.unread if name not in attributes]
    wrong += [("block", name, blocks) for name in body.blocks if name not in blocks]
    faults += [Fault(body.place_of(name), _unknown(what, name, known, schema)) for what, name, known in wrong]


def _unknown(what: str, name: str, known: Iterable[str], schema: Mapping[str, Any]) -> str:
    if name in schema:
        return f"{name} is a block: write {name} {{ … }}" if what == "attribute" else f"{name} is no block: {name} = …"
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"unknown {what} {name}" + (f", did you mean {near[0]}?" if near else "")
