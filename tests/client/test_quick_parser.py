"""Messages are cut out of what arrives however it is split; everything else reaches nats-py."""

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from natsctl.client.nats_client import QuickParser
from natsctl.client.nats_py import client_class
from natsctl.wire.server_frames import MAX_LINE_BYTES

STREAM = (
    b"MSG a.b 1 3\r\nx\r\n\r\nPING\r\n"
    b"MSG s 1 _INBOX.r 0\r\n\r\n"
    b"HMSG h 1 17 19\r\nNATS/1.0\r\nA:b\r\n\r\nhi\r\n"
    b"HMSG h 1 q.r 12 12\r\nNATS/1.0\r\n\r\n\r\n"
    b"MSG gone 2 1\r\nz\r\n+OK\r\n"
    b"MSG a.b 1 re.ply 4\r\nMSG \r\n-ERR 'X'\r\n"
)


class Inner:
    def __init__(self) -> None:
        self.seen = b""
        self.buf = b""

    async def parse(self, data: bytes) -> None:
        self.seen += data

    def reset(self) -> None:
        self.seen = b""


def _parser() -> tuple[QuickParser, Inner, list[Any]]:
    told: list[Any] = []
    inner = Inner()
    return QuickParser(inner, {b"1": lambda *message: told.append(message)}), inner, told


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
@example(list(range(len(STREAM))))
def test_messages_are_told_however_what_arrives_is_split(cuts: list[int]) -> None:
    parser, inner, told = _parser()

    async def feed() -> None:
        for begin, end in itertools.pairwise([0, *sorted(cuts), len(STREAM)]):
            await parser.parse(STREAM[begin:end])

    asyncio.run(feed())
    assert told == [
        (b"a.b", b"", b"", b"x\r\n"),
        (b"s", b"_INBOX.r", b"", b""),
        (b"h", b"", b"NATS/1.0\r\nA:b\r\n\r\n", b"hi"),
        (b"h", b"q.r", b"NATS/1.0\r\n\r\n", b""),
        (b"a.b", b"re.ply", b"", b"MSG "),
    ]
    assert inner.seen == b"PING\r\n+OK\r\n-ERR 'X'\r\n"
    assert (parser.buf, parser.error_line) == (b"", b"-ERR 'X'")


@pytest.mark.parametrize("bad", [b"MSG a 1 x\r\n", b"MSG\r\n", b"HMSG a 1 x 5\r\n\r\n", b"x" * (MAX_LINE_BYTES + 2)])
async def test_what_no_server_sends_ends_the_connection(bad: bytes) -> None:
    client_class()
    from nats.errors import ProtocolError

    parser, _, told = _parser()
    with pytest.raises(ProtocolError):
        await parser.parse(bad)
    assert told == []


async def test_half_a_message_is_forgotten_on_a_new_connection() -> None:
    parser, _, told = _parser()
    await parser.parse(b"MSG a 1 100\r\nhalf")
    parser.reset()
    await parser.parse(b"MSG b 1 1\r\nx\r\n")
    assert told == [(b"b", b"", b"", b"x")]
