"""Frames of a server: whole ones are read, begun ones are waited for, and broken ones are refused."""

import pytest

from natsctl.wire.server_frames import MAX_LINE_BYTES, BrokenFrameError, FrameBuffer, frame_end, frames

PING = (6, b"", b"PING", b"", b"", b"")


def test_frames_are_read_up_to_the_first_that_is_not_whole() -> None:
    data = b"PING\r\nMSG a 1 2\r\nhi\r\nHMSG b 2 r 12 13\r\nNATS/1.0\r\n\r\nx\r\n"
    whole = [PING, (21, b"1", b"a", b"", b"", b"hi"), (len(data), b"2", b"b", b"r", b"NATS/1.0\r\n\r\n", b"x")]
    assert list(frames(data)) == whole
    for size in range(len(data)):
        assert list(frames(data[:size])) == [frame for frame in whole if frame[0] <= size]
    assert list(frames(data, 21)) == whole[2:]


@pytest.mark.parametrize(
    "line",
    [b"MSG", b"MSG a 1", b"MSG a 1 r x 2", b"MSG a 1 -2", b"MSG a 1 +2", b"MSG a 1 x", b"HMSG a 1 2", b"HMSG a 1 9 5",
     b"HMSG a 1 r q 1 2", b"MSG a 1 9999999999"],
)  # fmt: skip
def test_what_no_server_sends_is_refused_behind_what_came_before(line: bytes) -> None:
    reader = frames(b"PING\r\n" + line + b"\r\n")
    assert next(reader) == PING
    with pytest.raises(BrokenFrameError):
        next(reader)


def test_a_line_without_an_end_is_waited_for_up_to_a_limit() -> None:
    assert list(frames(b"x" * MAX_LINE_BYTES)) == []
    with pytest.raises(BrokenFrameError, match="line of more than"):
        list(frames(b"x" * (MAX_LINE_BYTES + 1)))


def test_the_end_of_a_message_is_known_once_its_line_is_there() -> None:
    assert frame_end(b"PING\r\nMSG a 1 5\r\n", 6) == 24
    assert frame_end(b"MSG a 1 5") == 10
    assert frame_end(b"PIN") == 4


def test_a_large_message_is_joined_once() -> None:
    buffer = FrameBuffer()
    for chunk in (b"MSG a 1 6\r\n", b"ab", b"cd"):
        data = buffer.join(chunk)
        buffer.keep(data, 0)
        assert data == (chunk if chunk.startswith(b"MSG") else b"")
    assert buffer.kept == b"MSG a 1 6\r\nabcd"
    assert buffer.join(b"ef\r\nPI") == b"MSG a 1 6\r\nabcdef\r\nPI"
    assert buffer.kept == b""
