"""Why a server does not start, in the words of nats-server: those that starters look for in its log."""

from __future__ import annotations

import os
import socket
from typing import Final

from natsctl.server.options import ServerOptions

_TEXTS: Final = {
    "clients": 'Error listening on port: {address}, "{fault}"',
    "monitoring": "Can't start monitoring: can't listen to the monitor port: {fault}",
    "websocket": "Unable to listen for websocket connections: {fault}",
    "leafnodes": "Error listening on leafnode port: {port} - {fault}",
}


def start_fault(options: ServerOptions, error: Exception) -> str:
    """Return the reason; an OSError's first note names the kind of listener that it is about, clients' without one."""
    if not isinstance(error, OSError) or error.errno is None or error.filename:
        return str(error)
    kind = next(iter(getattr(error, "__notes__", ())), "clients")
    host, port = _listeners(options).get(kind, (options.host, options.port))
    address = f"[{host}]:{max(port, 0)}" if ":" in host else f"{host}:{max(port, 0)}"
    reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno)
    fault = f"listen tcp {address}: bind: {(reason or str(error)).lower()}"
    return _TEXTS.get(kind, _TEXTS["clients"]).format(address=address, port=port, fault=fault)


def _listeners(options: ServerOptions) -> dict[str, tuple[str, int]]:
    found = {"monitoring": (options.http_host, options.http_port or options.https_port)}
    if options.websocket is not None:
        found["websocket"] = (options.websocket.host, options.websocket.port)
    if options.leafnodes is not None:
        found["leafnodes"] = (options.leafnodes.host, options.leafnodes.port)
    return found
