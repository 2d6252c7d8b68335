"""WebSocket as the server's side speaks it, without I/O: the HTTP request that upgrades a connection, and frames.

Checks of the request come in the order of RFC 6455 section 4.2.1, as in nats-server's wsUpgrade; h11 reads it.

wsproto parses frames. Its own message and extension layers are left out: clients may send NATS in text frames that are
no UTF-8, a message is handed on while it arrives, and the size of a decompressed one is limited. The status of a close
frame follows the server's reason for closing the connection.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import re
import zlib
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple
from urllib.parse import urlsplit

import h11
import msgspec
from wsproto.extensions import Extension, PerMessageDeflate
from wsproto.frame_protocol import CloseReason as Status
from wsproto.frame_protocol import FrameDecoder, FrameProtocol, Opcode, ParseFailed, RsvBits

from natsctl.api.model import Confidential
from natsctl.broker.refusals import CloseReason
from natsctl.server.options import WebSocketOptions

if TYPE_CHECKING:
    from asyncio import Transport


MAX_CONTROL_BYTES: Final = 125
"""Longest payload of a control frame."""

COMPRESS_ABOVE: Final = 64
"""Minimum bytes of output for compression."""

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


class FrameEvent(NamedTuple):
    opcode: Opcode
    payload: bytes


class FrameRules(Extension):
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

    def offer(self) -> bool | str:
        """Return False: wsproto does not make the handshake here."""
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


class BoundedDeflate(FrameRules, PerMessageDeflate):
    """Compression as the client's side offers it; messages are inflated up to `limit` bytes each."""

    offer = PerMessageDeflate.offer

    def __init__(self, limit: int) -> None:
        PerMessageDeflate.__init__(self, client_no_context_takeover=True, server_no_context_takeover=True)
        FrameRules.__init__(self, True, limit)


class WebSocketReader:
    __slots__ = ("_decoder",)

    def __init__(self, *, compressed: bool, masked: bool, limit: int) -> None:
        self._decoder = FrameDecoder(client=not masked, extensions=[FrameRules(compressed, limit)])

    def feed(self, data: bytes) -> Iterator[FrameEvent]:
        """Yield the frames that the chunk completes, pieces of messages as they come; raises FrameError."""
        self._decoder.receive_bytes(data)
        try:
            while (frame := self._decoder.process_buffer()) is not None:
                assert isinstance(frame.payload, bytes)
                yield FrameEvent(frame.opcode, frame.payload)
        except ParseFailed as error:
            reason = str(error)
            text = next((ours for start, ours in _TEXTS.items() if reason.startswith(start)), reason)
            if text == "unknown opcode":
                text += f" {int(reason.rpartition(' ')[2], 16)}"
            raise FrameError(text, error.code) from error


class Deflater:
    """A compressor of single messages, shared by many connections because each takes a quarter of a megabyte.

    A full flush after each message lets nothing of it be referred to by the next.
    """

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zlib.Z_BEST_SPEED, zlib.DEFLATED, -zlib.MAX_WBITS)

    def pack(self, data: bytes) -> bytes:
        """Return a message compressed, without the mark at its end."""
        return (self._deflate.compress(data) + self._deflate.flush(zlib.Z_FULL_FLUSH))[: -len(SYNC_MARK)]


class WebSocketWriter:
    """The server's frames; `browser` keeps them small, `whole` leaves compressed messages in one piece."""

    __slots__ = ("_deflater", "_largest", "_whole")

    def __init__(self, deflater: Deflater | None, *, browser: bool = False, whole: bool = False) -> None:
        self._deflater = deflater
        self._whole = whole
        self._largest = BROWSER_FRAME_BYTES if browser else 0

    def messages(self, data: bytes) -> bytes:
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
    """Return the answer to a close frame; raises FrameError if it is invalid."""
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
    CloseReason[reason]: status
    for status, reasons in {
        Status.NORMAL_CLOSURE: "CLIENT_CLOSED",
        Status.POLICY_VIOLATION: "AUTHENTICATION_TIMEOUT AUTHENTICATION_VIOLATION AUTHENTICATION_EXPIRED REVOKED "
        "SLOW_CONSUMER_PENDING_BYTES SLOW_CONSUMER_WRITE_DEADLINE MAX_ACCOUNT_CONNECTIONS_EXCEEDED "
        "MAX_CONNECTIONS_EXCEEDED MAX_CONTROL_LINE_EXCEEDED MAX_SUBSCRIPTIONS_EXCEEDED MISSING_ACCOUNT",
        Status.TLS_HANDSHAKE_FAILED: "TLS_HANDSHAKE_ERROR",
        Status.PROTOCOL_ERROR: "PARSE_ERROR PROTOCOL_VIOLATION BAD_CLIENT_PROTOCOL_VERSION",
        Status.MESSAGE_TOO_BIG: "MAX_PAYLOAD_EXCEEDED",
        Status.GOING_AWAY: "WRITE_ERROR READ_ERROR STALE_CONNECTION SERVER_SHUTDOWN",
    }.items()
    for reason in reasons.split()
}
"""Status of the close frame for each reason; any other is an internal error."""


GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

DEFLATE: Final = "permessage-deflate"

HEADERS_REFUSED: Final = frozenset({"host", "content-length", "connection", "upgrade", "nats-no-masking"})
"""Headers that `headers` may not set, in addition to `sec-websocket-*`."""

MAX_COOKIES: Final = 3000
"""Maximum cookies of a request; with more, none counts. Source: Go, net/http defaultCookieMaxNum."""

_COOKIE_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_COOKIE_VALUE: Final = re.compile(r'[^\x00-\x1f\x7f-\xff";\\]*')

Origin = tuple[str, str, str]
"""Scheme, host in lower case, and port."""


class UpgradeError(Exception):
    """A request that stays HTTP: its answer, and the reason for the log."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Upgrade(Confidential, frozen=True):
    UNSHOWN: ClassVar = ("cookies",)

    answer: bytes
    leaf: bool = False
    compressed: bool = False
    masked: bool = True
    browser: bool = False
    whole: bool = False
    """Compressed messages must not be split: Safari."""
    forwarded_for: str = ""
    cookies: dict[str, str] = msgspec.field(default_factory=dict)
    """Fields of CONNECT, for those that the client's own leaves empty."""


class Upgrader:
    """Checks and answers upgrade requests of a listener; `options` may be replaced while it is open."""

    def __init__(self, options: WebSocketOptions, max_payload: int) -> None:
        """Take the options. Raises ValueError for an allowed origin that is not one."""
        self.max_payload = max_payload
        self.waiting: set[Transport] = set()
        """Connections that have not shown a request yet."""
        self.deflater = Deflater()
        """The compressor of the output of all connections."""
        self.options: WebSocketOptions
        self._origins: frozenset[Origin]
        self.replace(options)

    def replace(self, options: WebSocketOptions) -> None:
        """Use other options from the next request on; raises ValueError, and then the old ones stay."""
        self._origins = frozenset(allowed_origin(text) for text in options.allowed_origins)
        self.options = options

    def close(self) -> None:
        """Abort the connections that have not sent a request yet: they are known here only, and the server stops."""
        for transport in tuple(self.waiting):
            transport.abort()

    def upgrade(self, request: h11.Request, secure: bool) -> Upgrade:
        headers = _Headers(request.headers)
        path = request.target.decode("latin-1").partition("?")[0]
        if path.endswith("/mqtt"):
            raise UpgradeError(HTTPStatus.NOT_FOUND, "mqtt websocket endpoint not enabled")
        if request.method != b"GET":
            raise UpgradeError(HTTPStatus.METHOD_NOT_ALLOWED, "request method must be GET")
        key = _checked_key(headers)
        if fault := self._origin_fault(headers, secure):
            raise UpgradeError(HTTPStatus.FORBIDDEN, f"origin not allowed: {fault}")
        compressed = self.options.compression and headers.offers(DEFLATE)
        unmasked = headers.first("nats-no-masking") == "true"
        agent = headers.first("user-agent")
        browser = agent.startswith("Mozilla/")
        return Upgrade(
            answer=self._answer(key, compressed, unmasked),
            leaf=path.endswith("/leafnode"),
            compressed=compressed,
            masked=not unmasked,
            browser=browser,
            whole=browser and "Version/" in agent and "Safari/" in agent,
            forwarded_for=_address(headers.first("x-forwarded-for")),
            cookies=self._cookies(headers),
        )

    def _answer(self, key: str, compressed: bool, unmasked: bool) -> bytes:
        accept = base64.b64encode(hashlib.sha1(key.encode() + GUID, usedforsecurity=False).digest()).decode()
        lines = [
            "HTTP/1.1 101 Switching Protocols",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Accept: {accept}",
        ]
        if compressed:
            lines.append(f"Sec-WebSocket-Extensions: {DEFLATE}; server_no_context_takeover; client_no_context_takeover")
        if unmasked:
            lines.append("Nats-No-Masking: true")
        lines += [f"{name}: {value}" for name, value in self.options.headers]
        return "\r\n".join([*lines, "", ""]).encode()

    def _origin_fault(self, headers: _Headers, secure: bool) -> str:
        """Return the fault of a request's origin, or ""; a request without an origin is allowed."""
        text = headers.first("origin") or headers.first("sec-websocket-origin")
        if not text or not (self.options.same_origin or self._origins):
            return ""
        try:
            origin = origin_of(text)
        except ValueError as error:
            return str(error)
        scheme = "https" if secure else "http"
        if self.options.same_origin:
            try:
                here = host_and_port(headers.first("host"), scheme)
            except ValueError as error:
                return str(error)
            if origin != (scheme, *here):
                return "not same origin"
        return "not in the allowed list" if self._origins and origin not in self._origins else ""

    def _cookies(self, headers: _Headers) -> dict[str, str]:
        options = self.options
        fields = {
            "jwt": options.jwt_cookie,
            "user": options.user_cookie,
            "password": options.pass_cookie,
            "auth_token": options.token_cookie,
        }
        wanted = {name: field for field, name in reversed(fields.items()) if name}  # of two by one name, the first
        found = headers.cookies() if wanted else {}
        return {field: found[name] for name, field in wanted.items() if found.get(name)}


class _Headers:
    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in headers:
            self._values.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))

    def first(self, name: str) -> str:
        return self._values.get(name, [""])[0]

    def lists(self, name: str, token: str) -> bool:
        values = self._values.get(name, [])
        return any(part.strip(" \t").lower() == token for value in values for part in value.split(","))

    def offers(self, extension: str) -> bool:
        text = ",".join(self._values.get("sec-websocket-extensions", []))
        return any(part.strip(" \t").lower() == extension for part in text.replace(";", ",").split(","))

    def cookies(self) -> dict[str, str]:
        """Return the last cookie of each name; without malformed ones, or none if there are too many.

        Source: Go, net/http readCookies.
        """
        found: dict[str, str] = {}
        parts = [part.strip(" \t") for value in self._values.get("cookie", []) for part in value.split(";")]
        for part in parts if len(parts) <= MAX_COOKIES else ():
            name, _, content = part.partition("=")
            if len(content) > 1 and content[0] == content[-1] == '"':
                content = content[1:-1]
            name = name.rstrip(" \t")
            if _COOKIE_NAME.fullmatch(name) and _COOKIE_VALUE.fullmatch(content):
                found[name] = content
        return found


def _checked_key(headers: _Headers) -> str:
    """Return the client's key; raises UpgradeError if a part of the handshake is missing."""
    key = headers.first("sec-websocket-key")
    faults = (
        (not headers.first("host"), "'Host' missing in request"),
        (not headers.lists("upgrade", "websocket"), "invalid value for header 'Upgrade'"),
        (not headers.lists("connection", "upgrade"), "invalid value for header 'Connection'"),
        (not key, "key missing"),
        (not _is_key(key), "invalid websocket key"),
        (not headers.lists("sec-websocket-version", "13"), "invalid version"),
    )
    for wrong, reason in faults:
        if wrong:
            raise UpgradeError(HTTPStatus.BAD_REQUEST, reason)
    return key


def _is_key(key: str) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


def _address(text: str) -> str:
    """Return a bare IP address, "" for anything else."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return ""
    return text


def origin_of(text: str) -> Origin:
    invalid = f'parse "{text}": invalid URI for request'
    try:
        parts = urlsplit(text)
        if not parts.scheme and not text.startswith("/"):
            raise ValueError(invalid)
        return (parts.scheme.lower(), *host_and_port(parts.netloc.rpartition("@")[2], parts.scheme.lower()))
    except ValueError as error:
        raise ValueError(str(error) if str(error) == invalid else invalid) from error


def host_and_port(text: str, scheme: str) -> tuple[str, str]:
    """Return host and port of `host[:port]`; without one it is the scheme's. Raises ValueError."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"address {text}: missing ']' in address")
        port = rest[1:]
    else:
        host, _, port = text.partition(":")
        if ":" in port:
            raise ValueError(f"address {text}: too many colons in address")
    return host.lower(), port or ("443" if scheme == "https" else "80")


def allowed_origin(text: str) -> Origin:
    """Return an entry of `allowed_origins`; raises ValueError with nats-server's text."""
    try:
        origin = origin_of(text)
    except ValueError as error:
        raise ValueError(f"unable to parse allowed origin: {error}") from error
    if origin[0] not in ("http", "https"):
        raise ValueError(
            f'unable to parse allowed origin "{text}": allowed origins must be absolute URLs with http or https scheme'
        )
    if not origin[1]:
        raise ValueError(f'unable to parse allowed origin "{text}": host is required')
    return origin


def refusal(status: HTTPStatus, date: str, *, old: bool, head: bool, closing: bool) -> bytes:
    """Return the answer to a request that is not upgraded.

    `old` speaks HTTP/1.0, `head` wants no body, `closing` has asked for the end of the connection.
    """
    body = f"{status.phrase}\n"
    lines = [
        f"HTTP/1.{0 if old else 1} {status.value} {status.phrase}",
        "Content-Type: text/plain; charset=utf-8",
        "Sec-Websocket-Version: 13",
        "X-Content-Type-Options: nosniff",
        f"Date: {date}",
        f"Content-Length: {len(body)}",
        *(["Connection: close"] if closing else []),
        "",
        "" if head else body,
    ]
    return "\r\n".join(lines).encode()


def nonsense(status: int, text: str) -> bytes:
    phrase = HTTPStatus(status).phrase
    line = f"{status} {phrase}{text}"
    body = "Unsupported transfer encoding" if status == HTTPStatus.NOT_IMPLEMENTED else line
    return f"HTTP/1.1 {line}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n{body}".encode()
