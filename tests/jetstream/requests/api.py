"""Requests to every endpoint, to a server with a domain, and to accounts and servers with limits."""

import json
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import msgspec

from natsctl.api.account import UNLIMITED, AccountLimits
from natsctl.jetstream.engine_options import JetStreamOptions
from tests.support.request_differential import Exchange, RawRequest

LEVEL: Final = b"NATS/1.0\r\nNats-Required-Api-Level: %b\r\n\r\n"


def api(verb: str, body: Any = b"", header: bytes = b"") -> RawRequest:
    return RawRequest("$JS.API." + verb, body if isinstance(body, bytes) else json.dumps(body).encode(), header)


def stream(name: str = "S", **config: Any) -> RawRequest:
    return api(f"STREAM.CREATE.{name}", {"name": name, "subjects": ["s.>"], **config})


def publish(*subjects: str, header: bytes = b"", body: bytes = b"x") -> Iterator[RawRequest]:
    for subject in subjects:
        yield RawRequest(subject, body, header)


# Every verb


VERBS: Final = (
    "INFO", "STREAM.CREATE.S", "STREAM.UPDATE.S", "STREAM.NAMES", "STREAM.LIST", "STREAM.INFO.S", "STREAM.DELETE.S",
    "STREAM.PURGE.S", "STREAM.MSG.GET.S", "STREAM.MSG.DELETE.S", "STREAM.SNAPSHOT.S", "STREAM.RESTORE.S",
    "STREAM.LEADER.STEPDOWN.S", "STREAM.PEER.REMOVE.S", "STREAM.PEER.EVACUATE.S", "STREAM.CANCEL_MOVE.S",
    "CONSUMER.CREATE.S", "CONSUMER.CREATE.S.C", "CONSUMER.CREATE.S.C.s.a", "CONSUMER.DURABLE.CREATE.S.C",
    "CONSUMER.NAMES.S", "CONSUMER.LIST.S", "CONSUMER.INFO.S.C", "CONSUMER.DELETE.S.C", "CONSUMER.PAUSE.S.C",
    "CONSUMER.UNPIN.S.C", "CONSUMER.RESET.S.C", "CONSUMER.LEADER.STEPDOWN.S.C", "CONSUMER.PEER.REMOVE.S.C",
    "CONSUMER.PEER.EVACUATE.S.C", "CONSUMER.MSG.NEXT.S.C", "DIRECT.GET.S", "DIRECT.GET.S.s.a",
)  # fmt: skip

BODIES: Final = (b"", b"{}", b" { } ", b"null", b"5", b'"x"', b"[]", b"{", b'{"nope":1}', b"xyz", b'{"seq":"a"}')


def every_verb_without_anything_there() -> Iterator[RawRequest]:
    for verb, body in product(VERBS, BODIES):
        yield api(verb, body)
    yield api("INFO")


def every_verb_with_a_stream_there() -> Iterator[RawRequest]:
    changes = ("STREAM.DELETE.S", "STREAM.PURGE.S", "STREAM.SNAPSHOT.S", "CONSUMER.CREATE.S", "CONSUMER.MSG.NEXT.S.C")
    yield stream(allow_direct=True)
    yield from publish("s.a", "s.b")
    for verb, body in product(VERBS, BODIES):
        if verb not in changes:
            yield api(verb, body)
    yield api("INFO")


def levels_that_are_asked_for() -> Iterator[RawRequest]:
    yield stream(allow_direct=True)
    for verb, level in product(VERBS, (b"6", b"x", b"-1", b"5")):
        if level != b"5" or verb in ("INFO", "STREAM.NAMES", "STREAM.INFO.S", "CONSUMER.NAMES.S"):
            yield api(verb, b"", LEVEL % level)
    yield api("INFO")


def verbs_that_are_none() -> Iterator[RawRequest]:
    for verb in (
        "FOO", "STREAM", "STREAM.INFO", "STREAM.INFO.S.T", "STREAM.FOO.S", "CONSUMER.INFO.S", "CONSUMER.CREATE",
        "META.LEADER.STEPDOWN", "META.RESCUE", "SERVER.REMOVE", "SERVER.EVACUATE", "ACCOUNT.PURGE.X",
        "ACCOUNT.STREAM.MOVE.A.B", "ACCOUNT.FOO", "STREAM.MSG.GET", "STREAM.LEADER.STEPDOWN",
    ):  # fmt: skip
        yield api(verb)
    yield api("INFO")


# Streams


def lists_in_pages() -> Iterator[RawRequest]:
    yield api("STREAM.NAMES")
    yield api("STREAM.LIST")
    for number in range(12):
        yield stream(f"S{number:02}", subjects=[f"s.{number}", f"t.{number}.>"])
    for body in (
        {"offset": 5}, {"offset": 12}, {"offset": 99}, {"offset": -3}, {"subject": "s.3"}, {"subject": "t.*.x"},
        {"subject": ">"}, {"subject": "none"}, {"subject": "s.*", "offset": 10}, {"subject": ""}, {"subject": "a..b"},
    ):  # fmt: skip
        yield api("STREAM.NAMES", body)
        yield api("STREAM.LIST", body)
    yield api("STREAM.DELETE.S03")
    yield api("STREAM.NAMES")
    yield api("INFO")


def infos_with_details() -> Iterator[RawRequest]:
    yield stream()
    yield from publish(*(f"s.{number % 4}" for number in range(9)))
    for seq in (3, 4, 7):
        yield api("STREAM.MSG.DELETE.S", {"seq": seq})
    for body in (
        {}, {"deleted_details": True}, {"subjects_filter": ">"}, {"subjects_filter": "s.1"}, {"subjects_filter": "x"},
        {"subjects_filter": "s.*", "offset": 2}, {"subjects_filter": "s.*", "offset": 9}, {"offset": 4},
        {"subjects_filter": "s.*", "offset": -1}, {"subjects_filter": "s.*", "deleted_details": True},
    ):  # fmt: skip
        yield api("STREAM.INFO.S", body)


def purges() -> Iterator[RawRequest]:
    yield stream()
    wishes: tuple[Any, ...] = (
        {"seq": 1}, {"seq": 3}, {"seq": 5, "keep": 1}, {"keep": 4}, {"keep": 0}, {"filter": "s.1"},
        {"filter": "s.2", "seq": 40}, {"filter": "s.*", "keep": 3}, {"filter": "none"}, {"seq": 1000}, {}, b"",
        {"filter": "s.3", "keep": 99}, {"keep": 1},
    )  # fmt: skip
    for body in wishes:
        yield from publish(*(f"s.{number % 4}" for number in range(10)))
        yield api("STREAM.PURGE.S", body)
        yield api("STREAM.INFO.S", {"subjects_filter": ">", "deleted_details": True})
    for storage in ("file", "memory"):
        yield stream("N", subjects=["n"], storage=storage)
        for body in ({"filter": "n"}, b""):
            yield api("STREAM.PURGE.N", body)
            yield api("STREAM.INFO.N")
        yield api("STREAM.DELETE.N")
    yield stream("D", subjects=["d"], deny_purge=True, deny_delete=True)
    yield stream("E", subjects=["e"])
    yield from publish("d", "e")
    yield api("STREAM.UPDATE.E", {"name": "E", "subjects": ["e"], "sealed": True})
    for name in "DE":
        yield api(f"STREAM.PURGE.{name}")
        yield api(f"STREAM.PURGE.{name}", {"seq": 1, "keep": 1})
        yield api(f"STREAM.MSG.DELETE.{name}", {"seq": 1})
        yield api(f"STREAM.DELETE.{name}")
    yield api("INFO")


# Messages


HEADER: Final = b"NATS/1.0\r\nA: b\r\nNats-Msg-Id: %b\r\n\r\n"


def stored() -> Iterator[RawRequest]:
    yield stream(allow_direct=True)
    for number in range(9):
        header = HEADER % str(number).encode() if number % 3 == 0 else b""
        yield from publish(f"s.{number % 3}", header=header, body=b"%d" % number)
    yield api("STREAM.MSG.DELETE.S", {"seq": 4})
    yield api("STREAM.MSG.DELETE.S", {"seq": 7, "no_erase": True})


SELECTORS: Final[tuple[dict[str, Any], ...]] = (
    {}, {"seq": 0}, {"seq": 1}, {"seq": 4}, {"seq": 9}, {"seq": 10}, {"last_by_subj": "s.1"}, {"last_by_subj": "s.*"},
    {"last_by_subj": "none"}, {"next_by_subj": "s.2"}, {"next_by_subj": "s.2", "seq": 4},
    {"next_by_subj": "s.*", "seq": 7}, {"next_by_subj": "s.0", "seq": 99}, {"next_by_subj": "none"},
    {"start_time": "2020-01-01T00:00:00Z"}, {"start_time": "2099-01-01T00:00:00Z"},
    {"start_time": "2020-01-01T00:00:00Z", "next_by_subj": "s.1"}, {"seq": 2, "last_by_subj": "s.1"},
    {"seq": 2, "start_time": "2020-01-01T00:00:00Z"}, {"last_by_subj": "s.1", "next_by_subj": "s.1"},
    {"last_by_subj": "s.1", "start_time": "2020-01-01T00:00:00Z"}, {"multi_last": ["s.1"]},
    {"multi_last": ["s.*"]}, {"multi_last": ["s.1", "s.2", "s.1"]}, {"multi_last": ["none"]},
    {"multi_last": [">"], "seq": 9}, {"multi_last": [">"], "seq": 6}, {"multi_last": ["s.*"], "up_to_seq": 5},
    {"multi_last": ["s.*"], "up_to_seq": 99}, {"multi_last": ["s.*"], "up_to_seq": 1},
    {"multi_last": ["s.*"], "up_to_time": "2099-01-01T00:00:00Z"},
    {"multi_last": ["s.*"], "up_to_time": "2020-01-01T00:00:00Z"},
    {"multi_last": ["s.*"], "up_to_seq": 3, "up_to_time": "2099-01-01T00:00:00Z"},
    {"multi_last": ["s.*"], "next_by_subj": "s.1"}, {"multi_last": ["s.*"], "last_by_subj": "s.1"}, {"up_to_seq": 3},
    {"seq": 1, "multi_last": []},
)  # fmt: skip

AMOUNTS: Final[tuple[dict[str, Any], ...]] = (
    {}, {"no_hdr": True}, {"batch": 1}, {"batch": 3}, {"batch": 100}, {"batch": 100, "no_hdr": True}, {"batch": -1},
    {"batch": 2, "max_bytes": 1}, {"batch": 100, "max_bytes": 30}, {"max_bytes": 10}, {"batch": 3, "max_bytes": -1},
)  # fmt: skip


def single_gets() -> Iterator[RawRequest]:
    yield from stored()
    for selector, amount in product(SELECTORS, AMOUNTS[:5]):
        yield api("STREAM.MSG.GET.S", {**selector, **amount})
    yield api("STREAM.MSG.GET.X", {"seq": 1})
    yield api("STREAM.MSG.GET.X", {"seq": 1, "last_by_subj": "a"})
    yield api("INFO")


def direct_gets() -> Iterator[RawRequest]:
    yield from stored()
    for selector, amount in product(SELECTORS, AMOUNTS):
        yield api("DIRECT.GET.S", {**selector, **amount})
    for body in (b"", b"{}", b'{"no_hdr":true}', b'{"seq":1}', b"{", b"xx", b'{"batch":1}', b'{"max_bytes":5}'):
        for subject in ("s.0", "s.1", "none", "s.*"):
            yield api(f"DIRECT.GET.S.{subject}", body)
    for body in (b"null", b'{"seq":null,"last_by_subj":"s.1"}', b'{"seq":-1}', b'{"seq":1.5}', b"[1]", b'{"nope":1}'):
        yield api("DIRECT.GET.S", body)
    yield RawRequest("$JS.API.DIRECT.GET.S", b'{"seq":1}', reply=False)
    yield api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"]})
    yield api("DIRECT.GET.S", {"seq": 1})


def direct_gets_of_many_subjects() -> Iterator[RawRequest]:
    yield stream(allow_direct=True, storage="memory")
    yield from publish(*(f"s.{number}" for number in range(1025)))
    for body in ({"multi_last": ["s.>"]}, {"multi_last": ["s.1", "s.2"]}, {"multi_last": ["s.>"], "up_to_seq": 3}):
        yield api("DIRECT.GET.S", body)
    yield api("DIRECT.GET.S", {"seq": 1, "batch": 600})


def deletes() -> Iterator[RawRequest]:
    yield from stored()
    for body in (
        {"seq": 0}, {"seq": 1}, {"seq": 1}, {"seq": 4}, {"seq": 10}, {"seq": 99}, {"seq": 9, "no_erase": True},
        {"no_erase": True}, {"seq": 2, "x": 1}, {"seq": -1},
    ):  # fmt: skip
        yield api("STREAM.MSG.DELETE.S", body)
    yield api("STREAM.INFO.S", {"deleted_details": True})
    yield api("INFO")


# Consumers


def consumers_in_lists() -> Iterator[RawRequest]:
    yield stream()
    yield api("CONSUMER.NAMES.S")
    yield api("CONSUMER.LIST.S")
    for number in range(5):
        config = {"durable_name": f"C{number}", "ack_policy": "explicit", "filter_subject": f"s.{number}"}
        yield api(f"CONSUMER.DURABLE.CREATE.S.C{number}", {"stream_name": "S", "config": config})
    pages: tuple[Any, ...] = ({"offset": 3}, {"offset": 5}, {"offset": 50}, {"offset": -1}, b"5")
    for body in pages:
        yield api("CONSUMER.NAMES.S", body)
        yield api("CONSUMER.LIST.S", body)
    for body in ({"pause_until": "2099-01-01T00:00:00Z"}, {"pause_until": "2001-01-01T00:00:00Z"}, {}, {"x": 1}):
        yield api("CONSUMER.PAUSE.S.C1", body)
    yield api("CONSUMER.RESET.S.C1", {"seq": 5})
    yield api("CONSUMER.UNPIN.S.C1", {"group": "g"})
    yield api("CONSUMER.DELETE.S.C1")
    yield api("CONSUMER.DELETE.S.C1")
    yield api("CONSUMER.INFO.S.C1")
    yield api("CONSUMER.INFO.X.C1")
    yield api("INFO")


# A configured server


def a_domain() -> Iterator[RawRequest]:
    for prefix in ("$JS.HUB.API", "$JS.API", "$JS.OTHER.API"):
        yield RawRequest(f"{prefix}.INFO")
        for verb, body in (
            ("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_direct": True}),
            ("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "allow_direct": True, "max_msgs": 9}),
            ("STREAM.LIST", {}),
            ("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": {"durable_name": "C"}}),
            ("CONSUMER.CREATE.S.D.s.>", {"stream_name": "S", "config": {"name": "D", "filter_subject": "s.>"}}),
            ("CONSUMER.INFO.S.X", {}),
            ("STREAM.LEADER.STEPDOWN.S", {}),
            ("META.LEADER.STEPDOWN", {}),
            ("FOO", {}),
            ("STREAM", {}),
        ):
            yield RawRequest(f"{prefix}.{verb}", json.dumps(body).encode() if body else b"")
        yield from publish("s.a")
        for verb in ("DIRECT.GET.S.s.a", "DIRECT.GET.S", "DIRECT.GET.X", "CONSUMER.MSG.NEXT.S.X", "STREAM.INFO.S"):
            yield RawRequest(f"{prefix}.{verb}")
        yield RawRequest(f"{prefix}.STREAM.DELETE.S")
    yield api("STREAM.CREATE.K", {"name": "K", "subjects": ["$KV.b.>"]})
    yield api("STREAM.CREATE.O", {"name": "O", "subjects": ["$OBJ.b.>"]})
    for subject in ("$JS.HUB.API.$KV.b.k", "$JS.HUB.API.$OBJ.b.k", "$JS.HUB.API.$KV.c.k", "$KV.b.x"):
        yield from publish(subject)
    yield api("STREAM.INFO.K", {"subjects_filter": ">"})


LIMITS: Final = """
accounts { A {
  jetstream { %s }
  users: [{ user: a, password: a }]
} }
no_auth_user: a
jetstream { max_mem: %d, max_file: %d }
"""


def limited(server: tuple[int, int] = (1 << 30, 1 << 30), **limits: Any) -> Exchange:
    spelled = {name.replace("storage_max_stream", "disk_max_stream"): value for name, value in limits.items()}
    spelled = {{"max_storage": "max_file"}.get(name, name): value for name, value in spelled.items()}
    lines = ", ".join(f"{name}: {json.dumps(value)}" for name, value in spelled.items())
    account: AccountLimits = msgspec.structs.replace(UNLIMITED, **limits)
    options = JetStreamOptions(accounts={"$G": account}, max_memory=server[0], max_storage=server[1])
    return Exchange(lambda: up_to_the_limits(again=server[0] > 1 << 20), options, LIMITS % (lines, *server))


def up_to_the_limits(again: bool) -> Iterator[RawRequest]:
    """Yield requests that meet every limit; `again`: also make streams that are there.

    The reference refuses that where the server has no room for what the stream has reserved already; we do not.
    """
    yield api("INFO")
    for storage, size in product(("file", "memory"), (-1, 500, 1000, 1500, 3000, 5000)):
        name = f"{storage[0].upper()}{size}".replace("-", "m")
        config = {"name": name, "subjects": [f"{name}.>"], "storage": storage, "max_bytes": size}
        yield api(f"STREAM.CREATE.{name}", config)
        if again:
            yield api(f"STREAM.CREATE.{name}", config)
        yield from publish(f"{name}.a", body=bytes(200))
        yield from publish(f"{name}.a", body=bytes(700))
        yield from publish(f"{name}.a", body=bytes(900))
        yield api(f"STREAM.UPDATE.{name}", {**config, "max_bytes": 2500})
        yield api(f"STREAM.UPDATE.{name}", {**config, "max_bytes": 100})
        for consumer, pending in (("A", 0), ("B", 20), ("C", 60)):
            wish = {"durable_name": consumer, "ack_policy": "explicit", "max_ack_pending": pending}
            yield api(f"CONSUMER.DURABLE.CREATE.{name}.{consumer}", {"stream_name": name, "config": wish})
        yield api("INFO")
    yield api("STREAM.CREATE.MC", {"name": "MC", "max_consumers": 5, "max_bytes": 10})
    yield api("STREAM.CREATE.BAD", {"name": "BAD", "max_age": -1, "max_bytes": 10**9})
    yield api("STREAM.PURGE.F500")
    yield api("STREAM.DELETE.Fm1")
    yield api("STREAM.DELETE.Mm1")
    yield api("STREAM.CREATE.N", {"name": "N", "subjects": ["n"], "max_bytes": 300})
    yield from publish("n", body=bytes(100))
    yield api("INFO")


# Who is told


def what_is_audited() -> Iterator[RawRequest]:
    yield from stored()
    config = {"durable_name": "C", "ack_policy": "explicit"}
    yield api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})
    for verb, body in (
        ("INFO", b""), ("STREAM.NAMES", b""), ("STREAM.LIST", b"{}"), ("STREAM.INFO.S", b""), ("STREAM.INFO.X", b""),
        ("STREAM.MSG.GET.S", b'{"seq":1}'), ("STREAM.MSG.GET.S", b'{"seq":99}'), ("STREAM.MSG.GET.S", b""),
        ("STREAM.MSG.DELETE.S", b'{"seq":1}'), ("STREAM.MSG.DELETE.S", b'{"seq":1}'), ("DIRECT.GET.S", b'{"seq":2}'),
        ("DIRECT.GET.S.s.1", b""), ("CONSUMER.NAMES.S", b""), ("CONSUMER.LIST.S", b""), ("CONSUMER.INFO.S.C", b""),
        ("CONSUMER.INFO.S.X", b""), ("CONSUMER.MSG.NEXT.S.C", b'{"no_wait":true}'),
        ("CONSUMER.PAUSE.S.C", b'{"pause_until":"2099-01-01T00:00:00Z"}'), ("CONSUMER.PAUSE.S.C", b""),
        ("CONSUMER.RESET.S.C", b""), ("CONSUMER.UNPIN.S.C", b'{"group":"g"}'), ("STREAM.PURGE.S", b""),
        ("STREAM.UPDATE.S", b'{"name":"S","subjects":["s.>"],"max_msgs":7}'), ("STREAM.UPDATE.S", b"{"),
        ("STREAM.LEADER.STEPDOWN.S", b""), ("META.LEADER.STEPDOWN", b""), ("FOO", b""),
        ("STREAM.SNAPSHOT.X", b'{"deliver_subject":"d"}'), ("STREAM.RESTORE.S", b'{"config":{"name":"S"}}'),
        ("CONSUMER.CREATE.S", b'{"stream_name":"S","config":{"durable_name":"D"}}'),
        ("CONSUMER.DELETE.S.C", b""), ("STREAM.DELETE.S", b""), ("STREAM.DELETE.S", b"x"),
    ):  # fmt: skip
        yield api(verb, body)
    yield RawRequest("$JS.API.STREAM.CREATE.Q", b'{"name":"Q"}', reply=False)
    yield api("INFO")


# Requests in files: one line each, with subject, body and header block


def stored_requests(path: Path) -> Iterator[RawRequest]:
    """Yield the requests of a file, which build on each other."""
    for line in path.read_text().splitlines():
        subject, body, header = json.loads(line)
        yield RawRequest(subject, body.encode("latin-1"), header.encode("latin-1"))


EXCHANGES: Final[dict[str, Exchange]] = {
    **{
        requests.__name__: Exchange(requests)
        for requests in (
            every_verb_without_anything_there, every_verb_with_a_stream_there, levels_that_are_asked_for,
            verbs_that_are_none, lists_in_pages, infos_with_details, purges, single_gets, direct_gets,
            direct_gets_of_many_subjects, deletes, consumers_in_lists,
        )
    },
    "a_domain": Exchange(
        a_domain, JetStreamOptions(domain="HUB"), "jetstream { domain: HUB }", ["$JS.EVENT.ADVISORY.>"]
    ),
    "limits of the server": limited((2000, 4000)),
    **{
        f"limits of an account: {', '.join(limits) or 'none'}": limited(**limits)
        for limits in (
            {},
            {"max_streams": 3},
            {"max_consumers": 2, "max_ack_pending": 50},
            {"max_memory": 2000, "max_storage": 4000},
            {"memory_max_stream_bytes": 1000, "storage_max_stream_bytes": 1500},
            {"max_bytes_required": True},
            {"max_memory": 0, "max_storage": 0},
            {"max_storage": 4000, "max_streams": 4, "max_bytes_required": True, "storage_max_stream_bytes": 3000},
        )
    },
    "what_is_audited": Exchange(what_is_audited, listens=["$JS.EVENT.>"]),
    **{
        path.name: Exchange(partial(stored_requests, path)) for path in sorted(Path(__file__).parent.glob("*.jsonl"))
    },
}  # fmt: skip
