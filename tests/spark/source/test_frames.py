"""Windows of frames: read at once, they hold what they hold when read one by one."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.spark.source.direct_fetch import direct_rows, split_answers
from natsctl.spark.source.errors import ApiRefusedError, ServerUnreachableError
from natsctl.spark.source.frames import Deliveries, Window, place_of
from natsctl.spark.source.rows import Rows

INBOX = b"_INBOX.abc"
ACK = b"$JS.ACK.ORDERS.reader.1"
TIME_NS = 1_760_000_000_123_456_789
LOOK_ALIKE = b"\r\nMSG a 7 %b.1.1.%d.0 0\r\n" % (ACK, TIME_NS)
HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"
STATUS = b"NATS/1.0 404 No Messages\r\n\r\n"


def delivery(at: int, body: bytes, headers: bytes = b"", subject: bytes = b"ORDERS.new", ack: bytes = ACK) -> bytes:
    reply = b"%b.%d.%d.%d.%d" % (ack, at * 3, at, TIME_NS + at, 100 - at)
    if headers:
        sizes = b"%d %d" % (len(headers), len(headers) + len(body))
        return b"HMSG %b 7 %b %b\r\n%b%b\r\n" % (subject, reply, sizes, headers, body)
    return b"MSG %b 7 %b %d\r\n%b\r\n" % (subject, reply, len(body), body)


def status(pull: int = 0) -> bytes:
    return b"HMSG %b.%d 7 %d %d\r\n%b\r\n" % (INBOX, pull, len(STATUS), len(STATUS), STATUS)


def deliveries() -> Deliveries:
    return Deliveries(INBOX, b"7")


def listed(rows: Rows | None) -> list[tuple[Any, ...]]:
    if rows is None:
        return []
    headers = rows.headers if len(rows.headers) else [b""] * len(rows.seqs)
    return list(zip(*map(plain, (rows.seqs, rows.times_ns, rows.subjects, headers, rows.values)), strict=True))


def plain(column: Any) -> list[Any]:
    return column.to_pylist() if isinstance(column, pa.Array) else list(column)


def told(window: Window) -> tuple[Any, ...]:
    return listed(window.rows), window.first, window.last, list(window.others), window.rest


Sent = tuple[bytes, bytes, bytes]

payloads = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"", b"\r\n", b"\r\nMSG ", b"PING\r\n", LOOK_ALIKE, LOOK_ALIKE + b"\r\n", status()]),
    st.builds(b"".join, st.lists(st.sampled_from([b"\r\n", b"MSG ", LOOK_ALIKE, b"x", status(), b" 5"]), max_size=6)),
)
messages = st.lists(
    st.tuples(payloads, st.sampled_from([b"", b"", HEADERS, b"NATS/1.0\r\n\r\n"]), st.sampled_from([b"a", b"a.b.c"])),
    max_size=12,
)
between = st.sampled_from([b"", b"", b"", b"PING\r\n", b"+OK\r\n", status()])


@given(messages, st.data())
def test_a_window_at_once_is_the_window_one_by_one(
    found: list[tuple[bytes, bytes, bytes]], data: st.DataObject
) -> None:
    frames = [delivery(at, *each) + data.draw(between) for at, each in enumerate(found, 1)]
    window = data.draw(between) + b"".join(frames)
    window = window[: data.draw(st.integers(len(window) // 2, len(window)))]
    quick = deliveries().quickly(window)
    assert quick is None or told(quick) == told_alike(deliveries().exactly(window), quick)
    assert told(deliveries().window(window)) == told(deliveries().exactly(window))


def told_alike(exact: Window, quick: Window) -> tuple[Any, ...]:
    """What the exact reading tells; how many are pending is not known behind a frame that is not whole."""
    if quick.rest and exact.last and quick.last:
        exact = Window(exact.rows, exact.first, quick.last, exact.others, exact.rest)
    return told(exact)


@given(messages, st.data())
def test_windows_end_anywhere(found: list[Sent], data: st.DataObject) -> None:
    whole = b"".join(delivery(at, *each) for at, each in enumerate(found, 1))
    cut = data.draw(st.integers(0, len(whole)))
    reader = deliveries()
    first = reader.quickly(whole[:cut]) or reader.exactly(whole[:cut])
    second = reader.quickly(first.rest + whole[cut:]) or reader.exactly(first.rest + whole[cut:])
    assert listed(first.rows) + listed(second.rows) == listed(deliveries().exactly(whole).rows)
    assert second.rest == b""


@pytest.mark.parametrize("headers", [b"", HEADERS])
def test_ordinary_windows_are_read_at_once(headers: bytes) -> None:
    window = b"".join(delivery(at, b"%d" % at, headers) for at in range(1, 100))
    quick = deliveries().quickly(window + status() + b"PING\r\nMSG half")
    assert listed(quick.rows)[0] == (3, TIME_NS + 1, b"ORDERS.new", headers, b"1")
    assert len(quick.others) == 2
    assert quick.rest == b"MSG half"
    assert quick.first == place_of(b"%b.3.1.%d.99" % (ACK, TIME_NS + 1))
    assert quick.last == place_of(b"%b.297.99.%d.1" % (ACK, TIME_NS + 99))


WORD_BEHIND = b"MSG a 7 $JS.ACK.hub.ACCOUNT.ORDERS.reader.1.%d.%d.%d.%d.Xyz 1\r\nx\r\n"


@pytest.mark.parametrize(
    "frames",
    [
        [delivery(at, b"%d" % at) + (status() + b"PING\r\n") * (at == 3) for at in range(1, 20)],
        [delivery(at, b"%d" % at, HEADERS if at % 2 else b"") for at in range(1, 20)],
        [delivery(at, b"x", ack=b"$JS.ACK.hub.ACCOUNT.ORDERS.reader.1") for at in range(1, 10)],
        [delivery(at, b"x", ack=b"$JS.ACK._.ACCOUNT.ORDERS.reader.1") for at in range(1, 10)],
        [WORD_BEHIND % (at, at, TIME_NS, 100 - at) for at in range(1, 10)],
    ],
    ids=["status between", "headers by turns", "domain", "no domain", "another word"],
)
def test_other_ordinary_windows_are_read_at_once_too(frames: list[bytes]) -> None:
    quick = deliveries().quickly(b"".join(frames))
    assert len(listed(quick.rows)) == len(frames)
    assert told(quick) == told(deliveries().exactly(b"".join(frames)))


def test_deliveries_of_another_subscription_are_no_rows() -> None:
    strange = delivery(1, b"x").replace(b" 7 ", b" 8 ")
    window = deliveries().window(strange + delivery(1, b"y"))
    assert [row[4] for row in listed(window.rows)] == [b"y"]
    assert len(window.others) == 1


def test_what_is_no_place_is_told() -> None:
    with pytest.raises(ServerUnreachableError, match="as the place to acknowledge"):
        place_of(b"_INBOX.x")


# Direct gets

END = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 5\r\nNats-Last-Sequence: 9\r\n\r\n"


def answer(seq: int, body: bytes, own: bytes = b"", stamp: bytes = b"2026-11-21T03:38:08.2938434Z") -> bytes:
    place = b"Nats-Stream: S\r\nNats-Subject: a.b\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %b\r\n" % (seq, stamp)
    block = b"NATS/1.0\r\n" + own + place + b"Nats-Num-Pending: 5\r\nNats-Last-Sequence: %d\r\n\r\n" % (seq - 1)
    return b"HMSG %b 7 %d %d\r\n%b%b\r\n" % (INBOX, len(block), len(block) + len(body), block, body)


def end() -> bytes:
    return b"HMSG %b 7 %d %d\r\n%b\r\n" % (INBOX, len(END), len(END), END)


SPOOF = b"Nats-Stream: S\r\nNats-Subject: evil\r\nNats-Sequence: 99\r\n"
owns = st.sampled_from([b"", b"A: b\r\n", b"Nats-Stream: other\r\n", SPOOF])
bodies = st.one_of(
    st.binary(max_size=30), st.sampled_from([b"", b"\r\n\r\n", answer(5, b"x"), b"\r\n" + answer(5, b"x")])
)


@given(st.lists(st.tuples(bodies, owns), max_size=8), st.data())
def test_direct_answers_are_cut_anywhere(found: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    frames = [
        answer(at, *each) + data.draw(st.sampled_from([b"", b"", b"PING\r\n"])) for at, each in enumerate(found, 1)
    ]
    whole = b"".join(frames) + end()
    cut = data.draw(st.integers(0, len(whole)))
    messages, others, rest = split_answers(whole[:cut], b"7", "S")
    more, later, left = split_answers(rest + whole[cut:], b"7", "S")
    assert ([*messages, *more], [*others, *later], left) == split_answers(whole, b"7", "S")
    assert [row[::4] for row in listed(direct_rows([*messages, *more]))] == [
        (at, body) for at, (body, _) in enumerate(found, 1)
    ]


def test_direct_answers_become_rows() -> None:
    stamps = [b"2026-11-21T03:38:08Z", b"2026-11-21T03:38:08.1Z", b"2026-11-21T03:38:08.123456789Z"]
    precise = b"".join(answer(at, b"x", stamp=stamp) for at, stamp in enumerate(stamps, 9))
    whole = b"".join(answer(at, b"%d" % at, b"A: b\r\n" if at % 2 else b"") for at in range(1, 9)) + precise + end()
    messages, others, _ = split_answers(whole, b"7", "S")
    rows = listed(direct_rows(messages))
    at_ns = 1795232288293843400
    assert [row[1] - 1795232288 * 10**9 for row in rows[8:]] == [0, 100_000_000, 123_456_789]
    assert rows[:2] == [(1, at_ns, b"a.b", HEADERS, b"1"), (2, at_ns, b"a.b", b"", b"2")]
    assert len(others) == 1


def test_a_message_that_claims_another_place_stays_where_it_is() -> None:
    messages, _, _ = split_answers(answer(3, b"x", SPOOF), b"7", "S")
    assert listed(direct_rows(messages))[0][0::2] == (3, b"a.b", b"x")


def test_a_mirror_that_answers_in_place_of_its_origin_is_told() -> None:
    with pytest.raises(ApiRefusedError, match="ORIGIN are answered by S, a mirror"):
        split_answers(answer(1, b"x") + answer(2, b"y"), b"7", "ORIGIN")
