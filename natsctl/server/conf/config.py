"""nats.conf as server options: the keys at its top level, and the digest of the whole file.

Keys are found without regard to case, as nats-server does. A key that nats-server knows and this server does not
serve is refused by name; so is an unknown one. Flags of the command line win over the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from natsctl.api.codec import go_quote
from natsctl.api.errors import UsageError
from natsctl.broker.info import FEATURE_FLAGS
from natsctl.server.conf.accounts import accounts_block, mappings_block
from natsctl.server.conf.authorization import authorization_block, proxies_block
from natsctl.server.conf.checks import option_faults, with_defaults
from natsctl.server.conf.jetstream import LIMITS, jetstream_block, store_dir
from natsctl.server.conf.leafnodes import leafnodes_block
from natsctl.server.conf.operator import OPERATOR_KEYS
from natsctl.server.conf.syntax import ConfBlock, ConfError, ConfItem, load_file
from natsctl.server.conf.tls import ocsp_block, ocsp_cache, tls_block
from natsctl.server.conf.values import (
    OptionSetter,
    address_of,
    block_of,
    entries,
    flag_of,
    items_of,
    keyed,
    number_of,
    path_of,
    port_of,
    set_option,
    text_of,
)
from natsctl.server.conf.websocket import websocket_block
from natsctl.server.options import LOG_FORMATS, NO_PROFILER, SINGLE_NODE, ServerOptions

_ESCAPED: Final = str.maketrans({
    "<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029",
})  # fmt: skip


_DIGEST_DEPTH: Final = 4
"""Depth of hashing a configuration by parts: a user of an account."""


def config_digest(block: ConfBlock) -> str:
    digest = hashlib.sha256()
    for piece in _json_pieces(block, 0):
        digest.update(piece.translate(_ESCAPED).encode("utf-8", "replace"))
    digest.update(b"\n")
    return "sha256:" + digest.hexdigest()


def _json_pieces(value: Any, depth: int) -> Iterator[str]:
    """Yield the JSON of a configuration with sorted keys: other threads run between two pieces, not within one."""
    value = value.value if isinstance(value, ConfItem) else value
    if not isinstance(value, dict | list) or depth > _DIGEST_DEPTH:
        yield json.dumps(_plain(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return
    mark = "{" if isinstance(value, dict) else "["
    for key in sorted(value) if isinstance(value, dict) else range(len(value)):
        yield f"{mark}{json.dumps(key, ensure_ascii=False)}:" if isinstance(value, dict) else mark
        yield from _json_pieces(value[key], depth + 1)
        mark = ","
    yield ("" if value else mark) + ("}" if isinstance(value, dict) else "]")


def _free(value: Any) -> None:
    """Free a configuration piece by piece, for the same reason."""
    value = value.value if isinstance(value, ConfItem) else value
    if isinstance(value, dict):
        for inner in value.values():
            _free(inner)
    elif isinstance(value, list):
        while value:
            value.pop()


def _plain(value: Any) -> Any:
    match value:
        case ConfItem():
            return _plain(value.value)
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case datetime():
            return value.strftime("%Y-%m-%dT%H:%M:%SZ")
        case float() if value.is_integer() and abs(value) < 1e21:
            return int(value)
    return value


def default_domains(options: ServerOptions, item: ConfItem) -> ServerOptions:
    found = tuple((account, text_of(value)) for account, value in block_of(item).items())
    return replace(options, default_js_domain=found)


_IGNORED: Final = frozenset({
    "host", "net", "authorization", "tls", "cluster_advertise", "advertise", "no_advertise", "connect_retries",
    "connect_backoff", "permissions", "pool_size", "accounts", "compression", "ping_interval", "ping_max",
    "write_deadline", "write_timeout",
})  # fmt: skip
"""Keys that mean nothing without a listener and without routes."""


def cluster_block(options: ServerOptions, item: ConfItem) -> ServerOptions:
    """Return `options` as they were: only a cluster's name is accepted; raises ConfError for real cluster settings."""
    for check, value in entries(item, CLUSTER_KEYS):
        check(value)
    return options


def _cluster_name(item: ConfItem) -> None:
    if " " in text_of(item):
        raise item.fault("cluster name cannot contain spaces or newlines")


def _cluster_listener(item: ConfItem) -> None:
    raise item.fault(f"cluster: {SINGLE_NODE}")


def _cluster_routes(item: ConfItem) -> None:
    if items_of(item):
        _cluster_listener(item)


CLUSTER_KEYS: Final[dict[str, Callable[[ConfItem], None]]] = {
    **dict.fromkeys(_IGNORED, lambda item: None),
    "name": _cluster_name,
    "listen": _cluster_listener,
    "port": _cluster_listener,
    "routes": _cluster_routes,
}


def _log_format(item: ConfItem) -> str:
    found = text_of(item)
    if found not in LOG_FORMATS:
        raise item.fault(f"log_format: expected {' or '.join(LOG_FORMATS)}, got {found!r}")
    return found


def _syslog_url(item: ConfItem) -> str:
    from natsctl.server.log.syslog import parse_syslog_url

    url = text_of(item)
    try:
        return url and parse_syslog_url(url) and url
    except ValueError as error:
        raise item.fault(f"remote_syslog: {error}") from None


LOGGING: Final[dict[str, OptionSetter]] = keyed(
    ("debug", set_option("debug", flag_of)),
    ("trace trace_verbose trace_headers", set_option("trace", flag_of)),
    ("logtime", set_option("log_time", flag_of)),
    ("logtime_utc", set_option("log_utc", flag_of)),
    ("logfile log_file", set_option("log_file", path_of)),
    ("logfile_size_limit log_size_limit", set_option("log_size_limit", number_of)),
    ("logfile_max_num log_max_num", set_option("log_max_files", number_of)),
    ("log_format", set_option("log_format", _log_format)),
    ("syslog", set_option("syslog", flag_of)),
    ("remote_syslog", set_option("remote_syslog", _syslog_url)),
)


NOT_SERVED: Final = {
    "mqtt": "natsctl server has no MQTT listener; use nats-server",
}
"""Keys of nats-server that no code here serves, each with the reason of its refusal."""


def read_config(path: Path, options: ServerOptions, environment: Mapping[str, str]) -> ServerOptions:
    """Return `options` with the settings of a file; raises ConfError, or OSError if it cannot be read.

    An empty file is refused: it is the usual result of a template that failed, and would make an open server.
    """
    block = load_file(path, environment)
    if not block:
        raise UsageError(f"{path}: config has no values or is empty")
    warnings = tuple(duration_warnings(block))
    digest = config_digest(block)
    found = apply(block, replace(options, config_file=path, config_digest=digest, config_warnings=warnings))
    _free(block)
    return found


_DURATION_KEYS: Final = frozenset({
    "ping_interval", "write_deadline", "sync_interval", "reconnect", "reconnect_delay", "reconnect_interval",
    "dial_timeout", "first_info_timeout",
})  # fmt: skip
"""Keys that take a duration such as "2m", and a number of seconds only for compatibility: a bare 2m is 2,000,000."""


def duration_warnings(block: ConfBlock) -> Iterator[str]:
    for key, item in block.items():
        if key.lower() in _DURATION_KEYS and isinstance(item.value, int | float):
            field = key.lower()
            yield f'{item.place}: invalid use of field "{field}": {field} should be converted to a duration'
        for inner in items_of(item):
            if isinstance(inner.value, ConfBlock):
                yield from duration_warnings(inner.value)


def apply(block: ConfBlock, options: ServerOptions) -> ServerOptions:
    for key, item in block.items():
        if (setter := TOP_KEYS.get(key.lower())) is not None:
            options = setter(options, item)
        elif key not in block.variables:
            why = NOT_SERVED.get(key.lower())
            raise item.fault(f"{key}: {why}" if why else f"unknown field {go_quote(key)}")
    return _checked(with_defaults(options), block)


def _checked(options: ServerOptions, block: ConfBlock) -> ServerOptions:
    for key, text in option_faults(options):
        item = next((item for name, item in block.items() if name.lower() == key), None)
        raise item.fault(text) if item else ConfError(str(options.config_file or "nats.conf"), 1, text)
    return options


def _set_address(host: str, port: str) -> OptionSetter:
    def change(options: ServerOptions, item: ConfItem) -> ServerOptions:
        address = address_of(item, getattr(options, host))
        return replace(options, **{host: address[0], port: address[1]})

    return change


def _server_name(item: ConfItem) -> str:
    name = text_of(item)
    if " " in name:
        raise item.fault("server name cannot contain spaces")
    return name


def _tags(item: ConfItem) -> tuple[str, ...]:
    """Return tags as nats-server keeps them: in small letters, without blanks around, each once."""
    return tuple(dict.fromkeys(text_of(tag).strip().lower() for tag in items_of(item)))


def _metadata(item: ConfItem) -> tuple[tuple[str, str], ...]:
    return tuple((key, text_of(value)) for key, value in block_of(item).items())


def _feature_flags(options: ServerOptions, item: ConfItem) -> ServerOptions:
    for name, value in block_of(item).items():
        if flag_of(value) != FEATURE_FLAGS.get(name, flag_of(value)):
            raise value.fault(f"feature_flags: {name} is {str(FEATURE_FLAGS[name]).lower()} in natsctl server")
    return options


def _gateway(options: ServerOptions, item: ConfItem) -> ServerOptions:
    raise item.fault(f"gateway: {SINGLE_NODE}")


def _switched_off(name: str, why: str) -> OptionSetter:
    """Return the setter of a key that may be off, and is refused if on."""

    def check(options: ServerOptions, item: ConfItem) -> ServerOptions:
        if item.value not in (False, 0, "never"):
            raise item.fault(f"{name}: {why}")
        return options

    return check


TOP_KEYS: Final[dict[str, OptionSetter]] = {
    **LIMITS,
    **LOGGING,
    **OPERATOR_KEYS,
    **keyed(
        ("default_js_domain", default_domains),
        ("port", set_option("port", port_of)),
        ("host net", set_option("host", text_of)),
        ("listen", _set_address("host", "port")),
        ("client_advertise", set_option("client_advertise", text_of)),
        ("http", _set_address("http_host", "http_port")),
        ("http_port monitor_port", set_option("http_port", port_of)),
        ("https", _set_address("http_host", "https_port")),
        ("https_port", set_option("https_port", port_of)),
        ("http_base_path", set_option("http_base_path", text_of)),
        ("server_name", set_option("server_name", _server_name)),
        ("server_tags", set_option("server_tags", _tags)),
        ("server_metadata", set_option("server_metadata", _metadata)),
        ("feature_flags", _feature_flags),
        ("jetstream", jetstream_block),
        ("store_dir storedir", store_dir),
        ("websocket ws", websocket_block),
        ("leafnodes leaf", leafnodes_block),
        ("cluster", cluster_block),
        ("gateway", _gateway),
        ("tls", set_option("tls", tls_block)),
        ("allow_non_tls", set_option("allow_non_tls", flag_of)),
        ("authorization", authorization_block),
        ("proxies", proxies_block),
        ("accounts", accounts_block),
        ("mappings maps", mappings_block),
        ("system_account system", set_option("system_account", text_of)),
        ("no_auth_user", set_option("no_auth_user", text_of)),
        ("pidfile pid_file", set_option("pid_file", path_of)),
        ("ports_file_dir", set_option("ports_file_dir", path_of)),
        ("prof_port", _switched_off("prof_port", NO_PROFILER)),
        ("prof_block_rate", _switched_off("prof_block_rate", NO_PROFILER)),
        ("proxy_protocol", set_option("proxy_protocol", flag_of)),
        ("ocsp", set_option("ocsp", ocsp_block)),
        ("ocsp_cache", set_option("ocsp_cache", ocsp_cache)),
        ("no_system_account no_system no_sys_acc", set_option("no_system_account", flag_of)),
    ),
}
