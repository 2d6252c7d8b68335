"""Frames of a WebSocket connection, as the server's side reads and writes them, without I/O.

wsproto takes frames apart.  Its own message and extension layers are left out: clients may send NATS in text frames
that are no UTF-8, a message is handed on while it arrives, and the size of a decompressed one is limited. The status of
a close frame follows the reason for which the server closes the connection.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason as Status
from wsproto.frame_protocol import FrameDecoder, FrameProtocol, Opcode, ParseFailed, RsvBits

from natsctl.broker.refusals import CloseReason

MAX_CONTROL_BYTES: Final = 125
"""Longest payload of a control frame."""

COMPRESS_ABOVE: Final = 64
"""Bytes of output from which compression begins."""

BROWSER_FRAME_BYTES: Final = 4096
"""Largest frame that a browser is sent."""

SYNC_MARK: Final = b"\x00\x00\xff\xff"
"""The bytes that a sender leaves out at the end of each compressed message."""

FINAL: Final = 0x80
COMPRESSED: Final = 0x40

_TEXTS: Final = {
    "Invalid opcode": "unknown opcode",
    "Invalid attempt to fragment control frame": "control frame does not have final bit set",
    "Control frame with payload len > 125": "control frame length bigger than maximum allowed of 125 bytes",
    "8-byte payload length with non-zero MSB": "invalid 64-bit payload length",
    "server received unexpected unmasked frame": "mask bit missing",
    "Reserved bit set unexpectedly": "RSV2 and RSV3 must be clear",
}
"""Texts of wsproto, and those for clients and the log."""


class FrameError(Exception):
    """A frame that ends the connection; `status` is that of the close frame."""

    def __init__(self, text: str, status: int = Status.PROTOCOL_ERROR) -> None:
        super().__init__(text)
        self.status = status


class Event(NamedTuple):
    """A received piece of a message, or a control frame with its payload."""

    opcode: Opcode
    payload: bytes


class _Messages(Extension):
    """The rules between frames, and the inflating of compressed messages up to `limit` bytes each."""

    name = "permessage-deflate"

    def __init__(self, compressed: bool, limit: int) -> None:
        self._may_compress = compressed
        self._limit = limit
        self._open = False
        """The last frame that came whole did not end its message."""
        self._control = False
        self._inflater: zlib._Decompress | None = None
        self._size = 0

    def offer(self) -> bool:
        """Nothing is offered: the handshake is not wsproto's here."""
        return False

    def frame_inbound_header(
        self, proto: FrameDecoder | FrameProtocol, opcode: Opcode, rsv: RsvBits, payload_length: int
    ) -> RsvBits:
        """Refuse a frame that is not allowed here; raises FrameError."""
        if rsv.rsv2 or rsv.rsv3:
            raise FrameError("RSV2 and RSV3 must be clear")
        if rsv.rsv1 and not self._may_compress:
            raise FrameError("compressed frame received without negotiated permessage-deflate")
        self._control = opcode.iscontrol()
        if self._control:
            if rsv.rsv1:
                raise FrameError("control frame must not be compressed")
        elif opcode is Opcode.CONTINUATION:
            if not self._open or rsv.rsv1:
                raise FrameError("invalid continuation frame")
        elif self._open:
            raise FrameError("new message started before final frame for previous message was received")
        else:  # wsproto asks again where the header has not come whole, so that the message opens with its first frame
            self._size = 0
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS) if rsv.rsv1 else None
        return rsv

    def frame_inbound_payload_data(self, proto: FrameDecoder | FrameProtocol, data: bytes) -> bytes:
        """Return a piece as it was before compression; raises FrameError."""
        return data if self._control or self._inflater is None else self._inflate(data)

    def frame_inbound_complete(self, proto: FrameDecoder | FrameProtocol, fin: bool) -> bytes | None:
        """Return the rest of a compressed message at its end; raises FrameError."""
        if self._control:
            return None
        self._open = not fin
        if self._open:
            return None
        rest = self._inflate(SYNC_MARK) if self._inflater is not None else None
        self._inflater = None
        return rest

    def _inflate(self, data: bytes) -> bytes:
        assert self._inflater is not None
        try:
            clear = self._inflater.decompress(data, self._limit - self._size + 1)
        except zlib.error as error:
            raise FrameError("flate: corrupt input", Status.INVALID_FRAME_PAYLOAD_DATA) from error
        self._size += len(clear)
        if self._size > self._limit:
            raise FrameError("maximum payload exceeded", Status.MESSAGE_TOO_BIG)
        return clear


class FrameReader:
    """The client's frames."""

    __slots__ = ("_decoder",)

    def __init__(self, *, compressed: bool, masked: bool, limit: int) -> None:
        """Read frames; `limit` bounds a decompressed message."""
        self._decoder = FrameDecoder(client=not masked, extensions=[_Messages(compressed, limit)])

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield the frames that the chunk completes, pieces of messages as they come; raises FrameError."""
        self._decoder.receive_bytes(data)
        try:
            while (frame := self._decoder.process_buffer()) is not None:
                assert isinstance(frame.payload, bytes)
                yield Event(frame.opcode, frame.payload)
        except ParseFailed as error:
            reason = str(error)
            text = next((ours for start, ours in _TEXTS.items() if reason.startswith(start)), reason)
            if text == "unknown opcode":
                text += f" {int(reason.rpartition(' ')[2], 16)}"
            raise FrameError(text, error.code) from error


class Deflater:
    """Compresses messages one by one; many connections share one, whose quarter of a megabyte is made once.

    A full flush after each message lets nothing of it be referred to by the next.
    """

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zlib.Z_BEST_SPEED, zlib.DEFLATED, -zlib.MAX_WBITS)

    def pack(self, data: bytes) -> bytes:
        """Return a message compressed, without the mark at its end."""
        return (self._deflate.compress(data) + self._deflate.flush(zlib.Z_FULL_FLUSH))[: -len(SYNC_MARK)]


class FrameWriter:
    """The server's frames; `browser` keeps them small, `whole` leaves compressed messages in one piece."""

    __slots__ = ("_deflater", "_largest", "_whole")

    def __init__(self, deflater: Deflater | None, *, browser: bool = False, whole: bool = False) -> None:
        """Write frames, with `deflater` compressed where that is worth it."""
        self._deflater = deflater
        self._whole = whole
        self._largest = BROWSER_FRAME_BYTES if browser else 0

    def messages(self, data: bytes) -> bytes:
        """Return output as binary messages."""
        if self._deflater is not None and len(data) > COMPRESS_ABOVE:
            return self._compressed(self._deflater.pack(data))
        largest = self._largest
        if not largest or len(data) <= largest:
            return frame(FINAL | Opcode.BINARY, data)
        return b"".join(frame(FINAL | Opcode.BINARY, data[at : at + largest]) for at in range(0, len(data), largest))

    def _compressed(self, packed: bytes) -> bytes:
        largest = self._largest
        if self._whole or not largest or len(packed) <= largest:
            return frame(FINAL | COMPRESSED | Opcode.BINARY, packed)
        last = (len(packed) - 1) // largest * largest
        parts = []
        for at in range(0, len(packed), largest):
            head = COMPRESSED | Opcode.BINARY if at == 0 else Opcode.CONTINUATION
            parts.append(frame(head | (FINAL if at == last else 0), packed[at : at + largest]))
        return b"".join(parts)


def frame(head: int, payload: bytes) -> bytes:
    """Return one frame without a mask; `head` is its first byte."""
    size = len(payload)
    if size <= 125:
        return bytes((head, size)) + payload
    if size < 1 << 16:
        return bytes((head, 126)) + size.to_bytes(2, "big") + payload
    return bytes((head, 127)) + size.to_bytes(8, "big") + payload


def close_frame(status: int, text: str = "") -> bytes:
    """Return a close frame; a text that does not fit ends in dots."""
    body = text.encode()
    most = MAX_CONTROL_BYTES - 2
    if len(body) > most:
        body = body[: most - 3].decode(errors="ignore").encode() + b"..."
    return frame(FINAL | Opcode.CLOSE, status.to_bytes(2, "big") + body)


def close_answer(payload: bytes) -> bytes:
    """Return the answer to a close frame; raises FrameError where that was none."""
    if not payload:
        return frame(FINAL | Opcode.CLOSE, b"")
    if len(payload) == 1:
        raise FrameError("close frame payload cannot be 1 byte")
    status = int.from_bytes(payload[:2], "big")
    if status in (1004, 1005, 1006, 1015) or status < 1000 or 1016 <= status <= 2999 or status >= 5000:
        raise FrameError(f"invalid close status code {status}")
    try:
        return close_frame(status, payload[2:].decode())
    except UnicodeDecodeError:
        return close_frame(Status.INVALID_FRAME_PAYLOAD_DATA, "invalid utf8 body in close frame")


STATUSES: Final = {
    CloseReason.CLIENT_CLOSED: Status.NORMAL_CLOSURE,
    CloseReason.AUTHENTICATION_TIMEOUT: Status.POLICY_VIOLATION,
    CloseReason.AUTHENTICATION_VIOLATION: Status.POLICY_VIOLATION,
    CloseReason.SLOW_CONSUMER_PENDING_BYTES: Status.POLICY_VIOLATION,
    CloseReason.SLOW_CONSUMER_WRITE_DEADLINE: Status.POLICY_VIOLATION,
    CloseReason.MAX_ACCOUNT_CONNECTIONS_EXCEEDED: Status.POLICY_VIOLATION,
    CloseReason.MAX_CONNECTIONS_EXCEEDED: Status.POLICY_VIOLATION,
    CloseReason.MAX_CONTROL_LINE_EXCEEDED: Status.POLICY_VIOLATION,
    CloseReason.MAX_SUBSCRIPTIONS_EXCEEDED: Status.POLICY_VIOLATION,
    CloseReason.MISSING_ACCOUNT: Status.POLICY_VIOLATION,
    CloseReason.AUTHENTICATION_EXPIRED: Status.POLICY_VIOLATION,
    CloseReason.REVOKED: Status.POLICY_VIOLATION,
    CloseReason.TLS_HANDSHAKE_ERROR: Status.TLS_HANDSHAKE_FAILED,
    CloseReason.PARSE_ERROR: Status.PROTOCOL_ERROR,
    CloseReason.PROTOCOL_VIOLATION: Status.PROTOCOL_ERROR,
    CloseReason.BAD_CLIENT_PROTOCOL_VERSION: Status.PROTOCOL_ERROR,
    CloseReason.MAX_PAYLOAD_EXCEEDED: Status.MESSAGE_TOO_BIG,
    CloseReason.WRITE_ERROR: Status.GOING_AWAY,
    CloseReason.READ_ERROR: Status.GOING_AWAY,
    CloseReason.STALE_CONNECTION: Status.GOING_AWAY,
    CloseReason.SERVER_SHUTDOWN: Status.GOING_AWAY,
}
"""Status of the close frame for each reason; any other is an internal error."""
