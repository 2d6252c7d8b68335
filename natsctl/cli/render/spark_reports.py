"""Pipelines, queries and reports of Spark as pages and tables."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from natsctl.api.units import SECOND, format_duration, format_size, plural
from natsctl.cli.render.page import Page
from natsctl.cli.render.plot import counted, plot_lines
from natsctl.cli.render.tables import Table, render_table
from natsctl.cli.render.text import ago, count, duration, safe, when

if TYPE_CHECKING:
    from rich.console import RenderableType

    from natsctl.cli.pipeline.answers import FlowStatus, Known, Status
    from natsctl.cli.spark import SparkServer, WarmStart
    from natsctl.spark.pipeline.run_record import Event
    from natsctl.spark.session.doctor import Checkup
    from natsctl.spark.sql_queries import QueryResult
    from natsctl.spark.stream_report import DeepReport, Repeats


def event_line(event: Event) -> str:
    """Return `21:04:05 orders COMPLETED, ORDERS +1,234`, followed by a failure."""
    what = f"{event.flow} {event.state}" if event.flow else event.message
    read = "".join(f", {name} +{count(number)}" for name, number in event.read.items())
    failure = f": {event.error}" if event.error else ""
    return safe(f"{_clock(event.time)} {what}{read}{failure}")


def render_status(status: Status) -> Table:
    """Return a row for each stream or consumer of each flow below the state of the run; empty columns are left out."""
    places = ("Flow", "State", "Updated", "Stream", "Consumer")
    columns = (*places, "Sequence", "Behind", "Messages", "Bytes", "Pending", "Ack Pending", "Redelivered", "Trouble")
    rows = [row for flow in status.flows for row in _rows(flow)]
    least = columns[:4] if any(flow.consumers for flow in status.flows) else (*columns[:4], *columns[5:9])
    shown = [index for index, name in enumerate(columns) if name in least or any(row[index] for row in rows)]
    right = tuple(name for name in columns[5:12] if columns.index(name) in shown)
    picked = [tuple(row[at] for at in shown) for row in rows]
    named = tuple(columns[at] for at in shown)
    narrow = tuple(name for name in ("Bytes", "Updated", "Sequence") if name in named)
    return render_table(_title(status), named, picked, right, least=narrow)


def render_known(pipelines: Sequence[Known]) -> Table:
    rows = [
        (pipeline.pipeline, pipeline.state, str(pipeline.pid or ""), _ago(pipeline.updated), pipeline.folder)
        for pipeline in pipelines
    ]
    return render_table("Pipelines", ("Name", "State", "Process", "Updated", "Folder"), rows, ("Process",))


def _title(status: Status) -> str:
    parts = [f"{status.pipeline}: {status.state}"]
    if status.pid:
        parts.append(f"process {status.pid}")
    if status.state == "running" and status.interval_s:
        parts.append(f"every {duration(int(status.interval_s * 1e9))}")
    if status.updated:
        parts.append(f"updated {_ago(status.updated)} ago")
    if status.failed_updates:
        parts.append(f"{count(status.failed_updates)} of {count(status.updates)} updates failed")
    if status.error:
        parts.append(status.error)
    return ", ".join(parts)


def _rows(flow: FlowStatus) -> list[tuple[str, ...]]:
    state = flow.state or ("STOPPED" if flow.batch >= 0 else "NEW")
    head = (flow.flow, state, _ago(flow.updated))
    if not flow.streams and not flow.consumers:
        return [(*head, *("",) * 9, flow.error)]
    rows: list[tuple[str, ...]] = []
    for stream in flow.streams:
        numbers = (count(stream.seq), count(stream.sequences), count(stream.messages), format_size(stream.bytes))
        rows.append((*head, stream.stream, "", *numbers, "", "", "", stream.trouble or flow.error))
        head = ("", "", "")
    for durable in flow.consumers:
        counts = (count(durable.pending), count(durable.ack_pending), count(durable.redelivered))
        known = ("", "", "") if durable.trouble else counts
        rows.append((*head, durable.stream, durable.consumer, *("",) * 4, *known, durable.trouble or flow.error))
        head = ("", "", "")
    return rows


def _clock(moment: datetime) -> str:
    return moment.astimezone().strftime("%H:%M:%S")


def _ago(moment: str) -> str:
    return ago(moment, time.time_ns()) if moment else ""


_SIGNS = {"good": "", "warning": "! ", "wrong": "✗ "}


def render_checkup(found: Checkup) -> Page:
    page = Page("Spark is ready" if found.ready else "Spark cannot start")
    rows = page.section()
    for finding in found.findings:
        rows.row(safe(finding.name), f"{_SIGNS[finding.state]}{safe(finding.found)}")
        for line in finding.do.splitlines():
            rows.row("", f"→ {safe(line)}")
    return page


def render_warm(done: WarmStart) -> Page:
    page = Page("Spark starts quickly" if done.made else "Spark starts quickly already")
    rows = page.section()
    rows.row("Archive", safe(done.archive))
    rows.row("Size", format_size(done.archive_bytes))
    return page


def render_server(server: SparkServer) -> Page:
    page = Page("Spark is running in the background" if server.running else "Spark is not running in the background")
    rows = page.section()
    rows.maybe("Process", str(server.pid or ""))
    rows.maybe("Address", f"127.0.0.1:{server.port}" if server.port else "")
    rows.maybe("Started", safe(server.started or ""))
    rows.maybe("Tasks Run On", safe(server.master or ""))
    rows.maybe("Java", safe(server.java or ""))
    rows.maybe("Memory", format_size(server.memory_bytes) if server.memory_bytes else "")
    rows.maybe("Stops When Idle For", format_duration(round(server.idle_stop_s * SECOND)) if server.idle_stop_s else "")
    rows.maybe("Log", safe(server.log or ""))
    return page


LONGEST_CELL = 1000
"""Letters of a value that a table shows; payloads may be of any length."""


def render_result(result: QueryResult) -> Table:
    from natsctl.spark.sql_queries import shown, unique

    columns = unique(result.columns)
    renamed = dict(zip(columns, result.columns, strict=True))
    rows = [[_cut(shown(value)) for value in row] for row in result.rows]
    right = [name for name in columns if renamed[name] in result.numbers]
    title = f"First {plural(len(rows), 'row')}" if result.more else plural(len(rows), "row")
    return render_table(title, columns, rows, right)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}…"


def csv_text(result: QueryResult, printable: Callable[[str], str] = str) -> str:
    """Return the rows as CSV with a line of names; `printable` escapes values for a terminal."""
    from natsctl.spark.sql_queries import cell

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([printable(name) for name in result.columns])
    writer.writerows([printable(cell(value)) for value in row] for row in result.rows)
    return text.getvalue().removesuffix("\n")


PLOT_LINES = 8
_LONGEST_LISTED = 10
_MORE = "-j or --html shows them"


def deep_page(report: DeepReport) -> Page:
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
    """Yield the tables below the page: subjects, headers, duplicates and gaps."""
    if report.subjects:
        yield _subjects(report)
    if report.headers:
        rows = [(header.key, count(header.messages)) for header in report.headers]
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
            subject.subject,
            count(subject.messages),
            format_size(subject.bytes),
            format_size(subject.bytes // max(1, subject.messages)),
            when(subject.first),
            when(subject.last),
        )
        for subject in report.subjects
    ]
    least = ("First", "Mean", "Last")
    return render_table(title, columns, rows, columns[1:4], least=least, more=_MORE)


HTML_WIDTH = 120


def deep_html(report: DeepReport) -> str:
    """Return the report as a page of HTML that needs nothing else: the page, the plot and the tables of a terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, file=io.StringIO(), width=HTML_WIDTH)
    console.print(Text(deep_page(report).text(HTML_WIDTH, False)))
    if report.slots:
        console.print(Text(deep_plot(report, HTML_WIDTH)))
    for table in deep_tables(report):
        console.print(table)
    return console.export_html(inline_styles=True)


def slot_text(seconds: float) -> str:
    """Return the length of a slot: `5 minutes`."""
    for unit, name in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= unit:
            return name if seconds == unit else plural(int(seconds // unit), name)
    return plural(round(seconds * 1000), "millisecond")


def deep_plot(report: DeepReport, width: int) -> str:
    """Return messages over time, as a plot of characters `width` columns wide."""
    # Bars of one width, each as many slots as the room asks for.
    per_bar = max(1, -(-len(report.slots) // max(1, width - 12)))
    values = [
        float(sum(slot.messages for slot in report.slots[at : at + per_bar]))
        for at in range(0, len(report.slots), per_bar)
    ]
    heading = f"Messages in each {slot_text(report.slot_s * per_bar)}, from {when(report.first)}"
    return "\n".join([heading, *plot_lines(values, width, PLOT_LINES, counted)])
