"""Round trips to servers as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from natsctl.cli.render.latency import fine
from natsctl.cli.render.values import safe

if TYPE_CHECKING:
    from natsctl.client.rtt import Trip, Trips


def rendered_trips(found: Sequence[Trips]) -> Iterator[str]:
    """Yield a line for each URL, or where its host has several addresses one for each of them below it."""
    for trips in found:
        if len(trips.results) == 1:
            yield f"{safe(trips.url)}: {_shown(trips.results[0])}"
            continue
        yield f"{safe(trips.url)}:"
        for trip in trips.results:
            yield f"  {safe(trip.address)}: {_shown(trip)}"


def _shown(trip: Trip) -> str:
    """Return the mean with the shortest and the longest, or that there was none."""
    if trip.error:
        return "failed"
    return f"{fine(trip.rtt)} (shortest {fine(trip.min)}, longest {fine(trip.max)})"
