"""Publishing into a stream: acks, refusals, duplicates, expectations, rollups."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.catalogue import ApiError
from natsctl.jetstream.engine_options import JetStreamOptions
from natsctl.jetstream.streams.pending_message import PendingMessage
from natsctl.jetstream.streams.publish_checks import (
    AFTER_DEDUPE,
    BEFORE_DEDUPE,
    COMMON,
    MAX_RECORD_BYTES,
    check_message,
)
from tests.support.jet import SECOND, Jet, ok
from tests.support.machine import Machine
from tests.support.stored_messages import header_block, put


def test_messages_published_during_a_commit_wait_for_the_next(jet: Jet) -> None:
    jet.stream()
    sid = jet.wire.subscribe("inbox")
    jet.machine.hold_commits = True
    jet.wire.publish("s.a", b"1", "inbox")
    stream = jet.machine.streams["S"]
    commit = stream.store.begin_commit()
    assert commit is not None
    jet.wire.publish("s.a", b"2", "inbox")
    assert jet.wire.take(sid) == []
    commit.run()
    stream.store.finish_commit(commit, None)
    jet.machine.settle()
    assert [m.json()["seq"] for m in jet.wire.take(sid)] == [1]
    jet.machine.release_commits()
    assert [m.json()["seq"] for m in jet.wire.take(sid)] == [2]


@pytest.mark.parametrize("header", ["Nats_Msg_Id", "Msg_Id"])
def test_a_duplicate_is_acked_with_its_first_sequence(jet: Jet, header: str) -> None:
    jet.stream()
    assert put(jet, "s.a", **{header: "1"}) == {"stream": "S", "seq": 1}
    put(jet, "s.a")
    assert put(jet, "s.a", **{header: "1"}) == {"stream": "S", "seq": 1, "duplicate": True}
    assert jet.api("STREAM.INFO.S")["state"]["last_seq"] == 2


def test_a_duplicate_of_a_message_in_flight_waits_for_its_commit(jet: Jet) -> None:
    jet.stream()
    sid = jet.wire.subscribe("inbox")
    jet.machine.hold_commits = True
    jet.wire.publish("s.a", b"x", "inbox", header_block(Nats_Msg_Id="1"))
    jet.wire.publish("s.a", b"x", "inbox", header_block(Nats_Msg_Id="1"))
    assert jet.wire.take(sid) == []
    jet.machine.release_commits()
    assert [m.payload for m in jet.wire.take(sid)] == [
        b'{"stream":"S","seq":1}',
        b'{"stream":"S","seq":1,"duplicate": true}',
    ]


def test_ids_are_forgotten_after_the_window(jet: Jet) -> None:
    jet.stream(duplicate_window=SECOND)
    put(jet, "s.a", Nats_Msg_Id="1")
    jet.advance(0.9)
    assert put(jet, "s.a", Nats_Msg_Id="1").get("duplicate")
    jet.advance(0.2)  # a duplicate does not refresh the id
    assert put(jet, "s.a", Nats_Msg_Id="1") == {"stream": "S", "seq": 2}


def test_ids_leave_memory_without_further_publishing(jet: Jet) -> None:
    jet.stream(duplicate_window=SECOND)
    for number in range(10):
        put(jet, "s.a", Nats_Msg_Id=str(number))
    dedupe = jet.machine.streams["S"].dedupe
    assert len(dedupe) == 10
    jet.advance(2.1)
    assert len(dedupe) == 0


def test_a_server_without_room_refuses_until_there_is_room_again() -> None:
    jet = Jet(Machine(options=JetStreamOptions(max_memory=1000)))
    jet.stream(storage="memory")
    jet.wire.publish("s.a", b"x" * 1000)
    assert put(jet, "s.a")["error"]["err_code"] == 10023
    ok(jet.api("STREAM.PURGE.S"))
    assert put(jet, "s.a")["seq"] == 2


def test_acks_of_one_commit_reach_every_publisher_in_order(jet: Jet) -> None:
    jet.stream()
    other = Jet(jet.machine)
    mine, theirs = jet.wire.subscribe("_INBOX.a.*"), other.wire.subscribe("_INBOX.b.*")
    group = other.wire.subscribe("_INBOX.c.*", "workers")
    jet.machine.hold_commits = True
    for number in range(6):
        jet.wire.publish("s.a", b"x", f"_INBOX.{'abc'[number % 3]}.{number}")
    jet.wire.publish("s.a", b"x", "nobody.listens")
    jet.machine.release_commits()
    assert [m.json()["seq"] for m in jet.wire.take(mine)] == [1, 4]
    assert [m.json()["seq"] for m in other.wire.take(theirs)] == [2, 5]
    assert [m.json()["seq"] for m in other.wire.take(group)] == [3, 6]


def test_a_subscription_with_a_maximum_gets_no_more_acks(jet: Jet) -> None:
    jet.stream()
    sid = jet.wire.subscribe("inbox")
    jet.wire.send(b"UNSUB %b 2\r\n" % sid)
    jet.machine.hold_commits = True
    for _ in range(3):
        jet.wire.publish("s.a", b"x", "inbox")
    jet.machine.release_commits()
    assert [m.json()["seq"] for m in jet.wire.take(sid)] == [1, 2]


def test_an_ack_can_be_stored_in_a_stream(jet: Jet) -> None:
    jet.stream()
    jet.stream("ACKS", "acks.>")
    jet.wire.publish("s.a", b"x", "acks.1")
    message = jet.api("STREAM.MSG.GET.ACKS", {"last_by_subj": "acks.1"})["message"]
    assert message["data"] == "eyJzdHJlYW0iOiJTIiwic2VxIjoxfQ=="


RUNS = (
    b"".join(b"PUB s.a in.%d 1\r\n%d\r\n" % (n, n) for n in range(6)),
    b"PUB s.a 1\r\nx\r\n" * 5 + b"PUB s.b in.1 1\r\ny\r\n" * 5,
    b"PUB s.a in.1 1\r\nx\r\n" * 4
    + b"HPUB s.a in.2 28 29\r\nNATS/1.0\r\nNats-Msg-Id: 7\r\n\r\nx\r\n" * 2
    + b"PING\r\n",
    b"PUB s.a in.1 40\r\n" + b"w" * 40 + b"\r\n" + b"PUB s.a in.2 1\r\nx\r\n" * 4,
    b"PUB nobody in.1 1\r\nx\r\n" * 5,
    b"PUB s.a _R_.1 1\r\nx\r\n" * 5 + b"PUB s.a in.1 1\r\nx\r\n" * 5,
)


@pytest.mark.parametrize(
    "config", [{}, {"max_msg_size": 30}, {"max_msgs": 3}, {"retention": "interest"}, {"no_ack": True}]
)
@pytest.mark.parametrize("chunk", RUNS)
def test_a_chunk_of_messages_is_answered_as_each_by_itself(chunk: bytes, config: dict[str, Any]) -> None:
    def play(pieces: list[bytes]) -> tuple[list[Any], list[Any], Any]:
        jet = Jet(Machine())
        jet.stream(**config)
        sid = jet.wire.subscribe("in.>")
        for piece in pieces:
            jet.wire.send(piece)
        state = jet.api("STREAM.INFO.S")["state"]
        return [(m.subject, m.payload) for m in jet.wire.take(sid)], jet.wire.errors, state

    ends = [at + 2 for at in range(len(chunk)) if chunk[at : at + 2] == b"\r\n"]
    lines = [chunk[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    assert play([chunk]) == play(lines)


def test_a_message_that_no_file_can_hold_is_refused_before_all_else(jet: Jet) -> None:
    jet.stream(max_msg_size=64, sealed=False)
    jet.stream("M", "m.>", storage="memory", max_msg_size=64)
    streams = jet.machine.streams
    message = PendingMessage(b"s.a", b"", b"", bytes(MAX_RECORD_BYTES))
    refused = check_message(streams["S"], message)
    assert isinstance(refused, ApiError) and refused.description == "message too large"
    in_memory = check_message(streams["M"], message)
    assert isinstance(in_memory, ApiError) and in_memory.err_code == 10054


VALUES = [b"0", b"1", b"2", b"x", b"s.a", b"s.*", b"id"]


@given(st.dictionaries(st.sampled_from(sorted(COMMON)), st.sampled_from(VALUES)))
def test_few_checks_judge_a_common_message_as_all_of_them(fields: dict[bytes, bytes]) -> None:
    jet = Jet()
    jet.stream(max_msg_size=200)
    jet.publish("1", "2")
    put(jet, "s.a", Nats_Msg_Id="id")
    stream = jet.machine.streams["S"]
    block = b"NATS/1.0\r\n" + b"".join(b"%b: %b\r\n" % pair for pair in fields.items()) + b"\r\n"
    few, everything = PendingMessage(b"s.a", b"", block, b""), PendingMessage(b"s.a", b"", block, b"")
    outcome = check_message(stream, few)
    expected: ApiError | int = 0
    for check in BEFORE_DEDUPE:
        expected = expected or check(stream, everything) or 0
    expected = expected or stream.dedupe.find(everything.msg_id)
    for check in AFTER_DEDUPE:
        expected = expected or check(stream, everything) or 0
    assert outcome == expected
    assert few.msg_id == everything.msg_id or isinstance(outcome, ApiError)
