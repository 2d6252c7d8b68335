"""The shortest configuration that a server makes the same of: what it fills in by itself need not be written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.shapes import Shape, shape_of
from natsctl.api.stream import StreamConfig
from natsctl.client.asset_config import CREATED, new_stream
from natsctl.plan.asset import AssetKey
from natsctl.plan.planner.settle import ConfigRefusedError, Surroundings, kept, settled, without_nulls

Config = dict[str, Any]
Settle = Callable[[Mapping[str, Any]], Config]


def shortened(key: AssetKey, config: Mapping[str, Any], around: Surroundings, required: Sequence[str] = ()) -> Config:
    """Return the part of `config`, in the order of the contract, that normalises to the whole; `required` always stays.

    A server may refuse a configuration that it returned itself (it fills in fields that exclude others): then its own
    values count. If no part normalises to the whole, the configuration is returned whole, without empty fields.
    """
    shape = shape_for(key)
    own = {} if key.consumer else dict.fromkeys(CREATED, False)  # a new stream would have another value
    whole = ordered(own | without_nulls(config), shape)
    bare = ordered(own | _without_empty(whole, shape), shape)

    def settle(part: Mapping[str, Any]) -> Config:
        return settled(key, part if key.consumer else new_stream(part), around)

    aim = _aim(key, whole, settle)
    part = _grown(bare, [name for name in required if name in bare], aim, settle)
    return _thinned(part, required, aim, settle) if part is not None else bare


def _aim(key: AssetKey, config: Config, settle: Settle) -> Config:
    """Return the whole configuration as a server keeps it."""
    try:
        return settle(config)
    except ConfigRefusedError:
        return kept(key, config)


def shape_for(key: AssetKey) -> Shape:
    """Return the shape of an asset's configuration."""
    return shape_of(ConsumerConfig if key.consumer else StreamConfig)


def ordered(config: Mapping[str, Any], shape: Shape) -> Config:
    """Return the same in the order of the contract, unknown fields last by name."""
    known = [name for name in shape.fields if name in config]
    unknown = sorted(name for name in config if name not in shape.fields)
    return {name: _ordered_value(config[name], shape, name) for name in (*known, *unknown)}


def _ordered_value(value: Any, shape: Shape, name: str) -> Any:
    known = shape.fields.get(name)
    if known is None:
        return value
    if known.shape.kind == "dict" and isinstance(value, Mapping):
        return {key: value[key] for key in sorted(value)}
    if known.shape.kind == "struct" and isinstance(value, Mapping):
        return ordered(value, known.shape)
    if known.shape.kind == "list" and known.shape.elements().kind == "struct" and isinstance(value, list):
        return [ordered(item, known.shape.elements()) for item in value]
    return value


def _without_empty(config: Mapping[str, Any], shape: Shape) -> Config:
    """Return the configuration without fields at the zero of their type, which mean nothing on the wire."""
    kept = {name: _bare_value(value, shape, name) for name, value in config.items()}
    return {name: value for name, value in kept.items() if value or name not in shape.fields}


def _bare_value(value: Any, shape: Shape, name: str) -> Any:
    known = shape.fields.get(name)
    if known is not None and known.shape.kind == "struct" and isinstance(value, Mapping):
        bare = _without_empty(value, known.shape)
        # An empty origin elsewhere is one, an empty object is none.
        return bare or (dict(value) if value and name != "consumer_limits" else {})
    if known is not None and known.shape.kind == "list" and known.shape.elements().kind == "struct":
        return [_without_empty(item, known.shape.elements()) for item in value]
    return value


def _grown(whole: Config, start: Sequence[str], aim: Config, settle: Settle) -> Config | None:
    """Return the fields that must be written, adding those that come out otherwise; None if that does not converge."""
    names = set(start)
    while True:
        part = {name: value for name, value in whole.items() if name in names}
        made = _made(part, settle)
        if made == aim:
            return part
        if made is None and (less := _thinned(part, start, aim, settle)) != part:
            return less  # one field was filled in because of others, and cannot be given beside them
        wrong = {name for name in whole if name not in names and (made is None or made.get(name) != aim.get(name))}
        if not wrong:
            return None
        names |= wrong


def _made(part: Config, settle: Settle) -> Config | None:
    """Return a part as a server would keep it; None if it refuses it."""
    try:
        return settle(part)
    except ConfigRefusedError:
        return None


def _thinned(part: Config, required: Sequence[str], aim: Config, settle: Settle) -> Config:
    """Return the same without fields that follow from the others."""
    for name in [name for name in part if name not in required]:
        less = {other: value for other, value in part.items() if other != name}
        if _made(less, settle) == aim:
            part = less
    return part
