"""TLS from PEM texts: an executor has none of the driver's files."""

from __future__ import annotations

import socket
import ssl
import tempfile
from pathlib import Path

from natsctl.spark.source.errors import OptionFault
from natsctl.spark.source.settings import ServerSettings


def tls_context(settings: ServerSettings, *, wanted: bool) -> ssl.SSLContext | None:
    """What a connection is encrypted with; None where nothing asks for TLS. Raises OptionFault for what is no PEM."""
    asked = settings.tls_ca or settings.tls_cert or settings.tls_first or settings.tls_insecure
    if not (wanted or asked):
        return None
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise OptionFault("tlsCert and tlsKey go together: give both")
    try:
        context = ssl.create_default_context(cadata=settings.tls_ca or None)
    except (ssl.SSLError, ValueError) as failure:
        raise OptionFault(f"tlsCa: no certificate can be read from it: {failure}") from failure
    if settings.tls_cert:
        _show(context, settings)
    if settings.tls_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def encrypted(wire: socket.socket, context: ssl.SSLContext | None, host: str) -> socket.socket:
    """The connection after the TLS handshake; `host` is the name that the certificate must have."""
    return context.wrap_socket(wire, server_hostname=host) if context else wire


def _show(context: ssl.SSLContext, settings: ServerSettings) -> None:
    """Give the context the client's certificate, which Python's ssl takes from files only: private, gone at once."""
    with tempfile.TemporaryDirectory(prefix="natsctl-tls-") as folder:
        pem = Path(folder) / "both.pem"
        pem.touch(0o600)
        pem.write_text(f"{settings.tls_cert}\n{settings.tls_key}\n")
        try:
            context.load_cert_chain(pem)
        except (ssl.SSLError, OSError) as failure:
            raise OptionFault(f"tlsCert, tlsKey: they cannot be used: {failure}") from failure
