"""A deep report on a stream as a page and tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from natsctl.api.units import format_size, plural
from natsctl.cli.render.page import Page
from natsctl.cli.render.table import render_table
from natsctl.cli.render.values import count, safe, when

if TYPE_CHECKING:
    from rich.console import RenderableType

    from natsctl.spark.report.model import DeepReport, Repeats

PLOT_LINES = 8
_LONGEST_LISTED = 10
_MORE = "-j or --html shows them"


def deep_page(report: DeepReport) -> Page:
    """What the report says in single figures."""
    page = Page(f"Messages of Stream {safe(report.stream)}")
    section = page.section()
    section.row("Messages", count(report.messages))
    if not report.messages:
        return page
    section.row("Sequences", f"{count(report.first_seq)} to {count(report.last_seq)}")
    section.row("First", when(report.first))
    section.row("Last", when(report.last))
    section.row("Subjects", count(report.number_of_subjects))
    section.row("Payloads", format_size(report.bytes))
    section.row("Headers", format_size(report.header_bytes))
    if sizes := report.sizes:
        part = page.section("Size of a payload")
        for name, size in (("Smallest", sizes.min), ("Mean", round(sizes.mean)), ("50% up to", sizes.p50)):
            part.row(name, format_size(size))
        for name, size in (("90% up to", sizes.p90), ("99% up to", sizes.p99), ("Largest", sizes.max)):
            part.row(name, format_size(size))
    part = page.section("Missing and repeated")
    part.row("Gaps", f"{plural(report.gaps.gaps, 'gap')}, {plural(report.gaps.missing, 'message')} missing")
    part.row("Message ids", f"{plural(report.with_id, 'message')} with one, {_repeated(report.ids)}")
    if report.payloads is not None:
        part.row("Payloads", _repeated(report.payloads))
    return page


def _repeated(found: Repeats) -> str:
    if not found.keys:
        return "none more than once"
    return f"{count(found.keys)} more than once, {plural(found.extra_messages, 'message')} beyond the first"


def deep_tables(report: DeepReport) -> Iterator[RenderableType]:
    """The tables below the page: subjects, headers, what is there twice and what is missing."""
    if report.subjects:
        yield _subjects(report)
    if report.headers:
        rows = [(one.key, count(one.messages)) for one in report.headers]
        yield render_table("Headers", ("Header", "Messages"), rows, ("Messages",))
    for title, found in (("Message ids", report.ids), ("Payloads (SHA-256)", report.payloads)):
        if found is not None and found.keys:
            lines = [(one.key, count(one.messages), count(one.first_seq), count(one.last_seq)) for one in found.most]
            columns = ("Key", "Messages", "First", "Last")
            yield render_table(f"{title} that occur more than once", columns, lines, columns[1:])
    if report.gaps.gaps:
        longest = report.gaps.longest[:_LONGEST_LISTED]
        lines3 = [(count(one.first), count(one.last), count(one.missing)) for one in longest]
        names = ("First", "Last", "Missing")
        title = "Gaps" if len(longest) == report.gaps.gaps else f"Longest of {plural(report.gaps.gaps, 'gap')}"
        yield render_table(title, names, lines3, names)


def _subjects(report: DeepReport) -> RenderableType:
    number = report.number_of_subjects
    title = "Subjects" if number == len(report.subjects) else f"{len(report.subjects)} of {plural(number, 'subject')}"
    columns = ("Subject", "Messages", "Payloads", "Mean", "First", "Last")
    rows = [
        (
            one.subject,
            count(one.messages),
            format_size(one.bytes),
            format_size(one.bytes // max(1, one.messages)),
            when(one.first),
            when(one.last),
        )
        for one in report.subjects
    ]
    least = ("First", "Mean", "Last")
    return render_table(title, columns, rows, columns[1:4], least=least, more=_MORE)


def deep_plot(report: DeepReport, width: int) -> str:
    """Messages over time, as a plot of characters `width` columns wide."""
    from natsctl.cli.render.plot import counted, plot_lines
    from natsctl.spark.report.page import slot_text

    # Bars of one width, each as many slots as the room asks for.
    per_bar = max(1, -(-len(report.slots) // max(1, width - 12)))
    values = [
        float(sum(slot.messages for slot in report.slots[at : at + per_bar]))
        for at in range(0, len(report.slots), per_bar)
    ]
    heading = f"Messages in each {slot_text(report.slot_s * per_bar)}, from {when(report.first)}"
    return "\n".join([heading, *plot_lines(values, width, PLOT_LINES, counted)])
