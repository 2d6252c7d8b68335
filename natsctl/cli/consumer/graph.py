"""`natsctl consumer graph`: how a consumer keeps up, as plots that are redrawn."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.consumer.config import live_consumer
from natsctl.cli.names import pick_consumer, pick_stream
from natsctl.cli.options import ConsumerName, StreamName, session_of
from natsctl.cli.render.values import safe
from natsctl.cli.waiting import wait_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType


def graph(
    ctx: typer.Context,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    every: Annotated[str, typer.Option("--watch", metavar="DURATION", help="time between two looks")] = "1s",
    rounds: Annotated[
        int, typer.Option("--count", metavar="N", help="end after N looks", min=0, show_default=False)
    ] = 0,
) -> None:
    """Plot what a consumer has still to deliver, what waits for acks, and how fast both go on, until Ctrl-C."""
    from natsctl.cli.live import watch
    from natsctl.cli.render.plot import SMALLEST, Rate, Series, render_plots
    from natsctl.cli.screen import console

    session = session_of(ctx)
    where = pick_stream(session, stream)
    name = pick_consumer(session, where, consumer)
    screen = console()
    columns, lines = min(screen.width, output.width()), screen.height
    if columns < SMALLEST[0] or lines < SMALLEST[1]:
        raise UsageError(f"the terminal is too small to plot: {SMALLEST[0]} columns and {SMALLEST[1]} lines are needed")
    pending, unacked = Series("Unprocessed Messages"), Series("Outstanding Acks")
    delivered, acked = Rate("Delivered"), Rate("Acknowledged")

    def view() -> RenderableType:
        info = live_consumer(session, where, name).value
        at_s = time.monotonic()
        pending.add(info.num_pending)
        unacked.add(info.num_ack_pending)
        delivered.count(info.delivered.consumer_seq, at_s)
        acked.count(info.ack_floor.consumer_seq, at_s)
        heading = f"Consumer {safe(where)} > {safe(name)}"
        return render_plots(heading, (pending, unacked, delivered, acked), columns, lines - 1)

    view()
    watch(view, wait_seconds(every, "--watch") or 1.0, rounds=rounds)
