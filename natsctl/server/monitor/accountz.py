"""`/accountz`: the accounts, and everything about one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.api.times import format_time
from natsctl.server.monitor.account_config import exports, imports, mappings
from natsctl.server.monitor.ages import SECOND_NS
from natsctl.server.monitor.claims import account_claims, held_account
from natsctl.server.monitor.query import Query
from natsctl.server.monitor.refused import BadRequestError
from natsctl.server.monitor.subscription_detail import name_tag
from natsctl.server.monitor.subsz import subscription_stats

if TYPE_CHECKING:
    from natsctl.server.view import ServerView


class AccountzOptions(msgspec.Struct, kw_only=True):
    """What is asked of `accountz`."""

    account: str = ""


def read(query: Query) -> AccountzOptions:
    """Return the options of a query. Raises BadRequestError."""
    return AccountzOptions(account=query.text("acc"))


def accountz(server: ServerView, options: AccountzOptions) -> dict[str, Any]:
    """Return the names of the accounts, or one account. Raises BadRequestError."""
    broker = server.broker
    head = {
        "server_id": broker.server_id,
        "now": format_time(broker.clock.now_ns()),
        "system_account": broker.system_account.name,
    }
    if options.account:
        return {**head, "account_detail": account_info(server, options.account)}
    return {**head, "accounts": list(broker.accounts)}


def account_info(server: ServerView, name: str) -> dict[str, Any]:
    """Return what is known of one account: also the answer to `$SYS.REQ.ACCOUNT.<name>.INFO`.

    Raises BadRequestError.
    """
    broker, engine = server.broker, server.engine
    account = broker.accounts.get(name)
    if account is None:
        raise BadRequestError(f"Account {name} does not exist")
    served = engine is not None and name in engine.accounts
    held = held_account(server, name)
    info: dict[str, Any] = {
        "account_name": name,
        "update_time": format_time(held.updated_s * SECOND_NS if held else server.config_load_ns or broker.start_ns),
    }
    if account is broker.system_account:
        info["is_system"] = True
    info |= {
        "expired": held is not None and held.expired,
        "complete": True,
        "jetstream_enabled": served,
        "leafnode_connections": sum(1 for peer in broker.leafs.values() if peer.account is account),
        "client_connections": len(account.sessions),
        "subscriptions": account.subscriptions,
    }
    domain = engine.options.domain if engine is not None and served else ""
    lists = {
        "mappings": mappings(account.config, domain),
        "exports": exports(account.config),
        "imports": imports(account.config, broker.system_account.name, engine is not None),
    }
    info |= {key: value for key, value in lists.items() if value}
    before, behind = account_claims(held) if held is not None else ({}, {})
    stats = subscription_stats([account])
    return {**info, **before, "name_tag": name_tag(account), **behind, "sublist_stats": stats}
