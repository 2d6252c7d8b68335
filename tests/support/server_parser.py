"""What a server sends, as operations: a rig reads the answers of a server without the client."""

from typing import Final

from natsctl.wire.ops import ERR, INFO, OK, PING, PONG, Op
from natsctl.wire.server_frames import FrameBuffer, frames

MSG: Final = 6
"""`(MSG, subject, sid, reply, header, payload)`, for MSG and HMSG."""


class ServerParser:
    """An incremental parser; chunks may be split anywhere."""

    def __init__(self) -> None:
        self._buffer = FrameBuffer()

    def feed(self, chunk: bytes) -> list[Op]:
        """Return the operations that `chunk` completes; raises BrokenFrameError."""
        ops: list[Op] = []
        data, at = self._buffer.join(chunk), 0
        for end, sid, subject, reply, header, payload in frames(data):
            ops.append((MSG, subject, sid, reply, header, payload) if sid else _line(subject))
            at = end
        self._buffer.keep(data, at)
        return ops


def _line(line: bytes) -> Op:
    verb, _, text = line.partition(b" ")
    kind = {b"PING": PING, b"PONG": PONG, b"+OK": OK, b"INFO": INFO, b"-ERR": ERR}[verb]
    return (kind, text.strip().strip(b"'")) if text else (kind,)
