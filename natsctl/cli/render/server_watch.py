"""`server watch`: what servers, accounts and JetStream do right now."""

from __future__ import annotations

from collections.abc import Callable

from natsctl.api.units import format_size
from natsctl.cli.render.columns import Column
from natsctl.cli.render.server_connections import account_name, counted, sized, text
from natsctl.cli.render.values import count
from natsctl.client.system.reports import Row


def _rate(title: str, key: str, show: Callable[[int], str], wide: bool = False) -> Column[Row]:
    def value(row: Row) -> float:
        return float((row.get("rates") or {}).get(key) or 0)

    return Column(title, lambda row: f"{show(round(value(row)))}/s", value, wide)


def _links(title: str, key: str) -> Column[Row]:
    return Column(title, lambda row: count(len(row.get(key) or ())), lambda row: len(row.get(key) or ()), wide=True)


_MOVED = (
    _rate("In Msgs", "in_msgs", count),
    _rate("Out Msgs", "out_msgs", count),
    _rate("In Bytes", "in_bytes", format_size, wide=True),
    _rate("Out Bytes", "out_bytes", format_size, wide=True),
)
_SERVER: Column[Row] = Column("Server", text("server", "name"))
SERVERS: tuple[Column[Row], ...] = (
    _SERVER,
    counted("Conns", "connections"),
    counted("Subs", "subscriptions", wide=True),
    counted("Slow", "slow_consumers", wide=True),
    sized("Memory", "mem"),
    Column("CPU %", lambda row: f"{float(row.get('cpu') or 0):.0f}", lambda row: float(row.get("cpu") or 0)),
    _links("Routes", "routes"),
    _links("GWs", "gateways"),
    *_MOVED,
)
JETSTREAM: tuple[Column[Row], ...] = (
    _SERVER,
    counted("HA Assets", "jetstream", "stats", "ha_assets"),
    sized("Memory", "jetstream", "stats", "memory"),
    sized("File", "jetstream", "stats", "storage"),
    counted("API", "jetstream", "stats", "api", "total"),
    _rate("API Rate", "api", count),
    counted("API Errors", "jetstream", "stats", "api", "errors", wide=True),
    counted("Pending", "jetstream", "meta", "pending", wide=True),
    Column("Leader", text("jetstream", "meta", "leader"), wide=True),
)
ACCOUNTS: tuple[Column[Row], ...] = (
    Column("Account", lambda row: account_name({"account": row["acc"], "name_tag": row["name"]})),
    Column("Servers", lambda row: count(len(row.get("servers") or ())), lambda row: len(row.get("servers") or ())),
    counted("Conns", "conns"),
    counted("Leafs", "leafnodes", wide=True),
    counted("Subs", "num_subscriptions", wide=True),
    counted("Slow", "slow_consumers", wide=True),
    *_MOVED,
)
REQUESTS: tuple[Column[Row], ...] = (
    Column("Account", text("account")),
    Column("Subject", text("subject")),
    counted("Requests", "requests"),
    counted("Errors", "errors"),
    Column("Rate", lambda row: f"{row['rate']:.1f}/s", lambda row: row["rate"]),
    Column("Last Client", text("last_client"), wide=True),
)
