"""The JSON schema of the Kubernetes controller's manifests, from the table of their fields."""

from __future__ import annotations

from typing import Final

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.model import Model
from natsctl.api.shapes import Shape, shape_of
from natsctl.api.stream import StreamConfig
from natsctl.plan.documents.bucket_words import KeyValueWords, ObjectStoreWords
from natsctl.plan.documents.controller import GROUP, KINDS, PASSED_OVER, REQUIRED
from natsctl.plan.documents.controller_fields import CONNECTION, DELIVER_POLICIES, LIFE, Field
from natsctl.plan.documents.field_texts import OWN, TEXTS
from natsctl.plan.documents.schema_types import (
    REFERENCE,
    Schema,
    choose,
    closed,
    described,
    has,
    of_choice,
    of_shape,
    present,
)

_MODELS: Final[dict[str, type[Model]]] = {
    "Stream": StreamConfig,
    "Consumer": ConsumerConfig,
    "KeyValue": KeyValueWords,
    "ObjectStore": ObjectStoreWords,
}
_SWITCH: Final[Schema] = {"type": ["boolean", "string", "null"], "pattern": REFERENCE}
_LIFE_TEXTS: Final = dict(zip(LIFE, (OWN["protect"], OWN["create_only"]), strict=True))


def manifest(document: str) -> Schema:
    """Return the schema of a resource of the controller, a List of resources, or another resource, which is skipped."""
    is_list = {"properties": {"kind": {"const": "List"}, "items": {"type": "array"}}, "required": ["kind", "items"]}
    ours = {"properties": {"apiVersion": {"pattern": f"^{GROUP.replace('.', '[.]')}"}}}
    known = {"type": "object", "required": ["kind"], "properties": {"kind": {"enum": [*KINDS, *PASSED_OVER]}}}
    cases = [
        ({"properties": {"kind": {"const": kind}}}, {**has("spec"), "properties": {"spec": {"$ref": _ref(kind)}}})
        for kind in KINDS
    ]
    return choose(
        (is_list, {"properties": {"items": {"items": {"$ref": document}}}}),
        (ours, {"allOf": [known, choose(*cases, otherwise={})]}),
        otherwise={"type": "object"},
    )


def _ref(kind: str) -> str:
    return f"#/$defs/{kind}Spec"


def definitions() -> dict[str, Schema]:
    """Return the schemas of `spec`, by kind."""
    found = {}
    for kind, (_, _, fields) in KINDS.items():
        own = _properties(fields, shape_of(_MODELS[kind]), _MODELS[kind])
        life = {key: described(_SWITCH, _LIFE_TEXTS[key]) for key in LIFE}
        connection = {key: {"description": "Passed over: natsctl connects as its flags say"} for key in CONNECTION}
        required = ["streamName", "durableName"] if kind == "Consumer" else [REQUIRED[kind]]
        for name in required:
            own[name] = {"description": own[name]["description"], "type": "string", "minLength": 1}
        found[f"{kind}Spec"] = closed({**own, **life, **connection}, required)
    return found


def _properties(fields: dict[str, Field], shape: Shape, model: type[Model] | None) -> dict[str, Schema]:
    texts = TEXTS.get(model.__name__, {}) if model is not None else {}
    return {
        name: described(_field(field, shape), texts.get(field.to[0]) or OWN.get(field.to[0], ""))
        for name, field in fields.items()
    }


def _field(field: Field, shape: Shape) -> Schema:
    """Return the schema of a field, by its target in a configuration; empty texts and zeros count as absent."""
    if field.to == ("stream",):
        return {"type": "string", "minLength": 1}
    for step in field.to:
        shape = shape.fields[step].shape
    if field.to == ("deliver_policy",):
        return of_choice(["", *(member.value for member in shape.python), *DELIVER_POLICIES])
    if field.below is None:
        return {"anyOf": [of_shape(shape), {"enum": ["", 0]}]}
    inner = shape.elements() if shape.kind == "list" else shape
    schema = closed(_properties(field.below, inner, inner.python))
    return {"type": ["array", "null"], "items": present(schema)} if shape.kind == "list" else schema
