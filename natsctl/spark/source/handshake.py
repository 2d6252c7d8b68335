"""Settings of a server: its address, its TLS context, and the login.

A task gets everything as text, such as PEM and NKey seeds: an executor does not have the driver's files.
"""

from __future__ import annotations

import socket
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from natsctl.spark.source.errors import OptionError
from natsctl.wire.client import ClientCredentials
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
    """Maximum wait for an answer or a connection."""
    retry_timeout_s: float = 30.0
    """Maximum duration of an outage that is waited for."""
    retries: int | None = None
    """The number of repeated attempts, instead of `retry_timeout_s`."""
    retry_interval_s: float = 0.5
    """The first pause; each further one is twice as long."""


class Encryption:
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
    """Give the context the client's certificate through a private temporary file: Python's ssl only reads files."""
    with tempfile.TemporaryDirectory(prefix="natsctl-tls-") as folder:
        pem = Path(folder) / "both.pem"
        pem.touch(0o600)
        pem.write_text(f"{settings.tls_cert}\n{settings.tls_key}\n")
        try:
            context.load_cert_chain(pem)
        except (ssl.SSLError, OSError) as failure:
            raise OptionError(f"tlsCert, tlsKey: they cannot be used: {failure}") from failure


_PORTS: Final = {"nats": 4222, "tls": 4222}


def server_url(url: str) -> ServerUrl:
    """Return a server's address taken apart; raises OptionError for one that a blocking NATS connection cannot use."""
    if url.startswith(("ws://", "wss://")):
        raise OptionError("servers: ws:// and wss:// are for browsers: use nats:// or tls:// and a server's NATS port")
    try:
        return parse_server_url(url, _PORTS)
    except ServerUrlError as failure:
        raise OptionError(f"servers: not the URL of a server such as nats://host:4222: {failure}") from None


def credentials_at(url: ServerUrl, settings: ServerSettings) -> ClientCredentials:
    """Return the login for a server; one in its address comes before the settings."""
    if url.login:
        return ClientCredentials(**url.login)
    return ClientCredentials(settings.user, settings.password, settings.token, settings.jwt, settings.seed)
