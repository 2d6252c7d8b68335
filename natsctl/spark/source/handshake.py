"""The handshake with a server: its address, TLS before or after INFO, and the login.

All that a task needs is text, such as PEM and NKey seeds: an executor has none of the driver's files.

Ed25519 of RFC 8032 is here in plain Python: a login on an executor needs a signature, and no library is there. A
signature takes about a millisecond. Its time is not constant: it signs one nonce per connection, on a machine that
holds the seed anyway.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import socket
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from natsctl.spark.source.errors import NotAuthorisedError, OptionError, ServerUnreachableError
from natsctl.wire.client import TlsNotOfferedError, read_info, starts_tls
from natsctl.wire.server_url import ServerUrl, ServerUrlError, parse_server_url


@dataclass(frozen=True)
class ServerSettings:
    """One server or cluster; certificates are PEM texts, so that executors need none of the driver's files.

    Pickled with readers and writers only; what Spark prints of a query never has it.
    """

    urls: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    jwt: str = field(default="", repr=False)
    seed: str = field(default="", repr=False)
    tls_ca: str = field(default="", repr=False)
    tls_cert: str = field(default="", repr=False)
    tls_key: str = field(default="", repr=False)
    tls_first: bool = False
    tls_insecure: bool = False
    api_prefix: str = "$JS.API"
    inbox_prefix: str = "_INBOX"
    timeout_s: float = 5.0
    """The time for which an answer or a connection is awaited."""
    retries: int = 3
    retry_interval_s: float = 1.0


class Encryption:
    """The encryption of one connection, if there is any."""

    def __init__(self, settings: ServerSettings, host: str, *, wanted: bool) -> None:
        """Prepare TLS; `host` is the name that the certificate must have. Raises OptionError for an invalid file."""
        if bool(settings.tls_cert) != bool(settings.tls_key):
            raise OptionError("tlsCert and tlsKey go together: give both")
        self._settings = settings
        self._host = host
        said = settings.tls_ca or settings.tls_cert or settings.tls_first or settings.tls_insecure
        self.asked = wanted or bool(said)
        """Whether this side wants it; a server may, too."""
        self._context = self._made() if self.asked else None

    def of(self, wire: socket.socket) -> ssl.SSLSocket:
        """Return the connection after the handshake; raises OSError."""
        return (self._context or self._made()).wrap_socket(wire, server_hostname=self._host)

    def _made(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cadata=self._settings.tls_ca or None)
        except (ssl.SSLError, ValueError) as failure:
            raise OptionError(f"tlsCa: no certificate can be read from it: {failure}") from failure
        if self._settings.tls_cert:
            _show(context, self._settings)
        if self._settings.tls_insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _show(context: ssl.SSLContext, settings: ServerSettings) -> None:
    """Give the context the client's certificate, which Python's ssl takes from files only: private, gone at once."""
    with tempfile.TemporaryDirectory(prefix="natsctl-tls-") as folder:
        pem = Path(folder) / "both.pem"
        pem.touch(0o600)
        pem.write_text(f"{settings.tls_cert}\n{settings.tls_key}\n")
        try:
            context.load_cert_chain(pem)
        except (ssl.SSLError, OSError) as failure:
            raise OptionError(f"tlsCert, tlsKey: they cannot be used: {failure}") from failure


P: Final = 2**255 - 19
ORDER: Final = 2**252 + 27742317777372353535851937790883648493
D: Final = -121665 * pow(121666, P - 2, P) % P

Point = tuple[int, int, int, int]
"""Extended coordinates X, Y, Z, T of -x² + y² = 1 + d·x²·y², where x = X/Z, y = Y/Z, x·y = T/Z."""

BASE_Y: Final = 4 * pow(5, P - 2, P) % P
BASE_X: Final = 15112221349535400772501151409588531511454012693041857206046113283949847762202
BASE: Final[Point] = (BASE_X, BASE_Y, 1, BASE_X * BASE_Y % P)
NEUTRAL: Final[Point] = (0, 1, 1, 0)


def public_key(seed: bytes) -> bytes:
    """Return the 32 bytes of the public key of a 32-byte seed."""
    return _packed(_times(_secret(seed)[0], BASE))


def sign(seed: bytes, message: bytes) -> bytes:
    """Return the 64 bytes of the signature."""
    scalar, prefix = _secret(seed)
    own = _packed(_times(scalar, BASE))
    once = _number(prefix + message)
    commitment = _packed(_times(once, BASE))
    answer = (once + _number(commitment + own + message) * scalar) % ORDER
    return commitment + answer.to_bytes(32, "little")


def _secret(seed: bytes) -> tuple[int, bytes]:
    """Return the secret scalar and the prefix of nonces, out of a seed."""
    digest = hashlib.sha512(seed).digest()
    scalar = int.from_bytes(digest[:32], "little")
    return scalar & ((1 << 254) - 8) | 1 << 254, digest[32:]


def _number(data: bytes) -> int:
    """Return the hash of data as a number below the group's order."""
    return int.from_bytes(hashlib.sha512(data).digest(), "little") % ORDER


def _plus(one: Point, other: Point) -> Point:
    """Return the sum of two points, equal ones too: the formula has no exceptions on this curve."""
    a = (one[1] - one[0]) * (other[1] - other[0]) % P
    b = (one[1] + one[0]) * (other[1] + other[0]) % P
    c = 2 * one[3] * other[3] * D % P
    d = 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _times(scalar: int, point: Point) -> Point:
    """Return the point added to itself so many times."""
    total = NEUTRAL
    while scalar:
        if scalar & 1:
            total = _plus(total, point)
        point = _plus(point, point)
        scalar >>= 1
    return total


def _packed(point: Point) -> bytes:
    """Return the point as 32 bytes: y, and in the last bit whether x is odd."""
    inverse = pow(point[2], P - 2, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


SEED_PREFIX: Final = 18 << 3
"""The letter S, five bits of the first byte."""
SEED_BYTES: Final = 36
"""Two of prefixes, 32 of the seed, two of the check sum."""


def public_key_text(seed: str) -> str:
    """Return the public NKey of a seed (U…, A…); raises OptionError for what is no seed."""
    kind, raw = _opened(seed)
    body = bytes([kind]) + public_key(raw)
    return base64.b32encode(body + _check_sum(body)).decode().rstrip("=")


def signature_text(seed: str, nonce: bytes) -> str:
    """Return the signature of a server's nonce as CONNECT wants it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(sign(_opened(seed)[1], nonce)).decode().rstrip("=")


def _opened(text: str) -> tuple[int, bytes]:
    """Return the prefix byte of the public key (user, account, …) and the raw seed."""
    text = text.strip()
    try:
        data = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError) as failure:
        raise OptionError("nkey, credentials: the NKey seed in it is not valid") from failure
    if len(data) != SEED_BYTES or data[0] & 0xF8 != SEED_PREFIX or _check_sum(data[:-2]) != data[-2:]:
        raise OptionError("nkey, credentials: the NKey seed in it is not valid")
    return (data[0] & 7) << 5 | data[1] >> 3, data[2:-2]


def _check_sum(data: bytes) -> bytes:
    """Return the CRC-16 (XMODEM), low byte first."""
    return binascii.crc_hqx(data, 0).to_bytes(2, "little")


_PORTS: Final = {"nats": 4222, "tls": 4222}
READ_BYTES: Final = 1 << 20

ABOUT: Final = {
    "verbose": False,
    "pedantic": False,
    "lang": "python",
    "version": "1",
    "name": "natsctl-spark",
    "protocol": 1,
    "headers": True,
    "no_responders": True,
}


class Greeted(NamedTuple):
    """A connection that is logged in, the server's INFO, and the bytes since."""

    wire: socket.socket
    info: dict[str, Any]
    rest: bytes


def server_url(url: str) -> ServerUrl:
    """Return a server's address taken apart; raises OptionError for one that a blocking NATS connection cannot use."""
    if url.startswith(("ws://", "wss://")):
        raise OptionError("servers: ws:// and wss:// are for browsers: use nats:// or tls:// and a server's NATS port")
    try:
        return parse_server_url(url, _PORTS)
    except ServerUrlError as failure:
        raise OptionError(f"servers: not the URL of a server such as nats://host:4222: {failure}") from None


def greet(url: str, settings: ServerSettings, known_as: str = "") -> Greeted:
    """Connect and log in; raises ServerUnreachableError, NotAuthorisedError, OptionError.

    `known_as` is the name that a server's certificate has where its address came from another server's INFO.
    """
    parts = server_url(url)
    where = parts.address
    wanted = any(server_url(each).scheme == "tls" for each in (url, *settings.urls))
    encryption = Encryption(settings, known_as or parts.host, wanted=wanted)
    try:
        wire = socket.create_connection((parts.host, parts.port), timeout=settings.timeout_s)
    except OSError as failure:
        raise ServerUnreachableError(f"no server answers at {where}: {failure}") from failure
    try:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if settings.tls_first:
            wire = encryption.of(wire)
        line, rest = _line(wire, b"")
        info = _info(line, where)
        if starts_tls(info, wanted=encryption.asked, secured=settings.tls_first):
            wire, rest = encryption.of(wire), b""
        about = {**ABOUT, **_login(parts, settings, info), "tls_required": isinstance(wire, ssl.SSLSocket)}
        wire.sendall(b"CONNECT " + json.dumps(about).encode() + b"\r\nPING\r\n")
        return Greeted(wire, info, _welcomed(wire, rest, where))
    except BaseException as failure:
        wire.close()
        if isinstance(failure, ssl.SSLCertVerificationError):
            text = f"{where}: the server's certificate is not accepted: {failure.verify_message}"
            raise NotAuthorisedError(text) from failure
        if isinstance(failure, TlsNotOfferedError):
            raise ServerUnreachableError(f"{where}: TLS is asked for, which this server does not offer") from None
        if isinstance(failure, OSError):
            text = f"{where}: the server hung up before the login was done: {failure}"
            raise ServerUnreachableError(text) from failure
        raise


def _info(line: bytes, where: str) -> dict[str, Any]:
    """Return a server's INFO; raises ServerUnreachableError where no NATS server talks."""
    try:
        return read_info(line)
    except ValueError as failure:
        hint = "" if line else " (it may want TLS at once: tlsFirst)"
        raise ServerUnreachableError(f"{where}: what answers does not speak the NATS protocol{hint}") from failure


def _welcomed(wire: socket.socket, rest: bytes, host: str) -> bytes:
    """Return the bytes behind the PONG that confirms the login; raises NotAuthorisedError for a refusal."""
    while True:
        line, rest = _line(wire, rest)
        if line == b"PONG":
            return rest
        if line == b"PING":
            wire.sendall(b"PONG\r\n")
        elif line.startswith(b"-ERR"):
            text = line[4:].decode(errors="replace").strip(" '")
            kind = (
                NotAuthorisedError
                if "uthori" in text or "xpired" in text or "evoked" in text
                else ServerUnreachableError
            )
            raise kind(f"{host}: the server refuses the login: {text}")
        elif not line:
            raise ServerUnreachableError(f"{host}: the server hung up at the login")


def _line(wire: socket.socket, rest: bytes) -> tuple[bytes, bytes]:
    """Return the next line and what came behind it; an empty one where the connection ended."""
    while b"\r\n" not in rest:
        got = wire.recv(READ_BYTES)
        if not got:
            return b"", b""
        rest += got
    line, _, rest = rest.partition(b"\r\n")
    return line, rest


def _login(url: ServerUrl, settings: ServerSettings, info: dict[str, Any]) -> dict[str, str]:
    """Return the login's fields of CONNECT; what stands in the address itself goes before the settings."""
    if url.login:
        names = {"user": "user", "password": "pass", "token": "auth_token"}
        return {names[name]: value for name, value in url.login.items()}
    fields = {"jwt": settings.jwt, "user": settings.user, "pass": settings.password, "auth_token": settings.token}
    login = {name: value for name, value in fields.items() if value}
    if settings.seed:
        if not settings.jwt:
            login["nkey"] = public_key_text(settings.seed)
        if nonce := info.get("nonce"):
            login["sig"] = signature_text(settings.seed, nonce.encode())
    return login
