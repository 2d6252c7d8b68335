"""The blocks of varz about listeners other than that of clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from natsctl.server.monitor.ages import SECOND_NS
from natsctl.server.monitor.document import go_number
from natsctl.server.options import WS_HANDSHAKE_TIMEOUT_S

if TYPE_CHECKING:
    from natsctl.server.instance import ServerInstance


def websocket_block(server: ServerInstance) -> dict[str, Any]:
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
    return {key: value for key, value in shown.items() if value}


def leafnodes_block(server: ServerInstance) -> dict[str, Any]:
    """Return the listener and the remotes of leaf nodes; empty where there are none."""
    return {}
