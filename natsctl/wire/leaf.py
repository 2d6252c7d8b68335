"""Operations between the two servers of a leaf node connection: writing them, and an incremental parser.

| tuple | line |
| --- | --- |
| `(LEAF_SUB, subject, queue, weight)` | `LS+ subject [queue weight]` |
| `(LEAF_UNSUB, subject, queue)` | `LS- subject [queue]` |
| `(LEAF_MSG, subject, reply, queues, header, payload)` | `LMSG`, or `HMSG` with a header block |

INFO, CONNECT, PING, PONG and -ERR are in `wire.ops`. A message only for plain subscriptions of the other side is
`LMSG subject [reply] size`; one that queue groups were chosen for names them: `LMSG subject + reply q1 q2 size`, or
`LMSG subject | q1 size` without a reply. Both sides may send every operation. Source: nats-server, leafnode.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from natsctl.wire.framing import Framing, parse_size, publish_words, words_of
from natsctl.wire.ops import CONNECT, ERR, INFO, PING, PONG, FaultKind, Limits, Op, ProtocolViolationError

LEAF_SUB: Final = 20
LEAF_UNSUB: Final = 21
LEAF_MSG: Final = 22


def encode_leaf_sub(subject: bytes, queue: bytes, weight: int) -> bytes:
    """Return the line that announces interest; a queue group has a weight."""
    return b"LS+ %b %b %d\r\n" % (subject, queue, weight) if queue else b"LS+ %b\r\n" % subject


def encode_leaf_unsub(subject: bytes, queue: bytes) -> bytes:
    """Return the line that announces the end of an interest."""
    return b"LS- %b %b\r\n" % (subject, queue) if queue else b"LS- %b\r\n" % subject


def encode_leaf_msg(subject: bytes, reply: bytes, queues: Sequence[bytes], header: bytes, payload: bytes) -> bytes:
    """Return a message with its body."""
    return b"%b%b\r\n" % (encode_leaf_head(subject, reply, queues, header, len(payload)), payload)


def encode_leaf_head(subject: bytes, reply: bytes, queues: Sequence[bytes], header: bytes, body: int) -> bytes:
    """Return a message up to its payload of `body` bytes."""
    if queues:
        target = b"%b %b%b " % (subject, b"+ " + reply + b" " if reply else b"| ", b" ".join(queues))
    else:
        target = b"%b %b " % (subject, reply) if reply else subject + b" "
    if header:
        size = len(header)
        return b"HMSG %b%d %d\r\n%b" % (target, size, size + body, header)
    return b"LMSG %b%d\r\n" % (target, body)


NO_BODY: Final = -1
LINE_FACTOR: Final = 16
"""Control lines between servers may be longer by this factor. Source: nats-server, overMaxControlLineLimit."""


def leaf_limits(limits: Limits) -> Limits:
    """Return the limits for a server, from the `limits` for clients."""
    return Limits(limits.max_control_line * LINE_FACTOR, limits.max_payload)


class LeafParser(Framing):
    """Incremental parser of the other server's output; chunks may be split anywhere."""

    __slots__ = ()

    VERBS: ClassVar[tuple[bytes, ...]] = (
        b"LMSG", b"HMSG", b"LS+", b"LS-", b"PING", b"PONG", b"INFO", b"CONNECT", b"+OK", b"-ERR",
    )  # fmt: skip
    LOOSE_VERBS: ClassVar[frozenset[bytes]] = frozenset({b"PING", b"PONG", b"+OK"})
    GLUED_VERBS: ClassVar[frozenset[bytes]] = frozenset({b"CONNECT", b"INFO"})
    MESSAGES: ClassVar[dict[bytes, int]] = {b"LMSG": 1}
    KIND: ClassVar[int] = LEAF_MSG
    MIDDLE: ClassVar[tuple[object, ...]] = ((),)

    def feed(self, chunk: bytes) -> list[Op]:
        """Return the operations that `chunk` completes; a fault is left in `fault` after the operations before it."""
        ops: list[Op] = []
        if self.fault is None:
            chunk = self._resume(chunk, ops)
            if chunk:
                self._read(chunk, ops)
        return ops

    def _line(self, verb: bytes, args: bytes) -> tuple[Op | None, int, int]:
        if verb == b"LMSG" or verb == b"HMSG":
            return self._deliver(publish_words(args), 2 if verb == b"HMSG" else 1)
        if verb == b"LS+":
            return _interest(words_of(args)), NO_BODY, 0
        if verb == b"LS-":
            return _no_interest(words_of(args)), NO_BODY, 0
        if verb == b"INFO":
            return (INFO, args.rstrip()), NO_BODY, 0
        if verb == b"CONNECT":
            return (CONNECT, args), NO_BODY, 0
        if verb == b"-ERR":
            return (ERR, args.strip()), NO_BODY, 0
        if verb == b"+OK":
            return None, NO_BODY, 0
        return (PING if verb == b"PING" else PONG,), NO_BODY, 0

    def _deliver(self, fields: list[bytes], sizes: int) -> tuple[Op, int, int]:
        head, tail = fields[:-sizes], fields[-sizes:]
        if not head or len(tail) != sizes:
            raise ProtocolViolationError(FaultKind.MALFORMED, f"{len(fields)} arguments to a message")
        size = self._size(tail[-1])
        header_size = self._size(tail[0]) if sizes == 2 else 0
        if not 0 <= header_size <= size:
            raise ProtocolViolationError(
                FaultKind.MALFORMED, "a size is not a number or the header is longer than the message"
            )
        if size > self.limits.max_payload:
            raise ProtocolViolationError(FaultKind.MAX_PAYLOAD, f"{size} of {self.limits.max_payload} bytes")
        reply, queues = _route(head[1:])
        return (LEAF_MSG, head[0], reply, queues), size, header_size


def _route(fields: list[bytes]) -> tuple[bytes, tuple[bytes, ...]]:
    if len(fields) < 2:
        return (fields[0] if fields else b""), ()
    if fields[0] == b"+":
        return fields[1], tuple(fields[2:])
    if fields[0] == b"|":
        return b"", tuple(fields[1:])
    raise ProtocolViolationError(FaultKind.MALFORMED, "bad or missing reply indicator")


def _interest(fields: list[bytes]) -> Op:
    if len(fields) == 1:
        return (LEAF_SUB, fields[0], b"", 1)
    if len(fields) == 3:
        # An invalid weight counts as one member. Source: nats-server, processLeafSub.
        return (LEAF_SUB, fields[0], fields[1], max(parse_size(fields[2]), 1))
    raise ProtocolViolationError(FaultKind.MALFORMED, f"{len(fields)} arguments to LS+")


def _no_interest(fields: list[bytes]) -> Op:
    if 1 <= len(fields) <= 2:
        return (LEAF_UNSUB, fields[0], fields[1] if len(fields) == 2 else b"")
    raise ProtocolViolationError(FaultKind.MALFORMED, f"{len(fields)} arguments to LS-")
