"""What an edit changes, field by field, as data and as lines to read (`max_age: 1y0d0h0m0s → 2y0d0h0m0s`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from natsctl.api.units import format_size
from natsctl.cli.render.values import duration, safe

DURATIONS = frozenset(
    (
        "max_age",
        "duplicate_window",
        "subject_delete_marker_ttl",
        "inactive_threshold",
        "ack_wait",
        "idle_heartbeat",
        "max_expires",
        "priority_timeout",
        "backoff",
    )
)
"""Fields whose numbers are nanoseconds."""

SIZES = frozenset(("max_bytes", "max_msg_size"))
"""Fields whose numbers are bytes."""

SERVER_OWNED = "_nats."
"""Prefix of metadata keys that the server writes; they are no part of what a person asked for."""


class Change(NamedTuple):
    """One field that differs; None stands for a field that is absent on that side."""

    path: str
    old: object
    new: object


def changes(old: Mapping[str, object], new: Mapping[str, object]) -> list[Change]:
    """Every field that differs between two configurations in wire spelling, nested ones by dotted path.

    A field that is absent and one that is at its zero value are the same, as they are on the wire.
    """
    return list(_changes("", old, new))


def _changes(prefix: str, old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[Change]:
    for key in [*old, *(key for key in new if key not in old)]:
        before, after = old.get(key), new.get(key)
        path = f"{prefix}{key}"
        if prefix == "metadata." and key.startswith(SERVER_OWNED):
            continue
        if isinstance(before or after, Mapping) and isinstance(after or before, Mapping):
            yield from _changes(f"{path}.", _mapping(before), _mapping(after))
        elif (before or None) != (after or None):
            yield Change(path, before, after)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def render_change(change: Change) -> str:
    """One line: `field: old → new`."""
    name = change.path.rpartition(".")[2]
    return f"{safe(change.path)}: {_value(name, change.old)} → {_value(name, change.new)}"


def _value(name: str, value: object) -> str:
    if value is None or value == "" or value == []:
        return "(none)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if name in DURATIONS:
            return "unlimited" if value <= 0 and name == "max_age" else duration(value)
        if value < 0:
            return "unlimited"
        return format_size(value) if name in SIZES else f"{value:,}"
    if isinstance(value, list):
        return ", ".join(_value(name, item) for item in value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{safe(str(key))}: {_value(str(key), item)}" for key, item in value.items()) + "}"
    return safe(str(value))
