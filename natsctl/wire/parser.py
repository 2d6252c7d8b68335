"""The incremental parser of the data that clients send."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from natsctl.native import lib
from natsctl.wire.framing import Framing, parse_size, publish_words, words_of
from natsctl.wire.ops import (
    CONNECT,
    HPUB,
    INFO,
    OK,
    PING,
    PONG,
    PUB,
    SUB,
    UNSUB,
    FaultKind,
    Limits,
    Op,
    ProtocolViolationError,
)
from natsctl.wire.publish_run import gather_runs

NO_BODY: Final = -1
MAX_READ_AGAIN: Final = 4096
"""Bytes of the body of a message that is read again when its last part has arrived."""


class Parser(Framing):
    """Incremental parser of what clients send; chunks may be split anywhere."""

    __slots__ = ("_runs",)

    VERBS: ClassVar[tuple[bytes, ...]] = (
        b"PUB", b"HPUB", b"SUB", b"UNSUB", b"PING", b"PONG", b"CONNECT", b"INFO", b"+OK", b"-ERR",
    )  # fmt: skip
    LOOSE_VERBS: ClassVar[frozenset[bytes]] = frozenset({b"PING", b"PONG", b"+OK"})
    GLUED_VERBS: ClassVar[frozenset[bytes]] = frozenset({b"CONNECT", b"INFO"})
    MESSAGES: ClassVar[dict[bytes, int]] = {b"PUB": 1, b"HPUB": 2}
    KIND: ClassVar[int] = PUB

    def __init__(self, limits: Limits | None = None, *, runs: bool = False) -> None:
        """Apply `limits` to the client; with `runs`, return neighboring messages as operations of the kind RUN."""
        super().__init__(limits or Limits())
        self._runs = runs

    def feed(self, chunk: bytes) -> list[Op]:
        """Return the operations that `chunk` completes; a fault is left in `fault` after the operations before it."""
        ops: list[Op] = []
        if self.fault is not None:
            return ops
        if self._tail or self._pending is not None:
            chunk = self._resume(chunk, ops)
        if lib is not None and chunk:
            limits = self.limits
            end = lib.read_ops(chunk, limits.max_control_line, limits.max_payload, ops, self._runs)
            if end == len(chunk):
                return ops
            chunk = chunk[end:]
        if chunk:
            self._read(chunk, ops)
        return gather_runs(ops) if self._runs and lib is None else ops

    def _resume(self, chunk: bytes, ops: list[Op]) -> bytes:
        """Join `chunk` to the kept input; a short message that is complete now is read again, to join a run."""
        if self._pending is None or self._missing > MAX_READ_AGAIN or len(self._body) + len(chunk) < self._missing:
            return super()._resume(chunk, ops)
        head, header_size = self._pending
        if head[0] != PUB:
            return super()._resume(chunk, ops)
        sizes = b"%d %d" % (header_size, self._missing - 2) if header_size else b"%d" % (self._missing - 2)
        line = b" ".join([b"HPUB" if header_size else b"PUB", *filter(None, head[1:]), sizes])
        chunk = b"%b\r\n%b%b" % (line, bytes(self._body), chunk)
        self._pending, self._body = None, bytearray()
        return chunk

    def _line(self, verb: bytes, args: bytes) -> tuple[Op | None, int, int]:
        if verb == b"PUB" or verb == b"HPUB":
            return self._publish(publish_words(args), with_header=verb == b"HPUB")
        if verb == b"PING":
            return (PING,), NO_BODY, 0
        if verb == b"PONG":
            return (PONG,), NO_BODY, 0
        if verb == b"SUB":
            return _subscribe(words_of(args)), NO_BODY, 0
        if verb == b"UNSUB":
            return _unsubscribe(words_of(args)), NO_BODY, 0
        if verb == b"CONNECT":
            return (CONNECT, args), NO_BODY, 0
        if verb == b"-ERR":
            raise ProtocolViolationError(FaultKind.MALFORMED, "an error from a client")
        if verb == b"INFO":
            _check_info(args)
            return (INFO, args), NO_BODY, 0
        return (OK,), NO_BODY, 0

    def _publish(self, fields: list[bytes], with_header: bool) -> tuple[Op, int, int]:
        sizes = 2 if with_header else 1
        if not 1 + sizes <= len(fields) <= 2 + sizes:
            raise ProtocolViolationError(FaultKind.MALFORMED, f"{len(fields)} arguments to publish")
        size = self._size(fields[-1])
        header_size = self._size(fields[-2]) if with_header else 0
        if size < 0 or header_size < 0:
            raise ProtocolViolationError(FaultKind.MALFORMED, "a size is not a number")
        if header_size > size:
            raise ProtocolViolationError(FaultKind.MALFORMED, "header longer than the message")
        if size > self.limits.max_payload:
            raise ProtocolViolationError(FaultKind.MAX_PAYLOAD, f"{size} vs {self.limits.max_payload}")
        reply = fields[1] if len(fields) == 2 + sizes else b""
        return (HPUB if with_header and not header_size else PUB, fields[0], reply), size, header_size


def _check_info(args: bytes) -> None:
    """Raise ProtocolViolationError unless INFO holds a JSON object or null."""
    try:
        msgspec.json.decode(args.decode("utf-8", "replace"), type=dict[str, object] | None)
    except (msgspec.DecodeError, RecursionError):
        raise ProtocolViolationError(FaultKind.MALFORMED, "INFO without a JSON object") from None


def _subscribe(fields: list[bytes]) -> Op:
    if len(fields) == 2:
        return (SUB, fields[0], b"", fields[1])
    if len(fields) == 3:
        return (SUB, *fields)
    raise ProtocolViolationError(FaultKind.MALFORMED, f"{len(fields)} arguments to SUB")


def _unsubscribe(fields: list[bytes]) -> Op:
    if len(fields) == 1:
        return (UNSUB, fields[0], 0)
    if len(fields) == 2:
        # An invalid number counts as none. Source: seen on nats-server.
        return (UNSUB, fields[0], max(parse_size(fields[1]), 0))
    raise ProtocolViolationError(FaultKind.MALFORMED, f"{len(fields)} arguments to UNSUB")
