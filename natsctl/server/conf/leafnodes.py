"""The block `leafnodes` of nats.conf: the listener, its users, and the remotes that this server connects to."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from natsctl.api.subjects import is_valid_subject
from natsctl.broker.auth.static_auth import User
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT
from natsctl.broker.leaf.handshake import version_parts
from natsctl.server.conf.syntax import ConfItem
from natsctl.server.conf.tls import tls_block
from natsctl.server.conf.values import (
    Reader,
    address_fields,
    block_of,
    duration_text_of,
    fields_of,
    flag_of,
    items_of,
    keyed,
    list_of,
    port_of,
    seconds_of,
    text_of,
    write_timeout_of,
)
from natsctl.server.options import (
    DEFAULT_LEAF_PORT,
    LeafNodesOptions,
    LeafProxyOptions,
    LeafRemoteOptions,
    ServerOptions,
    TlsOptions,
)
from natsctl.wire.server_url import ServerUrl, ServerUrlError, parse_server_url

COMPRESSION_MODES: Final = frozenset({
    "off", "disabled", "accept", "s2_auto", "auto", "on", "enabled", "s2_fast", "s2_better", "s2_best",
    "s2_uncompressed", "fast", "better", "best", "uncompressed",
})  # fmt: skip
"""Values that a file may have; links are never compressed, and both sides negotiate that by themselves."""


def check_compression(item: ConfItem) -> dict[str, Any]:
    """Return no options; raises ConfError for a mode that is unknown, or a block with other keys than compression's."""
    value = item.value
    if isinstance(value, dict):
        fields_of(item, COMPRESSION_KEYS)
    elif not isinstance(value, bool) and (not isinstance(value, str) or value.lower() not in COMPRESSION_MODES):
        raise item.fault(f'unsupported compression mode "{value}"')
    return {}


def _check_thresholds(key: str, item: ConfItem) -> dict[str, Any]:
    for threshold in items_of(item):
        duration_text_of(threshold, key)
    return {}


COMPRESSION_KEYS: Final[dict[str, Reader]] = {
    "mode": ("", check_compression),
    **{key: ("", partial(_check_thresholds, key)) for key in ("rtt_thresholds", "thresholds", "rtts", "rtt")},
}
SEED_LENGTH: Final = 58


def remotes_of(item: ConfItem) -> tuple[LeafRemoteOptions, ...]:
    remotes: list[LeafRemoteOptions] = []
    for entry in list_of(item, "expected remotes field to be an array"):
        remote = _remote(entry)
        if any((remote.urls, remote.account, remote.creds) == (r.urls, r.account, r.creds) for r in remotes):
            urls = ", ".join(f"{url.scheme}://{url.address}" for url in remote.urls)
            raise entry.fault(f"duplicate remote [{urls}]")
        remotes.append(remote)
    return tuple(remotes)


def _remote(item: ConfItem) -> LeafRemoteOptions:
    remote = LeafRemoteOptions(**fields_of(item, REMOTE_KEYS))
    if remote.creds is not None and remote.nkey:
        raise item.fault("Remote leafnode can not have both creds and nkey defined")
    if len({url.is_websocket for url in remote.urls}) > 1:
        raise item.fault("remote leaf node configuration cannot have a mix of websocket and non-websocket urls")
    if remote.proxy is not None and remote.tls is None:
        _refuse_untrusted(remote, next(value for key, value in block_of(item).items() if key.lower() == "proxy"))
    return remote


def _refuse_untrusted(remote: LeafRemoteOptions, item: ConfItem) -> None:
    """Raise ConfError if a hub with TLS is reached through a proxy without a trusted CA."""
    for url in remote.urls:
        if url.scheme == "wss":
            raise item.fault(
                f"proxy is configured but remote URL {url.label} requires TLS and no TLS configuration is provided. "
                "When using proxy with TLS endpoints, ensure TLS is properly configured for the leafnode remote"
            )


_PROXY_TLS: Final = frozenset({
    "cert_file", "key_file", "ca_file", "insecure", "cipher_suites", "allow_insecure_cipher_suites",
    "curve_preferences", "min_version", "timeout", "cert_store", "cert_match_by", "cert_match", "ca_certs_match",
    "cert_match_skip_invalid",
})  # fmt: skip
"""Keys of `tls` that mean something towards a proxy. Source: nats-server, proxyTLSSupportedKeys."""


def _proxy(item: ConfItem) -> LeafProxyOptions | None:
    """Return the proxy of a remote, or None for an empty block; raises ConfError."""
    fields = fields_of(item, PROXY_KEYS, "Expected proxy to be a map, got {}")
    url, tls = fields.pop("url", ""), fields.get("tls")
    if not url:
        if any(fields.values()):
            raise item.fault("proxy URL must be specified when other proxy options are set")
        return None
    host, port, secure = _proxy_address(item, url)
    if tls is not None and not secure:
        raise item.fault("proxy TLS configuration requires an https proxy URL, got: http")
    if fields.get("timeout_s", 0) < 0:
        raise item.fault("proxy timeout must be >= 0")
    if tls is not None and tls.timeout_s < 0:
        raise item.fault("proxy TLS timeout must be >= 0")
    if bool(fields.get("username")) != bool(fields.get("password")):
        raise item.fault("proxy username and password must both be specified or both be empty")
    return LeafProxyOptions(host, port, secure, **fields)


def _proxy_address(item: ConfItem, text: str) -> tuple[str, int, bool]:
    try:
        parts = urlsplit(text)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        raise item.fault("invalid proxy URL: not a url") from None
    if scheme not in ("http", "https"):
        raise item.fault(f"proxy URL scheme must be http or https, got: {scheme}")
    if not host:
        raise item.fault("proxy URL must specify a host")
    return host, port or (443 if scheme == "https" else 80), scheme == "https"


def _proxy_tls(item: ConfItem) -> TlsOptions:
    for key, value in block_of(item).items():
        if key.lower() not in _PROXY_TLS:
            raise value.fault(f'"{key}" is not supported for proxy TLS')
    return _client_tls(item)


PROXY_KEYS: Final[dict[str, Reader]] = {
    "url": ("url", text_of),
    "username": ("username", text_of),
    "password": ("password", text_of),
    "timeout": ("timeout_s", seconds_of),
    "tls": ("tls", _proxy_tls),
}


_WEBSOCKET_PORTS: Final = {"ws": 80, "wss": 443}


def _url(item: ConfItem) -> ServerUrl:
    """Return a url's parts; the error of a malformed one does not repeat its user and password."""
    text = text_of(item).strip()
    try:
        return parse_server_url(text, _WEBSOCKET_PORTS, scheme="nats-leaf", other_port=DEFAULT_LEAF_PORT)
    except ServerUrlError as failure:
        raise item.fault(f"error parsing leafnode url: {failure}") from None


def _creds(item: ConfItem) -> Path:
    return Path(text_of(item)).expanduser()


def _seed(item: ConfItem) -> str:
    seed = text_of(item)
    if len(seed) != SEED_LENGTH or not seed.startswith("SU"):
        raise item.fault("Remote leafnode nkey is not a valid seed")
    return seed


def _subjects(item: ConfItem) -> tuple[str, ...]:
    subjects = tuple(text_of(entry) for entry in items_of(item))
    for subject in subjects:
        if not is_valid_subject(subject):
            raise item.fault(f'subject "{subject}" is not a valid subject')
    return subjects


def _client_tls(item: ConfItem) -> TlsOptions:
    return tls_block(item, "remote")


def _check_migrate(item: ConfItem) -> dict[str, Any]:
    """Accept and ignore an option of replicated streams."""
    if not isinstance(item.value, (bool, dict)):
        raise item.fault("expected boolean or map for jetstream_cluster_migrate")
    return {}


REMOTE_KEYS: Final[dict[str, Reader]] = keyed(
    ("url urls", ("urls", lambda item: tuple(map(_url, items_of(item))))),
    ("account local", ("account", text_of)),
    ("creds credentials", ("creds", _creds)),
    ("nkey seed", ("nkey", _seed)),
    ("tls", ("tls", _client_tls)),
    ("proxy", ("proxy", _proxy)),
    ("hub", ("hub", flag_of)),
    ("deny_imports deny_import", ("deny_imports", _subjects)),
    ("deny_exports deny_export", ("deny_exports", _subjects)),
    ("no_randomize dont_randomize", ("no_randomize", flag_of)),
    ("ws_compress ws_compression websocket_compress websocket_compression", ("ws_compression", flag_of)),
    ("ws_no_masking websocket_no_masking", ("ws_no_masking", flag_of)),
    ("jetstream_cluster_migrate js_cluster_migrate", ("", _check_migrate)),
    ("isolate_leafnode_interest isolate", ("isolate", flag_of)),
    ("request_isolation", ("request_isolation", flag_of)),
    ("compression", ("", check_compression)),
    ("first_info_timeout", ("first_info_timeout_s", seconds_of)),
    ("dial_timeout", ("dial_timeout_s", seconds_of)),
    ("disabled", ("disabled", flag_of)),
    ("ignore_discovered_servers", ("ignore_discovered_servers", flag_of)),
)


OLDEST_VERSION: Final = (2, 8, 0)
"""Least value of `min_version`. Source: nats-server, checkLeafMinVersionConfig."""


def leafnodes_block(options: ServerOptions, item: ConfItem) -> ServerOptions:
    leafnodes = LeafNodesOptions(**fields_of(item, LEAFNODE_KEYS))
    return replace(options, leafnodes=leafnodes if leafnodes.port or leafnodes.remotes else None)


def _min_version(item: ConfItem) -> str:
    version = text_of(item)
    parts = version_parts(version)
    if parts is None:
        raise item.fault(f"invalid leafnode's minimum version: invalid semver {version!r}")
    if parts < OLDEST_VERSION:
        raise item.fault("the minimum version should be at least 2.8.0")
    return version


def _authorization(item: ConfItem) -> dict[str, Any]:
    fields = fields_of(item, AUTHORIZATION_KEYS)
    users, account = fields.get("users", ()), fields.get("account", "")
    name, password, nkey = (fields.pop(field, "") for field in ("name", "password", "nkey"))
    if users and (name or nkey):
        raise item.fault(f"can not have a single {'user/pass' if name else 'nkey'} and a users array")
    names = [user.name for user in users]
    for user in users:
        if names.count(user.name) > 1:
            raise item.fault(f'duplicate user "{user.name}" detected in leafnode authorization')
    if name:
        users = (User(name, password, account or GLOBAL_ACCOUNT),)
    elif nkey:
        users = (User("", "", account or GLOBAL_ACCOUNT, nkey=nkey),)
    return {**fields, "users": users, "account": account}


def _public_nkey(item: ConfItem) -> str:
    nkey = text_of(item)
    if len(nkey) != 56 or not nkey.startswith("U"):
        raise item.fault("Not a valid public nkey for leafnode authorization")
    return nkey


def _users(item: ConfItem) -> tuple[User, ...]:
    return tuple(User(**{"name": "", "password": "", **fields_of(entry, USER_KEYS)}) for entry in items_of(item))


USER_KEYS: Final[dict[str, Reader]] = keyed(
    ("user username", ("name", text_of)),
    ("pass password", ("password", text_of)),
    ("account", ("account", text_of)),
    ("proxy_required", ("proxy_required", flag_of)),
)
AUTHORIZATION_KEYS: Final[dict[str, Reader]] = keyed(
    ("user username", ("name", text_of)),
    ("pass password", ("password", text_of)),
    ("nkey", ("nkey", _public_nkey)),
    ("account", ("account", text_of)),
    ("timeout", ("auth_timeout_s", seconds_of)),
    ("users", ("users", _users)),
    ("proxy_required", ("proxy_required", flag_of)),
)
LEAFNODE_KEYS: Final[dict[str, Reader]] = keyed(
    ("listen", ("", address_fields)),
    ("port", ("port", port_of)),
    ("host net", ("host", text_of)),
    ("authorization", ("", _authorization)),
    ("remotes", ("remotes", remotes_of)),
    ("reconnect reconnect_delay reconnect_interval", ("reconnect_s", seconds_of)),
    ("dial_timeout", ("dial_timeout_s", seconds_of)),
    ("tls", ("tls", tls_block)),
    ("advertise leafnode_advertise", ("advertise", text_of)),
    ("no_advertise", ("no_advertise", flag_of)),
    ("min_version minimum_version", ("min_version", _min_version)),
    ("compression", ("", check_compression)),
    ("isolate_leafnode_interest isolate", ("isolate", flag_of)),
    ("write_deadline", ("write_deadline_s", seconds_of)),
    ("write_timeout", ("write_timeout", write_timeout_of)),
)
