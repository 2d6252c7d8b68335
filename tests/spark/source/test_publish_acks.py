"""Acknowledgements are found in raw bytes, however they are cut and whatever stands between them."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from natsctl.spark.source.publish.acks import AckParser, Answers, Refusal

INBOX = "_INBOX.abc"


def message(number: int, body: bytes, inbox: str = INBOX) -> bytes:
    return b"MSG %s.%d 3 %d\r\n%s\r\n" % (inbox.encode(), number, len(body), body)


def stored(number: int, space: bytes = b" ") -> bytes:
    return message(number, b'{"stream":"S",%s"seq":%d}' % (space, number + 100))


def fed(data: bytes, step: int = 0) -> Answers:
    """All that is found, with the data cut into pieces of `step` bytes."""
    parser, sums = AckParser(INBOX), Answers()
    for start in range(0, len(data), step or len(data)):
        answers = parser.feed(data[start : start + (step or len(data))])
        sums.stored += answers.stored
        sums.duplicates += answers.duplicates
        sums.refused |= answers.refused
        sums.lines += answers.lines
        sums.last_seq = answers.last_seq or sums.last_seq
        sums.stream = answers.stream or sums.stream
    return sums


MIXED = (
    stored(1)
    + stored(2, b"")
    + b"PING\r\n"
    + message(3, b'{"stream":"S","seq":103,"duplicate": true}')
    + message(4, b'{"stream":"S","domain":"hub","seq":104}')
    + b"HMSG _INBOX.abc.5 3 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"
    + message(6, b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 4"},"stream":"S","seq":0}')
    + b"INFO {}\r\n"
    + message(7, b"what?")
    + message(8, b'{"type":"io.nats.jetstream.api.v1.stream_info_response"}', "_INBOX.other")
    + b"-ERR 'Stale Connection'\r\n"
    + stored(9)
)


@pytest.mark.parametrize("step", [0, 1, 7, 64])
def test_every_kind_of_answer_is_told_apart_wherever_the_bytes_are_cut(step: int) -> None:
    answers = fed(MIXED, step)
    assert sorted(answers.stored) == [b"1", b"2", b"4", b"9"]
    assert answers.duplicates == [b"3"]
    assert answers.lines == [b"PING", b"INFO {}", b"-ERR 'Stale Connection'"]
    assert answers.refused[b"5"].passing
    assert answers.refused[b"6"] == Refusal(400, 10071, "wrong last sequence: 4")
    assert not answers.refused[b"6"].passing
    assert "no stream" in str(answers.refused[b"7"])
    assert set(answers.refused) == {b"5", b"6", b"7"}
    assert (answers.stream, answers.last_seq) == ("S", 109)


def test_half_an_answer_of_a_connection_that_ended_does_not_spoil_the_next() -> None:
    parser = AckParser(INBOX)
    assert parser.feed(stored(1)[:-5]).stored == []
    parser.forget()
    assert parser.feed(stored(2)).stored == [b"2"]


@pytest.mark.parametrize(("code", "passing"), [(503, True), (408, True), (429, True), (400, False), (404, False)])
def test_only_what_may_be_otherwise_a_moment_later_is_tried_again(code: int, passing: bool) -> None:
    assert Refusal(code, 0, "").passing is passing
