"""`account report statistics` as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from natsctl.api.units import format_size, plural
from natsctl.cli.render.columns import Column
from natsctl.cli.render.server_connections import counted, number, sized, text
from natsctl.cli.render.server_sheet import render_sheet, summed
from natsctl.cli.render.values import count, safe
from natsctl.client.system.reports import Row

if TYPE_CHECKING:
    from rich.console import RenderableType

STATISTICS: tuple[Column[Row], ...] = (
    Column("Server", text("server", "name")),
    Column("Host", text("told", "host"), wide=True),
    Column("Cluster", text("server", "cluster"), wide=True),
    Column("Version", text("told", "ver"), wide=True),
    Column("Tags", lambda row: ", ".join(safe(str(tag)) for tag in row["told"].get("tags") or ()), wide=True),
    counted("Connections", "conns"),
    counted("Leafnodes", "leafnodes", wide=True),
    counted("Subscriptions", "num_subscriptions"),
    counted("In Msgs", "received", "msgs"),
    counted("Out Msgs", "sent", "msgs"),
    sized("In Bytes", "received", "bytes", wide=True),
    sized("Out Bytes", "sent", "bytes", wide=True),
    counted("Slow", "slow_consumers", wide=True),
)


def render_statistics(rows: Sequence[Row], width: int | None, words: str | None, wide: bool) -> list[RenderableType]:
    """One line a server, and the totals."""
    totals = {
        "Server": plural(len(rows), "server"),
        "Connections": summed(rows, number("conns"), count),
        "Leafnodes": summed(rows, number("leafnodes"), count),
        "Subscriptions": summed(rows, number("num_subscriptions"), count),
        "In Msgs": summed(rows, number("received", "msgs"), count),
        "Out Msgs": summed(rows, number("sent", "msgs"), count),
        "In Bytes": summed(rows, number("received", "bytes"), format_size),
        "Out Bytes": summed(rows, number("sent", "bytes"), format_size),
        "Slow": summed(rows, number("slow_consumers"), count),
    }
    none = "No server counts anything for this account"
    return [render_sheet("Account Statistics", STATISTICS, rows, width, totals, words=words, wide=wide, none=none)]
