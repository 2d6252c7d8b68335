"""Every field of a stream configuration, good and bad, alone and with others, on create and on update."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final

from tests.support.request_differential import Case, Request

SECOND: Final = 1_000_000_000

KNOWN: Final = {
    # Go tells an empty list from an absent one, and keeps this placement.
    "placement={'tags': []}": "an empty list in a placement is no placement here",
    "update placement={'tags': []}": "the same",
    # The reference shows the first sequence that it was told even where it is the one that it would begin with.
    "first_seq=1": "a stream without messages begins at 0 here",
    # The reference fills in `>`, after it has looked for cycles, and then feeds the stream with its own messages.
    "update republish={'dest': ''}": "nothing is published again here",
    "update republish={}": "the same",
}
"""Cases whose answers differ, with the reason."""

WRONG: Final[tuple[Any, ...]] = (None, "x", "", 0, 1, -1, 1.5, True, [], ["x"], [1], {}, {"x": 1}, [None], [[]])
"""Values most of which are of the wrong type, for every field."""

FIELDS: Final[dict[str, list[Any]]] = {
    "name": ["T", "a.b", "a b", "a*", "x" * 256],
    "description": ["x" * 4096, "x" * 4097, "é" * 2049, "<&>\u2028"],
    "subjects": [
        ["a", "b"], ["a", "a"], ["a.*", "*.b"], ["a..b"], [".a"], ["a."], ["a b"], [">"], ["*"], ["$JS.>"], ["$JSC.x"],
        ["$JS.EVENT.x"], ["$NRG.x"], ["$SYS.x"], ["$SYS.ACCOUNT.x"], ["$SYS.>"], ["a.>.b"], ["a*"], ["a>"],
        ["s.>", "s.a"], ["a", "b.*", "b.c"], ['a"b', 'a"b'],
    ],
    "retention": ["limits", "interest", "workqueue", "Limits"],
    "max_consumers": [-2, 5],
    "max_msgs": [-2, 5, 2**63 - 1, 2**63],
    "max_bytes": [-2, 1000],
    "max_age": [99_999_999, 100_000_000, SECOND],
    "max_msgs_per_subject": [-2, 5],
    "max_msg_size": [-2, 5, 2**31],
    "discard": ["new", "NEW", "Old"],
    "storage": ["file", "memory", "File"],
    "num_replicas": [2, 3, 5, 6],
    "no_ack": [False],
    "duplicate_window": [99_999_999, SECOND, 3600 * SECOND],
    "placement": [{"cluster": "x"}, {"tags": ["a"]}, {"preferred": "x"}, {"tags": []}, {"cluster": ""}],
    "mirror": [],
    "sources": [],
    "compression": ["none", "s2", "S2"],
    "first_seq": [100],
    "subject_transform": [
        {"src": src, "dest": dest}
        for src, dest in (
            ("s.>", "t.>"), ("", "t.>"), ("s.*", "t.$1"), ("s.*", "t.{{wildcard(2)}}"), ("s.*", "t.{{foo(2)}}"),
            ("s..a", "t"), ("s.>", "t"), ("s.a", "t.>"), ("s.a", ""), ("s.*", "t.*"), ("s.*", "t..a"), ("s a", "t"),
            ("s.*", "t.{{partition(a,1)}}"), ("s.*", "t.{{split(1)}}"), ("s.*", "t.{{split(1,-,3)}}"), ("s.*", "t a"),
            ("s.*", "t.{{wildcard()}}"), ("s.*", "t.{{ Wildcard ( 1 ) }}"), ("s.*.*", "{{wildcard(1)}}.>"), (">", ">"),
        )
    ],
    "republish": [
        {"dest": "r.>"}, {"src": "s.>", "dest": "r.>"}, {"src": "s.>", "dest": "s.x.>"}, {"src": "", "dest": "r.>"},
        {"src": "s.*", "dest": "r.$1"}, {"src": "s.*", "dest": "r.$2"}, {"src": "s.*", "dest": "r.>"}, {"dest": ""},
        {"src": "x.>", "dest": "r.>", "headers_only": True}, {"src": ">", "dest": ">"}, {"src": "s..x", "dest": "r"},
        {"dest": "r..x"},
    ],
    "allow_direct": [],
    "mirror_direct": [],
    "discard_new_per_subject": [],
    "sealed": [],
    "deny_delete": [],
    "deny_purge": [],
    "allow_rollup_hdrs": [],
    "consumer_limits": [
        {"inactive_threshold": SECOND}, {"max_ack_pending": 5}, {"inactive_threshold": -1}, {"max_ack_pending": -1},
    ],
    "allow_msg_ttl": [],
    "subject_delete_marker_ttl": [999_999_999, SECOND],
    "allow_msg_counter": [],
    "allow_atomic": [],
    "allow_msg_schedules": [],
    "persist_mode": ["default", "async", "Async"],
    "allow_batched": [],
    "metadata": [
        {"a": "x" * 131072}, {"a": "x" * 131056}, {"a": "x" * 131055}, {"b": 1}, {"z": "1", "a": "2", "_nats.x": "3"},
        {"_nats.req.level": "9", "_nats.ver": "x", "_nats.level": "7"},
    ],
    "pedantic": [],
}  # fmt: skip

TOGETHER: Final[tuple[dict[str, Any], ...]] = (
    {"discard": "new", "max_msgs_per_subject": 5, "discard_new_per_subject": True},
    {"discard": "new", "discard_new_per_subject": True},
    {"deny_purge": True, "allow_rollup_hdrs": True},
    *({"allow_msg_counter": True, **other} for other in (
        {"discard": "new"}, {"allow_msg_ttl": True}, {"allow_msg_schedules": True}, {"retention": "interest"},
        {"retention": "workqueue"}, {"subject_delete_marker_ttl": SECOND},
        {"allow_atomic": True, "allow_batched": True},
    )),
    *({"subject_delete_marker_ttl": SECOND, **other} for other in (
        {"deny_purge": True}, {"deny_purge": True, "pedantic": True}, {"allow_msg_ttl": True, "pedantic": True},
        {"allow_msg_ttl": True, "allow_rollup_hdrs": True, "pedantic": True}, {"allow_rollup_hdrs": True},
    )),
    *({"allow_msg_schedules": True, **other} for other in (
        {"discard": "new"}, {"pedantic": True}, {"deny_purge": True}, {"allow_rollup_hdrs": True, "pedantic": True},
    )),
    *({"persist_mode": "async", **other} for other in (
        {"storage": "memory"}, {"num_replicas": 3}, {"allow_atomic": True}, {"allow_batched": True},
    )),
    *({"max_age": SECOND, **other} for other in (
        {"duplicate_window": 2 * SECOND}, {"pedantic": True}, {"duplicate_window": SECOND, "pedantic": True},
    )),
    {"no_ack": True, "subjects": [">"], "num_replicas": 3},
    *({"pedantic": True, name: -2} for name in
      ("max_msgs", "max_bytes", "max_msg_size", "max_consumers", "max_msgs_per_subject")),
    *({"subject_transform": {"src": "s.>", "dest": "t.>"}, "republish": {"dest": ">"}, **other} for other in (
        {}, {"pedantic": True}, {"republish": {"src": ">", "dest": ">"}}, {"subjects": ["s.>", "q"]},
        {"republish": {"src": ">", "dest": ">"}, "pedantic": True},
        {"subject_transform": {"src": "s.>", "dest": "s.x.>"}},
    )),
    {"republish": {"dest": "r.>"}, "pedantic": True},
    {"sealed": True, "mirror_direct": True},
    {"num_replicas": 3, "subjects": ["a b"]},
    {"description": "x" * 5000, "name": "a.b"},
)  # fmt: skip

CHANGES: Final[tuple[dict[str, Any], ...]] = (
    {"storage": "memory"}, {"retention": "interest"}, {"retention": "workqueue"}, {"sealed": True},
    {"deny_delete": True}, {"deny_purge": True}, {"allow_msg_ttl": True}, {"allow_msg_counter": True},
    {"allow_msg_schedules": True}, {"persist_mode": "async"}, {"num_replicas": 3}, {"first_seq": 9},
    {"allow_atomic": True, "allow_batched": True}, {"subject_delete_marker_ttl": SECOND},
    {"discard": "new", "max_msgs_per_subject": 3, "discard_new_per_subject": True},
    {"metadata": {"a": "b"}}, {"max_age": SECOND},
)  # fmt: skip


def create(**config: Any) -> Request:
    return "STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], **config}


def update(**config: Any) -> Request:
    return "STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], **config}


def fields() -> Iterator[Case]:
    for name, values in FIELDS.items():
        for value in (*WRONG, *values):
            yield f"{name}={str(value)[:60]}", [create(**{name: value})]


def updated_fields() -> Iterator[Case]:
    """Each field with each value of its own, on update."""
    for name, values in FIELDS.items():
        for value in (True, {}, "", *values):
            yield f"update {name}={str(value)[:60]}", [create(), update(**{name: value}), ("STREAM.LIST", b"")]


def fields_together() -> Iterator[Case]:
    """Fields that depend on each other: on create, again, and on update."""
    for config in TOGETHER:
        made = create(**config)
        yield f"together {config}", [made, ("STREAM.INFO.S", b""), made, ("STREAM.LIST", b"")]
        yield f"update together {config}", [create(), update(**config), ("STREAM.INFO.S", b"")]


def changes() -> Iterator[Case]:
    for before in CHANGES:
        yield f"{before} taken back", [create(**before), update(), ("STREAM.INFO.S", b"")]
        yield f"{before} and taken back", [create(), update(**before), update(), ("STREAM.LIST", b"")]
        for after in CHANGES:
            yield f"{before} becomes {after}", [create(**before), update(**after)]
            yield f"{before} and {after}", [create(**before), update(**{**before, **after})]


def addressing() -> Iterator[Case]:
    """Names in subject and body, and bodies that say nothing."""
    for name in ("S", "a/b", "a\\b", "x" * 300, "x" * 255, "ü"):
        for verb, body in product(("CREATE", "UPDATE"), ({"name": name}, {"name": "T"}, {"name": ""})):
            yield f"{verb} {name} {body}", [(f"STREAM.{verb}.{name}", body)]
    for verb, raw in product(("CREATE", "UPDATE"), (b"", b"{}", b"[]", b"null", b"{", b'{"name":"S"} x')):
        yield f"{verb} {raw!r}", [(f"STREAM.{verb}.S", raw)]
    other: list[Request] = [("STREAM.CREATE.T", {"name": "T", "subjects": [s]}) for s in ("s.a", "t", "s.x")]
    yield "overlap", [create(), *other, ("STREAM.UPDATE.T", {"name": "T", "subjects": ["t", "s.x"]})]


def consumer_limits() -> Iterator[Case]:
    """Limits for consumers that are there, and consumers for limits that are there."""
    limits = (
        {"max_ack_pending": 5},
        {"inactive_threshold": SECOND},
        {"max_ack_pending": 5, "inactive_threshold": SECOND},
    )
    wishes: tuple[dict[str, Any], ...] = (
        {},
        {"max_ack_pending": 5},
        {"max_ack_pending": 6},
        {"max_ack_pending": -1},
        {"ack_policy": "none"},
    )
    for limit, wish in product(limits, (*wishes, {"inactive_threshold": SECOND}, {"inactive_threshold": 2 * SECOND})):
        body = {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit", **wish}}
        consumer, limited = ("CONSUMER.CREATE.S.C", body), update(consumer_limits=limit)
        yield f"{limit} then {wish}", [create(consumer_limits=limit), consumer]
        yield (
            f"{limit} then pedantic {wish}",
            [create(consumer_limits=limit), (consumer[0], {**body, "pedantic": True})],
        )
        yield f"{wish} then {limit}", [create(), consumer, limited, update(consumer_limits=limit, description="x")]


GROUPS: Final[tuple[Callable[[], Iterator[Case]], ...]] = (
    fields, updated_fields, fields_together, changes, addressing, consumer_limits,
)  # fmt: skip
