"""Every field of a consumer configuration, good and bad, pull and push, on create and on update: equal answers."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final

from tests.support.request_differential import Case, Request

SECOND: Final = 1_000_000_000
TIME: Final = "2026-01-01T00:00:00Z"

WRONG: Final[tuple[Any, ...]] = (None, "x", "", 0, 1, -1, 1.5, True, [], ["x"], [1], {}, {"x": 1}, [None])
"""Values most of which are of the wrong type, for every field."""

FIELDS: Final[dict[str, list[Any]]] = {
    "durable_name": ["C", "D", "a.b", "x" * 256],
    "name": ["C", "D", "a.b", "x" * 256],
    "description": ["x" * 4096, "x" * 4097],
    "deliver_policy": [
        "all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject", "undefined", "All",
    ],
    "opt_start_seq": [5],
    "opt_start_time": [TIME, "0001-01-01T00:00:00Z"],
    "ack_policy": ["none", "all", "flow_control"],
    "ack_wait": [SECOND],
    "max_deliver": [-2, 5],
    "backoff": [[SECOND], [SECOND, 2 * SECOND], [-1], [0]],
    "filter_subject": ["s.a", "t.a", "s..a", ">"],
    "filter_subjects": [
        ["s.a"], ["s.a", "s.b"], ["s.a", "s.a"], ["s.a", "s.*"], ["s.*.b", "s.a.*"], ["s.a", ""], ["s..a"], [""],
    ],
    "replay_policy": ["original"],
    "rate_limit_bps": [1000],
    "sample_freq": ["30", "30%", "-1", "150", "%", "1.5", "+5", "99999999999999999999", " 5"],
    "max_waiting": [5, -5],
    "max_ack_pending": [5, -2],
    "flow_control": [],
    "headers_only": [],
    "max_batch": [5],
    "max_expires": [SECOND, 999_999],
    "max_bytes": [5],
    "deliver_subject": ["d", "d.*", "d..x", "s.x", "d x"],
    "deliver_group": ["g", "a b"],
    "idle_heartbeat": [SECOND, 99_999_999],
    "inactive_threshold": [SECOND],
    "num_replicas": [3],
    "mem_storage": [],
    "direct": [],
    "sourcing": [],
    "metadata": [{"a": "b"}, {"a": "x" * 131056}, {"a": "x" * 131057}, {"_nats.req.level": "9", "_nats.ver": "x"}],
    "pause_until": ["2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z", "0001-01-01T00:00:00Z"],
    "priority_groups": [["A"], [""]],
    "priority_policy": ["none", "overflow", "pinned_client", "prioritized"],
    "priority_timeout": [SECOND],
}  # fmt: skip

TOGETHER: Final[tuple[dict[str, Any], ...]] = (
    *({"deliver_policy": policy, "opt_start_seq": 5} for policy in
      ("all", "last", "new", "last_per_subject", "by_start_time", "by_start_sequence")),
    *({"deliver_policy": policy, "opt_start_time": "2026-01-01T00:00:00.50+01:00"} for policy in
      ("all", "last", "new", "last_per_subject", "by_start_time", "by_start_sequence")),
    {"deliver_policy": "by_start_sequence", "opt_start_seq": 5, "opt_start_time": TIME},
    {"deliver_policy": "by_start_time", "opt_start_seq": 5, "opt_start_time": TIME},
    {"deliver_policy": "last_per_subject", "filter_subject": "s.a"},
    {"deliver_policy": "last_per_subject", "filter_subjects": ["s.a", "s.b"]},
    {"filter_subject": "s.a", "filter_subjects": ["s.b"]},
    {"backoff": [SECOND, 2 * SECOND], "max_deliver": 1}, {"backoff": [SECOND, 2 * SECOND], "max_deliver": 2},
    {"backoff": [SECOND], "ack_wait": 5 * SECOND}, {"flow_control": True, "idle_heartbeat": SECOND},
    *({"priority_policy": policy, "priority_groups": groups} for policy, groups in (
        ("overflow", ["A"]), ("overflow", ["A", "B"]), ("pinned_client", ["A"]), ("prioritized", ["A"]),
        ("overflow", []), ("overflow", ["A", ""]), ("overflow", ["a b"]), ("none", ["A"]), ("overflow", ["x" * 16]),
        ("overflow", ["x" * 17]), ("overflow", ["A\n"]), ("overflow", ["A", "A"]), ("overflow", ["ü"]),
    )),
    {"priority_policy": "pinned_client", "priority_groups": ["A"], "priority_timeout": SECOND},
    {"priority_policy": "overflow", "priority_groups": ["A"], "priority_timeout": SECOND},
    {"priority_policy": "none", "priority_timeout": SECOND},
    *({"ack_policy": "flow_control", **other} for other in (
        {"max_ack_pending": -1}, {"ack_wait": SECOND}, {"backoff": [SECOND]}, {"max_deliver": 5},
        {"idle_heartbeat": 5 * SECOND}, {"flow_control": True, "idle_heartbeat": SECOND}, {"max_ack_pending": 5},
    )),
    *({"ack_policy": "none", **other} for other in
      ({"max_ack_pending": 5}, {"backoff": [SECOND]}, {"ack_wait": SECOND}, {"direct": True})),
    {"name": "D", "durable_name": "C"}, {"num_replicas": 3, "description": "x" * 5000},
)  # fmt: skip

KINDS: Final[dict[str, dict[str, Any]]] = {
    "pull": {"ack_policy": "explicit"},
    "push": {"ack_policy": "explicit", "deliver_subject": "d"},
    "durable": {"ack_policy": "explicit", "durable_name": "C"},
}


def stream(**config: Any) -> Request:
    return "STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "storage": "memory", **config}


def consumer(config: dict[str, Any], name: str = "C", **rest: Any) -> Request:
    return f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config, **rest}


def fields() -> Iterator[Case]:
    for (kind, base), (name, values) in product(KINDS.items(), FIELDS.items()):
        for value in (*(WRONG if kind == "pull" else ()), *values):
            config = {**base, name: value}
            yield f"{kind} {name}={str(value)[:60]}", [stream(), consumer(config), ("CONSUMER.LIST.S", b"")]
            yield f"pedantic {kind} {name}={str(value)[:60]}", [stream(), consumer(config, pedantic=True)]


def changes() -> Iterator[Case]:
    """Each field with each value of its own: put, taken back, and with each action."""
    for (kind, base), (name, values) in product(KINDS.items(), FIELDS.items()):
        for value in (True, *values):
            config = {**base, name: value}
            again: list[Request] = [consumer(config, action=action) for action in ("update", "create")]
            yield f"{kind} gets {name}={str(value)[:60]}", [stream(), consumer(base), consumer(config), *again]
            yield f"{kind} without {name}={str(value)[:60]}", [stream(), consumer(config), consumer(base)]


def fields_together() -> Iterator[Case]:
    """Fields that depend on each other: on create, again, on update, and by retention."""
    for (kind, base), other in product(KINDS.items(), TOGETHER):
        config = {**base, **other}
        made, listed = consumer(config), ("CONSUMER.LIST.S", b"")
        yield f"{kind} {other}", [stream(), made, listed, consumer(config, action="create")]
        yield f"pedantic {kind} {other}", [stream(), consumer(config, pedantic=True)]
        yield f"{kind} gets {other}", [stream(), consumer(base), made]
        for retention in ("workqueue", "interest"):
            yield f"{kind} {other} by {retention}", [stream(retention=retention), made]


def work_queues() -> Iterator[Case]:
    """Two consumers with filters that overlap or not, made and changed into each other's."""
    for first, second in product(("", "s.a", "s.*", "s.b", "s.>"), repeat=2):
        a: dict[str, Any] = {"ack_policy": "explicit", "filter_subject": first}
        b: dict[str, Any] = {"ack_policy": "explicit", "filter_subject": second}
        made = [consumer(a, "A"), consumer(b, "B"), consumer(b, "A"), consumer(a, "B")]
        yield f"{first} and {second}", [stream(retention="workqueue"), *made]
    for policy in ("none", "all", "explicit"):
        yield f"ack {policy}", [stream(retention="workqueue"), consumer({"ack_policy": policy})]


def limits() -> Iterator[Case]:
    """What the stream's limits for consumers make of them."""
    most: tuple[dict[str, Any], ...] = ({}, {"max_ack_pending": 5}, {"inactive_threshold": SECOND})
    wishes: tuple[dict[str, Any], ...] = (
        *KINDS.values(), {"ack_policy": "none"}, {"ack_policy": "none", "deliver_subject": "d"},
        {"ack_policy": "explicit", "max_ack_pending": 9}, {"ack_policy": "flow_control", "deliver_subject": "d"},
        {"ack_policy": "explicit", "inactive_threshold": 9 * SECOND},
    )  # fmt: skip
    for limit, wish in product(most, wishes):
        bound = stream(consumer_limits=limit)
        yield f"{limit} {wish}", [bound, consumer(wish), consumer(wish, action="create")]
        yield f"{limit} pedantic {wish}", [bound, consumer(wish, pedantic=True)]
    durable = {"ack_policy": "explicit", "durable_name": "C"}
    one: list[Request] = [consumer(durable), consumer({**durable, "durable_name": "D"}, "D"), consumer(durable)]
    yield "max_consumers", [stream(max_consumers=1), *one]


def forms() -> Iterator[Case]:
    """The three forms of CONSUMER.CREATE, DURABLE.CREATE, and what subject and body may say differently."""
    configs: tuple[dict[str, Any], ...] = (
        {}, {"name": "C"}, {"name": "D"}, {"durable_name": "C"}, {"durable_name": "D"}, {"name": "a/b"},
        {"durable_name": "C", "name": "D"}, {"filter_subject": "s.a"}, {"filter_subject": "s.b"},
        {"filter_subject": "s.>"}, {"filter_subjects": ["s.a"]}, {"filter_subjects": ["s.a", "s.b"]},
        {"durable_name": "x" * 256},
    )  # fmt: skip
    places = ("CREATE.S.C", "CREATE.S.C.s.a", "CREATE.S.C.s.>", "DURABLE.CREATE.S.C", "CREATE.S.a/b", "CREATE.S.ü")
    for place, config, name in product(places, configs, ("S", "T")):
        request = f"CONSUMER.{place}", {"stream_name": name, "config": config}
        yield f"{place} {config} of {name}", [stream(), request, request, ("CONSUMER.NAMES.S", b"")]
    for config in ({"name": "E"}, {"name": "a/b"}, {"name": "a.b"}, {"durable_name": "C"}):
        yield f"legacy {config}", [stream(), ("CONSUMER.CREATE.S", {"stream_name": "S", "config": config})]
    for place in ("S", "T", "S.C", "T.C", "S." + "x" * 255):
        for body in (b"", b"null", b"[]", b"{}", b'{"stream_name":5}', b'{"stream_name":"T"}', b'{"config":null}'):
            yield f"{place} {body!r}", [stream(), (f"CONSUMER.CREATE.{place}", body)]
    for key, value in product(("action", "pedantic", "config", "x"), (*WRONG, "update", "create")):
        odd = {"stream_name": "S", "config": {}, key: value}
        yield f"{key}={value}", [stream(), ("CONSUMER.CREATE.S.C", odd)]


GROUPS: Final[tuple[Callable[[], Iterator[Case]], ...]] = (
    fields, changes, fields_together, work_queues, limits, forms,
)  # fmt: skip
