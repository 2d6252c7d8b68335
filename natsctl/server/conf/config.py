"""nats.conf as server options: which keys exist, what each one sets, and what is wrong with a value.

Keys are found without regard to case, as the reference does. A key that the reference knows and this server does not
serve is refused by name; so is one that nobody knows. Flags of the command line win over the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from natsctl.server.conf.accounts import accounts_block
from natsctl.server.conf.authorization import authorization_block
from natsctl.server.conf.jetstream import jetstream_block
from natsctl.server.conf.leafnodes import leafnodes_block
from natsctl.server.conf.setter import Setter, set_option
from natsctl.server.conf.syntax import Block, ConfError, Item, load_file
from natsctl.server.conf.tls import tls_block
from natsctl.server.conf.values import address_of, flag_of, items_of, number_of, port_of, text_of
from natsctl.server.conf.websocket import websocket_block
from natsctl.server.options import ServerOptions

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


def _listen(options: ServerOptions, item: Item) -> ServerOptions:
    host, port = address_of(item, options.host)
    return replace(options, host=host, port=port)


def _http(options: ServerOptions, item: Item) -> ServerOptions:
    host, port = address_of(item, options.http_host)
    return replace(options, http_host=host, http_port=port)


_TOP: Final[dict[str, Setter]] = {
    "port": set_option("port", port_of),
    "host": set_option("host", text_of),
    "net": set_option("host", text_of),
    "listen": _listen,
    "http": _http,
    "http_port": _http,
    "monitor_port": _http,
    "server_name": set_option("server_name", text_of),
    "max_payload": set_option("max_payload", number_of),
    "max_pending": set_option("max_pending", number_of),
    "jetstream": jetstream_block,
    "store_dir": set_option("store_dir", lambda item: Path(text_of(item))),
    "websocket": websocket_block,
    "leafnodes": leafnodes_block,
    "leaf": leafnodes_block,
    "tls": lambda options, item: replace(options, tls=tls_block(item)),
    "server_tags": set_option("server_tags", lambda item: tuple(text_of(tag) for tag in items_of(item))),
    "authorization": authorization_block,
    "accounts": accounts_block,
    "no_auth_user": set_option("no_auth_user", text_of),
    "debug": set_option("debug", flag_of),
    "trace": set_option("trace", flag_of),
    "logtime": set_option("log_time", flag_of),
    "logfile": set_option("log_file", lambda item: Path(text_of(item))),
    "log_file": set_option("log_file", lambda item: Path(text_of(item))),
    "pidfile": set_option("pid_file", lambda item: Path(text_of(item))),
    "pid_file": set_option("pid_file", lambda item: Path(text_of(item))),
    "ports_file_dir": set_option("ports_file_dir", lambda item: Path(text_of(item))),
}
