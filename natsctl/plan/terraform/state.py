"""The resources of a state as JSON: of `terraform show -json`, for a state or a plan, and of `terraform.tfstate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from natsctl.api.units import SECOND
from natsctl.plan.asset import Place
from natsctl.plan.terraform.body import Body
from natsctl.plan.terraform.module import SCHEMAS, Instance
from natsctl.plan.terraform.schema import Nested, Schema

Resource = Mapping[str, Any]


def is_state(document: Any) -> bool:
    """Return whether a JSON document is a state."""
    return isinstance(document, dict) and ("terraform_version" in document)


def state_instances(document: Mapping[str, Any], file: str) -> Iterator[Instance]:
    """Return the JetStream resources of a state. Absent arguments have their default or zero there."""
    found = list(_shown(document)) or list(_stored(document))
    read = "planned_values" not in document
    for address, kind, values in found:
        if kind in SCHEMAS:
            body = _body(values, SCHEMAS[kind], Place(file, 0, address))
            if read and kind == "jetstream_stream":
                _in_seconds(body, "inactive_threshold")
            yield Instance(kind, address, body)


def _shown(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Resource]]:
    whole = _object(document.get("values") or document.get("planned_values"))
    modules = [_object(whole.get("root_module"))]
    while modules:
        module = modules.pop(0)
        modules += _objects(module.get("child_modules"))
        for one in _objects(module.get("resources")):
            if one.get("mode", "managed") == "managed":
                yield str(one.get("address")), str(one.get("type")), _object(one.get("values"))


def _stored(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Resource]]:
    for one in _objects(document.get("resources")):
        for instance in _objects(one.get("instances")):
            key = instance.get("index_key")
            index = "" if key is None else f"[{key}]" if isinstance(key, int) else f'["{key}"]'
            module = f"{one['module']}." if one.get("module") else ""
            if one.get("mode", "managed") == "managed":
                address = f"{module}{one.get('type')}.{one.get('name')}{index}"
                yield address, str(one.get("type")), _object(instance.get("attributes"))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _body(values: Resource, schema: Schema, place: Place) -> Body:
    """Return the values of a resource; empty ones count as absent."""
    body = Body(place)
    for name, value in values.items():
        known = schema.get(name)
        if isinstance(known, Nested):
            body.blocks[name] = [_body(one, known.schema, place) for one in _objects(value)]
        elif name not in ("id", "timeouts"):
            body.values[name] = value
    return body


def _in_seconds(body: Body, name: str) -> None:
    """Convert nanoseconds, which the provider keeps in a state for some fields, to seconds."""
    value = body.get(name, 0)
    if isinstance(value, int) and value >= SECOND:
        body.values[name] = value // SECOND
