"""Server options as options of the broker and the engine, at the start and at a reload.

Accounts without JetStream of their own may have a default domain: another server's JetStream, over a leaf node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from natsctl.api.account import AccountLimits
from natsctl.api.errors import UsageError
from natsctl.api.versions import SERVER_VERSION
from natsctl.broker.auth.credentials import Authenticator
from natsctl.broker.broker_options import BrokerOptions, WebSocketListener
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT
from natsctl.server.logins import authenticator, websocket_authenticator
from natsctl.server.options import ServerOptions
from natsctl.server.resources import descriptor_shares
from natsctl.wire.ops import Limits

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker
    from natsctl.jetstream.engine import Engine
    from natsctl.server.log.lines import Log


UNBOUNDED_BYTES: Final = (1 << 31) - 1
"""The value of an absent limit: sizes in the protocol have fewer digits."""


def broker_options(options: ServerOptions, server_id: str, port: int) -> BrokerOptions:
    """Return the broker's options; `port` is where clients connect."""
    main = authenticator(options)
    advertised = advertised_address(options, port)
    return BrokerOptions(
        server_id=server_id,
        server_name=options.server_name,
        version=SERVER_VERSION,
        tags=list(options.server_tags),
        host=advertised[0],
        port=advertised[1],
        system_account=system_account(options),
        jetstream=options.jetstream,
        domain=options.domain if options.jetstream else "",
        tls_required=options.tls is not None and not options.allow_non_tls,
        tls_available=options.tls is not None and options.allow_non_tls,
        tls_verify=options.tls is not None and options.tls.verify,
        headers=not options.no_header_support,
        limits=limits(options),
        auth=main,
        trusted_proxies=options.trusted_proxies,
        auth_timeout_ns=auth_timeout_ns(options),
        max_pending=options.max_pending,
        max_connections=max_connections(options),
        max_subscriptions=options.max_subscriptions,
        max_subscription_tokens=options.max_subscription_tokens,
        max_closed_clients=options.max_closed_clients,
        ping_interval_ns=round(options.ping_interval_s * 1e9),
        ping_max=options.ping_max,
        **_websocket(options, main),
    )


def limits(options: ServerOptions) -> Limits:
    """Return the limits of one operation of a client; options below 0 mean no limit."""
    return Limits(
        max_control_line=options.max_control_line if options.max_control_line > 0 else UNBOUNDED_BYTES,
        max_payload=options.max_payload if options.max_payload >= 0 else UNBOUNDED_BYTES,
    )


def max_connections(options: ServerOptions) -> int:
    """Return the limit of clients: the configured one, and never more than there are descriptors for."""
    room = descriptor_shares().clients
    return min(options.max_connections, room) if options.max_connections > 0 else room


def advertised_address(options: ServerOptions, port: int) -> tuple[str, int]:
    """Return the client address in INFO. Raises UsageError where `client_advertise` is no address."""
    if not options.client_advertise:
        return options.host, port
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(f"//{options.client_advertise}")
        host, named = parts.hostname, parts.port
    except ValueError:
        host, named = None, None
    if not host:
        raise UsageError(f"invalid client_advertise: {options.client_advertise!r} is no host and port")
    return host, named or port


def auth_timeout_ns(options: ServerOptions) -> int:
    return round(options.login_timeout_s * 1e9)


def _websocket(options: ServerOptions, main: Authenticator | None) -> dict[str, Any]:
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
    """Return the account of the server's own requests and events, or "".

    JetStream has one whatever is configured, and an account named like the default one is it. Source: nats-server,
    server.go and EnableJetStream.
    """
    named = options.system_account
    if options.operator is not None:
        from natsctl.server.operator_mode import trust

        named = trust(options).system_account
    wanted = not options.no_system_account or options.jetstream
    if named or not (wanted or any(account.name == SYSTEM_ACCOUNT for account in options.accounts)):
        return named
    return SYSTEM_ACCOUNT


def jetstream_accounts(options: ServerOptions) -> dict[str, AccountLimits] | None:
    system = system_account(options)
    if all(account.name in (system, GLOBAL_ACCOUNT) and account.jetstream is None for account in options.accounts):
        return None
    return {account.name: account.jetstream for account in options.accounts if account.jetstream is not None}


def map_default_domains(options: ServerOptions, broker: Broker, engine: Engine | None, log: Log) -> None:
    if not options.default_js_domain:
        return
    from natsctl.jetstream.engine import map_default_domain

    log.warn("The option `default_js_domain` is a temporary backwards compatibility measure and will be removed")
    for name, domain in options.default_js_domain:
        if engine is not None and name in engine.accounts:
            log.warn(f'Skipping Default Domain "{domain}", set for JetStream enabled account "{name}"')
        elif domain:
            map_default_domain(broker.account(name), domain)
