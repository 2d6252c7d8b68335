"""One connection to one server: the socket, TLS before or after INFO, and the login."""

from __future__ import annotations

import json
import socket
import ssl
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from natsctl.spark.source.connection.encryption import Encryption
from natsctl.spark.source.connection.nkeys import public_key_text, signature_text
from natsctl.spark.source.connection.settings import ServerSettings
from natsctl.spark.source.errors import NotAuthorisedError, OptionError, ServerUnreachableError

SCHEMES: Final = ("nats", "tls")
DEFAULT_PORT: Final = 4222
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


def server_url(url: str) -> SplitResult:
    """Return a server's address taken apart; raises OptionError for one that a blocking NATS connection cannot use."""
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    if parts.scheme in ("ws", "wss"):
        raise OptionError(
            f"servers: {parts.scheme}:// is for browsers; Spark reads a server's NATS port: use nats:// or tls://"
        )
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise OptionError(f"servers: {_bare(parts)!r} is no server's address such as nats://host:4222")
    try:
        parts.port  # noqa: B018  # it is only found to be wrong when asked for
    except ValueError as failure:
        raise OptionError(f"servers: {_bare(parts)!r}: {failure}") from failure
    return parts


def greet(url: str, settings: ServerSettings, known_as: str = "") -> Greeted:
    """Connect and log in; raises ServerUnreachableError, NotAuthorisedError, OptionError.

    `known_as` is the name that a server's certificate has where its address came from another server's INFO.
    """
    parts = server_url(url)
    where = f"{parts.hostname}:{parts.port or DEFAULT_PORT}"
    encryption = Encryption(settings, known_as or parts.hostname or "", wanted=parts.scheme == "tls")
    try:
        wire = socket.create_connection((parts.hostname or "", parts.port or DEFAULT_PORT), timeout=settings.timeout_s)
    except OSError as failure:
        raise ServerUnreachableError(f"no server answers at {where}: {failure}") from failure
    try:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if settings.tls_first:
            wire = encryption.of(wire)
        line, rest = _line(wire, b"")
        info = _info(line, where)
        if not settings.tls_first and (encryption.asked or info.get("tls_required")):
            if not (info.get("tls_required") or info.get("tls_available")):
                raise ServerUnreachableError(f"{where}: TLS is asked for, which this server does not offer")
            wire, rest = encryption.of(wire), b""
        about = {**ABOUT, **_login(parts, settings, info), "tls_required": isinstance(wire, ssl.SSLSocket)}
        wire.sendall(b"CONNECT " + json.dumps(about).encode() + b"\r\nPING\r\n")
        return Greeted(wire, info, _welcomed(wire, rest, where))
    except BaseException as failure:
        wire.close()
        if isinstance(failure, ssl.SSLCertVerificationError):
            text = f"{where}: the server's certificate is not accepted: {failure.verify_message}"
            raise NotAuthorisedError(text) from failure
        if isinstance(failure, OSError):
            text = f"{where}: the server hung up before the login was done: {failure}"
            raise ServerUnreachableError(text) from failure
        raise


def _info(line: bytes, where: str) -> dict[str, Any]:
    """Return a server's INFO; raises ServerUnreachableError where no NATS server talks."""
    if not line.startswith(b"INFO "):
        hint = "" if line else " (it may want TLS at once: tlsFirst)"
        raise ServerUnreachableError(f"{where}: what answers does not speak the NATS protocol{hint}")
    info: dict[str, Any] = json.loads(line[5:])
    return info


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


def _login(parts: SplitResult, settings: ServerSettings, info: dict[str, Any]) -> dict[str, str]:
    """Return the login's fields of CONNECT; what stands in the address itself goes before the settings."""
    if parts.username and parts.password is not None:
        return {"user": unquote(parts.username), "pass": unquote(parts.password)}
    if parts.username:
        return {"auth_token": unquote(parts.username)}
    fields = {"jwt": settings.jwt, "user": settings.user, "pass": settings.password, "auth_token": settings.token}
    login = {name: value for name, value in fields.items() if value}
    if settings.seed:
        if not settings.jwt:
            login["nkey"] = public_key_text(settings.seed)
        if nonce := info.get("nonce"):
            login["sig"] = signature_text(settings.seed, nonce.encode())
    return login


def _bare(parts: SplitResult) -> str:
    """Return the address without a login in it."""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
