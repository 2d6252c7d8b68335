"""The HTTP request that becomes a WebSocket connection, and the answers to those that do not.

Checks come in the order of RFC 6455 section 4.2.1, as in nats-server's wsUpgrade; h11 reads the request.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import urlsplit

import h11
import msgspec

from natsctl.api.model import Confidential
from natsctl.server.options import WebSocketOptions
from natsctl.server.websocket.frames import Deflater

if TYPE_CHECKING:
    from asyncio import Transport

GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

DEFLATE: Final = "permessage-deflate"

HEADERS_REFUSED: Final = frozenset({"host", "content-length", "connection", "upgrade", "nats-no-masking"})
"""Headers that `headers` may not set, besides those that begin with `sec-websocket-`."""

MAX_COOKIES: Final = 3000
"""Cookies of a request; where there are more, none counts. Source: Go, net/http defaultCookieMaxNum."""

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
    """A request that was accepted."""

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
        """Raises ValueError where an allowed origin is none."""
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
        """Return the upgrade of a request; raises UpgradeError."""
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
        accept = base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()
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
        """Return the fault of a request's origin, "" where there is none; a request without an origin is allowed."""
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
    """The headers of one request; names are in lower case."""

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in headers:
            self._values.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))

    def first(self, name: str) -> str:
        return self._values.get(name, [""])[0]

    def lists(self, name: str, token: str) -> bool:
        """Return whether one of the comma-separated values of a header is `token`, in any case."""
        values = self._values.get(name, [])
        return any(part.strip(" \t").lower() == token for value in values for part in value.split(","))

    def offers(self, extension: str) -> bool:
        """Return whether the client offers an extension, with any parameters."""
        text = ",".join(self._values.get("sec-websocket-extensions", []))
        return any(part.strip(" \t").lower() == extension for part in text.replace(";", ",").split(","))

    def cookies(self) -> dict[str, str]:
        """Return the last of each name; what is no cookie is left out, and all of them where there are too many.

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
    """Return the client's key; raises UpgradeError where it or another part of the handshake is missing."""
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
    """Return an origin's parts; raises ValueError."""
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
    """Return an entry of `allowed_origins`; raises ValueError with nats-server's words."""
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
    """Return the answer to malformed HTTP."""
    phrase = HTTPStatus(status).phrase
    body = f"{status} {phrase}{text}"
    return f"HTTP/1.1 {body}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n{body}".encode()
