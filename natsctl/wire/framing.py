"""Cutting a byte stream into operations, for both directions of the protocol.

Theory of operation. A chunk is split at every line feed in one call. A message whose body holds no line feed is then
two neighbouring pieces, so that the common case needs neither a search nor a slice per operation, and a piece that has
exactly the promised length and a CR proves its own CRLF. `Parser.feed` (parser.py) has that case inline; everything
else comes here, one operation at a time: other verbs, bodies that hold line feeds, and what is cut off at the end. A
lone line feed ends a line as well as CRLF does.

Only two things are kept between chunks: an unfinished line (`_tail`, bounded by `max_control_line`) or an unfinished
message (`_body`, bounded by its announced size, which was checked against `max_payload` before the first byte was
kept). The first fault is final: later bytes are dropped.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

from natsctl.wire.ops import FaultKind, Limits, Op, ProtocolViolationError

CRLF = b"\r\n"
BLANKS = b" \t"
_BLANKS_ALIKE = bytes.maketrans(b"\t\r", b"  ")
CR = ord("\r")
VT = ord("\v")
FF = ord("\f")
MAX_SIZE_DIGITS = 9
"""Digits of a size in an argument line. Source: nats-server refuses longer ones as malformed."""
MAX_FAST_SIZE = 8191
"""Bytes of body up to which a size is looked up instead of parsed."""


@lru_cache(maxsize=8)
def fast_sizes(most: int) -> dict[bytes, int]:
    """Return the sizes up to `most` that peers have named, by their text, shared by all who are held to `most`.

    Finding one also proves that the text is a plain number. To write all of them down took 2 ms of a server's start.
    """
    return {}


def words_of(args: bytes) -> list[bytes]:
    """Return the arguments of a line: blanks, tabs and CRs part them, VT and FF do not, unlike in `bytes.split`."""
    return [word for word in args.translate(_BLANKS_ALIKE).split(b" ") if word]


def publish_words(args: bytes) -> list[bytes]:
    """Return the arguments of a message; raises ProtocolViolationError for a CR in them.

    nats-server refuses a CR in a size. A subject with one it delivers to clients, which cannot read it, and to hubs of
    leaf nodes, which read what follows as the reply: so a user who must not publish `secret` does.
    """
    if CR in args:
        raise ProtocolViolationError(FaultKind.MALFORMED, "a CR in the arguments")
    return words_of(args)


def has_odd_blanks(text: bytes) -> bool:
    """Return whether there is anything at which `bytes.split` parts and `words_of` does not."""
    return VT in text or FF in text


def parse_size(text: bytes) -> int:
    """Return the number in a size argument, or -1 where it is not one to nine digits."""
    return int(text) if text.isdigit() and len(text) <= MAX_SIZE_DIGITS else -1


def gather_body(pieces: list[bytes], index: int, size: int) -> tuple[int, bytes]:
    """Join pieces from `index` on until they hold `size` bytes and a CR, or end; return the last one's index too."""
    last = len(pieces) - 1
    end = index
    have = len(pieces[index])
    while have <= size and end < last:
        end += 1
        have += 1 + len(pieces[end])
    return end, b"\n".join(pieces[index : end + 1]) if end > index else pieces[index]


class Framing:
    """The state of one direction of one connection; subclasses know the verbs."""

    __slots__ = ("_body", "_missing", "_pending", "_sizes", "_tail", "fault", "limits")

    VERBS: ClassVar[tuple[bytes, ...]] = ()
    LOOSE_VERBS: ClassVar[frozenset[bytes]] = frozenset({b"PING", b"PONG"})
    """Verbs after which the rest of the line is ignored."""
    GLUED_VERBS: ClassVar[frozenset[bytes]] = frozenset()
    """Verbs whose argument may follow without a blank."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.fault: ProtocolViolationError | None = None
        self._tail = b""
        self._pending: tuple[Op, int] | None = None
        self._body = bytearray()
        self._missing = 0
        self._sizes = fast_sizes(min(limits.max_payload, MAX_FAST_SIZE))

    def limit(self, limits: Limits) -> None:
        """Hold the peer to other limits, from the next operation on."""
        self.limits = limits
        self._sizes = fast_sizes(min(limits.max_payload, MAX_FAST_SIZE))

    def _size(self, text: bytes) -> int:
        """Return the number in a size argument, or -1; from then on it is looked up."""
        size = parse_size(text)
        if 0 <= size <= min(self.limits.max_payload, MAX_FAST_SIZE) and text == b"%d" % size:
            self._sizes[text] = size
        return size

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes that are kept until more arrives."""
        return len(self._tail) + len(self._body)

    def _line(self, verb: bytes, args: bytes) -> tuple[Op | None, int, int]:
        """Return (operation, body size, header size) of one line; the size is -1 where no body follows.

        The operation is None where the line is accepted and means nothing. Raises ProtocolViolationError.
        """
        raise ProtocolViolationError(FaultKind.UNKNOWN_OPERATION, repr(verb[:16]))

    def _message(self, head: Op, header: bytes, payload: bytes) -> Op:
        """Return the finished operation of a message whose body has arrived."""
        return (*head, header, payload)

    def _split_verb(self, line: bytes, complete: bool) -> tuple[bytes, bytes]:
        """Return (verb, the bytes after it) of a line or, where not `complete`, of the beginning of one.

        Raises ProtocolViolationError as soon as no verb can begin so, like nats-server, which reads byte by byte.
        """
        verb = line.partition(b" ")[0]
        if verb in self.VERBS and (len(verb) < len(line) or verb in self.LOOSE_VERBS):
            return verb, line[len(verb) :]
        upper = line[:8].upper()
        for verb in self.VERBS:
            if upper.startswith(verb):
                rest = line[len(verb) :]
                if verb in self.LOOSE_VERBS or verb in self.GLUED_VERBS or rest[:1] in (b" ", b"\t"):
                    return verb, rest
                if not complete and rest in (b"", b"\r"):
                    return verb, b""
            elif not complete and verb.startswith(upper):
                return verb, b""
        raise ProtocolViolationError(FaultKind.UNKNOWN_OPERATION, repr(line[:16]))

    def _check_args(self, verb: bytes, args: bytes) -> None:
        if len(args) > self.limits.max_control_line and verb not in self.LOOSE_VERBS:
            raise ProtocolViolationError(
                FaultKind.MAX_CONTROL_LINE, f"{verb.decode()} with {len(args)} bytes of arguments"
            )

    def _feed_pieces(self, pieces: list[bytes], index: int, ops: list[Op]) -> None:
        """Read every operation of `pieces[index:]`; the last piece is not ended by a line feed."""
        last = len(pieces) - 1
        try:
            while index < last:
                index = self._one(pieces, index, ops)
            if index == last:
                self._keep_tail(pieces[last])
        except ProtocolViolationError as fault:
            self._fail(fault, pieces, index)

    def _fail(self, fault: ProtocolViolationError, pieces: list[bytes], index: int) -> None:
        """Read nothing any more; the fault is in `pieces[index]`."""
        fault.unread = sum(len(piece) + 1 for piece in pieces[index + 1 :])
        self.fault = fault
        self._tail = b""
        self._body = bytearray()
        self._pending = None

    def _one(self, pieces: list[bytes], index: int, ops: list[Op]) -> int:
        """Read the operation at `pieces[index]` and return the index after it (past the end: its body is awaited)."""
        line = pieces[index].removesuffix(b"\r")
        verb, rest = self._split_verb(line, complete=True)
        args = rest.lstrip(BLANKS)
        self._check_args(verb, args)
        op, size, header_size = self._line(verb, args)
        if size < 0:
            if op is not None:
                ops.append(op)
            return index + 1
        assert op is not None
        return self._take_body(pieces, index + 1, ops, op, size, header_size)

    def _take_body(self, pieces: list[bytes], index: int, ops: list[Op], head: Op, size: int, header_size: int) -> int:
        end, body = gather_body(pieces, index, size)
        if end < len(pieces) - 1:
            if len(body) != size + 1 or not body.endswith(b"\r"):
                raise ProtocolViolationError(FaultKind.UNKNOWN_OPERATION, "payload not followed by CRLF")
            ops.append(self._message(head, body[:header_size], body[header_size:size]))
            return end + 1
        self._pending = (head, header_size)
        self._missing = size + 2
        self._body = bytearray()
        self._fill(body, ops)
        return len(pieces)

    def _fill(self, chunk: bytes, ops: list[Op]) -> bytes:
        """Add `chunk` to the awaited body and return what comes after the message."""
        assert self._pending is not None
        body = self._body
        room = self._missing - len(body)
        body += chunk[:room]
        size = self._missing - 2
        if not CRLF.startswith(body[size:]):
            raise ProtocolViolationError(FaultKind.UNKNOWN_OPERATION, "payload not followed by CRLF")
        if len(body) < self._missing:
            return b""
        head, header_size = self._pending
        ops.append(self._message(head, bytes(body[:header_size]), bytes(body[header_size:size])))
        self._pending = None
        self._body = bytearray()
        return chunk[room:]

    def _resume(self, chunk: bytes, ops: list[Op]) -> bytes:
        """Join `chunk` to what was kept and return the bytes that begin with a line."""
        if self._pending is None:
            chunk = self._tail + chunk
            self._tail = b""
            return chunk
        try:
            return self._fill(chunk, ops)
        except ProtocolViolationError as fault:
            self._fail(fault, [chunk], 0)
            return b""

    def _keep_tail(self, tail: bytes) -> None:
        if not tail:
            return
        verb, rest = self._split_verb(tail, complete=False)
        if verb in self.LOOSE_VERBS and len(tail) > len(verb):
            tail = verb + (b"\r" if tail.endswith(b"\r") else b" ")
        elif rest:
            args = rest.lstrip(BLANKS)
            self._check_args(verb, args[:-1] if args.endswith(b"\r") else args)
            tail = verb + rest[: len(rest) - len(args)][-1:] + args
        self._tail = tail
