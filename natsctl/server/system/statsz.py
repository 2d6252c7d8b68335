"""STATSZ: what the server tells of itself in one small message."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from natsctl.api.times import format_time
from natsctl.broker.info import server_info
from natsctl.server.monitor.jsz import jetstream_config, jetstream_limits, jetstream_stats
from natsctl.server.monitor.process_usage import process_usage
from natsctl.server.monitor.varz import by_kind, leaf_faults

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.server.view import ServerView


def statsz(server: ServerView) -> dict[str, Any]:
    """Return the message, keys in nats-server's order."""
    broker, usage, cores = server.broker, process_usage(), os.cpu_count() or 1
    stats: dict[str, Any] = {
        "start": format_time(broker.start_ns),
        "mem": usage.mem,
        "cores": cores,
        "cpu": usage.cpu,
        **_traffic(server),
        "active_servers": 1,
    }
    if server.engine is not None:
        config = {key: value for key, value in jetstream_config(server).items() if key != "store_dir"}
        stats["jetstream"] = {"config": config, "stats": jetstream_stats(server), "limits": jetstream_limits(server)}
    stats["gomaxprocs"] = cores
    return {"server": server_info(broker), "statsz": stats}


def _traffic(server: ServerView) -> dict[str, Any]:
    """Return the connections, and what they have moved."""
    broker = server.broker
    sent = {"msgs": broker.out_msgs, "bytes": broker.out_bytes}
    received = {"msgs": broker.in_msgs, "bytes": broker.in_bytes}
    traffic: dict[str, Any] = {
        "connections": len(broker.sessions),
        "total_connections": broker.total_connections,
        "active_accounts": sum(_is_active(server, account) for account in broker.accounts.values()),
        "subscriptions": broker.subscriptions,
        "sent": sent,
        "sent_to_clients": sent,
        "received": received,
        "received_from_clients": received,
        "slow_consumers": broker.slow_consumers,
    }
    leafs = leaf_faults(server)
    if broker.slow_consumers:
        traffic["slow_consumer_stats"] = by_kind(broker.slow_consumers, leafs[0])
    if broker.stale_connections:
        traffic["stale_connections"] = broker.stale_connections
        traffic["stale_connection_stats"] = by_kind(broker.stale_connections, leafs[1])
    return traffic


def _is_active(server: ServerView, account: Account) -> bool:
    """Return whether somebody is in the account; the server itself is in its own, and where there are streams."""
    if account.sessions or account is server.broker.system_account:
        return True
    js = server.engine.accounts.get(account.name) if server.engine is not None else None
    return js is not None and bool(js.streams)
