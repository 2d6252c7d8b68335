"""The URL of a server, taken apart and decoded: one rule for every client of natsctl, and for leaf node remotes.

In user, password and token `%` with two hexadecimal digits is one byte; any other `%`, and `+`, stay as they are. Raw
special characters are accepted except `/`, `?` and `#`: these end the part that has the login. A login without a
password is a token. No error repeats a part of the URL that may be a secret.

This module imports only `hints`, because Spark carries it to executors that have no natsctl.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from natsctl.hints import Final, NamedTuple

CLIENT_PORTS: Final[Mapping[str, int]] = MappingProxyType({"nats": 4222, "tls": 4222, "ws": 80, "wss": 443})
"""The schemes that clients use, and the default port of each."""
UNESCAPED: Final = "in a user, password or token, write / as %2F, ? as %3F, # as %23, and a comma as %2C"
_MAX_PORT: Final = 65535
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_WEBSOCKET: Final = ("ws", "wss")


class ServerUrlError(ValueError):
    """The text is not the URL of a server; the reason does not repeat it. `hint` may say what to write instead."""

    def __init__(self, reason: str, hint: str = "write nats://host:port or host:port") -> None:
        super().__init__(reason)
        self.hint = hint


class ServerUrl(NamedTuple):
    """The parts of a URL, decoded; `password` is None if missing, `path` includes the query."""

    scheme: str
    host: str
    port: int
    user: str = ""
    password: str | None = None
    path: str = ""

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def bare(self) -> str:
        """The URL without its login."""
        return f"{self.scheme}://{self.address}{self.path}"

    @property
    def is_websocket(self) -> bool:
        """Whether it is reached over WebSocket."""
        return self.scheme in _WEBSOCKET

    @property
    def label(self) -> str:
        """The URL with its user, and a mask instead of the password, as nats-server logs it."""
        from urllib.parse import quote  # slow to import

        user = quote(self.user) + (":xxxxx" if self.password is not None else "") + "@" if self.user else ""
        return f"{self.scheme}://{user}{self.address}{self.path}"

    @property
    def full(self) -> str:
        """The URL with its login, escaped."""
        if not self.login:
            return self.bare
        from urllib.parse import quote  # slow to import

        login = ":".join(quote(part, safe="") for part in (self.user, self.password) if part is not None)
        return f"{self.scheme}://{login}@{self.address}{self.path}"

    @property
    def login(self) -> dict[str, str]:
        """User and password, a token, or nothing."""
        if self.password is not None:
            return {"user": self.user, "password": self.password}
        return {"token": self.user} if self.user else {}

    def __repr__(self) -> str:
        """Return the URL without its login."""
        return f"ServerUrl({self.bare!r})"


def parse_server_url(
    text: str, ports: Mapping[str, int] = CLIENT_PORTS, *, scheme: str = "nats", other_port: int | None = None
) -> ServerUrl:
    """Return the parts of `SCHEME://[LOGIN@]HOST[:PORT][/PATH]`; without a scheme it is `scheme`.

    `ports` are the schemes and their default ports; other schemes are accepted if there is an `other_port` for them.
    Raises ServerUrlError.
    """
    if any(char.isspace() or not char.isprintable() for char in text):
        raise ServerUrlError("there is a blank in it", "write it as %20")
    named = _SCHEME.match(text)
    if named is None and "://" in text.rpartition("@")[2]:
        raise ServerUrlError("the scheme is malformed")
    if named is not None:
        scheme, text = named[1].lower(), text[named.end() :]
    default = ports.get(scheme, other_port)
    if default is None:
        raise ServerUrlError(f"the scheme is not {_listed(ports)}")
    cut = min((position for char in "/?#" if (position := text.find(char)) >= 0), default=len(text))
    login, _, address = text[:cut].rpartition("@")
    path = text[cut:]
    late = "@" in path and (scheme not in _WEBSOCKET or "@" in path.partition("?")[2] + path.partition("#")[2])
    if late:
        raise ServerUrlError("the login has a /, ? or # that is not escaped", UNESCAPED)
    try:
        host, port = _host_and_port(address, default)
    except ServerUrlError as failure:
        if "@" in path:
            raise ServerUrlError("the login has a /, ? or # that is not escaped", UNESCAPED) from None
        raise failure from None
    user, colon, password = login.partition(":")
    return ServerUrl(scheme, host, port, _decoded(user), _decoded(password) if colon else None, path)


def without_login(text: str) -> str:
    """Return the text of a URL without user, password or token, whether or not it is well-formed."""
    named = _SCHEME.match(text)
    begin = named.end() if named is not None else 0
    return text[:begin] + text[begin:].rpartition("@")[2]


def _host_and_port(text: str, default: int) -> tuple[str, int]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or rest[:1] not in ("", ":"):
            raise ServerUrlError("the brackets of its IPv6 address do not match")
        host, port = _decoded(host), rest[1:]
    else:
        host, _, port = text.partition(":")
        if ":" in port:
            raise ServerUrlError(
                "there is more than one colon in the host and port", "an IPv6 address needs brackets: nats://[::1]:4222"
            )
    if not host:
        raise ServerUrlError("there is no host in it")
    if "[" in host or "]" in host:
        raise ServerUrlError("the brackets of its IPv6 address do not match")
    if not port:
        return host.lower(), default
    if not (port.isascii() and port.isdigit()) or int(port[:6]) > _MAX_PORT:
        raise ServerUrlError(f"the port is not a number up to {_MAX_PORT}")
    return host.lower(), int(port)


def _decoded(text: str) -> str:
    if "%" not in text:
        return text
    from urllib.parse import unquote  # slow to import

    return unquote(text)


def _listed(ports: Mapping[str, int]) -> str:
    *some, last = ports
    return f"{', '.join(some)} or {last}" if some else last
