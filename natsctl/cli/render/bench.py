"""The report of a benchmark: a page for all of it, a table of its clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsctl.api.units import format_size
from natsctl.cli.render.latency import fine
from natsctl.cli.render.page import Page
from natsctl.cli.render.table import render_table
from natsctl.cli.render.values import count, safe
from natsctl.client.bench.load import KINDS

if TYPE_CHECKING:
    from rich.table import Table

    from natsctl.client.bench.latencies import Spread
    from natsctl.client.bench.report import Part, Report

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
    """What all clients did together."""
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
    """`12,345 messages/s, 1.5 MiB/s`."""
    return f"{count(round(part.msgs_per_s))} messages/s, {format_size(round(part.bytes_per_s))}/s"


def render_clients(report: Report) -> Table:
    """A row for each client, times where they were measured."""
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
