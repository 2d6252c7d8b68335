"""Acknowledgements are found in raw bytes, however they are cut and whatever stands between them."""

import pytest

from natsctl.spark.source.acks import AckParser, Answers, Refusal

INBOX = "_INBOX.abc"


def message(number: int | str, body: bytes, inbox: str = INBOX) -> bytes:
    return b"MSG %s.%s 3 %d\r\n%s\r\n" % (inbox.encode(), str(number).encode(), len(body), body)


def stored(number: int, space: bytes = b" ") -> bytes:
    return message(number, b'{"stream":"S",%s"seq":%d}' % (space, number + 100))


def fed(data: bytes, step: int = 0, parser: AckParser | None = None) -> Answers:
    """All that is found, with the data cut into pieces of `step` bytes."""
    parser, sums = parser or AckParser(INBOX), Answers()
    for start in range(0, len(data), step or len(data)):
        answers = parser.feed(data[start : start + (step or len(data))])
        sums.stored += answers.stored
        sums.counted += answers.counted
        sums.counted_duplicates += answers.counted_duplicates
        sums.places |= answers.places
        for mine, found in (
            (sums.counted_seqs, answers.counted_seqs),
            (sums.counted_duplicate_seqs, answers.counted_duplicate_seqs),
        ):
            for part, seqs in found.items():
                mine.setdefault(part, []).extend(seqs)
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
    assert answers.places == {
        b"1": ("S", b"101"), b"2": ("S", b"102"), b"3": ("S", b"103"), b"4": ("S hub", b"104"), b"9": ("S", b"109")
    }  # fmt: skip
    assert answers.lines == [b"PING", b"INFO {}", b"-ERR 'Stale Connection'"]
    assert answers.refused[b"5"].passing
    assert answers.refused[b"6"] == Refusal(400, 10071, "wrong last sequence: 4")
    assert not answers.refused[b"6"].passing
    assert "no stream" in str(answers.refused[b"7"])
    assert set(answers.refused) == {b"5", b"6", b"7"}
    assert (answers.stream, answers.last_seq) == ("S", 109)


def part_of(number: str, times: int, origin: bytes = b'"stream":"S1"', more: bytes = b"") -> bytes:
    return b"".join(message(number, b'{%s,"seq":%d%s}' % (origin, 95 + at, more)) for at in range(times))


def mixed(origin: bytes) -> bytes:
    refusal = b'{"error":{"code":400,"err_code":10054,"description":"message size exceeds"},"stream":"S","seq":0}'
    return (
        part_of("p1", 3, origin)
        + b"PING\r\n"
        + part_of("p8", 1, origin)
        + part_of("p1", 4, origin, b',"duplicate": true')
        + part_of("3", 1, origin)
        + part_of("p8", 3, origin)
        + message("p12", refusal)
    )


@pytest.mark.parametrize("step", [0, 1, 7, 64, 200])
@pytest.mark.parametrize("origin", [b'"stream":"S1"', b'"stream": "S1"', b'"stream":"S1","domain":"hub2"'])
def test_acknowledgements_of_parts_are_counted_wherever_the_bytes_are_cut(step: int, origin: bytes) -> None:
    answers = fed(part_of("p1", 7, origin) + part_of("p8", 4, origin) + mixed(origin), step)
    assert answers.counted == {b"p1": 10, b"p8": 8}
    assert answers.counted_duplicates == {b"p1": 4}
    assert (answers.stored, answers.lines, list(answers.refused)) == ([b"3"], [b"PING"], [b"p12"])
    first = [95 + at for at in range(7)]
    assert seqs(answers.counted_seqs) == {b"p1": [*first, 95, 96, 97], b"p8": [95, 96, 97, 98, 95, 95, 96, 97]}
    assert seqs(answers.counted_duplicate_seqs) == {b"p1": first[:4]}


@pytest.mark.parametrize("more", [b"", b',"duplicate": true'])
def test_sequences_are_found_where_acknowledgements_are_of_different_lengths(more: bytes) -> None:
    parser = AckParser(INBOX)
    fed(part_of("p5", 1, more=more), 0, parser)
    data = b"".join(message("p5", b'{"stream":"S1","seq":%d%s}' % (seq, more)) for seq in (8, 9, 10, 999, 1000, 7))
    answers = fed(data, 0, parser)
    assert seqs(answers.counted_duplicate_seqs if more else answers.counted_seqs) == {b"p5": [8, 9, 10, 999, 1000, 7]}


def seqs(found: dict[bytes, list[bytes]]) -> dict[bytes, list[int]]:
    return {number: [int(seq) for text in texts for seq in text.split()] for number, texts in found.items()}


@pytest.mark.parametrize("step", [0, 1, 64])
@pytest.mark.parametrize("other", [b'"stream":"S2"', b'"stream":"S1","domain":"hub"'])
def test_a_part_that_another_stream_acknowledges_as_well_is_not_counted_on(step: int, other: bytes) -> None:
    parser = AckParser(INBOX)
    answers = fed(part_of("p1", 2) + part_of("p1", 2, other) + message(9, b'{%s,"seq":1}' % other), step, parser)
    assert answers.counted == {b"p1": 2}
    assert "several streams" in str(answers.refused[b"p1"])
    assert not answers.refused[b"p1"].passing
    assert answers.stored == [b"9"]
    assert not parser.countable


def test_an_acknowledgement_with_more_in_it_is_counted_for_single_messages_only() -> None:
    parser = AckParser(INBOX)
    answers = fed(part_of("p1", 1, more=b',"val":"5"') + part_of("4", 1, more=b',"val":"5"'), 0, parser)
    assert answers.stored == [b"4"]
    assert list(answers.refused) == [b"p1"]
    assert not parser.countable


@pytest.mark.parametrize("more", [b"", b',"duplicate":true', b',"val":"5"'])
@pytest.mark.parametrize("number", ["3", "p3"])
def test_what_another_stream_than_the_expected_one_stores_is_refused(number: str, more: bytes) -> None:
    answers = fed(part_of(number, 1, more=more), 0, AckParser(INBOX, "WANTED"))
    assert str(answers.refused[number.encode()]) == "stored in S1, while option stream is WANTED"
    assert (answers.stored, answers.duplicates, answers.counted) == ([], [], {})


def test_half_an_answer_of_a_connection_that_ended_does_not_spoil_the_next() -> None:
    parser = AckParser(INBOX)
    assert parser.feed(stored(1)[:-5]).stored == []
    parser.forget()
    assert parser.feed(stored(2)).stored == [b"2"]


@pytest.mark.parametrize(("code", "passing"), [(503, True), (408, True), (429, True), (400, False), (404, False)])
def test_only_what_may_be_otherwise_a_moment_later_is_tried_again(code: int, passing: bool) -> None:
    assert Refusal(code, 0, "").passing is passing
