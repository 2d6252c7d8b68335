"""The block `accounts` of nats.conf."""

from __future__ import annotations

from dataclasses import replace

from natsctl.api.account import AccountLimits
from natsctl.broker.account_config import AccountConfig
from natsctl.server.conf.authorization import users_of
from natsctl.server.conf.jetstream import account_limits
from natsctl.server.conf.syntax import Item
from natsctl.server.conf.values import block_of
from natsctl.server.options import ServerOptions


def accounts_block(options: ServerOptions, item: Item) -> ServerOptions:
    """Return `options` with what the block sets; raises ConfError."""
    accounts, users = options.accounts, options.users
    for name, body in block_of(item).items():
        limits: AccountLimits | None = None
        for key, value in block_of(body).items():
            if key.lower() == "users":
                users += users_of(value, name)
            elif key.lower() == "jetstream":
                limits = account_limits(value)
            else:
                raise value.fault(f"{key} of an account: not available in this version of natsctl server")
        accounts += (AccountConfig(name, limits),)
    return replace(options, accounts=accounts, users=users)
