"""The blocks of varz about listeners other than that of clients."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from natsctl.api.times import format_time
from natsctl.server.monitor.ages import SECOND_NS
from natsctl.server.monitor.document import go_number
from natsctl.server.options import TLS_TIMEOUT_S, WS_HANDSHAKE_TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

    from natsctl.server.leaf.options import LeafRemoteOptions
    from natsctl.server.options import TlsOptions
    from natsctl.server.view import ServerView


MAX_CERTIFICATES: Final = 16
"""Certificates whose end is remembered."""


def websocket_block(server: ServerView) -> dict[str, Any]:
    """Return the WebSocket listener; empty where there is none."""
    options = server.options.websocket
    if options is None:
        return {}
    tls, usual = options.tls, options.handshake_timeout_s == WS_HANDSHAKE_TIMEOUT_S
    shown = {
        "host": options.host,
        "port": server.port_of("websocket"),
        "advertise": options.advertise,
        "no_auth_user": options.no_auth_user,
        "jwt_cookie": options.jwt_cookie,
        "handshake_timeout": 0 if usual else round(options.handshake_timeout_s * SECOND_NS),
        "auth_timeout": go_number(options.auth_timeout_s),
        "no_tls": options.no_tls,
        "tls_map": tls is not None and tls.verify_and_map,
        "tls_pinned_certs": sorted(tls.pinned_certs) if tls is not None else [],
        "same_origin": options.same_origin,
        "allowed_origins": list(options.allowed_origins),
        "compression": options.compression,
    }
    return {key: value for key, value in shown.items() if value} | certificate_end(server, tls)


def certificate_end(server: ServerView, tls: TlsOptions | None) -> dict[str, str]:
    """Return until when the certificate of a listener is good, as one key; empty without TLS."""
    if tls is None or tls.cert_file is None:
        return {}
    return _end_of(tls.cert_file, server.config_load_ns)


@lru_cache(MAX_CERTIFICATES)
def _end_of(path: Path, load_ns: int) -> dict[str, str]:
    """Return the key for a file that was read at `load_ns`; one that is gone since then has none."""
    from natsctl.server.tls.certificate import not_after

    try:
        return {"tls_cert_not_after": format_time(int(not_after(path).timestamp()) * SECOND_NS)}
    except (OSError, ValueError):
        return {}


def leafnodes_block(server: ServerView) -> dict[str, Any]:
    """Return the listener and the remotes of leaf nodes; empty where there are none."""
    options = server.options.leafnodes
    if options is None:
        return {}
    tls = options.tls
    listener = {
        "host": options.host,
        "port": server.port_of("leafnodes"),
        "auth_timeout": go_number(options.auth_timeout_s),
        "tls_timeout": go_number(tls.timeout_s if tls is not None else TLS_TIMEOUT_S),
        "tls_required": tls is not None,
        "tls_verify": tls is not None and tls.verify,
    }
    shown: dict[str, Any] = {key: value for key, value in listener.items() if value} if options.port else {}
    if options.remotes:
        shown["remotes"] = [_remote(remote) for remote in options.remotes]
    return shown | certificate_end(server, tls)


def _remote(remote: LeafRemoteOptions) -> dict[str, Any]:
    """Return a hub without the credentials of its urls."""
    shown: dict[str, Any] = {"local_account": remote.account}
    if remote.tls is not None:
        shown["tls_timeout"] = go_number(remote.tls.timeout_s)
    shown["urls"] = [url.address for url in remote.urls]
    rules = {"exports": remote.deny_exports, "imports": remote.deny_imports}
    deny = {key: list(subjects) for key, subjects in rules.items() if subjects}
    return {**shown, "deny": deny} if deny else shown
