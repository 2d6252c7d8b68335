"""Changes of an edit, and fields that a server did not accept, one by one: as data and as lines to read.

A change reads `max_age: 1y0d0h0m0s → 2y0d0h0m0s`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from natsctl.api.times import parse_time
from natsctl.api.units import format_size
from natsctl.api.versions import SERVER_METADATA
from natsctl.cli.render.text import duration, safe

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
"""Fields with numbers in nanoseconds."""

SIZES = frozenset(("max_bytes", "max_msg_size"))
"""Fields with numbers in bytes."""

LABELS = {
    "ack_policy": "Ack Policy",
    "ack_wait": "Ack Wait",
    "allow_atomic": "Allows Atomic Batch Publish",
    "allow_batched": "Allows Fast Batch Publish",
    "allow_direct": "Direct Get",
    "allow_msg_counter": "Allows Counters",
    "allow_msg_schedules": "Allows Schedules",
    "allow_msg_ttl": "Allows Per-Message TTL",
    "allow_rollup_hdrs": "Allows Rollups",
    "backoff": "Backoff",
    "compression": "Compression",
    "deliver_group": "Deliver Queue Group",
    "deliver_subject": "Delivery Subject",
    "description": "Description",
    "discard": "Discard Policy",
    "duplicate_window": "Duplicate Window",
    "filter_subject": "Filter Subject",
    "filter_subjects": "Filter Subjects",
    "first_seq": "First Sequence",
    "flow_control": "Flow Control",
    "headers_only": "Headers Only",
    "idle_heartbeat": "Idle Heartbeat",
    "inactive_threshold": "Inactive Threshold",
    "max_ack_pending": "Max Ack Pending",
    "max_age": "Maximum Age",
    "max_batch": "Max Pull Batch",
    "max_bytes": "Maximum Bytes",
    "max_consumers": "Maximum Consumers",
    "max_deliver": "Maximum Deliveries",
    "max_expires": "Max Pull Expire",
    "max_msg_size": "Maximum Message Size",
    "max_msgs": "Maximum Messages",
    "max_msgs_per_subject": "Maximum Per Subject",
    "max_waiting": "Max Waiting Pulls",
    "mem_storage": "Memory Storage",
    "mirror_direct": "Mirror Direct Get",
    "num_replicas": "Replicas",
    "priority_groups": "Priority Groups",
    "priority_policy": "Priority Policy",
    "priority_timeout": "Pinned TTL",
    "rate_limit_bps": "Rate Limit",
    "replay_policy": "Replay Policy",
    "retention": "Retention",
    "sample_freq": "Sampling Rate",
    "sealed": "Sealed",
    "storage": "Storage",
    "subject_delete_marker_ttl": "Subject Delete Markers TTL",
    "subjects": "Subjects",
}
PROSE = frozenset(("description",))
"""Fields with the user's text, quoted after a label."""


class FieldChange(NamedTuple):
    """One field that differs; None means that the field is absent on that side."""

    path: str
    old: object
    new: object


def changes(old: Mapping[str, object], new: Mapping[str, object]) -> list[FieldChange]:
    """Return every field that differs between two configurations in wire spelling, nested ones by dotted path.

    A field that is absent and one that is at its zero value are the same, as they are on the wire.
    """
    return list(_changes("", old, new))


def _changes(prefix: str, old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[FieldChange]:
    for key in [*old, *(key for key in new if key not in old)]:
        before, after = old.get(key), new.get(key)
        path = f"{prefix}{key}"
        if prefix == "metadata." and key.startswith(SERVER_METADATA):
            continue
        if isinstance(before or after, Mapping) and isinstance(after or before, Mapping):
            yield from _changes(f"{path}.", _mapping(before), _mapping(after))
        elif (before or None) != (after or None):
            yield FieldChange(path, before, after)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def not_taken(asked: Mapping[str, object], got: Mapping[str, object], *, emptied: bool = False) -> list[FieldChange]:
    """Return every requested field that the server's answer has with another value, `new`.

    Empty and zero values request the server's default, unless `emptied` is set: then they request none.
    """
    return list(_not_taken("", asked, got, emptied))


def _not_taken(
    prefix: str, asked: Mapping[str, object], got: Mapping[str, object], emptied: bool
) -> Iterator[FieldChange]:
    for key, wanted in asked.items():
        has = got.get(key)
        path = f"{prefix}{key}"
        if prefix == "metadata." and key.startswith(SERVER_METADATA):
            continue
        if isinstance(wanted, Mapping):
            yield from _not_taken(f"{path}.", wanted, _mapping(has), emptied)
        elif not wanted and wanted is not False and not emptied:
            continue
        elif isinstance(wanted, list) and isinstance(has, list) and len(wanted) == len(has):
            for index, (one, other) in enumerate(zip(wanted, has, strict=True)):
                yield from _not_taken(f"{path}.", {str(index): one}, {str(index): other}, emptied)
        elif not _same(wanted, has):
            yield FieldChange(path, wanted, has)


def _same(wanted: object, has: object) -> bool:
    """Return whether two values are equal: absent and zero, all forms of no limit, and of one time are."""
    if (wanted or None) == (has or None):
        return True
    if isinstance(wanted, str) and isinstance(has, str):
        try:
            return parse_time(wanted) == parse_time(has)
        except ValueError:
            return False
    return _unlimited(wanted) and _unlimited(has)


def _unlimited(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value <= 0)


def render_not_taken(found: Sequence[FieldChange]) -> str:
    """Return one line that warns of the fields that the server did not accept."""
    fields = (
        f"{safe(one.path)} {_value(one.path.rpartition('.')[2], one.old)}"
        f" (it has {_value(one.path.rpartition('.')[2], one.new)})"
        for one in found
    )
    return f"warning: the server did not take: {', '.join(fields)}"


def render_change(change: FieldChange) -> str:
    """Return one line: `field: old → new`."""
    name = change.path.rpartition(".")[2]
    old, new = (
        False if one is None and isinstance(other, bool) else one
        for one, other in ((change.old, change.new), (change.new, change.old))
    )
    return f"{safe(change.path)}: {_value(name, old)} → {_value(name, new)}"


def render_labelled(change: FieldChange) -> str:
    """Return one line: `Label (field): old → new`, without a label if the pages show none."""
    label = LABELS.get(change.path)
    if label is None:
        return render_change(change)
    if change.path in PROSE:
        return f'{label} ({change.path}): "{safe(str(change.old or ""))}" → "{safe(str(change.new or ""))}"'
    return f"{label} ({change.path}): {render_change(change).partition(': ')[2]}"


def render_field(name: str, value: object) -> str:
    return f"{safe(name)}: {_value(name, value)}"


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
