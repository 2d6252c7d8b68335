"""`/accstatz`: what the connections of each account have moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.api.times import format_time

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.server.instance import ServerInstance


class AccstatzOptions(msgspec.Struct, kw_only=True):
    """What is asked of `accstatz`; no names: every account."""

    accounts: list[str] = []
    include_unused: bool = False


def accstatz(server: ServerInstance, options: AccstatzOptions) -> dict[str, Any]:
    """Return the counters of accounts that have connections, or of all."""
    broker = server.broker
    return {
        "server_id": broker.server_id,
        "now": format_time(broker.clock.now_ns()),
        "account_statz": [account_stat(server, account) for account in broker.accounts.values()],
    }


def account_stat(server: ServerInstance, account: Account) -> dict[str, Any]:
    """Return one account's counters: also what the events about its connections carry."""
    return {"acc": account.name, "name": account.name, "conns": len(account.sessions)}
