"""Encoding and the two parsers are each other's inverse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.wire.ops import (
    CONNECT,
    ERR,
    INFO,
    MSG,
    OK,
    PING,
    PONG,
    PUB,
    SUB,
    UNSUB,
    Op,
    encode,
    encode_err,
    encode_info,
)
from natsctl.wire.parser import Parser, ServerParser

HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"
word = st.text("abcXYZ.*>_$#09", min_size=1, max_size=20).map(str.encode)
header = st.sampled_from([b"", HEADER])
client_ops = st.one_of(
    st.tuples(st.just(PUB), word, st.one_of(st.just(b""), word), header, st.binary(max_size=300)),
    st.tuples(st.just(SUB), word, st.one_of(st.just(b""), word), word),
    st.tuples(st.just(UNSUB), word, st.integers(0, 10**8)),
    st.sampled_from([(PING,), (PONG,), (CONNECT, b'{"verbose":false}')]),
)
server_ops = st.one_of(
    st.tuples(st.just(MSG), word, word, st.one_of(st.just(b""), word), header, st.binary(max_size=300)),
    st.sampled_from([(PING,), (PONG,), (OK,), (INFO, b'{"server_id":"N"}'), (ERR, b"Stale Connection")]),
)


@given(st.lists(client_ops, max_size=8))
def test_what_a_client_writes_the_server_reads(ops: list[Op]) -> None:
    assert Parser().feed(b"".join(encode(op) for op in ops)) == ops


@given(st.lists(server_ops, max_size=8), st.integers(1, 50))
def test_what_a_server_writes_the_client_reads_in_any_chunks(ops: list[Op], size: int) -> None:
    data = b"".join(encode(op) for op in ops)
    parser = ServerParser()
    assert [op for at in range(0, len(data), size) for op in parser.feed(data[at : at + size])] == ops
    assert parser.fault is None


@pytest.mark.parametrize(
    "line", [b"MSG a 1", b"MSG a 1 r x 2", b"MSG a 1 -2", b"HMSG a 1 9 5", b"PUB a 1", b"MSG a 1 9999999999"]
)
def test_a_server_can_be_wrong_too(line: bytes) -> None:
    parser = ServerParser()
    assert parser.feed(b"PING\r\n" + line + b"\r\n") == [(PING,)]
    assert parser.fault is not None


def test_err_texts_stay_on_their_line() -> None:
    assert encode_err("a\r\nPING") == b"-ERR 'a  PING'\r\n"


def test_info_ends_with_a_blank_like_the_reference() -> None:
    assert encode_info(b"{}") == b"INFO {} \r\n"
