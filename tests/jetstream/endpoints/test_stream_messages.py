"""Getting, deleting and purging messages."""

from __future__ import annotations

import base64
import errno
from typing import Any

import msgspec
import pytest

from natsctl.testing.jet import Jet, ok
from natsctl.testing.simdisk import Fault


def fill(jet: Jet, **config: Any) -> None:
    """Make a stream with six messages on three subjects, one per second."""
    jet.stream(**config)
    for number in range(6):
        jet.publish(f"m{number + 1}", subject=f"s.{number % 3}")
        jet.advance(1)


def got(answer: Any) -> Any:
    """Return the sequence of a get's answer, or its err_code."""
    return answer["message"]["seq"] if "message" in answer else answer["error"]["err_code"]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"seq": 1}, 1),
        ({"seq": 7}, 10037),
        ({"seq": 0}, 10003),
        ({"last_by_subj": "s.1"}, 5),
        ({"last_by_subj": "s.*"}, 6),
        ({"last_by_subj": "none"}, 10037),
        ({"next_by_subj": "s.1"}, 2),
        ({"next_by_subj": "s.1", "seq": 3}, 5),
        ({"next_by_subj": "s.1", "seq": 6}, 10037),
        ({"next_by_subj": "s.1", "start_time": "2026-01-01T00:00:02Z"}, 5),
        ({"start_time": "2026-01-01T00:00:02Z"}, 3),
        ({"start_time": "2030-01-01T00:00:00Z"}, 10037),
        ({"seq": 1, "last_by_subj": "s.1"}, 10003),
        ({"seq": 1, "start_time": "2026-01-01T00:00:02Z"}, 10003),
        ({"seq": 1, "batch": 2}, 10003),
        ({"start_time": "yesterday"}, 10025),
    ],
)
def test_selectors_of_msg_get(jet: Jet, selector: dict[str, Any], expected: int) -> None:
    fill(jet)
    assert got(jet.api("STREAM.MSG.GET.S", selector)) == expected


def test_msg_get_shows_header_and_payload_in_base64(jet: Jet) -> None:
    jet.stream()
    jet.wire.publish("s.a", b"hello", "", b"NATS/1.0\r\nA: b\r\n\r\n")
    assert jet.api("STREAM.MSG.GET.S", {"seq": 1})["message"] == {
        "subject": "s.a",
        "seq": 1,
        "hdrs": base64.b64encode(b"NATS/1.0\r\nA: b\r\n\r\n").decode(),
        "data": base64.b64encode(b"hello").decode(),
        "time": "2026-01-01T00:00:00Z",
    }
    assert "hdrs" not in jet.api("STREAM.MSG.GET.S", {"seq": 1, "no_hdr": True})["message"]


def test_a_get_waits_for_what_was_published_before_it(jet: Jet) -> None:
    jet.stream(allow_direct=True)
    sid = jet.wire.subscribe("inbox")
    jet.machine.hold_commits = True
    jet.wire.publish("s.a", b"x")
    jet.wire.publish("$JS.API.STREAM.MSG.GET.S", b'{"seq":1}', "inbox")
    jet.wire.publish("$JS.API.DIRECT.GET.S", b'{"seq":1}', "inbox")
    jet.wire.publish("$JS.API.STREAM.INFO.S", b"", "inbox")
    assert jet.wire.take(sid) == []
    jet.machine.hold_commits = False
    jet.machine.settle()
    get, direct, info = jet.wire.take(sid)
    assert (got(get.json()), direct.payload, info.json()["state"]["messages"]) == (1, b"x", 1)


def asked(jet: Jet, *requests: tuple[str, object]) -> list[bytes]:
    """Send requests and return the subscriptions that their answers arrive on."""
    sids = []
    for number, (verb, body) in enumerate(requests):
        sids.append(jet.listen(f"answer.{number}"))
        jet.wire.publish(
            f"$JS.API.{verb}", body if isinstance(body, bytes) else msgspec.json.encode(body), f"answer.{number}"
        )
    return sids


def test_one_moment_makes_a_message_visible_everywhere(jet: Jet) -> None:
    jet.stream(allow_direct=True)
    jet.consumer()
    jet.machine.hold_commits = True
    jet.publish("x")
    last_of_each = {"name": "X", "deliver_policy": "last_per_subject", "filter_subject": "s.a"}
    sids = asked(
        jet,
        ("STREAM.INFO.S", {"subjects_filter": ">"}),
        ("STREAM.LIST", b""),
        ("CONSUMER.INFO.S.C", b""),
        ("CONSUMER.LIST.S", b""),
        ("CONSUMER.CREATE.S.X", {"stream_name": "S", "config": last_of_each}),
        ("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"deliver_policy": "new"}}),
        ("INFO", b""),
        ("STREAM.MSG.GET.S", {"last_by_subj": "s.a"}),
        ("DIRECT.GET.S.s.a", b""),
        ("CONSUMER.MSG.NEXT.S.C", {"no_wait": True}),
    )
    assert [jet.heard(sid) for sid in sids] == [[]] * len(sids)
    jet.machine.hold_commits = False
    jet.machine.settle()
    stream, streams, consumer, consumers, last, new, account, get, direct, pulled = (jet.heard(sid)[0] for sid in sids)
    assert stream.json()["state"]["subjects"] == {"s.a": 1}
    assert streams.json()["streams"][0]["state"]["messages"] == 1
    assert consumer.json()["num_pending"] == consumers.json()["consumers"][0]["num_pending"] == 1
    assert (last.json()["num_pending"], new.json()["num_pending"]) == (1, 0)
    assert account.json()["storage"] > 0
    assert (got(get.json()), direct.payload, pulled.payload) == (1, b"x", b"x")


def test_what_the_disk_could_not_take_is_counted_nowhere(jet: Jet) -> None:
    jet.stream()
    jet.consumer()
    jet.machine.hold_commits = True
    jet.publish("x")
    sids = asked(jet, ("STREAM.INFO.S", b""), ("CONSUMER.INFO.S.C", b""), ("CONSUMER.MSG.NEXT.S.C", {"no_wait": True}))
    full = Fault(error=errno.ENOSPC)
    disk = jet.machine.disk
    disk.plan = lambda call, path: full if call == "pwrite" and disk.exists("RESERVE") else None
    jet.machine.hold_commits = False
    jet.machine.settle()
    stream, consumer, pulled = (jet.heard(sid)[0] for sid in sids)
    assert (stream.json()["state"]["messages"], consumer.json()["num_pending"], pulled.status) == (
        0,
        0,
        b"404 No Messages",
    )


def test_an_answer_waits_for_no_message_that_comes_after_the_request(jet: Jet) -> None:
    """Somebody publishes while every commit is in flight, so that there is always one more to come."""
    jet.stream(max_msgs_per_subject=1, allow_direct=True)
    jet.publish("0")
    store = jet.machine.streams["S"].store
    jet.machine.hold_commits = True

    def commit_while_publishing(payload: str) -> None:
        commit = store.begin_commit()
        assert commit is not None
        jet.publish(payload)
        commit.run()
        store.finish_commit(commit)
        jet.machine.settle()

    jet.publish("1")
    sids = asked(
        jet,
        ("STREAM.INFO.S", b""),
        ("STREAM.LIST", b""),
        ("STREAM.MSG.GET.S", {"last_by_subj": "s.a"}),
        ("STREAM.MSG.GET.S", {"last_by_subj": "s.*"}),
        ("DIRECT.GET.S.s.a", b""),
    )
    commit_while_publishing("2")
    stream, streams, get, by_pattern, direct = (jet.heard(sid)[0] for sid in sids)
    assert (stream.json()["state"]["last_seq"], streams.json()["streams"][0]["state"]["last_seq"]) == (2, 2)
    assert (got(get.json()), got(by_pattern.json()), direct.payload) == (2, 2, b"1")


def test_deleting_leaves_a_gap(jet: Jet) -> None:
    fill(jet)
    assert jet.api("STREAM.MSG.DELETE.S", {"seq": 3}) == {
        "type": "io.nats.jetstream.api.v1.stream_msg_delete_response",
        "success": True,
    }
    ok(jet.api("STREAM.MSG.DELETE.S", {"seq": 1, "no_erase": True}))
    state = jet.api("STREAM.INFO.S", {"deleted_details": True})["state"]
    assert (state["first_seq"], state["num_deleted"], state["deleted"]) == (2, 1, [3])


def test_an_erased_message_leaves_the_disk(jet: Jet) -> None:
    jet.stream()
    jet.publish("secret-one", "secret-two")
    assert jet.machine.disk.holds(b"secret-one")
    ok(jet.api("STREAM.MSG.DELETE.S", {"seq": 1}))
    assert not jet.machine.disk.holds(b"secret-one")
    assert jet.machine.disk.holds(b"secret-two")


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        ({"seq": 3}, 10043, "sequence 3 not found"),
        ({"seq": 9}, 10057, "stream store EOF"),
        ({"seq": 0}, 10057, "no message found"),
        ({}, 10003, "bad request"),
        (b"", 10003, "bad request"),
    ],
)
def test_what_can_not_be_deleted(jet: Jet, body: Any, code: int, text: str) -> None:
    fill(jet)
    ok(jet.api("STREAM.MSG.DELETE.S", {"seq": 3}))
    error = jet.api("STREAM.MSG.DELETE.S", body)["error"]
    assert (error["err_code"], error["description"]) == (code, text)


@pytest.mark.parametrize(
    ("body", "purged", "left"),
    [
        (b"", 6, []),
        ({"seq": 1}, 0, [1, 2, 3, 4, 5, 6]),
        ({"seq": 4}, 3, [4, 5, 6]),
        ({"keep": 2}, 4, [5, 6]),
        ({"keep": 9}, 0, [1, 2, 3, 4, 5, 6]),
        ({"filter": "s.1"}, 2, [1, 3, 4, 6]),
        ({"filter": "s.1", "seq": 5}, 1, [1, 3, 4, 5, 6]),
        ({"filter": "s.1", "keep": 1}, 1, [1, 3, 4, 5, 6]),
        ({"filter": "none"}, 0, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_purge_variants(jet: Jet, body: Any, purged: int, left: list[int]) -> None:
    fill(jet)
    jet.consumer()
    assert ok(jet.api("STREAM.PURGE.S", body))["purged"] == purged
    assert [s for s in range(1, 7) if "message" in jet.api("STREAM.MSG.GET.S", {"seq": s})] == left
    assert jet.counts()["pending"] == len(left)


def test_purge_refuses_seq_with_keep(jet: Jet) -> None:
    fill(jet)
    answer = jet.api("STREAM.PURGE.S", {"seq": 2, "keep": 2})
    assert (answer["error"]["err_code"], answer["purged"]) == (10003, 0)


def test_a_full_purge_keeps_the_last_sequence(jet: Jet) -> None:
    fill(jet)
    ok(jet.api("STREAM.PURGE.S"))
    state = jet.api("STREAM.INFO.S")["state"]
    assert (state["first_seq"], state["last_seq"], state["first_ts"]) == (7, 6, "0001-01-01T00:00:00Z")
    assert state["last_ts"] == "2026-01-01T00:00:05Z"


def test_purging_beyond_the_end_moves_the_sequence_on(jet: Jet) -> None:
    fill(jet)
    assert ok(jet.api("STREAM.PURGE.S", {"seq": 500}))["purged"] == 6
    assert jet.wire.request("s.a", b"x")["seq"] == 500


def test_deny_flags_and_seal_refuse(jet: Jet) -> None:
    config = ok(jet.stream(deny_delete=True, deny_purge=True))["config"]
    jet.publish("1")
    refusals = [jet.api("STREAM.MSG.DELETE.S", {"seq": 1}), jet.api("STREAM.PURGE.S")]
    assert [answer["error"]["err_code"] for answer in refusals] == [10057, 10110]
    ok(jet.api("STREAM.UPDATE.S", {**config, "sealed": True}))
    refusals = [jet.api("STREAM.MSG.DELETE.S", {"seq": 1}), jet.api("STREAM.PURGE.S"), jet.wire.request("s.a", b"x")]
    assert [answer["error"]["err_code"] for answer in refusals] == [10109, 10109, 10109]
    assert got(jet.api("STREAM.MSG.GET.S", {"seq": 1})) == 1
    ok(jet.api("STREAM.DELETE.S"))


# Direct get


def test_direct_get_answers_with_the_message(jet: Jet) -> None:
    jet.stream(allow_direct=True)
    jet.wire.publish("s.a", b"", "", b"NATS/1.0\r\nA: b\r\n\r\n")
    assert jet.wire.request("$JS.API.DIRECT.GET.S.s.a").header == (
        b"NATS/1.0\r\nA: b\r\nNats-Stream: S\r\nNats-Subject: s.a\r\nNats-Sequence: 1\r\n"
        b"Nats-Time-Stamp: 2026-01-01T00:00:00Z\r\n\r\n"
    )


def direct(jet: Jet, body: bytes, tail: str = "") -> list[tuple[bytes, bytes]]:
    """Return status and payload of everything a direct get answers."""
    sid = jet.wire.subscribe("inbox")
    jet.wire.publish(f"$JS.API.DIRECT.GET.S{tail}", body, "inbox")
    answers = jet.wire.take(sid)
    jet.wire.unsubscribe(sid)
    return [(m.status, m.payload) for m in answers]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", b"408 Empty Request"),
        (b"{}", b"408 Empty Request"),
        (b"x", b"408 Malformed Request"),
        (b'{"seq":1,"last_by_subj":"s.1"}', b"408 Bad Request"),
        (b'{"seq":99}', b"404 Message Not Found"),
        (b'{"last_by_subj":"none"}', b"404 Message Not Found"),
        (b'{"multi_last":["none"]}', b"404 No Results"),
    ],
)
def test_statuses_of_direct_get(jet: Jet, body: bytes, status: bytes) -> None:
    fill(jet, allow_direct=True)
    assert direct(jet, body) == [(status, b"")]


@pytest.mark.parametrize(
    ("body", "payload"),
    [
        (b'{"seq":2}', b"m2"),
        (b'{"last_by_subj":"s.1"}', b"m5"),
        (b'{"next_by_subj":"s.1","seq":3}', b"m5"),
        (b'{"start_time":"2026-01-01T00:00:02Z"}', b"m3"),
        (b'{"seq":2,"no_hdr":true}', b"m2"),
    ],
)
def test_selectors_of_direct_get(jet: Jet, body: bytes, payload: bytes) -> None:
    fill(jet, allow_direct=True)
    assert direct(jet, body) == [(b"", payload)]


def test_the_subject_form_takes_only_no_hdr(jet: Jet) -> None:
    fill(jet, allow_direct=True)
    assert direct(jet, b"", ".s.2") == [(b"", b"m6")]
    assert direct(jet, b'{"no_hdr":true}', ".s.2") == [(b"", b"m6")]
    assert direct(jet, b'{"seq":1}', ".s.2") == [(b"408 Bad Request", b"")]
    assert direct(jet, b"", ".none") == [(b"404 Message Not Found", b"")]


def test_a_batch_ends_with_how_many_follow(jet: Jet) -> None:
    fill(jet, allow_direct=True)
    sid = jet.wire.subscribe("inbox")
    jet.wire.publish("$JS.API.DIRECT.GET.S", b'{"batch":2,"next_by_subj":"s.>","seq":2}', "inbox")
    first, second, end = jet.wire.take(sid)
    assert (first.payload, second.payload) == (b"m2", b"m3")
    assert second.header.endswith(b"Nats-Num-Pending: 3\r\nNats-Last-Sequence: 2\r\n\r\n")
    assert end.header == b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 3\r\nNats-Last-Sequence: 3\r\n\r\n"


def test_multi_last_gives_the_newest_of_each_subject(jet: Jet) -> None:
    fill(jet, allow_direct=True)
    assert [p for _, p in direct(jet, b'{"multi_last":["s.0","s.1"]}')] == [b"m4", b"m5", b""]
    assert [p for _, p in direct(jet, b'{"multi_last":["s.>"],"up_to_seq":4}')] == [b"m2", b"m3", b"m4", b""]


def test_multi_last_refuses_too_many_subjects(jet: Jet) -> None:
    jet.stream(allow_direct=True)
    jet.wire.send(b"".join(b"PUB s.%d 0\r\n\r\n" % number for number in range(1025)))
    assert direct(jet, b'{"multi_last":["s.>"]}') == [(b"413 Too Many Results", b"")]


def test_direct_get_needs_allow_direct(jet: Jet) -> None:
    config = ok(jet.stream())["config"]
    jet.publish("1")
    assert jet.wire.request("$JS.API.DIRECT.GET.S", b'{"seq":1}').status == b"503"
    ok(jet.api("STREAM.UPDATE.S", {**config, "allow_direct": True}))
    assert direct(jet, b'{"seq":1}') == [(b"", b"1")]
    ok(jet.api("STREAM.UPDATE.S", config))
    assert jet.wire.request("$JS.API.DIRECT.GET.S.s.a").status == b"503"
    assert jet.wire.request("$JS.API.DIRECT.GET.T.s.a").status == b"503"


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_names_with_nul_are_refused_as_nats_server_does(jet: Jet, storage: str) -> None:
    answer = jet.api("STREAM.CREATE.a\0b", {"name": "a\0b", "subjects": ["q"], "storage": storage})
    assert answer["error"]["err_code"] == 10049
    jet.stream(storage=storage)
    for verb, config in (("DURABLE.CREATE", {"durable_name": "a\0b"}), ("CREATE", {"name": "a\0b"})):
        request = {"stream_name": "S", "config": {"ack_policy": "explicit", **config}}
        assert jet.api(f"CONSUMER.{verb}.S.a\0b", request)["error"]["err_code"] == 10012
    assert jet.api("STREAM.NAMES")["streams"] == ["S"]
    assert jet.api("CONSUMER.NAMES.S")["consumers"] == []


@pytest.mark.parametrize("mark", ["\x01", "\x0b", "\x1c", "\x1f", "\x7f", "\x85", "\xa0", "\u2028"])
def test_other_control_characters_are_taken_as_nats_server_does(jet: Jet, mark: str) -> None:
    name = f"a{mark}b"
    assert ok(jet.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"q.{name}"]}))["config"]["name"] == name
    request = {"stream_name": name, "config": {"name": name, "filter_subject": f"q.{name}", "ack_policy": "explicit"}}
    assert ok(jet.api(f"CONSUMER.CREATE.{name}.{name}", request))["name"] == name
