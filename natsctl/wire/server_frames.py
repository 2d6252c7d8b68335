"""Frames of the data that a server sends: one loop for every client of this package.

The client and its benchmarks (`client/nats_client.py`) and Spark's data source read through `frames`.
Theory of operation: the reader of a connection passes the data that has arrived as one `bytes` object, and keeps the
rest after the last whole frame. `FrameBuffer` keeps the rest for callers that push chunks; it does not
look at a large message again until all of it has arrived.

A frame is a message with its body, or any other line. Only the size of a frame is checked, and the number of arguments
in a message's line. This module imports only `hints`, because Spark carries it to executors that have no natsctl.
"""

from __future__ import annotations

from collections.abc import Iterator

from natsctl.hints import Final, TypeAlias

LINE_END: Final = b"\r\n"
PING_LINE: Final = b"PING\r\n"
PONG_LINE: Final = b"PONG\r\n"
MAX_LINE_BYTES: Final = 1 << 20
"""Longest line without an end that is waited for; the longest one that servers send is INFO of a large cluster."""
MAX_SIZE_DIGITS: Final = 9
"""Digits of a size. Source: nats-server, parseSize."""
MAX_KNOWN_SIZES: Final = 1024
"""Entries of the cache of sizes by their text: a look-up costs a fifth of a conversion."""

Frame: TypeAlias = tuple[int, bytes, bytes, bytes, bytes, bytes]
"""End of the frame in the data, sid, subject, reply, header block, payload.

For a line that is not a message the sid is empty, and `subject` is the line without its end.
"""

_KNOWN_SIZES: dict[bytes, int] = {}


class BrokenFrameError(ValueError):
    """The peer sent bytes that no NATS server sends."""


def frames(data: bytes, at: int = 0) -> Iterator[Frame]:
    """Yield the whole frames in `data` from `at` on; raises BrokenFrameError at a malformed one."""
    size, find, known = len(data), data.find, _KNOWN_SIZES.get
    while (line_end := find(LINE_END, at)) >= 0:
        line = data[at:line_end]
        words = line.split(b" ")
        verb, count, begin = words[0], len(words), line_end + 2
        if verb == b"MSG" and 4 <= count <= 5:
            body_size = known(words[-1])
            end = begin + (_size(words[-1]) if body_size is None else body_size)
            at = end + 2
            if at > size:
                return
            yield at, words[2], words[1], words[3] if count == 5 else b"", b"", data[begin:end]
        elif verb == b"HMSG" and 5 <= count <= 6:
            head_size, body_size = known(words[-2]), known(words[-1])
            head = begin + (_size(words[-2]) if head_size is None else head_size)
            end = begin + (_size(words[-1]) if body_size is None else body_size)
            if head > end:
                raise BrokenFrameError(f"the header is longer than the message: {line[:100]!r}")
            at = end + 2
            if at > size:
                return
            yield at, words[2], words[1], words[3] if count == 6 else b"", data[begin:head], data[head:end]
        elif verb == b"MSG" or verb == b"HMSG":
            raise BrokenFrameError(f"a message with {count - 1} arguments: {line[:100]!r}")
        else:
            at = begin
            yield at, b"", line, b"", b"", b""
    if size - at > MAX_LINE_BYTES:
        raise BrokenFrameError(f"a line of more than {MAX_LINE_BYTES} bytes")


def frame_end(data: bytes, at: int = 0) -> int:
    """Return the end of the message that begins at `at`; it may be beyond the end of `data`.

    If its line is incomplete, or no message begins there, this is one byte more than `data` has.
    """
    line_end = data.find(LINE_END, at)
    if line_end < 0 or not data.startswith((b"MSG ", b"HMSG "), at):
        return len(data) + 1
    size = data[at:line_end].rpartition(b" ")[2]
    return line_end + 4 + int(size) if size.isdigit() else len(data) + 1


class FrameBuffer:
    """The beginning of a frame, kept until the rest of it arrives."""

    __slots__ = ("_missing", "_parts")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._missing = 0

    @property
    def kept(self) -> bytes:
        return b"".join(self._parts)

    @property
    def missing(self) -> int:
        """Number of bytes that complete it, if known."""
        return self._missing if self._parts else 0

    def join(self, chunk: bytes) -> bytes:
        """Return the kept bytes and `chunk`; while they complete no frame, keep `chunk` too and return b""."""
        if not self._parts:
            return chunk
        self._parts.append(chunk)
        self._missing -= len(chunk)
        if self._missing > 0:
            return b""
        data = b"".join(self._parts)
        self._parts = []
        return data

    def keep(self, data: bytes, at: int) -> None:
        """Keep the rest of `data` from `at`, the end of its last whole frame."""
        if at < len(data):
            self._parts = [data[at:]]
            self._missing = frame_end(data, at) - len(data)

    def clear(self) -> None:
        self._parts = []


def _size(text: bytes) -> int:
    """Return the number in a size argument, and cache it; raises BrokenFrameError."""
    if not text.isdigit() or len(text) > MAX_SIZE_DIGITS:
        raise BrokenFrameError(f"a size that is no number of up to {MAX_SIZE_DIGITS} digits: {text[:32]!r}")
    size = int(text)
    if len(_KNOWN_SIZES) < MAX_KNOWN_SIZES:
        _KNOWN_SIZES[text] = size
    return size
