"""Benchmarks, latencies and round trips as pages and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from natsctl.api.units import format_size
from natsctl.cli.render.page import INDENT, Page
from natsctl.cli.render.tables import Table, render_table
from natsctl.cli.render.text import count, safe
from natsctl.client.bench.load import KINDS

if TYPE_CHECKING:
    from natsctl.client.bench.client import Spread
    from natsctl.client.bench.report import Part, Report
    from natsctl.client.latency import LatencyReport, Trip, Trips


_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
NARROWEST_BAR = 10


def fine(ns: float) -> str:
    """Return a length of time in three digits: `326µs`, `4.85ms`, `12.3s`; a minute and more in seconds."""
    for unit, name in _UNITS:
        if ns >= unit * 0.9995:  # what would be rounded to 1000 of the next smaller unit
            number = ns / unit
            digits = 2 if number < 9.995 else 1 if number < 99.95 else 0
            return f"{number:.{digits}f}{name}"
    return f"{ns:.0f}ns" if ns else "0s"


def render_bins(bins: Sequence[tuple[int, int]], columns: int) -> list[str]:
    """Return a line for each bin, with a bar for its count; `columns` is the maximum width."""
    if not bins:
        return []
    most = max(number for _, number in bins)
    lead = max(len(fine(end)) for end, _ in bins)
    figures = len(count(most))
    room = max(NARROWEST_BAR, columns - lead - figures - 5)
    lines = []
    for end, number in bins:
        bar = "█" * (round(number / most * room) or (1 if number else 0))
        lines.append(f"< {fine(end):>{lead}}  {number:>{figures},} {bar}".rstrip())
    return lines


def render_latency(report: LatencyReport, columns: int) -> Page:
    page = Page("Latency")
    top = page.section()
    top.row("Published to", f"{safe(report.server_a_name)} at {safe(report.server_a)} (rtt {fine(report.rtt_a_ns)})")
    top.row("Received from", f"{safe(report.server_b_name)} at {safe(report.server_b)} (rtt {fine(report.rtt_b_ns)})")
    lost = f", {count(report.sent - report.received)} lost" if report.sent > report.received else ""
    top.row("Messages", f"{count(report.received)} of {format_size(report.size)}{lost}")
    top.row("Rate", f"{report.msgs_per_s:,.0f} messages/s of {count(report.rate)}")
    section = page.section("Percentiles")
    if report.latency is not None:
        section.row("Minimum", fine(report.latency.min_ns))
        section.row("Average", fine(report.latency.avg_ns))
    for percentile in report.percentiles:
        section.row(f"{percentile.percent:g}%", fine(percentile.ns))
    spread = page.section("Distribution")
    lead = max((len(label) for part in page.sections for label, _ in part.rows), default=0) + INDENT + 2
    spread.many("Messages", render_bins([(one.below_ns, one.count) for one in report.histogram], columns - lead))
    return page


_SPREAD = (
    ("Minimum", "min_ns"),
    ("Average", "avg_ns"),
    ("50%", "p50_ns"),
    ("90%", "p90_ns"),
    ("99%", "p99_ns"),
    ("99.9%", "p999_ns"),
    ("Maximum", "max_ns"),
)


def render_report(report: Report) -> Page:
    page = Page(f"{KINDS[report.benchmark].title} benchmark")
    top = page.section()
    top.maybe("Subject", safe(report.subject))
    top.maybe("Stream", safe(report.stream))
    top.row("Messages", f"{count(report.total.msgs)} of {format_size(report.size)}")
    processes = f" in {report.processes} processes" if report.processes > 1 else ""
    top.row("Clients", f"{count(report.clients)}{processes}")
    top.row("Duration", fine(report.total.duration_ns))
    top.row("Rate", rate(report.total))
    spread = report.total.latency
    if spread is not None:
        section = page.section(f"Time per {report.timed}")
        for label, name in _SPREAD:
            section.row(label, fine(getattr(spread, name)))
    return page


def rate(part: Part) -> str:
    """Return `12,345 messages/s, 1.5 MiB/s`."""
    return f"{count(round(part.msgs_per_s))} messages/s, {format_size(round(part.bytes_per_s))}/s"


def render_clients(report: Report) -> Table:
    """Return a row for each client, times if they were measured."""
    columns = ["Client", "Messages", "Messages/s", "Bytes/s"]
    timed = report.total.latency is not None
    if timed:
        columns += ["50%", "99%", "Maximum"]
    rows = [[*_row(part), *(_times(part.latency) if timed else ())] for part in report.each]
    return render_table("Clients", columns, rows, right=columns)


def _row(part: Part) -> list[str]:
    return [
        str(part.client),
        count(part.msgs),
        count(round(part.msgs_per_s)),
        f"{format_size(round(part.bytes_per_s))}/s",
    ]


def _times(spread: Spread | None) -> list[str]:
    return [fine(ns) for ns in (spread.p50_ns, spread.p99_ns, spread.max_ns)] if spread else ["", "", ""]


def rendered_trips(found: Sequence[Trips]) -> Iterator[str]:
    """Yield a line for each URL, followed by one for each address if its host has several."""
    for trips in found:
        if len(trips.results) == 1:
            yield f"{safe(trips.url)}: {_shown(trips.results[0])}"
            continue
        yield f"{safe(trips.url)}:"
        for trip in trips.results:
            yield f"  {safe(trip.address)}: {_shown(trip)}"


def _shown(trip: Trip) -> str:
    if trip.error:
        return "failed"
    return f"{fine(trip.rtt)} (shortest {fine(trip.min)}, longest {fine(trip.max)})"
