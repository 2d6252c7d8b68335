"""Lengths of time down to a microsecond, and how many of them there are of each length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from natsctl.api.units import format_size
from natsctl.cli.render.page import INDENT, Page
from natsctl.cli.render.values import count, safe

if TYPE_CHECKING:
    from natsctl.client.latency import LatencyReport

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
NARROWEST_BAR = 10


def fine(ns: float) -> str:
    """A length of time in three digits: `326µs`, `4.85ms`, `12.3s`; a minute and more in seconds."""
    for unit, name in _UNITS:
        if ns >= unit:
            number = ns / unit
            digits = 2 if number < 9.995 else 1 if number < 99.95 else 0
            return f"{number:.{digits}f}{name}"
    return f"{ns:.0f}ns" if ns else "0s"


def render_bins(bins: Sequence[tuple[int, int]], columns: int) -> list[str]:
    """A line for each bin, with a bar as long as it is full; `columns` is what the widest line may have."""
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
    """The page of a latency test; `columns` is how wide its histogram may be."""
    page = Page("Latency")
    top = page.section()
    top.row("Published to", f"{safe(report.server_a)} (rtt {fine(report.rtt_a_ns)})")
    top.row("Received from", f"{safe(report.server_b)} (rtt {fine(report.rtt_b_ns)})")
    lost = f", {count(report.sent - report.received)} lost" if report.sent > report.received else ""
    top.row("Messages", f"{count(report.received)} of {format_size(report.size)}{lost}")
    top.row("Rate", f"{report.msgs_per_s:,.0f} messages/s of {count(report.rate)}")
    section = page.section("Percentiles")
    if report.latency is not None:
        section.row("Minimum", fine(report.latency.min_ns))
        section.row("Average", fine(report.latency.avg_ns))
    for one in report.percentiles:
        section.row(f"{one.percent:g}%", fine(one.ns))
    spread = page.section("Distribution")
    lead = max((len(label) for part in page.sections for label, _ in part.rows), default=0) + INDENT + 2
    spread.many("Messages", render_bins([(one.below_ns, one.count) for one in report.histogram], columns - lead))
    return page
