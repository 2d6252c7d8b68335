"""Publishing into a stream: acks, refusals, duplicates, expectations, rollups."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.catalogue import ApiError
from natsctl.jetstream.engine_context import JetStreamOptions
from natsctl.jetstream.streams.pending_message import PendingMessage
from natsctl.jetstream.streams.publish_checks import (
    AFTER_DEDUPE,
    BEFORE_DEDUPE,
    COMMON,
    MAX_RECORD_BYTES,
    check_message,
)
from natsctl.testing.jet import SECOND, Jet, ok
from natsctl.testing.machine import Machine


def block(**values: str) -> bytes:
    """Return a header block; `_` in a key stands for `-`."""
    lines = "".join(f"{key.replace('_', '-')}: {value}\r\n" for key, value in values.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def publish(jet: Jet, payload: bytes = b"x", subject: str = "s.a", **values: str) -> Any:
    """Publish with headers and return the ack."""
    return jet.wire.request(subject, payload, block(**values) if values else b"")


def refusal(ack: Any) -> tuple[int, str]:
    """Return err_code and text of an ack that refuses."""
    return ack["error"]["err_code"], ack["error"]["description"]


def test_an_ack_has_the_reference_bytes(jet: Jet) -> None:
    jet.stream()
    sid = jet.wire.subscribe("inbox")
    jet.wire.publish("s.a", b"x", "inbox")
    assert [m.payload for m in jet.wire.take(sid)] == [b'{"stream":"S","seq":1}']


def test_no_ack_leaves_before_the_commit_ends(jet: Jet) -> None:
    jet.stream()
    sid = jet.wire.subscribe("inbox")
    jet.machine.hold_commits = True
    jet.wire.publish("s.a", b"x", "inbox")
    assert jet.wire.take(sid) == []
    jet.machine.hold_commits = False
    jet.machine.settle()
    assert len(jet.wire.take(sid)) == 1


def test_messages_published_during_a_commit_wait_for_the_next(jet: Jet) -> None:
    jet.stream()
    sid = jet.wire.subscribe("inbox")
    jet.machine.hold_commits = True
    jet.wire.publish("s.a", b"1", "inbox")
    stream = jet.machine.streams["S"]
    commit = stream.store.begin_commit()
    assert commit is not None
    jet.wire.publish("s.a", b"2", "inbox")
    commit.run()
    stream.store.finish_commit(commit, None)
    jet.machine.settle()
    assert [m.json()["seq"] for m in jet.wire.take(sid)] == [1]
    jet.machine.hold_commits = False
    jet.machine.settle()
    assert [m.json()["seq"] for m in jet.wire.take(sid)] == [2]


def test_a_subject_without_stream_has_no_responders(jet: Jet) -> None:
    jet.stream()
    assert jet.wire.request("other").status == b"503"


def test_subscribers_see_captured_messages_too(jet: Jet) -> None:
    jet.stream()
    sid = jet.listen("s.*")
    jet.publish("hello")
    assert [m.payload for m in jet.heard(sid)] == [b"hello"]


def test_no_ack_streams_never_answer(jet: Jet) -> None:
    jet.stream(no_ack=True)
    sid = jet.wire.subscribe("inbox")
    jet.wire.publish("s.a", b"x", "inbox")
    jet.wire.publish("s.a", b"x", "inbox", block(Nats_Expected_Last_Sequence="9"))
    assert jet.wire.take(sid) == []
    assert jet.api("STREAM.INFO.S")["state"]["messages"] == 1


@pytest.mark.parametrize("header", ["Nats_Msg_Id", "Msg_Id"])
def test_a_duplicate_is_acked_with_its_first_sequence(jet: Jet, header: str) -> None:
    jet.stream()
    assert publish(jet, **{header: "1"}) == {"stream": "S", "seq": 1}
    publish(jet)
    assert publish(jet, **{header: "1"}) == {"stream": "S", "seq": 1, "duplicate": True}
    assert jet.api("STREAM.INFO.S")["state"]["last_seq"] == 2


def test_a_duplicate_of_a_message_in_flight_waits_for_its_commit(jet: Jet) -> None:
    jet.stream()
    sid = jet.wire.subscribe("inbox")
    jet.machine.hold_commits = True
    jet.wire.publish("s.a", b"x", "inbox", block(Nats_Msg_Id="1"))
    jet.wire.publish("s.a", b"x", "inbox", block(Nats_Msg_Id="1"))
    assert jet.wire.take(sid) == []
    jet.machine.hold_commits = False
    jet.machine.settle()
    assert [m.payload for m in jet.wire.take(sid)] == [
        b'{"stream":"S","seq":1}',
        b'{"stream":"S","seq":1,"duplicate": true}',
    ]


def test_ids_are_forgotten_after_the_window(jet: Jet) -> None:
    jet.stream(duplicate_window=SECOND)
    publish(jet, Nats_Msg_Id="1")
    jet.advance(0.9)
    assert publish(jet, Nats_Msg_Id="1").get("duplicate")
    jet.advance(0.2)  # a duplicate does not refresh the id
    assert publish(jet, Nats_Msg_Id="1") == {"stream": "S", "seq": 2}


def test_ids_leave_memory_without_further_publishing(jet: Jet) -> None:
    jet.stream(duplicate_window=SECOND)
    for number in range(10):
        publish(jet, Nats_Msg_Id=str(number))
    dedupe = jet.machine.streams["S"].dedupe
    assert len(dedupe) == 10
    jet.advance(2.1)
    assert len(dedupe) == 0


def test_an_id_outlives_deletion_and_purge(jet: Jet) -> None:
    jet.stream()
    publish(jet, Nats_Msg_Id="1")
    publish(jet, Nats_Msg_Id="2")
    ok(jet.api("STREAM.MSG.DELETE.S", {"seq": 1}))
    ok(jet.api("STREAM.PURGE.S"))
    assert publish(jet, Nats_Msg_Id="1") == {"stream": "S", "seq": 1, "duplicate": True}
    assert publish(jet, Nats_Msg_Id="2") == {"stream": "S", "seq": 2, "duplicate": True}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"Nats_Expected_Stream": "T"}, (10060, "expected stream does not match")),
        ({"Nats_Expected_Last_Sequence": "1"}, (10071, "wrong last sequence: 2")),
        ({"Nats_Expected_Last_Sequence": "two"}, (10071, "wrong last sequence: 2")),
        ({"Nats_Expected_Last_Sequence": "0"}, (10071, "wrong last sequence: 2")),
        ({"Nats_Expected_Last_Subject_Sequence": "2"}, (10071, "wrong last sequence: 1")),
        ({"Nats_Expected_Last_Subject_Sequence": "0"}, (10071, "wrong last sequence: 1")),
        (
            {"Nats_Expected_Last_Subject_Sequence": "1", "Nats_Expected_Last_Subject_Sequence_Subject": "s.>"},
            (10071, "wrong last sequence: 2"),
        ),
        (
            {"Nats_Expected_Last_Subject_Sequence_Subject": "s.>"},
            (10193, "missing sequence for expected last sequence per subject"),
        ),
        ({"Nats_Expected_Last_Msg_Id": "other"}, (10070, "wrong last msg ID: two")),
        ({"Nats_Rollup": "sub"}, (10111, "rollup not permitted")),
        ({"Nats_TTL": "1s"}, (10166, "per-message TTL is disabled")),
        ({"Nats_Stream_Source": "T 1"}, (10227, "message stream source header is not allowed")),
    ],
)
def test_what_headers_expect_is_checked(jet: Jet, values: dict[str, str], expected: tuple[int, str]) -> None:
    jet.stream()
    publish(jet, subject="s.a", Nats_Msg_Id="one")
    publish(jet, subject="s.b", Nats_Msg_Id="two")
    ack = publish(jet, subject="s.a", **values)
    assert refusal(ack) == expected
    assert (ack["stream"], ack["seq"]) == ("S", 0)
    assert jet.api("STREAM.INFO.S")["state"]["last_seq"] == 2


@pytest.mark.parametrize(
    "values",
    [
        {"Nats_Expected_Stream": "S"},
        {"Nats_Expected_Last_Sequence": "2"},
        {"Nats_Expected_Last_Subject_Sequence": "1"},
        {"Nats_Expected_Last_Subject_Sequence": "2", "Nats_Expected_Last_Subject_Sequence_Subject": "s.>"},
        {"Nats_Expected_Last_Msg_Id": "two"},
        {"Nats_Expected_Last_Msg_Id": ""},
    ],
)
def test_met_expectations_let_a_message_in(jet: Jet, values: dict[str, str]) -> None:
    jet.stream()
    publish(jet, subject="s.a", Nats_Msg_Id="one")
    publish(jet, subject="s.b", Nats_Msg_Id="two")
    assert publish(jet, subject="s.a", **values) == {"stream": "S", "seq": 3}


def test_a_message_without_id_resets_the_last_id(jet: Jet) -> None:
    jet.stream()
    publish(jet, Nats_Msg_Id="one")
    publish(jet)
    assert refusal(publish(jet, Nats_Expected_Last_Msg_Id="one")) == (10070, "wrong last msg ID: ")


def test_a_failed_expectation_wins_over_a_duplicate(jet: Jet) -> None:
    jet.stream()
    publish(jet, Nats_Msg_Id="one")
    assert refusal(publish(jet, Nats_Msg_Id="one", Nats_Expected_Last_Sequence="7"))[0] == 10071


def test_size_wins_over_a_duplicate(jet: Jet) -> None:
    jet.stream(max_msg_size=64)
    publish(jet, Nats_Msg_Id="one")
    assert publish(jet, b"x" * 100, Nats_Msg_Id="one")["error"]["err_code"] == 10054


def test_size_limits_count_header_and_payload(jet: Jet) -> None:
    jet.stream(max_msg_size=30)
    assert publish(jet, b"x" * 30)["seq"] == 1
    assert refusal(publish(jet, b"x" * 31)) == (10054, "message size exceeds maximum allowed")
    assert refusal(publish(jet, b"x" * 20, X="y")) == (10054, "message size exceeds maximum allowed")


def test_a_header_block_of_64k_is_refused(jet: Jet) -> None:
    jet.stream()
    assert refusal(publish(jet, X="y" * 65536))[0] == 10097


def test_a_rollup_leaves_the_newest_message_of_the_subject(jet: Jet) -> None:
    jet.stream(allow_rollup_hdrs=True)
    jet.publish("1", "2", subject="s.a")
    jet.publish("3", subject="s.b")
    assert publish(jet, subject="s.a", Nats_Rollup="sub")["seq"] == 4
    assert jet.api("STREAM.INFO.S", {"subjects_filter": ">"})["state"]["subjects"] == {"s.a": 1, "s.b": 1}
    assert publish(jet, subject="s.a", Nats_Rollup="all")["seq"] == 5
    state = jet.api("STREAM.INFO.S")["state"]
    assert (state["messages"], state["first_seq"]) == (1, 5)
    assert refusal(publish(jet, Nats_Rollup="some")) == (10111, 'rollup value invalid: "some"')


def test_headers_are_stored_as_they_came(jet: Jet) -> None:
    jet.stream(allow_direct=True)
    header = b"NATS/1.0\r\nNats-Msg-Id: 1\r\nX:  y \r\nX: z\r\n\r\n"
    jet.wire.publish("s.a", b"x", "", header)
    stored = jet.machine.streams["S"].store.get(1)
    assert stored is not None
    assert (stored.header, stored.payload, stored.subject) == (header, b"x", b"s.a")


def test_a_server_without_room_refuses_until_there_is_room_again() -> None:

    jet = Jet(Machine(options=JetStreamOptions(max_memory=1000)))
    jet.stream(storage="memory")
    jet.wire.publish("s.a", b"x" * 1000)
    assert refusal(publish(jet)) == (10023, "insufficient resources")
    ok(jet.api("STREAM.PURGE.S"))
    assert publish(jet)["seq"] == 2


def test_acks_of_one_commit_reach_every_publisher_in_order(jet: Jet) -> None:
    jet.stream()
    other = Jet(jet.machine)
    mine, theirs = jet.wire.subscribe("_INBOX.a.*"), other.wire.subscribe("_INBOX.b.*")
    group = other.wire.subscribe("_INBOX.c.*", "workers")
    jet.machine.hold_commits = True
    for number in range(6):
        jet.wire.publish("s.a", b"x", f"_INBOX.{'abc'[number % 3]}.{number}")
    jet.wire.publish("s.a", b"x", "nobody.listens")
    jet.machine.hold_commits = False
    jet.machine.settle()
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
    jet.machine.hold_commits = False
    jet.machine.settle()
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
    publish(jet, Nats_Msg_Id="id")
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
