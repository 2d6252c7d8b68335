"""`natsctl stream graph`: how a stream fills and empties, as plots that are redrawn."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.names import pick_stream, suggesting
from natsctl.cli.options import StreamName, session_of
from natsctl.cli.render.values import safe
from natsctl.cli.waiting import wait_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType


def graph(
    ctx: typer.Context,
    stream: StreamName = None,
    every: Annotated[str, typer.Option("--watch", metavar="DURATION", help="time between two looks")] = "1s",
    rounds: Annotated[
        int, typer.Option("--count", metavar="N", help="end after N looks", min=0, show_default=False)
    ] = 0,
) -> None:
    """Plot how many messages a stream holds, and how fast they come and go, until Ctrl-C."""
    from natsctl.cli.live import watch
    from natsctl.cli.render.plot import SMALLEST, Rate, Series, render_plots
    from natsctl.cli.screen import console

    if not rounds and not sys.stdout.isatty():
        raise UsageError("there is no terminal to draw on: give --count N to end after N looks")
    session = session_of(ctx)
    name = pick_stream(session, stream)
    screen = console()
    columns, lines = min(screen.width, output.width()), screen.height
    if columns < SMALLEST[0] or lines < SMALLEST[1]:
        raise UsageError(f"the terminal is too small to plot: {SMALLEST[0]} columns and {SMALLEST[1]} lines are needed")
    messages, stored, removed = Series("Messages"), Rate("Messages Stored"), Rate("Messages Removed")

    def view() -> RenderableType:
        with suggesting(session, name):
            state = session.run(lambda manager: manager.stream_info(name)).value.state
        at_s = time.monotonic()
        messages.add(state.messages)
        stored.count(state.last_seq, at_s)
        removed.count(state.last_seq - state.messages, at_s)
        return render_plots(f"Stream {safe(name)}", (messages, stored, removed), columns, lines - 1)

    watch(view, wait_seconds(every, "--watch") or 1.0, rounds=rounds)
