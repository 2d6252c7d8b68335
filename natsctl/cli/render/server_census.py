"""`server list` and `server ping`: one line a server, one a cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from natsctl.api.times import parse_time
from natsctl.api.units import format_size, plural
from natsctl.cli.render.columns import Column
from natsctl.cli.render.server_sheet import render_sheet, summed
from natsctl.cli.render.values import count, duration, safe
from natsctl.client.system.answers import Answers, ServerAnswer
from natsctl.client.system.reports import Row, clusters

if TYPE_CHECKING:
    from rich.console import RenderableType


def _number(field: str) -> Any:
    return lambda one: int(one.data.get(field) or 0)


def uptime_ns(one: ServerAnswer) -> int:
    """How long the server runs."""
    start = one.data.get("start")
    return max(0, time.time_ns() - parse_time(str(start))) if start else 0


def _links(one: ServerAnswer, kind: str) -> int:
    return len(one.data.get(kind) or ())


SERVERS: tuple[Column[ServerAnswer], ...] = (
    Column("Name", lambda one: safe(one.name)),
    Column("Cluster", lambda one: safe(one.cluster), wide=True),
    Column("Host", lambda one: safe(str(one.server.get("host") or "")), wide=True),
    Column("Version", lambda one: safe(str(one.server.get("ver") or "")), wide=True),
    Column("JS", lambda one: "yes" if one.server.get("jetstream") else "no"),
    Column("Conns", lambda one: count(_number("connections")(one)), _number("connections")),
    Column("Subs", lambda one: count(_number("subscriptions")(one)), _number("subscriptions")),
    Column("Routes", lambda one: count(_links(one, "routes")), lambda one: _links(one, "routes"), wide=True),
    Column("GWs", lambda one: count(_links(one, "gateways")), lambda one: _links(one, "gateways"), wide=True),
    Column("Mem", lambda one: format_size(_number("mem")(one)), _number("mem")),
    Column("CPU %", lambda one: f"{float(one.data.get('cpu') or 0):.0f}", lambda one: float(one.data.get("cpu") or 0)),
    Column("Cores", lambda one: count(_number("cores")(one)), _number("cores"), wide=True),
    Column("Slow", lambda one: count(_number("slow_consumers")(one)), _number("slow_consumers"), wide=True),
    Column("Uptime", lambda one: duration(uptime_ns(one) // 10**9 * 10**9), uptime_ns, wide=True),
    Column("RTT", lambda one: duration(one.rtt_ns), lambda one: one.rtt_ns, wide=True),
)
CLUSTERS: tuple[Column[Row], ...] = (
    Column("Cluster", lambda row: safe(row["cluster"])),
    Column("Servers", lambda row: count(row["servers"]), lambda row: row["servers"]),
    Column("Outgoing Gateways", lambda row: count(row["outbound"]), lambda row: row["outbound"]),
    Column("Incoming Gateways", lambda row: count(row["inbound"]), lambda row: row["inbound"]),
    Column("Connections", lambda row: count(row["connections"]), lambda row: row["connections"]),
)


def render_census(
    census: Answers, rows: Sequence[ServerAnswer], width: int | None, columns: str | None, wide: bool
) -> list[RenderableType]:
    """The table of servers in the order of `rows`, and that of clusters where there is one."""
    totals = {
        "Name": plural(len(rows), "server"),
        "JS": str(sum(bool(one.server.get("jetstream")) for one in rows)),
        "Conns": summed(rows, _number("connections"), count),
        "Subs": summed(rows, _number("subscriptions"), count),
        "Mem": summed(rows, _number("mem"), format_size),
        "Slow": summed(rows, _number("slow_consumers"), count),
    }
    parts: list[RenderableType] = [
        render_sheet("Server Overview", SERVERS, rows, width, totals, words=columns, wide=wide)
    ]
    if any(one.cluster for one in rows) and columns is None:
        parts.append(render_sheet("Cluster Overview", CLUSTERS, clusters(census), width))
    return parts
