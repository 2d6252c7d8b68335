"""The listener of monitoring: HTTP, or HTTPS with the certificate of the clients' listener."""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

from natsctl.server.http import HttpServer
from natsctl.server.monitor.pages import Monitor

if TYPE_CHECKING:
    from natsctl.server.instance import ServerInstance


def monitoring_endpoint(server: ServerInstance) -> HttpServer:
    """Return the listener, which asks nobody for a certificate; raises OSError where the server's can not be used."""
    options = server.options
    context = None
    if options.https_port:
        from natsctl.server.tls import TlsFileError, server_context

        if options.tls is None:
            raise TlsFileError("TLS cert and key required for HTTPS")
        context = server_context(replace(options.tls, verify=False, verify_and_map=False))

    def fault(where: str, error: Exception) -> None:
        server.log.error(f"internal fault in {where}: " + "".join(traceback.format_exception(error)).rstrip())

    return HttpServer(
        options.http_host, options.https_port or options.http_port, Monitor(server).answer, fault, context
    )
