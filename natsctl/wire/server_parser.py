"""Operations that a server sends, for links and tests that work on operations instead of frames."""

from __future__ import annotations

from typing import Final

from natsctl.wire.faults import FaultKind, ProtocolViolationError
from natsctl.wire.ops import ERR, INFO, MSG, OK, PING, PONG, Op
from natsctl.wire.server_frames import BrokenFrameError, FrameBuffer, frames

_BARE: Final[dict[bytes, Op]] = {b"PING": (PING,), b"PONG": (PONG,), b"+OK": (OK,)}


class ServerParser:
    """Incremental parser of what a server sends; chunks may be split anywhere."""

    __slots__ = ("_buffer", "fault")

    def __init__(self) -> None:
        self._buffer = FrameBuffer()
        self.fault: ProtocolViolationError | None = None

    def feed(self, chunk: bytes) -> list[Op]:
        """Return the operations that `chunk` completes; a fault is left in `fault` after the operations before it."""
        ops: list[Op] = []
        if self.fault is not None:
            return ops
        data, at = self._buffer.join(chunk), 0
        try:
            for end, sid, subject, reply, header, payload in frames(data):
                ops.append((MSG, subject, sid, reply, header, payload) if sid else _line(subject))
                at = end
        except BrokenFrameError as failure:
            self.fault = ProtocolViolationError(FaultKind.MALFORMED, str(failure))
        except ProtocolViolationError as fault:
            self.fault = fault
        else:
            self._buffer.keep(data, at)
        return ops


def _line(line: bytes) -> Op:
    """Return the operation of a line without a body. Raises ProtocolViolationError."""
    if (op := _BARE.get(line)) is not None:
        return op
    if line.startswith(b"INFO "):
        return (INFO, line[5:].strip())
    if line.startswith(b"-ERR "):
        return (ERR, line[5:].strip().strip(b"'"))
    raise ProtocolViolationError(FaultKind.UNKNOWN_OPERATION, repr(line[:16]))
