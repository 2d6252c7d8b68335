"""What a reload may change: which options differ, how the log calls them, and which ones need a restart.

Names in refusals are nats-server's field names and texts its own: tools and people look for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from natsctl.api.units import format_size
from natsctl.server.conf.values import format_seconds
from natsctl.server.monitor.refused import BadRequestError
from natsctl.server.options import ServerOptions, WebSocketOptions
from natsctl.server.reload.leafnodes import changed_leafnodes, refuse_leafnodes

FIXED: Final = {
    "host": "Host", "port": "Port", "server_name": "ServerName", "http_host": "HTTPHost", "http_port": "HTTPPort",
    "https_port": "HTTPSPort", "http_base_path": "HTTPBasePath", "allow_non_tls": "AllowNonTLS",
    "max_pending": "MaxPending", "max_subscriptions": "MaxSubs", "max_subscription_tokens": "MaxSubTokens",
    "max_closed_clients": "MaxClosedClients", "lame_duck_duration_s": "LameDuckDuration",
    "lame_duck_grace_s": "LameDuckGracePeriod", "no_header_support": "NoHeaderSupport",
    "system_account": "SystemAccount", "jetstream": "JetStream", "domain": "JetStreamDomain", "sync": "SyncInterval",
    "archive_version": "ArchiveVersion", "log_size_limit": "LogSizeLimit", "log_max_files": "LogMaxFiles",
}  # fmt: skip
"""Options that need a restart, by their names in nats-server."""

SAYS: Final[dict[str, Callable[[Any], str]]] = {
    "client_advertise": lambda value: f"Reload: client_advertise = {value}",
    "trace": lambda value: f"Reloaded: trace = {_text(value)}",
    "debug": lambda value: f"Reloaded: debug = {_text(value)}",
    "log_time": lambda value: f"Reloaded: logtime = {_text(value)}",
    "log_utc": lambda value: f"Reloaded: logtime_utc = {_text(value)}",
    "log_file": lambda value: f"Reloaded: log_file = {value or ''}",
    "max_connections": lambda value: f"Reloaded: max_connections = {value}",
    "users": lambda value: "Reloaded: authorization users",
    "accounts": lambda value: "Reloaded: accounts",
    "user": lambda value: "Reloaded: authorization username",
    "password": lambda value: "Reloaded: authorization password",
    "token": lambda value: "Reloaded: authorization token",
    "ping_interval_s": lambda value: f"Reloaded: ping_interval = {format_seconds(value)}",
    "ping_max": lambda value: f"Reloaded: ping_max = {value}",
    "max_control_line": lambda value: f"Reloaded: max_control_line = {value}",
    "max_payload": lambda value: f"Reloaded: max_payload = {value}",
    "login_timeout_s": lambda value: f"Reloaded: authorization timeout = {value:g}",
    "pid_file": lambda value: f"Reloaded: pid_file = {value or ''}",
    "ports_file_dir": lambda value: f"Reloaded: ports_file_dir = {value or ''}",
    "tls": lambda value: f"Reloaded: tls = {'enabled' if value else 'disabled'}",
    "write_deadline_s": lambda value: f"Reloaded: write_deadline = {format_seconds(value)}",
    "max_traced_bytes": lambda value: f"Reloaded: max_traced_msg_len = {value}",
    "connect_error_reports": lambda value: f"Reloaded: connect_error_reports = {value}",
    "reconnect_error_reports": lambda value: f"Reloaded: reconnect_error_reports = {value}",
    "server_tags": lambda value: "Reloaded: tags",
    "server_metadata": lambda value: "Reloaded: metadata",
    "jetstream_limits": lambda value: "Reloaded: JetStream limits",
    "max_memory": lambda value: f"Reloaded: JetStream max_mem_store = {format_size(value)}",
    "max_storage": lambda value: f"Reloaded: JetStream max_file_store = {format_size(value)}",
}
"""Options that a reload takes, in the order of their log lines."""

_ALWAYS: Final = ("users", "accounts")
"""Told at every reload, as nats-server does, which can not tell whether they differ."""


def settled(new: ServerOptions, now: ServerOptions, ports: dict[str, int]) -> ServerOptions:
    """Return the new options with the ports that are in use where any free one is asked for."""
    if new.port == -1:
        new = replace(new, port=now.port)
    for name in ("http_port", "https_port"):
        if getattr(new, name) == -1 and ports.get(name):
            new = replace(new, **{name: getattr(now, name)})
    return new


def refuse_fixed(old: ServerOptions, new: ServerOptions) -> None:
    """Raise BadRequestError where something differs that needs a restart."""
    _refuse_store(old, new)
    for name, called in FIXED.items():
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            raise BadRequestError(
                f"config reload not supported for {called}: old={_shown(name, before)}, new={_shown(name, after)}"
            )
    if old.no_auth_user != new.no_auth_user and (new.no_auth_user or old.no_auth_user in _names(new)):
        raise BadRequestError(
            f"config reload not supported for NoAuthUser: old={old.no_auth_user}, new={new.no_auth_user}"
        )
    if _without_tls(old.websocket) != _without_tls(new.websocket):
        raise BadRequestError("config reload not supported for Websocket")
    if (old.operator is None) != (new.operator is None):
        raise BadRequestError("config reload does not support moving to or from an account resolver")
    if _trusted(old) != _trusted(new):
        raise BadRequestError("config reload not supported for TrustedOperators")
    refuse_leafnodes(old.leafnodes, new.leafnodes)


def _refuse_store(old: ServerOptions, new: ServerOptions) -> None:
    if not (old.jetstream and new.jetstream):
        return
    if old.store_dir != new.store_dir:
        raise BadRequestError("config reload not supported for jetstream storage directory")
    for name in ("max_memory", "max_storage"):
        before, after = getattr(old, name), getattr(new, name)
        if before and not after:
            raise BadRequestError("config reload not supported for jetstream max memory and max store")
        if after and not before:
            raise BadRequestError("config reload not supported for jetstream dynamic max memory and store")
        if after < before:
            raise BadRequestError("config reload not supported for decreasing jetstream max memory and store")


def changed(old: ServerOptions, new: ServerOptions) -> Iterator[str]:
    """Yield a line for each option that a reload changes."""
    for name, say in SAYS.items():
        value = getattr(new, name)
        if value != getattr(old, name) or name in _ALWAYS or (name == "tls" and value is not None):
            yield say(value)
    yield from changed_leafnodes(old.leafnodes, new.leafnodes)


def _names(options: ServerOptions) -> set[str]:
    return {user.name for user in options.users} | {user.nkey for user in options.users}


def _without_tls(options: WebSocketOptions | None) -> WebSocketOptions | None:
    return replace(options, tls=None) if options is not None else None


def _trusted(options: ServerOptions) -> object:
    return replace(options.operator, preload=()) if options.operator is not None else None


def _shown(name: str, value: object) -> str:
    return format_seconds(value) if name.endswith("_s") and isinstance(value, float) else _text(value)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
