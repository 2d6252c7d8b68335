"""nats.conf as server options: which keys exist, what each one sets, and what is wrong with a value.

Keys are found without regard to case, as the reference does. A key that the reference knows and this server does not
serve is refused by name; so is one that nobody knows. Flags of the command line win over the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from natsctl.api.account import UNLIMITED, AccountLimits
from natsctl.api.units import parse_duration
from natsctl.broker.auth import User
from natsctl.server.conf_syntax import Block, ConfError, Item, load_file
from natsctl.server.jetstream_limits import read_limits
from natsctl.server.options import AccountOptions, ServerOptions, TlsOptions, WebSocketOptions

Setter = Callable[[ServerOptions, Item], ServerOptions]

_CLUSTER: Final = frozenset({"cluster", "gateway", "routes"})
_ELSEWHERE: Final = frozenset({
    "mqtt", "operator", "operators", "trusted_keys", "trusted", "resolver",
    "resolver_preload", "resolver_tls", "system_account", "system", "mappings", "https", "https_port",
    "http_base_path", "ping_interval", "ping_max", "max_connections", "max_subscriptions",
    "max_subs", "max_control_line", "lame_duck_duration", "lame_duck_grace_period", "no_header_support",
    "write_deadline", "max_traced_msg_len", "disable_sublist_cache", "connect_error_reports",
    "reconnect_error_reports", "default_permissions", "client_advertise", "syslog", "remote_syslog", "prof_port",
    "logfile_size_limit", "logfile_max_num", "allow_non_tls", "ocsp", "reload", "auth_callout",
})  # fmt: skip
"""Keys of the reference that no code here serves: saying so is better than running without them."""


def read_config(path: Path, options: ServerOptions, environment: Mapping[str, str]) -> ServerOptions:
    """Return `options` with what a file sets; raises ConfError, OSError where the file can not be read."""
    return apply(load_file(path, environment), options)


def apply(block: Block, options: ServerOptions) -> ServerOptions:
    """Return `options` with what a block sets; raises ConfError."""
    for key, item in block.items():
        setter = _TOP.get(key.lower())
        if setter is None:
            if key not in block.variables:
                raise _unknown(key, item)
            continue
        options = setter(options, item)
    return _checked(options, block)


def _unknown(key: str, item: Item) -> ConfError:
    if key.lower() in _CLUSTER:
        return item.fault(f"{key}: natsctl server is a single node; run a cluster with nats-server")
    if key.lower() in _ELSEWHERE:
        return item.fault(f"{key}: not available in this version of natsctl server")
    return item.fault(f"unknown field {key!r}")


def _checked(options: ServerOptions, block: Block) -> ServerOptions:
    if options.no_auth_user and all(user.name != options.no_auth_user for user in options.users):
        item = next(item for key, item in block.items() if key.lower() == "no_auth_user")
        raise item.fault(f"no_auth_user: {options.no_auth_user!r} is not one of the users")
    return options


# Values


def _text(item: Item) -> str:
    if isinstance(item.value, (dict, list, bool)):
        raise item.fault("expected a text")
    return str(item.value)


def _number(item: Item) -> int:
    if isinstance(item.value, bool) or not isinstance(item.value, int):
        raise item.fault(f"expected a number, not {item.value!r}")
    return item.value


def _size(item: Item) -> int:
    """Return a number of bytes; in quotes it ends in one letter of K, M, G and T, which bare words need not."""
    if not isinstance(item.value, str):
        return _number(item)
    number, power = item.value[:-1], "KMGT".find(item.value[-1:])
    if not item.value:
        return 0
    if not number.isdecimal() or power < 0:
        raise item.fault(f"expected a size such as 64M, not {item.value!r}")
    return int(number) << 10 * (power + 1)


def _flag(item: Item) -> bool:
    if not isinstance(item.value, bool):
        raise item.fault(f"expected true or false, not {item.value!r}")
    return item.value


def _block(item: Item) -> Block:
    if not isinstance(item.value, dict):
        raise item.fault("expected a block in braces")
    return item.value


def _items(item: Item) -> list[Item]:
    return item.value if isinstance(item.value, list) else [item]


def _port(item: Item) -> int:
    port = _number(item)
    if not -1 <= port <= 65535:
        raise item.fault(f"invalid port {port}")
    return port


def _address(item: Item, host: str) -> tuple[str, int]:
    """Return host and port of `4222`, `host:4222` or `:4222`."""
    if isinstance(item.value, int) and not isinstance(item.value, bool):
        return host, _port(item)
    name, colon, port = _text(item).rpartition(":")
    if not colon or not port.lstrip("-").isdigit():
        raise item.fault(f"expected host:port, not {item.value!r}")
    return name.strip("[]") or host, _port(item._replace(value=int(port)))


def _set(name: str, read: Callable[[Item], Any]) -> Setter:
    return lambda options, item: replace(options, **{name: read(item)})


def _listen(options: ServerOptions, item: Item) -> ServerOptions:
    host, port = _address(item, options.host)
    return replace(options, host=host, port=port)


def _http(options: ServerOptions, item: Item) -> ServerOptions:
    host, port = _address(item, options.http_host)
    return replace(options, http_host=host, http_port=port)


def _sync(item: Item) -> str | int:
    text = _text(item)
    if text in ("always", "never"):
        return text
    try:
        return parse_duration(text)
    except ValueError:
        raise item.fault(f"expected always, never or a duration such as 1s, not {text!r}") from None


def _archive_version(item: Item) -> int:
    if item.value not in (1, 2):
        raise item.fault(f"expected 1 or 2, not {item.value!r}")
    return int(item.value)


def _unserved(name: str) -> Setter:
    return lambda options, item: replace(options, unserved=(*options.unserved, name))


def _websocket(options: ServerOptions, item: Item) -> ServerOptions:
    websocket = WebSocketOptions(port=0)
    for key, value in _block(item).items():
        match key.lower():
            case "port":
                websocket = replace(websocket, port=_port(value))
            case "host" | "net":
                websocket = replace(websocket, host=_text(value))
            case "listen":
                host, port = _address(value, websocket.host)
                websocket = replace(websocket, host=host, port=port)
            case "no_tls":
                websocket = replace(websocket, no_tls=_flag(value))
            case "compression":
                websocket = replace(websocket, compression=_flag(value))
            case "tls":
                websocket = replace(websocket, tls=_tls(value))
            case _:
                raise value.fault(f"{key} of websocket: not available in this version of natsctl server")
    if not websocket.port:
        return options
    if websocket.tls is None and not websocket.no_tls:
        raise item.fault("websocket requires TLS configuration, or no_tls: true")
    return replace(options, websocket=replace(websocket, tls=None if websocket.no_tls else websocket.tls))


def _tls(item: Item) -> TlsOptions:
    paths: dict[str, Path] = {}
    verify = False
    for key, value in _block(item).items():
        if key.lower() in ("cert_file", "key_file", "ca_file"):
            paths[key.lower()] = Path(_text(value))
        elif key.lower() == "verify":
            verify = _flag(value)
        else:
            raise value.fault(f"{key} of tls: not available in this version of natsctl server")
    if not {"cert_file", "key_file"} <= paths.keys():
        raise item.fault("tls needs cert_file and key_file")
    if verify and "ca_file" not in paths:
        raise item.fault("verify needs ca_file")
    return TlsOptions(paths["cert_file"], paths["key_file"], paths.get("ca_file"), verify)


# JetStream


def _jetstream(options: ServerOptions, item: Item) -> ServerOptions:
    if isinstance(item.value, bool):
        return replace(options, jetstream=item.value)
    if isinstance(item.value, str):
        return replace(options, jetstream=_word(item))
    options = replace(options, jetstream=True)
    for key, value in _block(item).items():
        name = key.lower()
        if name in _UNHEEDED:
            _size(value)
        elif name in _JETSTREAM:
            options = _JETSTREAM[name](options, value)
        else:
            raise value.fault(f"unknown field {key!r} of jetstream")
    return options


def _word(item: Item) -> bool:
    words = {"enabled": True, "enable": True, "disabled": False, "disable": False}
    if isinstance(item.value, bool):
        return item.value
    if str(item.value).lower() not in words:
        raise item.fault(f"expected enabled, disabled or a block, not {item.value!r}")
    return words[str(item.value).lower()]


_UNHEEDED: Final = frozenset({
    "max_buffered_size", "max_buffered_msgs", "max_outstanding_catchup", "info_queue_limit", "meta_compact",
    "meta_compact_size", "max_concurrent_io",
})  # fmt: skip
"""Bounds of queues between a client and its stream, of raft and of threads: here is none of these to bound."""

_JETSTREAM: Final[dict[str, Setter]] = {
    "enabled": _set("jetstream", _flag),
    "enable": _set("jetstream", _flag),
    "store": _set("store_dir", lambda item: Path(_text(item))),
    "store_dir": _set("store_dir", lambda item: Path(_text(item))),
    "storedir": _set("store_dir", lambda item: Path(_text(item))),
    "domain": _set("domain", _text),
    "max_memory_store": _set("max_memory", _size),
    "max_mem_store": _set("max_memory", _size),
    "max_mem": _set("max_memory", _size),
    "max_file_store": _set("max_storage", _size),
    "max_file": _set("max_storage", _size),
    "limits": _set("jetstream_limits", read_limits),
    "sync": _set("sync", _sync),
    "sync_interval": _set("sync", _sync),
    "archive_version": _set("archive_version", _archive_version),
}

_LIMITS: Final[dict[str, tuple[str, Callable[[Item], int | bool]]]] = {
    "max_memory": ("max_memory", _number),
    "max_mem": ("max_memory", _number),
    "mem": ("max_memory", _number),
    "memory": ("max_memory", _number),
    "max_file": ("max_storage", _number),
    "max_store": ("max_storage", _number),
    "max_disk": ("max_storage", _number),
    "max_storage": ("max_storage", _number),
    "store": ("max_storage", _number),
    "disk": ("max_storage", _number),
    "max_streams": ("max_streams", _number),
    "streams": ("max_streams", _number),
    "max_consumers": ("max_consumers", _number),
    "consumers": ("max_consumers", _number),
    "max_ack_pending": ("max_ack_pending", _number),
    "memory_max_stream_bytes": ("memory_max_stream_bytes", _number),
    "mem_max_stream_bytes": ("memory_max_stream_bytes", _number),
    "disk_max_stream_bytes": ("storage_max_stream_bytes", _number),
    "store_max_stream_bytes": ("storage_max_stream_bytes", _number),
    "max_bytes_required": ("max_bytes_required", _flag),
    "max_stream_bytes": ("max_bytes_required", _flag),
    "max_bytes": ("max_bytes_required", _flag),
}


def account_limits(item: Item) -> AccountLimits | None:
    """Return the limits of an account's `jetstream`, None where it is off."""
    if not isinstance(item.value, dict):
        return msgspec.structs.replace(UNLIMITED) if _word(item) else None
    limits = msgspec.structs.replace(UNLIMITED)
    for key, value in item.value.items():
        known = _LIMITS.get(key.lower())
        if known is None:
            raise value.fault(f"unknown field {key!r} of an account's jetstream")
        setattr(limits, known[0], known[1](value))
    return limits


# Users and accounts


def _users(item: Item, account: str) -> tuple[User, ...]:
    return tuple(_user(entry, account) for entry in _items(item))


def _user(item: Item, account: str) -> User:
    fields: dict[str, str] = {}
    for key, value in _block(item).items():
        name = {"user": "name", "username": "name", "pass": "password", "password": "password"}.get(key.lower())
        if name is None:
            raise value.fault(f"{key} of a user: not available in this version of natsctl server")
        fields[name] = _text(value)
    if "name" not in fields:
        raise item.fault("a user needs a name")
    return User(fields["name"], fields.get("password", ""), account)


def _authorization(options: ServerOptions, item: Item) -> ServerOptions:
    for key, value in _block(item).items():
        match key.lower():
            case "user" | "username":
                options = replace(options, user=_text(value))
            case "pass" | "password":
                options = replace(options, password=_text(value))
            case "token":
                options = replace(options, token=_text(value))
            case "users":
                options = replace(options, users=options.users + _users(value, "$G"))
            case "timeout":
                options = replace(options, auth_timeout_s=_seconds(value))
            case _:
                raise value.fault(f"{key}: not available in this version of natsctl server")
    return options


def _seconds(item: Item) -> float:
    if isinstance(item.value, (int, float)) and not isinstance(item.value, bool):
        return float(item.value)
    try:
        return parse_duration(_text(item)) / 1e9
    except ValueError:
        raise item.fault(f"expected seconds or a duration, not {item.value!r}") from None


def _accounts(options: ServerOptions, item: Item) -> ServerOptions:
    accounts, users = options.accounts, options.users
    for name, body in _block(item).items():
        limits: AccountLimits | None = None
        for key, value in _block(body).items():
            if key.lower() == "users":
                users += _users(value, name)
            elif key.lower() == "jetstream":
                limits = account_limits(value)
            else:
                raise value.fault(f"{key} of an account: not available in this version of natsctl server")
        accounts += (AccountOptions(name, limits),)
    return replace(options, accounts=accounts, users=users)


_TOP: Final[dict[str, Setter]] = {
    "port": _set("port", _port),
    "host": _set("host", _text),
    "net": _set("host", _text),
    "listen": _listen,
    "http": _http,
    "http_port": _http,
    "monitor_port": _http,
    "server_name": _set("server_name", _text),
    "max_payload": _set("max_payload", _number),
    "max_pending": _set("max_pending", _number),
    "jetstream": _jetstream,
    "store_dir": _set("store_dir", lambda item: Path(_text(item))),
    "websocket": _websocket,
    "leafnodes": _unserved("leafnodes"),
    "leaf": _unserved("leafnodes"),
    "tls": lambda options, item: replace(options, tls=_tls(item)),
    "server_tags": _set("server_tags", lambda item: tuple(_text(tag) for tag in _items(item))),
    "authorization": _authorization,
    "accounts": _accounts,
    "no_auth_user": _set("no_auth_user", _text),
    "debug": _set("debug", _flag),
    "trace": _set("trace", _flag),
    "logtime": _set("log_time", _flag),
    "logfile": _set("log_file", lambda item: Path(_text(item))),
    "log_file": _set("log_file", lambda item: Path(_text(item))),
    "pidfile": _set("pid_file", lambda item: Path(_text(item))),
    "pid_file": _set("pid_file", lambda item: Path(_text(item))),
    "ports_file_dir": _set("ports_file_dir", lambda item: Path(_text(item))),
}
