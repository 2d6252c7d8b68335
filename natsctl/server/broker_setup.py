"""Server options as what the broker and the engine want to know of them: at the start, and again at a reload."""

from __future__ import annotations

import secrets

from natsctl.api.account import AccountLimits
from natsctl.broker.account import SYSTEM_ACCOUNT
from natsctl.broker.grant import Authenticator
from natsctl.broker.options import BrokerOptions
from natsctl.broker.static_auth import StaticAuthenticator, User
from natsctl.server.descriptors import descriptor_shares
from natsctl.server.operator_mode import jwt_authenticator, trust
from natsctl.server.options import ServerOptions
from natsctl.server.version import PROTOCOL_VERSION
from natsctl.wire.faults import Limits


def broker_options(options: ServerOptions, server_id: str, port: int) -> BrokerOptions:
    """Return the broker's options; `port` is where clients connect."""
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
        tls_required=options.tls is not None,
        tls_verify=options.tls is not None and options.tls.verify,
        limits=Limits(max_payload=options.max_payload),
        auth=authenticator(options),
        auth_timeout_ns=round(options.auth_timeout_s * 1e9),
        max_pending=options.max_pending,
        max_connections=descriptor_shares().clients,
    )


def authenticator(options: ServerOptions) -> Authenticator | None:
    """Return who knows the users, None where everybody is let in."""
    if options.operator is not None and (jwts := jwt_authenticator(options)) is not None:
        return jwts
    if options.token:
        return StaticAuthenticator(token=options.token)
    users = options.users + ((User(options.user, options.password),) if options.user else ())
    if users and not options.no_auth_user and all(user.account == SYSTEM_ACCOUNT for user in users):
        # Who names users of the system account alone does not mean to lock everybody else out.
        anyone = User(secrets.token_hex(16), secrets.token_hex(16))
        return StaticAuthenticator(users=(*users, anyone), no_auth_user=anyone.name)
    return StaticAuthenticator(users=users, no_auth_user=options.no_auth_user) if users else None


def system_account(options: ServerOptions) -> str:
    """Return the account of the server's own requests and events."""
    return trust(options).system_account or SYSTEM_ACCOUNT


def jetstream_accounts(options: ServerOptions) -> dict[str, AccountLimits] | None:
    """Return the limits of the accounts that have JetStream, None where accounts are not configured."""
    if all(account.name == SYSTEM_ACCOUNT for account in options.accounts):
        return None
    return {account.name: account.jetstream for account in options.accounts if account.jetstream is not None}
