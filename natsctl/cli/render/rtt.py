"""Round trips to servers as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from natsctl.cli.render.latency import fine
from natsctl.cli.render.table import render_table

if TYPE_CHECKING:
    from rich.table import Table

    from natsctl.client.rtt import Trip, Trips

_NUMBERS = ("RTT", "Minimum", "Maximum")


def render_trips(found: Sequence[Trips]) -> Table:
    """A row for each address: the mean, the shortest and the longest, or what went wrong."""
    rows = [
        (trips.url if not number else "", *_row(trip)) for trips in found for number, trip in enumerate(trips.results)
    ]
    return render_table(
        "Round Trips", ("Server", "Address", *_NUMBERS), rows, right=_NUMBERS, least=("Minimum", "Maximum")
    )


def _row(trip: Trip) -> tuple[str, ...]:
    address = trip.address.partition("://")[2] or trip.address
    if trip.error:
        return f"{address}: {trip.error}", "", "", ""
    return address, fine(trip.rtt), fine(trip.min), fine(trip.max)
