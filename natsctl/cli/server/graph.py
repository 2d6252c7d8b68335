"""`natsctl server graph`: how busy a server is, as plots that are redrawn."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.cli.options import Rounds, session_of
from natsctl.cli.plotting import Every, plot_room
from natsctl.cli.render.text import safe
from natsctl.cli.server.info import suggesting_server
from natsctl.cli.server.scope import ServerName
from natsctl.cli.waiting import every_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

    from natsctl.cli.render.plot import Series


def graph(
    ctx: typer.Context,
    server: ServerName = "",
    jetstream: Annotated[
        bool, typer.Option("--jetstream", "-j", help="show JetStream instead", show_default=False)
    ] = False,
    every: Every = "1s",
    rounds: Rounds = 0,
) -> None:
    """Plot a server's load and throughput, until Ctrl-C."""
    from natsctl.cli.live import watch
    from natsctl.cli.render.plot import render_plots
    from natsctl.client.system.census import System

    columns, lines = plot_room(rounds)
    session = session_of(ctx)
    with suggesting_server():
        found = session.run(lambda manager: System(manager).find(server))
    plots = _Plots(jetstream)

    def view() -> RenderableType:
        answer = session.run(lambda manager: System(manager).ask_one(found.id, "VARZ"))
        plots.add(answer.data, time.monotonic())
        return render_plots(f"Server {safe(found.name)}", plots.series, columns, lines)

    watch(view, every_seconds(every), rounds=rounds)


class _Plots:
    """The plotted figures, of the server or of its JetStream."""

    def __init__(self, jetstream: bool) -> None:
        from natsctl.cli.render.plot import Rate, Series, sized

        self._jetstream = jetstream
        self.series: tuple[Series, ...]
        if jetstream:
            self.series = (
                Series("Memory", sized),
                Series("File Storage", sized),
                Rate("API Requests"),
                Series("Pending API Requests"),
            )
        else:
            self.series = (Series("CPU %"), Series("Memory", sized), Series("Connections"), Rate("Messages"))

    def add(self, varz: dict[str, object], at_s: float) -> None:
        """Add what a VARZ answer says."""
        from natsctl.cli.render.plot import Rate

        for one, value in zip(self.series, _figures(varz, self._jetstream), strict=True):
            one.count(value, at_s) if isinstance(one, Rate) else one.add(value)


def _figures(varz: dict[str, object], jetstream: bool) -> tuple[float, ...]:
    def number(*path: str) -> float:
        value: object = varz
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return float(value) if isinstance(value, int | float) else 0.0

    if jetstream:
        api = ("jetstream", "stats", "api")
        held = (number("jetstream", "stats", "memory"), number("jetstream", "stats", "storage"))
        return (*held, number(*api, "total"), number(*api, "inflight"))
    return number("cpu"), number("mem"), number("connections"), number("in_msgs") + number("out_msgs")
