"""The block `leafnodes` of nats.conf: the listener, its users, and the remotes that this server connects to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from msgspec.structs import replace

from natsctl.api.subjects import is_valid_subject
from natsctl.broker.auth.static_auth import User
from natsctl.broker.leaf.handshake import version_parts
from natsctl.server.conf.syntax import Item
from natsctl.server.conf.tls import tls_block
from natsctl.server.conf.values import (
    address_of,
    block_of,
    duration_text_of,
    flag_of,
    items_of,
    port_of,
    seconds_of,
    shown,
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


RTT_THRESHOLDS: Final = frozenset({"rtt_thresholds", "thresholds", "rtts", "rtt"})


def check_compression(item: Item) -> None:
    """Raise ConfError for a value that is no compression mode, or a block with other keys than that of compression."""
    value = item.value
    if isinstance(value, dict):
        for key, found in value.items():
            if key.lower() == "mode":
                check_compression(found)
            elif key.lower() in RTT_THRESHOLDS:
                for threshold in items_of(found):
                    duration_text_of(threshold, key)
            else:
                raise found.fault(f'unknown field "{key}"')
    elif not isinstance(value, bool) and (not isinstance(value, str) or value.lower() not in COMPRESSION_MODES):
        raise item.fault(f'unsupported compression mode "{value}"')


RemoteSetter: TypeAlias = Callable[[LeafRemoteOptions, Item], LeafRemoteOptions]

SEED_LENGTH: Final = 58


def remotes_of(item: Item) -> tuple[LeafRemoteOptions, ...]:
    if not isinstance(item.value, list):
        raise item.fault("expected remotes field to be an array")
    remotes: list[LeafRemoteOptions] = []
    for entry in item.value:
        remote = _remote(entry)
        if any((remote.urls, remote.account, remote.creds) == (r.urls, r.account, r.creds) for r in remotes):
            urls = ", ".join(f"{url.scheme}://{url.address}" for url in remote.urls)
            raise entry.fault(f"duplicate remote [{urls}]")
        remotes.append(remote)
    return tuple(remotes)


def _remote(item: Item) -> LeafRemoteOptions:
    remote = LeafRemoteOptions()
    block = block_of(item)
    for key, value in block.items():
        setter = REMOTE_KEYS.get(key.lower())
        if setter is not None:
            remote = setter(remote, value)
        elif key not in block.variables:
            raise value.fault(f'unknown field "{key}"')
    if remote.creds is not None and remote.nkey:
        raise item.fault("Remote leafnode can not have both creds and nkey defined")
    if len({url.is_websocket for url in remote.urls}) > 1:
        raise item.fault("remote leaf node configuration cannot have a mix of websocket and non-websocket urls")
    if remote.proxy is not None and remote.tls is None:
        _refuse_untrusted(remote, next(value for key, value in block.items() if key.lower() == "proxy"))
    return remote


def _refuse_untrusted(remote: LeafRemoteOptions, item: Item) -> None:
    """Raise ConfError where a hub under TLS is reached through a proxy, and nothing says whom to trust."""
    for url in remote.urls:
        if url.scheme == "wss":
            raise item.fault(
                f"proxy is configured but remote URL {url.label} requires TLS and no TLS configuration is provided. "
                "When using proxy with TLS endpoints, ensure TLS is properly configured for the leafnode remote"
            )


PROXY_KEYS: Final = ("url", "username", "password", "timeout", "tls")
_PROXY_TLS: Final = frozenset({
    "cert_file", "key_file", "ca_file", "insecure", "cipher_suites", "allow_insecure_cipher_suites",
    "curve_preferences", "min_version", "timeout", "cert_store", "cert_match_by", "cert_match", "ca_certs_match",
    "cert_match_skip_invalid",
})  # fmt: skip
"""Keys of `tls` that mean something towards a proxy. Source: nats-server, proxyTLSSupportedKeys."""


def _proxy(item: Item) -> LeafProxyOptions | None:
    """Return the proxy of a remote, None where the block is empty; raises ConfError."""
    if not isinstance(item.value, dict):
        raise item.fault(f"Expected proxy to be a map, got {shown(item)}")
    given: dict[str, Item] = {}
    for key, value in item.value.items():
        if key.lower() in PROXY_KEYS:
            given[key.lower()] = value
        elif key not in item.value.variables:
            raise value.fault(f'unknown field "{key}"')
    username, password = (text_of(given[name]) if name in given else "" for name in ("username", "password"))
    timeout_s = seconds_of(given["timeout"]) if "timeout" in given else 0.0
    tls = _proxy_tls(given["tls"]) if "tls" in given else None
    if "url" not in given or not text_of(given["url"]):
        if username or password or timeout_s or tls is not None:
            raise item.fault("proxy URL must be specified when other proxy options are set")
        return None
    host, port, secure = _proxy_address(item, text_of(given["url"]))
    if tls is not None and not secure:
        raise item.fault("proxy TLS configuration requires an https proxy URL, got: http")
    if timeout_s < 0:
        raise item.fault("proxy timeout must be >= 0")
    if tls is not None and tls.timeout_s < 0:
        raise item.fault("proxy TLS timeout must be >= 0")
    if bool(username) != bool(password):
        raise item.fault("proxy username and password must both be specified or both be empty")
    return LeafProxyOptions(host, port, secure, username, password, timeout_s, tls)


def _proxy_address(item: Item, text: str) -> tuple[str, int, bool]:
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


def _proxy_tls(item: Item) -> TlsOptions:
    for key, value in block_of(item).items():
        if key.lower() not in _PROXY_TLS:
            raise value.fault(f'"{key}" is not supported for proxy TLS')
    return _client_tls(item)


def _set_remote(name: str, read: Callable[[Item], Any]) -> RemoteSetter:
    return lambda remote, item: replace(remote, **{name: read(item)})


def _urls(item: Item) -> tuple[ServerUrl, ...]:
    return tuple(_url(entry) for entry in items_of(item))


_WEBSOCKET_PORTS: Final = {"ws": 80, "wss": 443}


def _url(item: Item) -> ServerUrl:
    """Return a url's parts; the error of a malformed one does not repeat its user and password."""
    text = text_of(item).strip()
    try:
        return parse_server_url(text, _WEBSOCKET_PORTS, scheme="nats-leaf", other_port=DEFAULT_LEAF_PORT)
    except ServerUrlError as failure:
        raise item.fault(f"error parsing leafnode url: {failure}") from None


def _creds(item: Item) -> Path:
    return Path(text_of(item)).expanduser()


def _seed(item: Item) -> str:
    seed = text_of(item)
    if len(seed) != SEED_LENGTH or not seed.startswith("SU"):
        raise item.fault("Remote leafnode nkey is not a valid seed")
    return seed


def _subjects(item: Item) -> tuple[str, ...]:
    subjects = tuple(text_of(entry) for entry in items_of(item))
    for subject in subjects:
        if not is_valid_subject(subject):
            raise item.fault(f'subject "{subject}" is not a valid subject')
    return subjects


def _client_tls(item: Item) -> TlsOptions:
    return tls_block(item, "remote")


def _migrate(remote: LeafRemoteOptions, item: Item) -> LeafRemoteOptions:
    """Accept an option of streams with several replicas, which a single server does not have."""
    if not isinstance(item.value, (bool, dict)):
        raise item.fault("expected boolean or map for jetstream_cluster_migrate")
    return remote


def _remote_compression(remote: LeafRemoteOptions, item: Item) -> LeafRemoteOptions:
    check_compression(item)
    return remote


REMOTE_KEYS: Final[dict[str, RemoteSetter]] = {
    "url": _set_remote("urls", _urls),
    "urls": _set_remote("urls", _urls),
    "account": _set_remote("account", text_of),
    "local": _set_remote("account", text_of),
    "creds": _set_remote("creds", _creds),
    "credentials": _set_remote("creds", _creds),
    "nkey": _set_remote("nkey", _seed),
    "seed": _set_remote("nkey", _seed),
    "tls": _set_remote("tls", _client_tls),
    "proxy": _set_remote("proxy", _proxy),
    "hub": _set_remote("hub", flag_of),
    "deny_imports": _set_remote("deny_imports", _subjects),
    "deny_import": _set_remote("deny_imports", _subjects),
    "deny_exports": _set_remote("deny_exports", _subjects),
    "deny_export": _set_remote("deny_exports", _subjects),
    "no_randomize": _set_remote("no_randomize", flag_of),
    "dont_randomize": _set_remote("no_randomize", flag_of),
    "ws_compress": _set_remote("ws_compression", flag_of),
    "ws_compression": _set_remote("ws_compression", flag_of),
    "websocket_compress": _set_remote("ws_compression", flag_of),
    "websocket_compression": _set_remote("ws_compression", flag_of),
    "ws_no_masking": _set_remote("ws_no_masking", flag_of),
    "websocket_no_masking": _set_remote("ws_no_masking", flag_of),
    "jetstream_cluster_migrate": _migrate,
    "js_cluster_migrate": _migrate,
    "isolate_leafnode_interest": _set_remote("isolate", flag_of),
    "isolate": _set_remote("isolate", flag_of),
    "request_isolation": _set_remote("request_isolation", flag_of),
    "compression": _remote_compression,
    "first_info_timeout": _set_remote("first_info_timeout_s", seconds_of),
    "dial_timeout": _set_remote("dial_timeout_s", seconds_of),
    "disabled": _set_remote("disabled", flag_of),
    "ignore_discovered_servers": _set_remote("ignore_discovered_servers", flag_of),
}


OLDEST_VERSION: Final = (2, 8, 0)
"""Least value of `min_version`. Source: nats-server, checkLeafMinVersionConfig."""
LeafSetter: TypeAlias = Callable[[LeafNodesOptions, Item], LeafNodesOptions]


def leafnodes_block(options: ServerOptions, item: Item) -> ServerOptions:
    leafnodes = LeafNodesOptions()
    block = block_of(item)
    for key, value in block.items():
        setter = LEAFNODE_KEYS.get(key.lower())
        if setter is not None:
            leafnodes = setter(leafnodes, value)
        elif key not in block.variables:
            raise value.fault(f'unknown field "{key}"')
    return replace(options, leafnodes=leafnodes if leafnodes.port or leafnodes.remotes else None)


def _set_option(name: str, read: Callable[[Item], Any]) -> LeafSetter:
    return lambda leafnodes, item: replace(leafnodes, **{name: read(item)})


def _listen(leafnodes: LeafNodesOptions, item: Item) -> LeafNodesOptions:
    host, port = address_of(item, leafnodes.host)
    return replace(leafnodes, host=host, port=port)


def _min_version(item: Item) -> str:
    version = text_of(item)
    parts = version_parts(version)
    if parts is None:
        raise item.fault(f"invalid leafnode's minimum version: invalid semver {version!r}")
    if parts < OLDEST_VERSION:
        raise item.fault("the minimum version should be at least 2.8.0")
    return version


def _listener_compression(leafnodes: LeafNodesOptions, item: Item) -> LeafNodesOptions:
    check_compression(item)
    return leafnodes


def _authorization(leafnodes: LeafNodesOptions, item: Item) -> LeafNodesOptions:
    name = password = nkey = account = ""
    users: tuple[User, ...] = ()
    for key, value in block_of(item).items():
        match key.lower():
            case "user" | "username":
                name = text_of(value)
            case "pass" | "password":
                password = text_of(value)
            case "nkey":
                nkey = _public_nkey(value)
            case "account":
                account = text_of(value)
            case "timeout":
                leafnodes = replace(leafnodes, auth_timeout_s=seconds_of(value))
            case "users":
                users = tuple(_user(entry) for entry in items_of(value))
            case "proxy_required":
                leafnodes = replace(leafnodes, proxy_required=flag_of(value))
            case _:
                raise value.fault(f'unknown field "{key}"')
    if users and (name or nkey):
        what = "user/pass" if name else "nkey"
        raise item.fault(f"can not have a single {what} and a users array")
    names = [user.name for user in users]
    for user in users:
        if names.count(user.name) > 1:
            raise item.fault(f'duplicate user "{user.name}" detected in leafnode authorization')
    if name:
        users = (User(name, password, account or "$G"),)
    elif nkey:
        users = (User("", "", account or "$G", nkey=nkey),)
    return replace(leafnodes, users=users, account=account)


def _public_nkey(item: Item) -> str:
    nkey = text_of(item)
    if len(nkey) != 56 or not nkey.startswith("U"):
        raise item.fault("Not a valid public nkey for leafnode authorization")
    return nkey


def _user(item: Item) -> User:
    fields = {"name": "", "password": "", "account": "$G"}
    proxied = False
    for key, value in block_of(item).items():
        name = {"user": "name", "username": "name", "pass": "password", "password": "password"}.get(key.lower())
        if key.lower() == "account":
            name = "account"
        if key.lower() == "proxy_required":
            proxied = flag_of(value)
            continue
        if name is None:
            raise value.fault(f'unknown field "{key}"')
        fields[name] = text_of(value)
    return User(fields["name"], fields["password"], fields["account"], proxy_required=proxied)


LEAFNODE_KEYS: Final[dict[str, LeafSetter]] = {
    "listen": _listen,
    "port": _set_option("port", port_of),
    "host": _set_option("host", text_of),
    "net": _set_option("host", text_of),
    "authorization": _authorization,
    "remotes": _set_option("remotes", remotes_of),
    "reconnect": _set_option("reconnect_s", seconds_of),
    "reconnect_delay": _set_option("reconnect_s", seconds_of),
    "reconnect_interval": _set_option("reconnect_s", seconds_of),
    "dial_timeout": _set_option("dial_timeout_s", seconds_of),
    "tls": _set_option("tls", tls_block),
    "advertise": _set_option("advertise", text_of),
    "leafnode_advertise": _set_option("advertise", text_of),
    "no_advertise": _set_option("no_advertise", flag_of),
    "min_version": _set_option("min_version", _min_version),
    "minimum_version": _set_option("min_version", _min_version),
    "compression": _listener_compression,
    "isolate_leafnode_interest": _set_option("isolate", flag_of),
    "isolate": _set_option("isolate", flag_of),
    "write_deadline": _set_option("write_deadline_s", seconds_of),
    "write_timeout": _set_option("write_timeout", write_timeout_of),
}
