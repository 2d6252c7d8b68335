"""The client side of the protocol, without I/O: INFO, the TLS decision, the login, commands, and lines of the server.

Every client of natsctl uses it: commands and the Python API through nats-py (`client/nats_client.py`), single requests
and completion (`client/one_shot.py`), Spark's data source, leaf node remotes, and guests of the embedded server.

Theory of operation. `ClientProtocol` begins with the handshake: the driver passes it the bytes that arrive and sends
the bytes that it returns. After INFO it either returns the login or asks for TLS (`starts_tls`). Then nothing has been
sent, and the driver calls `secured` after TLS is established. From `ready` on, the driver cuts what arrives
into frames (`wire/server_frames.py`) and passes lines that are not messages to `handle_line`.

This module imports only `hints` and modules of `wire` that travel with it: Spark carries it to executors that have no
natsctl.
"""

from __future__ import annotations

from collections.abc import Mapping

from natsctl.hints import Any, Final, NamedTuple
from natsctl.wire.server_frames import LINE_END, MAX_LINE_BYTES, PING_LINE, PONG_LINE

INFO_VERB: Final = b"INFO "
_TYPES: Final[dict[str, type]] = {
    **dict.fromkeys(("server_id", "server_name", "version", "nonce", "cluster", "domain", "client_ip", "xkey"), str),
    **dict.fromkeys(("max_payload", "client_id", "proto"), int),
    **dict.fromkeys(
        ("headers", "auth_required", "tls_required", "tls_available", "tls_verify", "jetstream", "ldm"), bool
    ),
    "connect_urls": list,
}
"""Fields of INFO that clients use."""
_LOGIN_REFUSALS: Final = ("authorization", "authentication", "expired", "revoked", "nkeys not supported")
_VIOLATION: Final = "permissions violation for "


class TlsNotOfferedError(ConnectionError):
    """TLS was asked for, and the server does not offer it; nothing has been sent."""


class ServerLineError(ConnectionError):
    """An -ERR line of the server; `text` is as the server sent it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    @property
    def refuses_login(self) -> bool:
        """Whether the login is refused, or no longer valid."""
        return is_login_refusal(self.text)

    @property
    def refused(self) -> tuple[str, str] | None:
        """Verb (`publish` or `subscription`) and subject of a permissions violation; the connection stays open.

        None for other errors: the server ends the connection.
        """
        position = self.text.lower().find(_VIOLATION)
        if position < 0:
            return None
        verb, _, quoted = self.text[position + len(_VIOLATION) :].partition(" to ")
        return verb.lower(), quoted.partition('"')[2].partition('"')[0]


def is_login_refusal(text: str) -> bool:
    """Return whether the text of an error says that the login is refused."""
    text = text.lower()
    return not text.startswith(_VIOLATION) and any(reason in text for reason in _LOGIN_REFUSALS)


def read_error(line: bytes) -> ServerLineError:
    return ServerLineError(line[4:].decode("utf-8", "replace").strip().strip("'"))


# INFO and TLS


def read_info(line: bytes) -> dict[str, Any]:
    """Return the content of the INFO line that a server begins with; raises ValueError for any other line."""
    import json  # only clients load it

    if not line.startswith(INFO_VERB):
        raise ValueError(f"not INFO: {line[:100]!r}")
    try:
        info = json.loads(line[len(INFO_VERB) :])
    except RecursionError:
        raise ValueError("INFO is nested too deeply") from None
    if not isinstance(info, dict):
        raise ValueError(f"INFO without an object: {line[:100]!r}")
    return checked_info(info)


def checked_info(info: dict[str, Any]) -> dict[str, Any]:
    """Return the same INFO without fields that are null; raises ValueError for a value of the wrong type."""
    for key in [key for key, value in info.items() if value is None]:
        del info[key]
    for key, value in info.items():
        if type(value) is not _TYPES.get(key, type(value)):
            raise ValueError(f"INFO with {key} {value!r:.40}")
    if not all(isinstance(url, str) for url in info.get("connect_urls", ())):
        raise ValueError("INFO with odd connect_urls")
    return info


def starts_tls(info: Mapping[str, Any], *, wanted: bool, secured: bool = False) -> bool:
    """Return whether to start TLS before anything else; bytes that follow INFO in clear are then to be dropped.

    `wanted` says that the user asked for TLS, `secured` that the connection has it already. Raises TlsNotOfferedError
    if TLS is wanted and not offered: the client closes the connection without sending a byte. Source: nats.go,
    checkForSecure.
    """
    if secured:
        return False
    if info.get("tls_required"):
        return True
    if wanted and not info.get("tls_available"):
        raise TlsNotOfferedError("TLS is wanted, and the server does not offer it")
    return wanted


# The login


class ClientCredentials(NamedTuple):
    """The login of a client, empty strings for fields that it does not have.

    With a seed the server's nonce is signed; a JWT without a seed is a bearer token.
    """

    user: str = ""
    password: str = ""
    token: str = ""
    jwt: str = ""
    seed: str = ""

    def fields(self, nonce: str) -> dict[str, str]:
        """Return the fields of CONNECT; raises SeedError."""
        named = {"jwt": self.jwt, "user": self.user, "pass": self.password, "auth_token": self.token}
        fields = {name: value for name, value in named.items() if value}
        if self.user:
            fields["pass"] = self.password
        if self.seed:
            from natsctl.wire.ed25519 import nonce_signature, public_nkey

            if not self.jwt:
                fields["nkey"] = public_nkey(self.seed)
            if nonce:
                fields["sig"] = nonce_signature(self.seed, nonce.encode())
        return fields

    def __repr__(self) -> str:
        """Return the names of the fields that are set, without their values."""
        return f"Credentials({', '.join(name for name, value in self._asdict().items() if value)})"


NO_CREDENTIALS: Final = ClientCredentials()


def encode_login(
    credentials: ClientCredentials, info: Mapping[str, Any], *, name: str, version: str, tls: bool
) -> bytes:
    """Return the CONNECT line that answers an INFO; raises SeedError."""
    return encode_connect(
        {
            "verbose": False,
            "pedantic": False,
            "tls_required": tls,
            "lang": "python",
            "version": version,
            "name": name,
            "protocol": 1,
            "headers": True,
            "no_responders": bool(info.get("headers")),
            **credentials.fields(str(info.get("nonce", ""))),
        }
    )


def encode_connect(options: Mapping[str, object]) -> bytes:
    import json

    return b"CONNECT %b\r\n" % json.dumps(options).encode()


# Commands


def encode_pub(subject: bytes, reply: bytes, header: bytes, payload: bytes) -> bytes:
    """Return PUB, or HPUB if there is a header block."""
    target = b"%b %b" % (subject, reply) if reply else subject
    if header:
        return b"HPUB %b %d %d\r\n%b%b\r\n" % (target, len(header), len(header) + len(payload), header, payload)
    return b"PUB %b %d\r\n%b\r\n" % (target, len(payload), payload)


def encode_sub(subject: bytes, queue: bytes, sid: bytes) -> bytes:
    return b"SUB %b %b %b\r\n" % (subject, queue, sid) if queue else b"SUB %b %b\r\n" % (subject, sid)


def encode_unsub(sid: bytes, max_msgs: int) -> bytes:
    """Return UNSUB; 0 means now."""
    return b"UNSUB %b %d\r\n" % (sid, max_msgs) if max_msgs else b"UNSUB %b\r\n" % sid


# A connection


class ClientProtocol:
    """The state of one connection: the handshake, and the server's INFO."""

    def __init__(
        self,
        credentials: ClientCredentials,
        *,
        name: str,
        version: str = "1",
        wants_tls: bool = False,
        secured: bool = False,
    ) -> None:
        """Wait for INFO; `secured` says that TLS came before it."""
        self.info: dict[str, Any] = {}
        self.ready = False
        """Whether the server has confirmed the login."""
        self.starts_tls = False
        """Whether the driver is to establish TLS and to call `secured`."""
        self.rest = b""
        """Bytes that came after the last line of the handshake."""
        self._greeted = False
        self._credentials = credentials
        self._name = name
        self._version = version
        self._wants_tls = wants_tls
        self._secured = secured

    def receive(self, data: bytes) -> bytes:
        """Continue the handshake, and return the bytes to send.

        Raises ServerLineError, TlsNotOfferedError, SeedError, and ValueError if the peer is not a NATS server.
        """
        answer = b""
        data = self.rest + data
        while not self.ready and not self.starts_tls:
            line, end, rest = data.partition(LINE_END)
            if not end:
                if len(data) > MAX_LINE_BYTES:
                    raise ValueError(f"a line of more than {MAX_LINE_BYTES} bytes")
                break
            data = rest
            if not self._greeted:
                self.info, self._greeted = read_info(line), True
                self.starts_tls = starts_tls(self.info, wanted=self._wants_tls, secured=self._secured)
                if not self.starts_tls:
                    answer += self._login()
            elif line == b"PONG":
                self.ready = True
            else:
                answer += self.handle_line(line)
        self.rest = data
        return answer

    def secured(self) -> bytes:
        """Return the login, to be sent now that TLS is established; raises SeedError."""
        self._secured, self.starts_tls = True, False
        self.rest = b""  # bytes in clear may come from anyone
        return self._login()

    def handle_line(self, line: bytes) -> bytes:
        """Handle a line between messages and return the answer to send, if any; a later INFO updates `info`.

        Raises ServerLineError for -ERR, ValueError for a malformed INFO.
        """
        if line == b"PING":
            return PONG_LINE
        if line.startswith(b"-ERR"):
            raise read_error(line)
        if line.startswith(INFO_VERB):
            self.info = {**self.info, **read_info(line)}
        return b""

    def _login(self) -> bytes:
        login = encode_login(self._credentials, self.info, name=self._name, version=self._version, tls=self._secured)
        return login + PING_LINE
