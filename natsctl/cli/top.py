"""`natsctl top`: a server and its connections, live.

A view has the server in four lines, and its connections in a table or as CSV.
"""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from natsctl.api.errors import UsageError
from natsctl.api.times import parse_time
from natsctl.api.units import format_size, plural
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json, interval_seconds
from natsctl.cli.framework.live import next_view, paced, watch
from natsctl.cli.framework.parameters import Argument, Option, as_usage_error
from natsctl.cli.framework.session import Session
from natsctl.cli.render.tables import render_table
from natsctl.cli.render.text import ago, count, safe

if TYPE_CHECKING:
    from rich.console import RenderableType

    from natsctl.client.system.top import Top, TopView


def top(
    session: Session,
    server: Annotated[str, Argument(metavar="SERVER", help="its name or id [the server of this connection]")] = "",
    conns: Annotated[int, Option("--conns", "-n", metavar="N", help="how many connections", min=1)] = 1024,
    interval: Annotated[
        float,
        Option("--interval", "-d", metavar="DURATION", help="time between two views [1s]", read=interval_seconds),
    ] = 1.0,
    sort: Annotated[
        str, Option("--sort", metavar="FIELD", help="cid, subs, pending, msgs_to, bytes_from, idle, rtt … [cid]")
    ] = "cid",
    lookup: Annotated[bool, Option("--lookup", help="look up the names of clients' addresses")] = False,
    out: Annotated[
        str | None,
        Option("--output", "-o", metavar="FILE", help="write one view to a file and end: .json, .csv, else text"),
    ] = None,
    delimiter: Annotated[
        str, Option("--delimiter", metavar="CHAR", help="show delimited values with this separator")
    ] = "",
    raw: Annotated[bool, Option("--raw", "-b", help="sizes and plain numbers")] = False,
    max_refresh: Annotated[
        int, Option("--max-refresh", "-r", metavar="N", help="number of views [at a terminal unlimited, else 1]")
    ] = 0,
    subs: Annotated[bool, Option("--subs", help="show the subjects of subscriptions")] = False,
    json: Json = False,
) -> None:
    """Show a server's activity and its connections, live; needs a user of the system account.

    At a terminal q ends it, < and > sort by another field, b and s turn --raw and --subs on and off, ? shows the keys.
    """
    if len(delimiter) > 1 and delimiter != "\\t":
        raise UsageError(f"--delimiter: expected one character, not {delimiter!r}")
    if out is not None and not Path(out).absolute().parent.is_dir():
        raise UsageError(f"--output: {out}: there is no such folder")
    rounds = max_refresh if max_refresh > 0 else 0 if sys.stdout.isatty() and not json else 1
    session.lasting = rounds != 1
    looker = _looker(session, server, conns, sort, subs, lookup)
    shown = Shown(delimiter.replace("\\t", "\t"), raw, subs)
    if out is not None:
        _write(out, shown, _look(session, looker))
    else:
        _show(session, looker, shown, interval, rounds, json)


def _looker(session: Session, server: str, conns: int, sort: str, subs: bool, lookup: bool) -> Top:
    from natsctl.client.manager import Manager
    from natsctl.client.system.top import Top

    async def made(manager: Manager) -> Top:
        return Top(manager, server, limit=conns, sort=sort, subs=subs, lookup=lookup)

    return session.run(made)


def _look(session: Session, looker: Top) -> TopView:
    return session.run(lambda manager: looker.look())


KEYS = "q ends, < and > sort, b shows plain numbers, s the subjects of subscriptions, ? helps"
HELP = """Keys:
  q        end
  < >      sort by the field before or after, as the arrows do
  b        sizes and plain numbers in turn
  s        the subjects of subscriptions, on and off
  ?        this text, on and off

The lines above the table are the server's CPU, memory and traffic. Msgs and Bytes count the messages that each client
has received (To) and sent (From) since it connected; Pending is the output that the client has not read yet.
"""


_STEPS = {"<": -1, ">": 1, "\x1b[D": -1, "\x1b[C": 1, "\x1bOD": -1, "\x1bOC": 1}
"""Keys that sort by the field before or after; arrows are written in either mode of a terminal's keypad."""


class Shown:
    """Format of a written view."""

    def __init__(self, delimiter: str, raw: bool, subs: bool) -> None:
        self.delimiter, self.raw, self.subs = delimiter, raw, subs
        self.help = False

    def press(self, key: str, looker: Top) -> bool:
        if step := _STEPS.get(key):
            looker.sort_by(step)
        elif key == "b":
            self.raw = not self.raw
        elif key == "s":
            self.subs = looker.turn_subjects()
        elif key == "?":
            self.help = not self.help
        else:
            return False
        return True

    def csv(self, view: TopView, delimiter: str = "") -> str:
        return top_csv(view, delimiter or self.delimiter, raw=self.raw, subs=self.subs)


def _show(session: Session, looker: Top, shown: Shown, every_s: float, rounds: int, json: bool) -> None:
    if not json and not shown.delimiter:
        watch(
            lambda: (
                HELP
                if shown.help
                else render_top(_look(session, looker), raw=shown.raw, subs=shown.subs, sort=looker.sort)
            ),
            every_s,
            rounds=rounds,
            press=lambda key: shown.press(key, looker),
            hint=KEYS,
        )
        return
    for number in paced(every_s, rounds):
        if (view := next_view(lambda: _look(session, looker), number)) is None:
            continue
        if json:
            _emit(view)
        else:
            output.emit("\n".join(server_lines(view, shown.raw)))
            output.emit(shown.csv(view).rstrip("\n"))
        sys.stdout.flush()


def _emit(view: TopView) -> None:

    output.emit_json_line(view)


def _write(path: str, shown: Shown, view: TopView) -> None:
    import msgspec

    if path.endswith(".json"):
        text = msgspec.json.format(msgspec.json.encode(view), indent=2).decode() + "\n"
    elif path.endswith(".csv"):
        text = shown.csv(view, shown.delimiter or ",")
    else:
        text = "\n".join([*server_lines(view, shown.raw), "", shown.csv(view, shown.delimiter or "\t")])
    with as_usage_error(f"--output: {path}"):
        Path(path).write_text(text)
    output.log(f"wrote {path}")


Row = dict[str, Any]


class TopColumn(NamedTuple):
    """A column: its title, and its cell; with `raw` sizes are plain numbers."""

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
    TopColumn("Host", _host),
    TopColumn("CID", _text("cid"), number=True),
    TopColumn("Name", _text("name")),
    TopColumn("Subs", _count("subscriptions"), number=True),
    TopColumn("Pending", _size("pending_bytes"), number=True),
    TopColumn("Msgs To", _count("out_msgs"), number=True),
    TopColumn("Msgs From", _count("in_msgs"), number=True),
    TopColumn("Bytes To", _size("out_bytes"), number=True),
    TopColumn("Bytes From", _size("in_bytes"), number=True),
    TopColumn("Lang", _text("lang")),
    TopColumn("Version", _text("version")),
    TopColumn("Uptime", _text("uptime"), number=True),
    TopColumn("Last Activity", _active, number=True),
)
LEFT_OUT = ("Version", "Lang", "Last Activity", "Uptime", "Bytes From", "Bytes To", "Name")
"""Columns that a narrow terminal leaves out, in this order; Pending is the first of them, or the last if any is."""
SUBSCRIPTIONS = TopColumn("Subscriptions", _subjects)


def columns_of(subs: bool) -> tuple[TopColumn, ...]:
    return (*COLUMNS, SUBSCRIPTIONS) if subs else COLUMNS


def render_top(view: TopView, *, raw: bool = False, subs: bool = False, sort: str = "") -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    columns = columns_of(subs)
    rows = [[column.cell(row, raw) for column in columns] for row in view.connections]
    title = f"{count(len(rows))} of {count(view.total_connections)} Connections{f' by {sort}' if sort else ''}"
    right = [one.title for one in columns if one.number]
    is_pending = any(row.get("pending_bytes") for row in view.connections)
    least = (*LEFT_OUT, "Pending") if is_pending else ("Pending", *LEFT_OUT)
    table = render_table(title, [one.title for one in columns], rows, right, least=least)
    return Group(*(Text(line) for line in server_lines(view, raw)), Text(""), table)


def server_lines(view: TopView, raw: bool = False) -> list[str]:
    sized = str if raw else format_size
    rates = view.rates or {}

    def flow(way: str) -> str:
        messages, size = int(getattr(view, f"{way}_msgs")), int(getattr(view, f"{way}_bytes"))
        totals = f"{plural(messages, 'message')}, {sized(size)}"
        if not rates:
            return totals
        per_s = f"{rates[f'{way}_msgs']:,.1f} messages/s, {sized(round(rates[f'{way}_bytes']))}/s"
        return f"{totals} ({per_s})"

    return [
        safe(f"Server {view.server} ({view.id}), version {view.version}, up {view.uptime}"),
        f"  Load: CPU {view.cpu:.1f}%, memory {sized(view.mem)}, slow consumers {count(view.slow_consumers)}",
        f"  In:   {flow('in')}",
        f"  Out:  {flow('out')}",
    ]


def top_csv(view: TopView, delimiter: str, *, raw: bool, subs: bool) -> str:
    out = io.StringIO()
    lines = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    columns = columns_of(subs)
    lines.writerow([column.title for column in columns])
    lines.writerows([column.cell(row, raw) for column in columns] for row in view.connections)
    return out.getvalue()
