"""The types of configurations as JSON schemas of what people may write: words for durations and sizes, `${…}`, null.

Keywords of a schema hold for values of their type only: one with two types and a pattern wants the pattern of texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from natsctl.api.model import INT64_MAX, INT64_MIN, UINT64_MAX, Model
from natsctl.api.shapes import Shape, shape_of
from natsctl.plan.documents.field_texts import TEXTS

Schema = dict[str, Any]

REFERENCE: Final = r"\$\{"
"""The pattern of a text that stands for another value."""
_UNITS: Final = "(ns|us|µs|μs|ms|[smhdwMyY])"
DURATION: Final = rf"^\s*[-+]?(0|([0-9]{{1,20}}(\.[0-9]{{0,30}})?{_UNITS}|\.[0-9]{{1,30}}{_UNITS})+)\s*$|^-?[0-9]+$"
SIZE: Final = r"^\s*[0-9]{1,20}(\.[0-9]{1,18})?\s*([KMGTPEkmgtpe]([iI]?[bB])?|[bB])?\s*$|^-?[0-9]+$"
TIME: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}([.,][0-9]{1,18})?([Zz]|[-+][0-9]{2}:[0-9]{2})$"
)
_PATTERNS: Final = {"duration": DURATION, "size": SIZE}
_EXAMPLES: Final = {"duration": ["30s", "5m", "1h30m", "1y"], "size": ["64KiB", "10MB", "1GiB"]}
_RANGES: Final = {"int32": (-(2**31), 2**31 - 1), "uint64": (0, UINT64_MAX)}


def of_shape(shape: Shape) -> Schema:
    """Return the schema of a value; of a struct that of an object, closed."""
    if shape.kind == "struct":
        return of_model(shape.python)
    if shape.kind == "list":
        return {"type": ["array", "null"], "items": present(of_shape(shape.elements()))}
    if shape.kind == "dict":
        return {"type": ["object", "null"], "additionalProperties": of_shape(shape.elements())}
    if shape.kind == "enum":
        return of_choice(member.value for member in shape.python if member.value)
    if shape.human == "time":
        return {"type": ["string", "null"], "format": "date-time", "pattern": f"{TIME}|{REFERENCE}"}
    if shape.kind == "int":
        return _number(shape)
    if shape.kind == "bool":
        return {"type": ["boolean", "string", "null"], "pattern": REFERENCE}
    return {"type": ["string", "null"]}


def present(schema: Schema) -> Schema:
    """Return the schema of a value that may not be null, as in lists and mappings."""
    kinds = schema.get("type")
    return {**schema, "type": [kind for kind in kinds if kind != "null"]} if isinstance(kinds, list) else schema


def _number(shape: Shape) -> Schema:
    low, high = _RANGES.get(shape.go, (INT64_MIN, INT64_MAX))
    schema: Schema = {"type": ["integer", "string", "null"], "minimum": low, "maximum": high, "pattern": REFERENCE}
    if shape.human:
        schema |= {"pattern": f"{_PATTERNS[shape.human]}|{REFERENCE}", "examples": _EXAMPLES[shape.human]}
    return schema


def of_choice(choices: Iterable[str]) -> Schema:
    """Return the schema of one of some words; editors offer them as given, and accept capitals too."""
    words = list(choices)
    spelled = "|".join(_any_case(word) for word in words)
    return {"anyOf": [{"enum": [*words, None]}, {"type": "string", "pattern": f"^({spelled})$|{REFERENCE}"}]}


def _any_case(word: str) -> str:
    spelled = (f"[{char.upper()}{char}]" if char.isalpha() else "[_ ]" if char == "_" else char for char in word)
    return "".join(spelled)


def of_model(model: type[Model]) -> Schema:
    """Return the schema of an object with the fields of a model."""
    return closed(properties_of(model))


def properties_of(model: type[Model]) -> dict[str, Schema]:
    """Return the schemas of a model's fields, with their descriptions."""
    texts = TEXTS[model.__name__]
    return {key: described(of_shape(field.shape), texts[key]) for key, field in shape_of(model).fields.items()}


def described(schema: Schema, text: str) -> Schema:
    """Return a schema with a description."""
    return {"description": text, **schema}


def closed(properties: Mapping[str, Schema], required: Iterable[str] = ()) -> Schema:
    """Return the schema of an object that has these keys and no others."""
    wanted = list(required)
    schema: Schema = {"type": ["object", "null"], "properties": dict(properties), "additionalProperties": False}
    return schema | ({"type": "object", "required": wanted} if wanted else {})


def has(*keys: str) -> Schema:
    """Return the schema of an object that has all of these keys."""
    return {"type": "object", "required": list(keys)}


def has_any(keys: Iterable[str]) -> Schema:
    """Return the schema of an object that has one of these keys."""
    return {"type": "object", "anyOf": [{"required": [key]} for key in keys]}


def choose(*cases: tuple[Schema, Schema], otherwise: Schema) -> Schema:
    """Return the schema of the first case that holds."""
    schema = otherwise
    for condition, wanted in reversed(cases):
        schema = {"if": condition, "then": wanted, "else": schema}
    return schema
