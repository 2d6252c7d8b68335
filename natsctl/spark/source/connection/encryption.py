"""TLS from PEM texts: an executor has none of the driver's files."""

from __future__ import annotations

import socket
import ssl
import tempfile
from pathlib import Path

from natsctl.spark.source.connection.settings import ServerSettings
from natsctl.spark.source.errors import OptionError


class Encryption:
    """The encryption of one connection, if there is any."""

    def __init__(self, settings: ServerSettings, host: str, *, wanted: bool) -> None:
        """`host` is the name that the server's certificate must have; raises OptionError for what is no PEM."""
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
