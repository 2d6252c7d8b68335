"""Server options as what the broker and the engine want to know of them: at the start, and again at a reload."""

from __future__ import annotations

from typing import Any

from natsctl.api.account import AccountLimits
from natsctl.broker.account import SYSTEM_ACCOUNT
from natsctl.broker.grant import Authenticator
from natsctl.broker.options import BrokerOptions, WebSocketListener
from natsctl.server.authenticators import authenticator, websocket_authenticator
from natsctl.server.descriptors import descriptor_shares
from natsctl.server.operator_mode import trust
from natsctl.server.options import AUTH_TIMEOUT_S, ServerOptions
from natsctl.server.version import PROTOCOL_VERSION
from natsctl.wire.faults import Limits


def broker_options(options: ServerOptions, server_id: str, port: int) -> BrokerOptions:
    """Return the broker's options; `port` is where clients connect."""
    main = authenticator(options)
    return BrokerOptions(
        server_id=server_id,
        server_name=options.server_name,
        version=PROTOCOL_VERSION,
        tags=list(options.server_tags),
        host=options.host,
        port=port,
        system_account=system_account(options),
        jetstream=options.jetstream,
        domain=options.domain if options.jetstream else "",
        tls_required=options.tls is not None and not options.allow_non_tls,
        tls_available=options.tls is not None and options.allow_non_tls,
        tls_verify=options.tls is not None and options.tls.verify,
        limits=Limits(max_payload=options.max_payload),
        auth=main,
        auth_timeout_ns=auth_timeout_ns(options),
        max_pending=options.max_pending,
        max_connections=descriptor_shares().clients,
        **_websocket(options, main),
    )


def auth_timeout_ns(options: ServerOptions) -> int:
    """Return how long a client has for its CONNECT; under TLS the default leaves time for the handshake."""
    seconds = options.auth_timeout_s
    if options.tls is not None and seconds == AUTH_TIMEOUT_S:
        seconds = options.tls.timeout_s + 1
    return round(seconds * 1e9)


def _websocket(options: ServerOptions, main: Authenticator | None) -> dict[str, Any]:
    """Return what is other for clients that come over WebSocket."""
    websocket = options.websocket
    if websocket is None:
        return {}
    found: dict[str, Any] = {
        "listener_auth": {"WEBSOCKET": websocket_authenticator(options, main)},
        "websocket": WebSocketListener(websocket.host, max(websocket.port, 0), websocket.tls is not None),
    }
    if websocket.auth_timeout_s:
        found["listener_auth_timeout_ns"] = {"WEBSOCKET": round(websocket.auth_timeout_s * 1e9)}
    if websocket.ping_interval_s:
        found["listener_ping_interval_ns"] = {"WEBSOCKET": round(websocket.ping_interval_s * 1e9)}
    return found


def system_account(options: ServerOptions) -> str:
    """Return the account of the server's own requests and events."""
    return trust(options).system_account or SYSTEM_ACCOUNT


def jetstream_accounts(options: ServerOptions) -> dict[str, AccountLimits] | None:
    """Return the limits of the accounts that have JetStream, None where accounts are not configured."""
    if all(account.name == SYSTEM_ACCOUNT for account in options.accounts):
        return None
    return {account.name: account.jetstream for account in options.accounts if account.jetstream is not None}
