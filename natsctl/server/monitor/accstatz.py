"""`/accstatz`: what the connections of each account have moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.api.times import format_time
from natsctl.broker.traffic import Traffic
from natsctl.server.monitor.query import Query
from natsctl.server.monitor.subscription_detail import name_tag

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.server.view import ServerView


class AccstatzOptions(msgspec.Struct, kw_only=True):
    """What is asked of `accstatz`; no names: every account."""

    accounts: list[str] = []
    include_unused: bool = False


def read(query: Query) -> AccstatzOptions:
    """Return the options of a query. Raises Refused."""
    return AccstatzOptions(include_unused=query.flag("unused"))


def accstatz(server: ServerView, options: AccstatzOptions) -> dict[str, Any]:
    """Return the counters of accounts that have connections, or of all."""
    broker = server.broker
    named = [broker.accounts[name] for name in options.accounts if name in broker.accounts]
    shown = named if options.accounts else list(broker.accounts.values())
    stats = [account_stat(server, account) for account in shown]
    return {
        "server_id": broker.server_id,
        "now": format_time(broker.clock.now_ns()),
        "account_statz": [stat for stat in stats if options.include_unused or stat["total_conns"]],
    }


def account_stat(server: ServerView, account: Account) -> dict[str, Any]:
    """Return one account's counters: also what the events about its connections carry."""
    leafs = Traffic()
    count = 0
    for peer in server.broker.leafs.values():
        if peer.account is account:
            count += 1
            leafs.in_msgs += peer.in_msgs
            leafs.in_bytes += peer.in_bytes
            leafs.out_msgs += peer.out_msgs
            leafs.out_bytes += peer.out_bytes
    clients, conns = account.gone.plus(account.sessions), len(account.sessions)
    sent = (clients.out_msgs + leafs.out_msgs, clients.out_bytes + leafs.out_bytes)
    received = (clients.in_msgs + leafs.in_msgs, clients.in_bytes + leafs.in_bytes)
    return {
        "acc": account.name,
        "name": name_tag(account),
        "conns": conns,
        "leafnodes": count,
        "total_conns": conns + count,
        "num_subscriptions": account.subscriptions,
        "sent": _data(*sent, leafs.out_msgs, leafs.out_bytes),
        "received": _data(*received, leafs.in_msgs, leafs.in_bytes),
        "slow_consumers": account.slow_consumers,
    }


def _data(msgs: int, size: int, leaf_msgs: int, leaf_bytes: int) -> dict[str, Any]:
    nothing = {"msgs": 0, "bytes": 0}
    leafs = {"msgs": leaf_msgs, "bytes": leaf_bytes}
    return {"msgs": msgs, "bytes": size, "gateways": nothing, "routes": nothing, "leafs": leafs}
