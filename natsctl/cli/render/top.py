"""What `natsctl top` shows: the server in four lines, its connections in a table or as CSV."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from natsctl.api.times import parse_time
from natsctl.api.units import format_size, plural
from natsctl.cli.render.tables import render_table
from natsctl.cli.render.text import ago, count, safe

if TYPE_CHECKING:
    from rich.console import RenderableType

    from natsctl.client.system.top import TopView

Row = dict[str, Any]


class Column(NamedTuple):
    """A column: its title, and its cell; `raw` says whether sizes are plain numbers."""

    title: str
    cell: Callable[[Row, bool], str]
    number: bool = False


def _text(key: str) -> Callable[[Row, bool], str]:
    return lambda row, raw: str(row.get(key) or "")


def _count(key: str) -> Callable[[Row, bool], str]:
    return lambda row, raw: str(row.get(key) or 0) if raw else count(int(row.get(key) or 0))


def _size(key: str) -> Callable[[Row, bool], str]:
    return lambda row, raw: str(row.get(key) or 0) if raw else format_size(int(row.get(key) or 0))


def _host(row: Row, raw: bool) -> str:
    host = str(row.get("host") or row.get("ip") or "")
    return f"{host}:{row.get('port')}" if row.get("port") else host


def _active(row: Row, raw: bool) -> str:
    moment = str(row.get("last_activity") or "")
    if raw or not moment:
        return moment
    try:
        parse_time(moment)
    except ValueError:
        return moment
    return f"{ago(moment, time.time_ns())} ago"


def _subjects(row: Row, raw: bool) -> str:
    return ", ".join(str(subject) for subject in row.get("subscriptions_list") or ())


COLUMNS = (
    Column("Host", _host),
    Column("CID", _text("cid"), number=True),
    Column("Name", _text("name")),
    Column("Subs", _count("subscriptions"), number=True),
    Column("Pending", _size("pending_bytes"), number=True),
    Column("Msgs To", _count("out_msgs"), number=True),
    Column("Msgs From", _count("in_msgs"), number=True),
    Column("Bytes To", _size("out_bytes"), number=True),
    Column("Bytes From", _size("in_bytes"), number=True),
    Column("Lang", _text("lang")),
    Column("Version", _text("version")),
    Column("Uptime", _text("uptime"), number=True),
    Column("Last Activity", _active, number=True),
)
LEFT_OUT = ("Version", "Lang", "Last Activity", "Uptime", "Pending", "Bytes From", "Bytes To", "Name")
"""What a narrow terminal goes without, in this order."""
SUBSCRIPTIONS = Column("Subscriptions", _subjects)


def columns_of(subs: bool) -> tuple[Column, ...]:
    """The columns, with that of the subscriptions if asked for."""
    return (*COLUMNS, SUBSCRIPTIONS) if subs else COLUMNS


def render_top(view: TopView, *, raw: bool = False, subs: bool = False, sort: str = "") -> RenderableType:
    """The server's lines above the table of its connections."""
    from rich.console import Group
    from rich.text import Text

    columns = columns_of(subs)
    rows = [[column.cell(row, raw) for column in columns] for row in view.connections]
    title = f"{count(len(rows))} of {count(view.total_connections)} Connections{f' by {sort}' if sort else ''}"
    right = [one.title for one in columns if one.number]
    table = render_table(title, [one.title for one in columns], rows, right, least=LEFT_OUT)
    return Group(*(Text(line) for line in server_lines(view, raw)), Text(""), table)


def server_lines(view: TopView, raw: bool = False) -> list[str]:
    """The server in lines of text."""
    sized = str if raw else format_size
    rates = view.rates or {}

    def flow(way: str) -> str:
        messages, size = int(getattr(view, f"{way}_msgs")), int(getattr(view, f"{way}_bytes"))
        told = f"{plural(messages, 'message')}, {sized(size)}"
        if not rates:
            return told
        per_s = f"{rates[f'{way}_msgs']:,.1f} messages/s, {sized(round(rates[f'{way}_bytes']))}/s"
        return f"{told} ({per_s})"

    return [
        safe(f"Server {view.server} ({view.id}), version {view.version}, up {view.uptime}"),
        f"  Load: CPU {view.cpu:.1f}%, memory {sized(view.mem)}, slow consumers {count(view.slow_consumers)}",
        f"  In:   {flow('in')}",
        f"  Out:  {flow('out')}",
    ]


def top_csv(view: TopView, delimiter: str, *, raw: bool, subs: bool) -> str:
    """The connections, a line for each below the titles; numbers are plain."""
    out = io.StringIO()
    lines = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    columns = columns_of(subs)
    lines.writerow([column.title for column in columns])
    lines.writerows([column.cell(row, raw) for column in columns] for row in view.connections)
    return out.getvalue()
