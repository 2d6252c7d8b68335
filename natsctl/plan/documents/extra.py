"""Fields that this natsctl does not know, of newer servers: documents hold them below `extra`, as the wire has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from natsctl.api.documents import Untyped
from natsctl.api.shapes import Shape

EXTRA: Final = "extra"
"""The key of a document whose content is sent beside the configuration, objects merged with those there."""


def unknown_of(config: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """Return the unknown fields, in their objects; a list is whole if one of its items has such fields."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        known = shape.fields.get(name)
        if known is None:
            found[name] = value
        elif known.shape.kind == "struct" and isinstance(value, Mapping):
            if inner := unknown_of(value, known.shape):
                found[name] = inner
        elif known.shape.kind == "list" and _has_unknown(value, known.shape.elements()):
            found[name] = value
    return found


def _has_unknown(items: Any, shape: Shape) -> bool:
    return shape.kind == "struct" and any(isinstance(item, Mapping) and unknown_of(item, shape) for item in items or ())


def known_of(config: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """Return the known fields, in all of its objects."""
    return {
        name: _known_value(value, shape.fields[name].shape) for name, value in config.items() if name in shape.fields
    }


def _known_value(value: Any, shape: Shape) -> Any:
    if shape.kind == "struct" and isinstance(value, Mapping):
        return known_of(value, shape)
    if shape.kind == "list" and isinstance(value, list):
        return [_known_value(item, shape.elements()) for item in value]
    return value


def merged(config: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with the content of `extra`: objects are merged, other values replaced."""
    result = dict(config)
    for name, value in extra.items():
        there = result.get(name)
        if isinstance(value, Untyped):
            value = value.meant
        if value is None:
            continue  # null has no effect
        if isinstance(value, Mapping):
            result[name] = merged(there if isinstance(there, Mapping) else {}, value)
        else:
            result[name] = [*map(_plain, value)] if isinstance(value, list) else value
    return result


def _plain(value: Any) -> Any:
    """Return a value in plain containers, without lines."""
    if isinstance(value, Untyped):
        return value.meant
    if isinstance(value, Mapping):
        return merged({}, value)
    return [_plain(item) for item in value] if isinstance(value, list) else value
