"""nats.conf as server options: which keys exist, what each one sets, and what is wrong with a value.

Keys are found without regard to case, as nats-server does. A key that nats-server knows and this server does not
serve is refused by name; so is one that nobody knows. Flags of the command line win over the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from natsctl.broker.info import FEATURE_FLAGS
from natsctl.server.conf.accounts import accounts_block
from natsctl.server.conf.authorization import authorization_block
from natsctl.server.conf.checks import complaints, with_defaults
from natsctl.server.conf.cluster import SINGLE_NODE, cluster_block
from natsctl.server.conf.default_domain import default_domains
from natsctl.server.conf.digest import config_digest
from natsctl.server.conf.jetstream import jetstream_block, store_dir
from natsctl.server.conf.leafnodes import leafnodes_block
from natsctl.server.conf.limits import LIMITS
from natsctl.server.conf.logging import LOGGING
from natsctl.server.conf.mappings import mappings_block
from natsctl.server.conf.operator import OPERATOR_KEYS
from natsctl.server.conf.setter import Setter, set_option
from natsctl.server.conf.syntax import Block, ConfError, Item, load_file
from natsctl.server.conf.tls import tls_block
from natsctl.server.conf.values import address_of, block_of, flag_of, items_of, path_of, port_of, text_of
from natsctl.server.conf.websocket import websocket_block
from natsctl.server.options import ServerOptions

ELSEWHERE: Final = frozenset({
    "mqtt", "proxies",
})  # fmt: skip
"""Keys of nats-server that no code here serves: saying so is better than running without them."""


def read_config(path: Path, options: ServerOptions, environment: Mapping[str, str]) -> ServerOptions:
    """Return `options` with what a file sets; raises ConfError, OSError where the file can not be read."""
    block = load_file(path, environment)
    return apply(block, replace(options, config_file=path, config_digest=config_digest(block)))


def apply(block: Block, options: ServerOptions) -> ServerOptions:
    """Return `options` with what a block sets; raises ConfError."""
    for key, item in block.items():
        setter = TOP_KEYS.get(key.lower())
        if setter is None:
            if key not in block.variables:
                raise _unknown(key, item)
            continue
        options = setter(options, item)
    return _checked(with_defaults(options), block)


def _unknown(key: str, item: Item) -> ConfError:
    if key.lower() in ELSEWHERE:
        return item.fault(f"{key}: not available in this version of natsctl server")
    return item.fault(f'unknown field "{key}"')


def _checked(options: ServerOptions, block: Block) -> ServerOptions:
    for about, text in complaints(options):
        item = next((item for key, item in block.items() if key.lower() == about), None)
        raise item.fault(text) if item else ConfError(str(options.config_file or "nats.conf"), 1, text)
    return options


def _listen(options: ServerOptions, item: Item) -> ServerOptions:
    host, port = address_of(item, options.host)
    return replace(options, host=host, port=port)


def _https(options: ServerOptions, item: Item) -> ServerOptions:
    host, port = address_of(item, options.http_host)
    return replace(options, http_host=host, https_port=port)


def _http(options: ServerOptions, item: Item) -> ServerOptions:
    host, port = address_of(item, options.http_host)
    return replace(options, http_host=host, http_port=port)


def _server_name(item: Item) -> str:
    name = text_of(item)
    if " " in name:
        raise item.fault("server name cannot contain spaces")
    return name


def _tags(item: Item) -> tuple[str, ...]:
    """Return tags as nats-server keeps them: in small letters, without blanks around, each once."""
    return tuple(dict.fromkeys(text_of(tag).strip().lower() for tag in items_of(item)))


def _metadata(item: Item) -> tuple[tuple[str, str], ...]:
    return tuple((key, text_of(value)) for key, value in block_of(item).items())


def _tls(options: ServerOptions, item: Item) -> ServerOptions:
    return replace(options, tls=tls_block(item))


def _feature_flags(options: ServerOptions, item: Item) -> ServerOptions:
    for name, value in block_of(item).items():
        if flag_of(value) != FEATURE_FLAGS.get(name, flag_of(value)):
            raise value.fault(f"feature_flags: {name} is {str(FEATURE_FLAGS[name]).lower()} in natsctl server")
    return options


def _gateway(options: ServerOptions, item: Item) -> ServerOptions:
    raise item.fault(f"gateway: {SINGLE_NODE}")


def _switched_off(name: str, why: str) -> Setter:
    """Return the setter of a key that may be off, and is refused where it is on."""

    def check(options: ServerOptions, item: Item) -> ServerOptions:
        if item.value not in (False, 0, "never"):
            raise item.fault(f"{name}: {why}")
        return options

    return check


TOP_KEYS: Final[dict[str, Setter]] = {
    **LIMITS,
    **LOGGING,
    **OPERATOR_KEYS,
    "default_js_domain": default_domains,
    "port": set_option("port", port_of),
    "host": set_option("host", text_of),
    "net": set_option("host", text_of),
    "listen": _listen,
    "client_advertise": set_option("client_advertise", text_of),
    "http": _http,
    "http_port": set_option("http_port", port_of),
    "monitor_port": set_option("http_port", port_of),
    "https": _https,
    "https_port": set_option("https_port", port_of),
    "http_base_path": set_option("http_base_path", text_of),
    "server_name": set_option("server_name", _server_name),
    "server_tags": set_option("server_tags", _tags),
    "server_metadata": set_option("server_metadata", _metadata),
    "feature_flags": _feature_flags,
    "jetstream": jetstream_block,
    "store_dir": store_dir,
    "storedir": store_dir,
    "websocket": websocket_block,
    "ws": websocket_block,
    "leafnodes": leafnodes_block,
    "leaf": leafnodes_block,
    "cluster": cluster_block,
    "gateway": _gateway,
    "tls": _tls,
    "allow_non_tls": set_option("allow_non_tls", flag_of),
    "authorization": authorization_block,
    "accounts": accounts_block,
    "mappings": mappings_block,
    "maps": mappings_block,
    "system_account": set_option("system_account", text_of),
    "system": set_option("system_account", text_of),
    "no_auth_user": set_option("no_auth_user", text_of),
    "pidfile": set_option("pid_file", path_of),
    "pid_file": set_option("pid_file", path_of),
    "ports_file_dir": set_option("ports_file_dir", path_of),
    "prof_port": _switched_off("prof_port", "this server has no Go profiler; look at /metrics and the log"),
    "prof_block_rate": _switched_off("prof_block_rate", "this server has no Go profiler"),
    "proxy_protocol": _switched_off("proxy_protocol", "not available in natsctl server"),
    "ocsp": _switched_off("ocsp", "stapling of OCSP answers is not available in natsctl server"),
    "ocsp_cache": _switched_off("ocsp_cache", "checks of OCSP answers are not available in natsctl server"),
    "no_system_account": _switched_off("no_system_account", "natsctl server answers its tools in a system account"),
    "no_system": _switched_off("no_system", "natsctl server answers its tools in a system account"),
    "no_sys_acc": _switched_off("no_sys_acc", "natsctl server answers its tools in a system account"),
}
