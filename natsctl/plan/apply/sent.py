"""The configurations that are sent: what the plan says, and what the live asset has of fields that it cannot know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.shapes import Shape, shape_of
from natsctl.api.stream import StreamConfig
from natsctl.plan.change import Change


def wanted_config(change: Change) -> dict[str, Any]:
    """Return the desired configuration of the asset, under its name."""
    config = dict(change.config or {})
    if not change.consumer:
        return {**config, "name": change.stream}
    return config if config.get("durable_name") or config.get("name") else {**config, "durable_name": change.consumer}


def merged_config(change: Change, live: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same, with fields of a newer server that the live asset has and no document could mention."""
    shape = shape_of(ConsumerConfig if change.consumer else StreamConfig)
    return _with_unknown(wanted_config(change), live, shape)


def _with_unknown(config: dict[str, Any], live: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    merged = dict(config)
    for key, value in live.items():
        known = shape.fields.get(key)
        if known is None:
            merged.setdefault(key, value)
        elif known.shape.kind == "struct" and isinstance(merged.get(key), dict) and isinstance(value, Mapping):
            merged[key] = _with_unknown(merged[key], value, known.shape)
        elif known.shape.kind == "list" and known.shape.elements().kind == "struct":
            merged |= _each(key, merged.get(key), value, known.shape.elements())
    return merged


def _each(key: str, ours: Any, theirs: Any, shape: Shape) -> dict[str, Any]:
    """Merge objects of a list pairwise if they have the same position and name."""
    if not isinstance(ours, list) or not isinstance(theirs, list) or len(ours) != len(theirs):
        return {}
    pairs = list(zip(ours, theirs, strict=True))
    if any(one.get("name") != other.get("name") for one, other in pairs):
        return {}
    return {key: [_with_unknown(one, other, shape) for one, other in pairs]}
