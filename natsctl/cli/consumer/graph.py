"""`natsctl consumer graph`: how a consumer keeps up, as plots that are redrawn."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from natsctl.cli.consumer.config import live_consumer
from natsctl.cli.names import pick_consumer, pick_stream
from natsctl.cli.options import ConsumerName, Rounds, StreamName, session_of
from natsctl.cli.plotting import Every, plot_room
from natsctl.cli.render.text import safe
from natsctl.cli.waiting import every_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType


def graph(
    ctx: typer.Context,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    every: Every = "1s",
    rounds: Rounds = 0,
) -> None:
    """Plot what a consumer has still to deliver, what waits for acks, and how fast both go on, until Ctrl-C."""
    from natsctl.cli.live import watch
    from natsctl.cli.render.plot import Rate, Series, render_plots

    columns, lines = plot_room(rounds)
    session = session_of(ctx)
    where = pick_stream(session, stream)
    name = pick_consumer(session, where, consumer)
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
        return render_plots(heading, (pending, unacked, delivered, acked), columns, lines)

    view()
    watch(view, every_seconds(every), rounds=rounds)
