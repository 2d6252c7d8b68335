"""Cutting a byte stream into operations, for both directions of the protocol.

Theory of operation. `_read` is the one loop over a chunk. It cuts a line, and if that announces a message and the body
is there, it cuts the body by its sizes; this common case is inline. Everything else (other verbs, irregular lines, the
cut end of a chunk) goes through `_one`, one operation at a time. A lone line feed ends a line as well as CRLF does.

Only two things are kept between chunks: an unfinished line (`_tail`, bounded by `max_control_line`) or an unfinished
message (`_body`, bounded by its announced size, checked against `max_payload` before the first byte was kept). The
first fault is final: later bytes are dropped.
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
"""Max size of a body that is looked up instead of parsed."""


@lru_cache(maxsize=8)
def fast_sizes(most: int) -> dict[bytes, int]:
    """Return the sizes up to `most` that peers have sent, by their text; connections with the same limit share them.

    A hit also proves that the text is a plain number. Filling the table at the start took 2 ms.
    """
    return {}


def words_of(args: bytes) -> list[bytes]:
    """Return the arguments of a line: blanks, tabs and CRs part them, VT and FF do not, unlike in `bytes.split`."""
    return [word for word in args.translate(_BLANKS_ALIKE).split(b" ") if word]


def publish_words(args: bytes) -> list[bytes]:
    """Return the arguments of a message; raises ProtocolViolationError for a CR in them.

    nats-server refuses a CR in a size, but delivers a subject with a CR to clients, who cannot read it, and to hubs of
    leaf nodes. A hub reads the rest as the reply: so a user who must not publish `secret` does.
    """
    if CR in args:
        raise ProtocolViolationError(FaultKind.MALFORMED, "a CR in the arguments")
    return words_of(args)


def has_odd_blanks(text: bytes) -> bool:
    """Return whether the text has blanks that `bytes.split` splits at and `words_of` does not."""
    return VT in text or FF in text


def parse_size(text: bytes) -> int:
    """Return the number in a size argument, or -1 if it is not one to nine digits."""
    return int(text) if text.isdigit() and len(text) <= MAX_SIZE_DIGITS else -1


class Framing:
    """The state of one direction of one connection; subclasses know the verbs."""

    __slots__ = ("_body", "_missing", "_pending", "_sizes", "_tail", "fault", "limits")

    VERBS: ClassVar[tuple[bytes, ...]] = ()
    LOOSE_VERBS: ClassVar[frozenset[bytes]] = frozenset({b"PING", b"PONG"})
    """Verbs after which the rest of the line is ignored."""
    GLUED_VERBS: ClassVar[frozenset[bytes]] = frozenset()
    """Verbs that need no blank before their argument."""

    MESSAGES: ClassVar[dict[bytes, int]] = {}
    """Verbs of messages, and how many sizes end their line."""
    KIND: ClassVar[int]
    """Kind of the operation of a message: (kind, subject, reply, *MIDDLE, header, payload)."""
    MIDDLE: ClassVar[tuple[object, ...]] = ()

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
        """Return (operation, body size, header size) of one line; the size is -1 if no body follows.

        The operation is None if the line is accepted and means nothing. Raises ProtocolViolationError.
        """
        raise ProtocolViolationError(FaultKind.UNKNOWN_OPERATION, repr(verb[:16]))

    def _message(self, head: Op, header: bytes, payload: bytes) -> Op:
        """Return the operation of a message after its body has arrived."""
        return (*head, header, payload)

    def _split_verb(self, line: bytes, complete: bool) -> tuple[bytes, bytes]:
        """Return (verb, the bytes after it) of a line or, if not `complete`, of the beginning of one.

        Raises ProtocolViolationError as soon as no verb can begin so: nats-server reads byte by byte.
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

    def _read(self, chunk: bytes, ops: list[Op]) -> None:
        """Read every operation of a chunk, and keep an incomplete one."""
        find, append, size_of, most_line = chunk.find, ops.append, self._sizes.get, self.limits.max_control_line
        messages, kind, middle, odd = self.MESSAGES, self.KIND, self.MIDDLE, has_odd_blanks(chunk)
        start = end = 0
        try:
            while start < len(chunk):
                end = find(b"\n", start)
                if end < 0:
                    end = len(chunk)
                    self._keep_tail(chunk[start:])
                    return
                line = chunk[start:end]
                fields = line.split()
                sizes = messages.get(fields[0], 0) if fields else 0
                replies = len(fields) - sizes - 2
                if (
                    sizes
                    and 0 <= replies <= 1
                    and line.find(CR) == len(line) - 1 < most_line
                    and line[0] == fields[0][0]
                    and not (odd and has_odd_blanks(line))
                ):
                    header_size = size_of(fields[-2], 0) if sizes == 2 else 0
                    size, body = size_of(fields[-1], -1), end + 1
                    after = body + size
                    if (header_size or sizes == 1) and header_size <= size and chunk[after : after + 2] == CRLF:
                        payload, reply = body + header_size, fields[2] if replies else b""
                        append((kind, fields[1], reply, *middle, chunk[body:payload], chunk[payload:after]))
                        start = after + 2
                        continue
                start = self._one(chunk, start, end, ops)
        except ProtocolViolationError as fault:
            self._fail(fault, len(chunk) - end)

    def _fail(self, fault: ProtocolViolationError, unread: int) -> None:
        fault.unread = unread
        self.fault = fault
        self._tail = b""
        self._body = bytearray()
        self._pending = None

    def _one(self, chunk: bytes, start: int, end: int, ops: list[Op]) -> int:
        """Read the operation with the line from `start` to `end`, and return where the next one begins."""
        line = chunk[start:end].removesuffix(b"\r")
        verb, rest = self._split_verb(line, complete=True)
        args = rest.lstrip(BLANKS)
        self._check_args(verb, args)
        op, size, header_size = self._line(verb, args)
        body = end + 1
        if size < 0:
            if op is not None:
                ops.append(op)
            return body
        assert op is not None
        self._pending = (op, header_size)
        self._missing = size + 2
        self._fill(chunk[body : body + size + 2], ops)
        return body + size + 2

    def _fill(self, chunk: bytes, ops: list[Op]) -> bytes:
        """Add `chunk` to the awaited body and return the rest after the message."""
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
        """Join `chunk` to the kept input and return the bytes from the next line on."""
        if self._pending is None:
            chunk = self._tail + chunk
            self._tail = b""
            return chunk
        try:
            return self._fill(chunk, ops)
        except ProtocolViolationError as fault:
            self._fail(fault, 0)
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
