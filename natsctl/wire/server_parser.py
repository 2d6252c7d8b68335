"""Reading what servers send: the other direction, for clients, links and tests."""

from __future__ import annotations

from typing import ClassVar

from natsctl.wire.faults import FaultKind, Limits, ProtocolViolationError
from natsctl.wire.framing import Framing, parse_size, words_of
from natsctl.wire.ops import ERR, INFO, MSG, OK, PING, PONG, Op

CLIENT_LIMITS = Limits(max_control_line=1 << 20, max_payload=64 << 20)
"""A server's INFO is longer than a control line, and 64 MiB is the most that it may set as its max_payload."""


class ServerParser(Framing):
    """The client's ear: feeds on chunks of any size and returns the complete operations in them."""

    __slots__ = ()

    VERBS: ClassVar[tuple[bytes, ...]] = (b"MSG", b"HMSG", b"INFO", b"PING", b"PONG", b"+OK", b"-ERR")
    LOOSE_VERBS: ClassVar[frozenset[bytes]] = frozenset({b"PING", b"PONG", b"+OK"})
    GLUED_VERBS: ClassVar[frozenset[bytes]] = frozenset({b"INFO", b"-ERR"})

    def __init__(self, limits: Limits = CLIENT_LIMITS) -> None:
        super().__init__(limits)

    def feed(self, chunk: bytes) -> list[Op]:
        """Return the operations that `chunk` completes; a fault is left in `fault` after the operations before it."""
        ops: list[Op] = []
        if self.fault is None:
            chunk = self._resume(chunk, ops)
            if chunk:
                self._feed_pieces(chunk.split(b"\n"), 0, ops)
        return ops

    def _line(self, verb: bytes, args: bytes) -> tuple[Op | None, int, int]:
        if verb == b"MSG" or verb == b"HMSG":
            return self._deliver(words_of(args), with_header=verb == b"HMSG")
        if verb == b"INFO":
            return (INFO, args.rstrip()), -1, 0
        if verb == b"-ERR":
            return (ERR, args.strip().strip(b"'")), -1, 0
        return ({b"PING": PING, b"PONG": PONG, b"+OK": OK}[verb],), -1, 0

    def _deliver(self, fields: list[bytes], with_header: bool) -> tuple[Op, int, int]:
        sizes = 2 if with_header else 1
        if not 2 + sizes <= len(fields) <= 3 + sizes:
            raise ProtocolViolationError(FaultKind.MALFORMED, f"{len(fields)} arguments to MSG")
        size = parse_size(fields[-1])
        header_size = parse_size(fields[-2]) if with_header else 0
        if not 0 <= header_size <= size:
            raise ProtocolViolationError(
                FaultKind.MALFORMED, "a size is not a number or the header is longer than the message"
            )
        if size > self.limits.max_payload:
            raise ProtocolViolationError(FaultKind.MAX_PAYLOAD, f"{size} of {self.limits.max_payload} bytes")
        reply = fields[2] if len(fields) == 3 + sizes else b""
        return (MSG, fields[0], fields[1], reply), size, header_size
