"""How two configurations differ, field by field: by what they mean, not by how it is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from natsctl.api.times import is_zero, parse_time
from natsctl.plan.change import Difference

SETS: Final = frozenset(("subjects", "filter_subjects", "tags"))
"""Lists whose order means nothing."""
TIMES: Final = frozenset(("opt_start_time", "pause_until"))
SAMPLED: Final = "sample_freq"
OPEN: Final = frozenset(("", "metadata", "consumer_limits"))
"""Objects that are compared field by field even if one side has none: an empty one means the same."""


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Return every field that differs: nested ones by dotted path, mirrors and sources by their stream.

    Absent fields and those at their zero value are the same, as on the wire.
    """
    return list(_objects("", old, new))


def _objects(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    for key in [*old, *(key for key in new if key not in old)]:
        yield from _values(f"{prefix}.{key}" if prefix else key, key, old.get(key), new.get(key))


def _values(path: str, key: str, old: Any, new: Any) -> Iterator[Difference]:
    if same(key, old, new):
        return
    if isinstance(old or {}, Mapping) and isinstance(new or {}, Mapping) and (path in OPEN or (old and new)):
        yield from _objects(path, old or {}, new or {})
    elif key == "sources" and _are_objects(old) and _are_objects(new):
        yield from _objects_by_name(path, old or [], new or [])
    else:
        yield Difference(path=path, old=old, new=new)


def _are_objects(value: Any) -> bool:
    """Return whether a value is a list of objects, or none; other values of newer servers are compared whole."""
    return not value or (isinstance(value, list) and all(isinstance(item, Mapping) for item in value))


def same(key: str, old: Any, new: Any) -> bool:
    """Return whether two values of a field mean the same."""
    if old == new or (not old and not new):
        return True
    if key in SETS and isinstance(old, list) and isinstance(new, list):
        return sorted(map(str, old)) == sorted(map(str, new))
    if key in TIMES:
        return moment(old) == moment(new)
    return key == SAMPLED and sampled(old) == sampled(new)


def sampled(text: Any) -> Any:
    """Return the percentage of acks that are sampled: `100` and `100%` are the same, and so are none and `0%`."""
    number = text.removesuffix("%") if isinstance(text, str) else text
    return int(number) if isinstance(number, str) and number.isdecimal() else number or 0


def moment(text: Any) -> int | str | None:
    """Return a time in ns since the epoch; a value that is no time unchanged, None for none."""
    if not isinstance(text, str) or is_zero(text):
        return None
    try:
        return parse_time(text)
    except ValueError:
        return text


def without_passed_pause(config: dict[str, Any], now_ns: int) -> dict[str, Any]:
    """Return the configuration without a pause that is over."""
    until = moment(config.get("pause_until"))
    if until is None or (isinstance(until, int) and until <= now_ns):
        return {name: value for name, value in config.items() if name != "pause_until"}
    return config


def _objects_by_name(path: str, old: list[Any], new: list[Any]) -> Iterator[Difference]:
    """Return the differences of lists of sources, which are matched by the stream they name."""
    before = _by_name([source for source in old if source not in new])
    after = _by_name([source for source in new if source not in old])
    for name in [*before, *(name for name in after if name not in before)]:
        yield from _values(f"{path}[{name}]", "", before.get(name), after.get(name))


def _by_name(sources: list[Any]) -> dict[str, Any]:
    """Return sources by name; several of one stream are told apart by their filters, then by their order."""
    named: dict[str, Any] = {}
    names = [str(source.get("name")) for source in sources]
    for name, source in zip(names, sources, strict=True):
        label = name
        if names.count(name) > 1:
            external = (source.get("external") or {}).get("api", "")
            label = ":".join(part for part in (name, external, source.get("filter_subject", "")) if part)
        number = 1
        while label in named:
            number += 1
            label = f"{label.partition('#')[0]}#{number}"
        named[label] = source
    return named
