"""`natsctl top`: a server and its connections, live."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.options import Json, session_of
from natsctl.cli.waiting import every_seconds

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.client.system.top import Top, TopView


def top(
    ctx: typer.Context,
    server: Annotated[
        str, typer.Argument(metavar="SERVER", help="its name or id [the server of this connection]", show_default=False)
    ] = "",
    conns: Annotated[int, typer.Option("--conns", "-n", metavar="N", help="how many connections", min=1)] = 1024,
    interval: Annotated[
        str, typer.Option("--interval", "-d", metavar="DURATION", help="time between two views [1s]")
    ] = "1s",
    sort: Annotated[
        str, typer.Option("--sort", metavar="FIELD", help="cid, subs, pending, msgs_to, bytes_from, idle, rtt … [cid]")
    ] = "cid",
    lookup: Annotated[bool, typer.Option("--lookup", help="look up the names of clients' addresses")] = False,
    out: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="write one view to a file and end: .json, .csv, else text"),
    ] = None,
    delimiter: Annotated[
        str, typer.Option("--delimiter", metavar="CHAR", help="show delimited values with this separator")
    ] = "",
    raw: Annotated[bool, typer.Option("--raw", "-b", help="sizes and plain numbers")] = False,
    max_refresh: Annotated[
        int, typer.Option("--max-refresh", "-r", metavar="N", help="number of views [at a terminal unlimited, else 1]")
    ] = 0,
    subs: Annotated[bool, typer.Option("--subs", help="show the subjects of subscriptions")] = False,
    json: Json = False,
) -> None:
    """Show a server's activity and its connections, live; needs a user of the system account.

    At a terminal q ends it, < and > sort by another field, b and s turn --raw and --subs on and off.
    """
    every_s = every_seconds(interval, "--interval")
    if len(delimiter) > 1 and delimiter != "\\t":
        raise UsageError(f"--delimiter: expected one character, not {delimiter!r}")
    if out is not None and not Path(out).absolute().parent.is_dir():
        raise UsageError(f"--output: {out}: there is no such folder")
    session = session_of(ctx)
    rounds = max_refresh if max_refresh > 0 else 0 if sys.stdout.isatty() and not json else 1
    looker = _looker(session, server, conns, sort, subs, lookup)
    shown = Shown(delimiter.replace("\\t", "\t"), raw, subs)
    if out is not None:
        _write(out, shown, _look(session, looker))
    else:
        _show(session, looker, shown, every_s, rounds, json)


def _looker(session: Session, server: str, conns: int, sort: str, subs: bool, lookup: bool) -> Top:
    from natsctl.client.manager import Manager
    from natsctl.client.system.top import Top

    async def made(manager: Manager) -> Top:
        return Top(manager, server, limit=conns, sort=sort, subs=subs, lookup=lookup)

    return session.run(made)


def _look(session: Session, looker: Top) -> TopView:
    return session.run(lambda manager: looker.look())


KEYS = "q ends, < and > sort, b shows plain numbers, s the subjects of subscriptions"


_STEPS = {"<": -1, ">": 1, "\x1b[D": -1, "\x1b[C": 1, "\x1bOD": -1, "\x1bOC": 1}
"""Keys that sort by the field before or after; arrows are written in either mode of a terminal's keypad."""


class Shown:
    """How a view is written."""

    def __init__(self, delimiter: str, raw: bool, subs: bool) -> None:
        self.delimiter, self.raw, self.subs = delimiter, raw, subs

    def press(self, key: str, looker: Top) -> bool:
        """Do what a key stands for, and return whether it does anything."""
        if step := _STEPS.get(key):
            looker.sort_by(step)
        elif key == "b":
            self.raw = not self.raw
        elif key == "s":
            self.subs = looker.turn_subjects()
        else:
            return False
        return True

    def csv(self, view: TopView, delimiter: str = "") -> str:
        """The connections as lines of values."""
        from natsctl.cli.render.top import top_csv

        return top_csv(view, delimiter or self.delimiter, raw=self.raw, subs=self.subs)


def _show(session: Session, looker: Top, shown: Shown, every_s: float, rounds: int, json: bool) -> None:
    from natsctl.cli.live import paced, watch
    from natsctl.cli.render.top import render_top, server_lines

    if not json and not shown.delimiter:
        watch(
            lambda: render_top(_look(session, looker), raw=shown.raw, subs=shown.subs, sort=looker.sort),
            every_s,
            rounds=rounds,
            press=lambda key: shown.press(key, looker),
            hint=KEYS,
        )
        return
    for _ in paced(every_s, rounds):
        view = _look(session, looker)
        if json:
            _emit(view)
        else:
            output.emit("\n".join(server_lines(view, shown.raw)))
            output.emit(shown.csv(view).rstrip("\n"))
        sys.stdout.flush()


def _emit(view: TopView) -> None:
    import msgspec

    output.emit_json_line(msgspec.json.encode(view))


def _write(path: str, shown: Shown, view: TopView) -> None:
    """Write one view to a file, in the form that its name says."""
    import msgspec

    from natsctl.cli.render.top import server_lines

    if path.endswith(".json"):
        text = msgspec.json.format(msgspec.json.encode(view), indent=2).decode() + "\n"
    elif path.endswith(".csv"):
        text = shown.csv(view, shown.delimiter or ",")
    else:
        text = "\n".join([*server_lines(view, shown.raw), "", shown.csv(view, shown.delimiter or "\t")])
    try:
        Path(path).write_text(text)
    except OSError as failure:
        raise UsageError(f"--output: {path}: {failure.strerror or failure}") from failure
    output.log(f"wrote {path}")
