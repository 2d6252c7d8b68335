"""`natsctl stream graph`: how a stream fills and empties, as plots that are redrawn."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from natsctl.cli.names import pick_stream, suggesting
from natsctl.cli.options import Rounds, StreamName, session_of
from natsctl.cli.plotting import Every, plot_room
from natsctl.cli.render.text import safe
from natsctl.cli.waiting import every_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType


def graph(
    ctx: typer.Context,
    stream: StreamName = None,
    every: Every = "1s",
    rounds: Rounds = 0,
) -> None:
    """Plot how many messages a stream holds, and how fast they come and go, until Ctrl-C."""
    from natsctl.cli.live import watch
    from natsctl.cli.render.plot import Rate, Series, render_plots

    columns, lines = plot_room(rounds)
    session = session_of(ctx)
    name = pick_stream(session, stream)
    messages, stored, removed = Series("Messages"), Rate("Messages Stored"), Rate("Messages Removed")

    def view() -> RenderableType:
        with suggesting(session, name):
            state = session.run(lambda manager: manager.stream_info(name)).value.state
        at_s = time.monotonic()
        messages.add(state.messages)
        stored.count(state.last_seq, at_s)
        removed.count(state.last_seq - state.messages, at_s)
        return render_plots(f"Stream {safe(name)}", (messages, stored, removed), columns, lines)

    watch(view, every_seconds(every), rounds=rounds)
