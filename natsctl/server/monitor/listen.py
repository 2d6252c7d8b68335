"""The listener of monitoring: HTTP, or HTTPS with the certificate of the clients' listener."""

from __future__ import annotations

import ssl
import traceback
from typing import TYPE_CHECKING

from msgspec.structs import replace

from natsctl.server.http import HttpServer
from natsctl.server.monitor.pages import Monitor
from natsctl.server.tls.gate import TlsFileError, server_context

if TYPE_CHECKING:
    from natsctl.server.options import TlsOptions
    from natsctl.server.view import ServerView


def monitoring_endpoint(server: ServerView) -> HttpServer:
    """Return the listener, which asks nobody for a certificate; raises TlsFileError where the server's is no good."""
    options = server.options

    def fault(where: str, error: Exception) -> None:
        server.log.error(f"internal fault in {where}: " + "".join(traceback.format_exception(error)).rstrip())

    context = _context(server) if options.https_port else None
    return HttpServer(
        options.monitoring_host, options.https_port or options.http_port, Monitor(server).answer, fault, context
    )


def _context(server: ServerView) -> ssl.SSLContext:
    """Return the context of the listener, which takes the newest certificates for each handshake."""
    if server.options.tls is None:
        raise TlsFileError("TLS cert and key required for HTTPS")
    known: tuple[TlsOptions, ssl.SSLContext] = server.options.tls, _unverifying(server.options.tls)

    def follow(handshake: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        nonlocal known
        newest = server.options.tls
        if newest is not None and newest is not known[0]:
            known = newest, _unverifying(newest)
        handshake.context = known[1]

    first = _unverifying(server.options.tls)
    first.sni_callback = follow
    return first


def _unverifying(tls: TlsOptions) -> ssl.SSLContext:
    return server_context(replace(tls, verify=False, verify_and_map=False))
