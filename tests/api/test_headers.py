"""Header blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api import headers
from natsctl.api.errors import ProtocolError
from tests.support.call_counts import calls_of

TOKEN = st.binary(min_size=1, max_size=12).filter(lambda b: not set(b) & set(b":\r\n") and b == b.strip())
VALUE = st.binary(max_size=20).filter(lambda b: not set(b) & set(b"\r\n") and b == b.strip())
PAIRS = st.lists(st.tuples(TOKEN, VALUE), max_size=6)


@given(PAIRS)
def test_a_block_reads_back_as_its_pairs(pairs: list[tuple[bytes, bytes]]) -> None:
    block = headers.encode(pairs)
    assert headers.parse(block) == pairs
    for key, _ in pairs:
        assert headers.get(block, key) == next(value for name, value in pairs if name == key)


@given(PAIRS, PAIRS)
def test_appended_pairs_stand_at_the_end(first: list[tuple[bytes, bytes]], more: list[tuple[bytes, bytes]]) -> None:
    block = headers.encode(first) if first else b""
    assert headers.parse(headers.append(block, more)) == first + more


@given(PAIRS, TOKEN)
def test_a_removed_key_is_gone_and_the_rest_stays(pairs: list[tuple[bytes, bytes]], key: bytes) -> None:
    block = headers.remove(headers.encode([*pairs, (key, b"x")]), key)
    assert headers.parse(block) == [pair for pair in pairs if pair[0] != key]


def test_a_key_is_found_only_as_a_whole_and_in_its_case() -> None:
    block = headers.encode([(b"X-Nats-Msg-Id", b"1"), (b"nats-msg-id", b"2"), (b"Note", b"Nats-Msg-Id: 3")])
    assert headers.get(block, headers.MSG_ID) is None


def test_blanks_around_a_value_do_not_count() -> None:
    assert headers.get(b"NATS/1.0\r\nA:  x y \r\nB:\r\n\r\n", b"A") == b"x y"
    assert headers.get(b"NATS/1.0\r\nA:  x y \r\nB:\r\n\r\n", b"B") == b""


def test_a_status_message_is_written_and_read() -> None:
    block = headers.status_line(408, "Request Timeout", (headers.PENDING_MESSAGES, b"1"))
    assert block == b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 1\r\n\r\n"
    assert headers.parse_status(block) == (408, "Request Timeout")
    assert headers.parse_status(b"NATS/1.0 503\r\n\r\n") == (503, "")
    assert headers.parse_status(headers.encode([(b"A", b"b")])) == (0, "")
    assert headers.parse_status(b"") == (0, "")


def test_removing_the_last_line_removes_the_block() -> None:
    assert headers.remove(headers.encode([(b"A", b"b")]), b"A") == b""


@pytest.mark.parametrize("block", [b"NATS/1.0", b"HTTP/1.1\r\n\r\n", b"NATS/1.0\r\nA: b\r\n", b"NATS/1.00\r\n\r\n"])
def test_a_broken_frame_is_refused(block: bytes) -> None:
    with pytest.raises(ProtocolError):
        headers.parse(block)
    with pytest.raises(ProtocolError):
        headers.parse_status(block)


def test_a_line_without_key_and_a_status_of_letters_are_refused() -> None:
    with pytest.raises(ProtocolError):
        headers.parse(b"NATS/1.0\r\nnonsense\r\n\r\n")
    with pytest.raises(ProtocolError):
        headers.parse_status(b"NATS/1.0 abc\r\n\r\n")


@pytest.mark.parametrize("pair", [(b"", b"x"), (b"A:B", b"x"), (b"A\r\n", b"x"), (b"A", b"x\r\nB: y"), (b"A", b"\n")])
def test_a_pair_that_would_break_the_lines_is_refused(pair: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        headers.encode([pair])


def test_very_many_lines_of_a_key_are_removed_in_one_pass() -> None:
    lines = b"K: v\r\n" * 60_000
    block = b"NATS/1.0\r\nA: 1\r\n%bB: 2\r\n%bKK: 3\r\n\r\n" % (lines, lines)
    assert headers.remove(block, b"K") == b"NATS/1.0\r\nA: 1\r\nB: 2\r\nKK: 3\r\n\r\n"
    assert calls_of(lambda: headers.remove(block, b"K")) < 1000
    assert headers.remove(b"NATS/1.0\r\n%b\r\n" % lines, b"K") == b""
