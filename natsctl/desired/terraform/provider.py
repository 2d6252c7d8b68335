"""The attributes of the JetStream provider's resources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from natsctl.api.documents import did_you_mean
from natsctl.api.locations import Location
from natsctl.api.times import canonical_time, parse_time
from natsctl.api.units import SECOND
from natsctl.desired.assets import Fault
from natsctl.desired.terraform.expressions import ExpressionError, list_of, map_of, number_of, said
from natsctl.desired.terraform.expressions import text_value as text
from natsctl.desired.terraform.expressions import truth_of as flag

Read: TypeAlias = Callable[[Any], Any]


def number(value: Any) -> int:
    found = number_of(value)
    if isinstance(found, float):
        raise ExpressionError(f"expected a whole number, got {found}")
    return found


def seconds(value: Any) -> int:
    return number(value) * SECOND


def opposite(value: Any) -> bool:
    return not flag(value)


def percent(value: Any) -> str:
    """Return a number as the provider sends it, "100%"."""
    return f"{number(value)}%"


def texts(value: Any) -> list[str]:
    return [text(item) for item in list_of(value)]


def text_map(value: Any) -> dict[str, str]:
    return {key: text(item) for key, item in map_of(value).items()}


def moment(value: Any) -> str:
    if not value:
        return ""
    try:
        parse_time(text(value))
    except ValueError as error:
        raise ExpressionError(str(error)) from error
    return canonical_time(text(value))


@dataclass(frozen=True, slots=True)
class Field:
    """One attribute: its place in the configuration (`a.b` is `b` in `a`, "" for none) and its reader.

    `default` is in the provider's units.
    """

    path: str
    read: Read = text
    default: Any = None
    choices: tuple[str, ...] = ()
    required: bool = False


@dataclass(frozen=True, slots=True)
class Nested:
    """A block allowed in a resource, at most `most` times (0: any number)."""

    path: str
    schema: Schema
    most: int = 0


Schema: TypeAlias = "Mapping[str, Field | Nested]"

STORAGE: Final = ("file", "memory")


def _same(names: str, read: Read = text) -> dict[str, Field]:
    return {name: Field(name, read) for name in names.split()}


_TRANSFORM: Final[Schema] = {"source": Field("src", required=True), "destination": Field("dest", required=True)}
_ORIGIN: Final[Schema] = {
    "name": Field("name", required=True),
    "start_seq": Field("opt_start_seq", number),
    "start_time": Field("opt_start_time", moment),
    "filter_subject": Field("filter_subject"),
    "subject_transform": Nested("subject_transforms", _TRANSFORM),
    "external": Nested("external", {"api": Field("api"), "deliver": Field("deliver")}, most=1),
    "consumer": Nested(
        "consumer",
        {"name": Field("name", required=True), "deliver_subject": Field("deliver_subject", required=True)},
        most=1,
    ),
}

STREAM: Final[Schema] = {
    **_same(
        "discard_new_per_subject deny_delete deny_purge allow_rollup_hdrs mirror_direct allow_msg_ttl "
        "allow_msg_counter allow_atomic allow_msg_schedules allow_batched",
        flag,
    ),
    **_same("max_age subject_delete_marker_ttl", seconds),
    "name": Field("name", required=True),
    "discard": Field("discard", text, "old", ("old", "new")),
    "max_msgs": Field("max_msgs", number, -1),
    "max_msgs_per_subject": Field("max_msgs_per_subject", number, -1),
    "max_bytes": Field("max_bytes", number, -1),
    "duplicate_window": Field("duplicate_window", seconds, 120),
    "max_msg_size": Field("max_msg_size", number, -1),
    "storage": Field("storage", text, "file", STORAGE),
    "ack": Field("no_ack", opposite, True),
    "retention": Field("retention", text, "limits", ("limits", "interest", "workqueue")),
    "compression": Field("compression", text, "none", ("none", "s2")),
    "max_consumers": Field("max_consumers", number, -1),
    "replicas": Field("num_replicas", number, 1),
    "allow_direct": Field("allow_direct", flag, True),
    "placement_cluster": Field("placement.cluster"),
    "placement_tags": Field("placement.tags", texts),
    "placement_preferred": Field("placement.preferred"),
    "subject_transform": Nested("subject_transform", _TRANSFORM, most=1),
    "mirror": Nested("mirror", _ORIGIN, most=1),
    "source": Nested("sources", _ORIGIN),
    "republish_source": Field("republish.src"),
    "republish_destination": Field("republish.dest"),
    "republish_headers_only": Field("republish.headers_only", flag),
    "max_ack_pending": Field("consumer_limits.max_ack_pending", number),
    "inactive_threshold": Field("consumer_limits.inactive_threshold", seconds),
    "persist_mode": Field("persist_mode", text, "", ("", "default", "async")),
    "description": Field("description"),
    "metadata": Field("metadata", text_map),
    "subjects": Field("subjects", texts),
    "first_seq": Field("first_seq", number),
}

DELIVERIES: Final = {
    "deliver_all": "all",
    "deliver_last": "last",
    "deliver_new": "new",
    "deliver_last_per_subject": "last_per_subject",
    "stream_sequence": "by_start_sequence",
    "start_time": "by_start_time",
}
"""Attributes that exclude each other in a consumer, and the policy that each implies."""

CONSUMER: Final[Schema] = {
    **_same("description filter_subject"),
    **_same("filter_subjects priority_groups", texts),
    **_same("flow_control headers_only", flag),
    **_same("max_waiting max_batch max_bytes", number),
    **_same("max_expires inactive_threshold priority_timeout", seconds),
    "stream_id": Field("", required=True),
    "durable_name": Field("durable_name", required=True),
    "delivery_subject": Field("deliver_subject"),
    "stream_sequence": Field("opt_start_seq", number),
    "start_time": Field("opt_start_time", moment),
    "deliver_all": Field("", flag),
    "deliver_last_per_subject": Field("", flag),
    "deliver_last": Field("", flag),
    "deliver_new": Field("", flag),
    "delivery_group": Field("deliver_group"),
    "ack_policy": Field("ack_policy", text, "explicit", ("explicit", "all", "none", "flow_control")),
    "ack_wait": Field("ack_wait", seconds, 30),
    "max_delivery": Field("max_deliver", number, -1),
    "replay_policy": Field("replay_policy", text, "instant", ("instant", "original")),
    "sample_freq": Field("sample_freq", percent, 0),
    "ratelimit": Field("rate_limit_bps", number),
    "max_ack_pending": Field("max_ack_pending", number, 20000),
    "heartbeat": Field("idle_heartbeat", seconds),
    "replicas": Field("num_replicas", number),
    "memory": Field("mem_storage", flag),
    "priority_policy": Field("priority_policy", text, "none", ("none", "overflow", "pinned_client", "prioritized")),
    "metadata": Field("metadata", text_map),
    "backoff": Field("backoff", lambda value: [seconds(item) for item in list_of(value)]),
}

_BUCKET: Final[Schema] = {
    "name": Field("bucket", required=True),
    "description": Field("description"),
    "storage": Field("storage", text, "file", STORAGE),
    "ttl": Field("ttl", seconds),
    "max_bucket_size": Field("max_bucket_size", number, -1),
    "placement_cluster": Field("placement.cluster"),
    "placement_tags": Field("placement.tags", texts),
    "replicas": Field("replicas", number, 1),
}
KV_BUCKET: Final[Schema] = {
    **_BUCKET,
    "history": Field("history", number, 5),
    "max_value_size": Field("max_value_size", number, -1),
    "limit_marker_ttl": Field("limit_marker_ttl", seconds),
}
OBJ_BUCKET: Final[Schema] = {**_BUCKET, "compression": Field("compression", flag)}


@dataclass(slots=True)
class Body:
    """The evaluated content of the braces; `unread` are attributes with faults that were already reported."""

    place: Location
    values: dict[str, Any] = field(default_factory=dict)
    blocks: dict[str, list[Body]] = field(default_factory=dict)
    places: dict[str, Location] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)

    def place_of(self, name: str) -> Location:
        return self.places.get(name, self.place)._replace(path=f"{self.place.path}.{name}")

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute; null counts as not given."""
        value = self.values.get(name)
        return default if value is None else value


def filled(body: Body, schema: Schema, faults: list[Fault]) -> dict[str, Any]:
    """Return the configuration of a body; faults are added, and their attributes left out.

    Values without effect on the wire (zero, "", false, an empty list) are left out as well.
    """
    _report_unknown(body, schema, faults)
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


def _report_unknown(body: Body, schema: Schema, faults: list[Fault]) -> None:
    attributes = {name for name, one in schema.items() if isinstance(one, Field)}
    blocks = schema.keys() - attributes
    wrong = [("attribute", name, attributes) for name in body.values.keys() | body.unread if name not in attributes]
    wrong += [("block", name, blocks) for name in body.blocks if name not in blocks]
    faults += [Fault(body.place_of(name), _unknown(what, name, known, schema)) for what, name, known in wrong]


def _unknown(what: str, name: str, known: Iterable[str], schema: Mapping[str, Any]) -> str:
    if name in schema:
        return f"{name} is a block: write {name} {{ … }}" if what == "attribute" else f"{name} is no block: {name} = …"
    return f"unknown {what} {name}{did_you_mean(name, known)}"
