"""Lines and files about a starting server: the log's first lines, pid and ports files, reasons of a failed start.

Texts are nats-server's where programs that start a server look for them.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from natsctl import __version__
from natsctl.api.units import format_duration, format_size
from natsctl.api.versions import API_LEVEL, SERVER_VERSION
from natsctl.native import absent
from natsctl.server.files import replace_file
from natsctl.server.instance import ServerInstance
from natsctl.server.log.lines import Log
from natsctl.server.options import ServerOptions, joined
from natsctl.server.resources import default_max_memory

if TYPE_CHECKING:
    from pathlib import Path


_RULE: Final = "-------------------------------------------"


def announce(log: Log, server: ServerInstance) -> None:
    options = server.options
    log.info("Starting nats-server")
    log.info(f"  Version:  {SERVER_VERSION}")
    log.info(f"  Natsctl:  {__version__}")
    log.info(f"  Native:   {f'not loaded, {absent}' if absent else 'loaded'}")
    log.info(f"  Name:     {options.server_name or server.server_id}")
    log.info(f"  ID:       {server.server_id}")
    if _plain_secrets(options):
        log.warn("Plaintext passwords detected, use nkeys or bcrypt")
    if options.config_file is not None:
        log.info(f"Using configuration file: {options.config_file} ({options.config_digest})")
    for warning in options.config_warnings:
        log.warn(warning)
    if options.operator is not None:
        from natsctl.server.operator_mode import announce_operators

        announce_operators(log, options, int(time.time()))
    for key in options.unserved:
        log.warn(f"{key}: not served by this version, nothing listens or connects there")
    if options.jetstream:
        _announce_jetstream(log, options)


def _announce_jetstream(log: Log, options: ServerOptions) -> None:
    if options.store_dir is None:
        log.warn(f"Temporary storage folder used, data could be lost on system reboot: {options.store_path}")
    if options.sync != "always":
        log.warn(f"Acknowledged messages can be lost in a power failure: sync policy is {_sync_text(options)}")
    log.info("Starting JetStream")
    log.info("---------------- JETSTREAM ----------------")
    if not options.no_jetstream_strict:
        log.info("  Strict:          true")
    log.info(f"  Max Memory:      {format_size(options.max_memory or default_max_memory())}")
    log.info(f"  Max Storage:     {format_size(options.max_storage)}")
    log.info(f'  Store Directory: "{options.store_path}"')
    if options.domain:
        log.info(f"  Domain:          {options.domain}")
    if options.encryption.key:
        log.info(f"  Encryption:      {options.encryption.cipher_name}")
    log.info(f"  Sync:            {_sync_text(options)}")
    log.info(f"  API Level:       {API_LEVEL}")
    log.info(_RULE)


def announce_listeners(log: Log, server: ServerInstance) -> None:
    options = server.options
    if options.operator is not None:
        from natsctl.server.operator_mode import announce_directory

        announce_directory(log, options)
    if port := server.port_of("monitoring"):
        scheme = "https" if options.https_port else "http"
        log.info(f"Starting {scheme} monitor on {joined(options.monitoring_host, port)}")
    if options.websocket is not None:
        scheme = "wss" if options.websocket.tls else "ws"
        address = joined(options.websocket.host, server.port_of("websocket"))
        log.info(f"Listening for websocket clients on {scheme}://{address}")
        if options.websocket.tls is None:
            log.warn("Websocket not configured with TLS. DO NOT USE IN PRODUCTION!")
    if options.leafnodes is not None and (port := server.port_of("leafnodes")):
        log.info(f"Listening for leafnode connections on {joined(options.leafnodes.host, port)}")
    log.info(f"Listening for client connections on {joined(server.host, server.port)}")
    if options.proxy_protocol:
        log.info("PROXY protocol enabled for client connections")
    loopback = server.host in ("localhost", "::1") or server.host.startswith("127.")
    if server.broker.options.auth is None and not loopback:
        log.warn("No users are configured: whoever reaches this address may do everything")
    if options.tls is not None:
        only_first = options.tls.handshake_first and not options.tls.fallback_s
        available = options.allow_non_tls and not only_first
        log.info(f"TLS {'available' if available else 'required'} for client connections")
        if only_first:
            log.warn('Clients that are not using "TLS Handshake First" option will fail to connect')
    log.info("Server is ready")


def _plain_secrets(options: ServerOptions) -> bool:
    secrets = [user.password for user in options.users] + [options.password, options.token]
    if not any(secrets):
        return False
    from natsctl.broker.auth.static_auth import is_bcrypt

    return any(secret and not is_bcrypt(secret) for secret in secrets)


def _sync_text(options: ServerOptions) -> str:
    return options.sync if isinstance(options.sync, str) else format_duration(options.sync)


def ports_path(folder: Path, pid: int) -> Path:
    return folder / f"nats-server_{pid}.ports"


def write_ports_file(folder: Path, ports: Mapping[str, Sequence[str]]) -> Path:
    """Write the URLs by kind atomically and return the file's path; raises OSError.

    The ports file is readable by all that the umask allows, the pid file by its owner. Source: nats-server, server.go.
    """
    import json

    path = ports_path(folder, os.getpid())
    content = json.dumps({kind: list(urls) for kind, urls in ports.items() if urls})
    replace_file(path, content.encode(), mode=0o666, durable=False)
    return path


def write_pid_file(path: Path) -> None:
    replace_file(path, str(os.getpid()).encode(), durable=False)


_START_FAULTS: Final = {
    "clients": 'Error listening on port: {address}, "{fault}"',
    "monitoring": "Can't start monitoring: can't listen to the monitor port: {fault}",
    "websocket": "Unable to listen for websocket connections: {fault}",
    "leafnodes": "Error listening on leafnode port: {port} - {fault}",
}


def start_fault(options: ServerOptions, error: Exception) -> str:
    """Return the reason of a failed start; the first note of an OSError names its listener, none means the clients'."""
    if not isinstance(error, OSError) or error.errno is None or error.filename:
        return str(error)
    kind = next(iter(getattr(error, "__notes__", ())), "clients")
    host, port = _listeners(options).get(kind, (options.host, options.port))
    address = joined(host, max(port, 0))
    reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno)
    fault = f"listen tcp {address}: bind: {(reason or str(error)).lower()}"
    return _START_FAULTS.get(kind, _START_FAULTS["clients"]).format(address=address, port=port, fault=fault)


def _listeners(options: ServerOptions) -> dict[str, tuple[str, int]]:
    listeners = {"monitoring": (options.http_host, options.http_port or options.https_port)}
    if options.websocket is not None:
        listeners["websocket"] = (options.websocket.host, options.websocket.port)
    if options.leafnodes is not None:
        listeners["leafnodes"] = (options.leafnodes.host, options.leafnodes.port)
    return listeners
