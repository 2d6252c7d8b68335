"""Reports on streams: `natsctl stream report`, `gaps`, `graph` and `subjects`."""

from __future__ import annotations

import time
from functools import partial
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from msgspec import field

from natsctl.api.errors import UsageError, file_errors
from natsctl.api.model import Model, blank, new_list, zero
from natsctl.api.stream import StreamInfo
from natsctl.api.times import parse_time
from natsctl.api.units import plural
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import confirmed_at_terminal
from natsctl.cli.framework.flags import Force, Json, Progress, Rounds, SparkFlags, StreamName, Watch, check_rounds
from natsctl.cli.framework.live import Every, emit_each, plot_room, progress
from natsctl.cli.framework.live import watch as show_again
from natsctl.cli.framework.parameters import Argument, Option, as_usage_error
from natsctl.cli.framework.resolve import live_stream, pick_stream, suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.render.plot import Rate, Series, render_plots
from natsctl.cli.render.streams import (
    REPORT,
    SUMMED,
    Row,
    dot_graph,
    flows,
    leaders_of,
    render_leaders,
    render_replication,
    render_stream_report,
    render_subjects,
    stream_rows,
)
from natsctl.cli.render.tables import (
    Column,
    Columns,
    Drawn,
    Reverse,
    Sort,
    Stack,
    render_table,
    selected_columns,
    sorted_rows,
)
from natsctl.cli.render.text import count, safe
from natsctl.cli.stream.list import Streams, Subject, list_streams, nothing_found, warn_absent
from natsctl.cli.stream.transfer import FromBackup, checked_tables
from natsctl.client.atomic_file import atomic_write

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from rich.console import RenderableType

    from natsctl.api.answers import StreamInfoAnswer
    from natsctl.client.requests import Answer
    from natsctl.client.stream_state import Gap
    from natsctl.spark.stream_report import DeepReport


NEVER = "1970-01-01T00:00:00Z"
"""Time of the first and the last message of an empty stream."""


class DeepFlags(NamedTuple):
    """Options of a deep report: a bundle of flags."""

    deep: Annotated[bool, Option("--deep", help="analyse every message of STREAM, with Spark")] = False
    html: Annotated[
        Path | None,
        Option("--html", metavar="FILE", help="--deep: write it as an HTML page"),
    ] = None
    payloads: Annotated[bool, Option("--payloads", help="--deep: also find equal payloads")] = False
    backup: FromBackup = None

    def check(self, stream: str | None, others: bool) -> None:
        """Raise UsageError for flags that exclude each other.

        `others` is whether flags of the plain report were given.
        """
        if self.deep and others:
            raise UsageError("--deep reports on one stream: it excludes flags about several, and --watch")
        if not self.deep and (stream or self.html or self.payloads or self.backup):
            raise UsageError("STREAM, --html, --payloads and --backup are for --deep")


def deep_report(session: Session, spark: SparkFlags, stream: str, flags: DeepFlags, *, json: bool) -> None:
    from natsctl.cli.spark_work import run_on_spark
    from natsctl.spark.stream_report import slot_length

    tables = checked_tables(session, stream, flags.backup)
    state = tables.state(stream)
    slot_s = slot_length(*(parse_time(state.get(name) or NEVER) for name in ("first_ts", "last_ts")))
    last_seq = int(state.get("last_seq") or 0)

    def work(opened: SparkSession, options: dict[str, str]) -> DeepReport:
        from natsctl.spark.stream_report import deep_report as report_on

        located = {**tables.options(options, stream), "failOnDataLoss": "false"}
        if tables.on_server:
            located["endingOffsets"] = dumps({stream: last_seq})
        return report_on(opened, located, stream, slot_s, payloads=flags.payloads)

    what = f"Reading Stream {stream}"
    messages = int(state.get("messages") or 0)
    found = run_on_spark(session, spark, work, what=what, needs_server=tables.on_server, messages=messages)
    if flags.html is not None:
        _write_page(found, flags.html)
    if json:
        output.emit_json(found)
        return
    from natsctl.cli.render.spark_reports import deep_page, deep_plot, deep_tables

    output.show_page(deep_page(found))
    if found.slots:
        output.emit("\n" + deep_plot(found, output.width() or 100))
    for table in deep_tables(found):
        output.emit("")
        output.show_table(table)


def _write_page(found: DeepReport, path: Path) -> None:
    from natsctl.cli.render.spark_reports import deep_html

    with file_errors(f"--html {path}"), atomic_write(path) as file:
        file.write(deep_html(found).encode())
    output.note(f"Wrote the report to {path}")


class Totals(Model):
    """Sums over the streams of a report."""

    streams: int = field(default_factory=zero)
    consumers: int = field(default_factory=zero)
    messages: int = field(default_factory=zero)
    bytes: int = field(default_factory=zero)
    lost: int = field(default_factory=zero)
    deleted: int = field(default_factory=zero)


class Led(Model):
    """Number of streams that a server leads."""

    server: str = field(default_factory=blank)
    cluster: str = field(default_factory=blank)
    streams: int = field(default_factory=zero)


class StreamReport(Model):
    """`stream report`: whole streams in order; `unavailable` has the reasons for missing ones by name."""

    streams: list[StreamInfo] = field(default_factory=new_list)
    totals: Totals = field(default_factory=Totals)
    leaders: list[Led] = field(default_factory=new_list)
    unavailable: dict[str, str] = field(default_factory=dict)


STDOUT = "-"


def _sort_flag(letter: str, word: str) -> Option:
    return Option(f"--{word}", f"-{letter}", help=f"sort by {word}")


class ReportOrder(NamedTuple):
    """Sort columns as flags, at most one at a time: a bundle for commands."""

    by_consumers: Annotated[bool, _sort_flag("o", "consumers")] = False
    by_messages: Annotated[bool, _sort_flag("m", "messages")] = False
    by_name: Annotated[bool, _sort_flag("n", "name")] = False
    by_storage: Annotated[bool, _sort_flag("t", "storage")] = False
    sort: Sort = None

    @property
    def column(self) -> str:
        words = ("consumers", "messages", "stream", "storage", self.sort)
        asked = [word for word, given in zip(words, self, strict=True) if word and given]
        if len(asked) > 1:
            raise UsageError("only one order can be given")
        return (asked or ["bytes"])[0]


def report(
    session: Session,
    by: ReportOrder,
    deep: DeepFlags,
    spark: SparkFlags,
    stream: StreamName = None,
    subject: Subject = "",
    cluster: Annotated[str, Option("--cluster", metavar="NAME", help="streams of this cluster")] = "",
    reverse: Reverse = False,
    columns: Columns = None,
    raw: Annotated[bool, Option("--raw", "-r", help="plain numbers")] = False,
    leaders: Annotated[bool, Option("--leaders", "-l", help="number of streams that each server leads")] = False,
    dot: Annotated[str, Option("--dot", metavar="FILE", help="write the replication graph for GraphViz")] = "",
    watch: Watch = None,
    rounds: Rounds = 0,
    all_streams: Annotated[bool, Option("--all", "-a", help="all streams (the default)")] = False,
    json: Json = False,
) -> None:
    """Report on all streams, including buckets' streams, by size: their sums, mirrors, sources and leaders.

    With --deep every message of STREAM is read: the report shows its subjects, payload sizes, messages over time,
    duplicates and gaps.
    """
    deep.check(stream, others=bool(subject or cluster or leaders or dot or watch or columns or all_streams))
    if deep.deep:
        deep_report(session, spark, pick_stream(session, stream), deep, json=json)
        return
    order = by.column
    check_rounds(watch, rounds)
    session.lasting = watch is not None
    if watch and dot:
        raise UsageError("--watch excludes --dot")
    picked = selected_columns(REPORT, columns, False)

    def look() -> Streams:
        found = list_streams(session, subject=subject, all_streams=True)
        kept = [answer for answer in found.answers if not cluster or _cluster_of(answer.value) == cluster]
        return found._replace(answers=kept)

    if watch and json:
        emit_each(lambda: _document(look(), order, reverse), watch, rounds)
        return
    if watch:
        show_again(lambda: _tables(look(), picked, order, reverse, raw, leaders), watch, rounds=rounds)
        return
    streams = look()
    if dot:
        _write_dot(streams, dot)
    if json:
        output.emit_json(_document(streams, order, reverse))
    elif dot != STDOUT or not (streams.answers or streams.absent):
        _show_report(streams, subject, lambda: _tables(streams, picked, order, reverse, raw, leaders))
    warn_absent(streams.absent)


def _show_report(streams: Streams, subject: str, tables: Callable[[], Drawn]) -> None:
    if not streams.answers and not streams.absent:
        output.emit(nothing_found(streams, subject, None))
        return
    output.show_table(tables())


def _cluster_of(info: StreamInfo) -> str:
    return info.cluster.name if info.cluster is not None else ""


def _rows(streams: Streams, order: str, reverse: bool, raw: bool) -> list[Row]:
    rows = stream_rows([answer.value for answer in streams.answers], streams.absent, time.time_ns(), raw=raw)
    return sorted_rows(sorted_rows(rows, REPORT, "stream", False), REPORT, order, reverse)


def _tables(streams: Streams, columns: list[Column[Row]], order: str, reverse: bool, raw: bool, leaders: bool) -> Drawn:
    infos = [answer.value for answer in streams.answers]
    parts: list[Drawn | str] = [
        render_stream_report(columns, _rows(streams, order, reverse, raw)),
    ]
    if copied := flows(infos):
        parts += ["", render_replication(copied, raw=raw)]
    if leaders:
        led = leaders_of(infos)
        parts += ["", render_leaders(led) if led else "No Stream has a leader: this is not a cluster"]
    return Stack(*parts)


def _document(streams: Streams, order: str, reverse: bool) -> dict[str, Any]:
    rows = _rows(streams, order, reverse, True)
    raw = {answer.value.config.name: answer.raw for answer in streams.answers}
    infos = [answer.value for answer in streams.answers]
    led = [{"server": server, "cluster": name, "streams": number} for server, name, number in leaders_of(infos)]
    return {
        "streams": [raw[row.info.config.name] for row in rows if not row.status],
        "totals": {"streams": len(infos), **{word.lower(): _sum(word, rows) for word in SUMMED}},
        "leaders": led,
        "unavailable": streams.absent,
    }


def _sum(title: str, rows: list[Row]) -> int:
    column = next(one for one in REPORT if one.title == title)
    return sum(column.key(row) for row in rows)


def _write_dot(streams: Streams, path: str) -> None:
    infos = [answer.value for answer in streams.answers]
    text = dot_graph(flows(infos), sorted(info.config.name for info in infos))
    if path == STDOUT:
        output.emit(text.rstrip("\n"))
        return
    with as_usage_error(f"--dot {path}"):
        Path(path).write_text(text)
    output.note(f"Wrote the graph to {path}")


Gaps = list[tuple[int, int]]
"""`stream gaps`: first and last sequence of every range that is missing."""


def gaps(
    session: Session, stream: StreamName = None, force: Force = False, progress: Progress = True, json: Json = False
) -> None:
    """Show the ranges of deleted sequences.

    If the server lists only some of them, the headers of all messages are read.
    """
    from natsctl.client.stream_state import is_complete, ranges

    name = pick_stream(session, stream)
    with suggesting(session, name):
        live = session.run(lambda manager: manager.stream_info(name, deleted_details=True))
    if is_complete(live):
        found = ranges(live.value.state.deleted or ())
    else:
        messages = live.value.state.messages
        question = f"read the headers of all {plural(messages, 'message')} of Stream {name}"
        if not (force or confirmed_at_terminal(session, question)):
            return
        found = _read_gaps(session, live, bar=progress, quiet=json)
    columns, title = ("First Message", "Last Message", "Missing"), f"{plural(len(found), 'gap')} found in Stream {name}"
    rows = ((count(first), count(last), count(last - first + 1)) for first, last in found)
    table = partial(render_table, title, columns, rows, columns)
    output.show_list(found, table, f"No deleted messages in {safe(name)}", json=json)


def _read_gaps(session: Session, live: Answer[StreamInfoAnswer], *, bar: bool, quiet: bool) -> list[Gap]:
    from natsctl.client.stream_state import walk_gaps

    what = f"Reading Stream {live.value.config.name}"
    with progress(what, live.value.state.messages, "messages", bar=bar, quiet=quiet) as tracker:
        return session.run(lambda manager: walk_gaps(manager, live, tracker.at))


def graph(
    session: Session,
    stream: StreamName = None,
    every: Every = 1.0,
    rounds: Rounds = 0,
) -> None:
    """Plot how many messages a stream holds, and how fast they come and go, until Ctrl-C."""
    columns, lines = plot_room(rounds)
    name = pick_stream(session, stream)
    session.lasting = True
    messages, stored, removed = Series("Messages"), Rate("Messages Stored"), Rate("Messages Removed")

    def view() -> RenderableType:
        state = live_stream(session, name).value.state
        at_s = time.monotonic()
        messages.add(state.messages)
        stored.count(state.last_seq, at_s)
        removed.count(state.last_seq - state.messages, at_s)
        return render_plots(f"Stream {safe(name)}", (messages, stored, removed), columns, lines)

    show_again(view, every, rounds=rounds)


Counts = dict[str, int]
"""`stream subjects`: how many messages each subject has."""


SUBJECT_ORDERS = {"name": 0, "subjects": 0, "messages": 1, "count": 1}
"""First sort key of rows of subject and count, by the word for it."""


def subjects(
    session: Session,
    stream: StreamName = None,
    filter: Annotated[str, Argument(metavar="[FILTER]", help="subjects of this pattern")] = ">",
    sort: Annotated[str, Option("--sort", metavar="name|messages", help="sort the rows by this column")] = "messages",
    reverse: Annotated[bool, Option("--reverse", "-R", help="reverse the order")] = False,
    names: Annotated[bool, Option("--names/--no-names", "-n", help="subjects only, one on a line")] = False,
    json: Json = False,
) -> None:
    """Show the subjects of a stream and how many messages each has, fewest first."""
    if sort not in SUBJECT_ORDERS:
        raise UsageError(f"--sort: expected one of {', '.join(SUBJECT_ORDERS)}, not {sort!r}")
    name = pick_stream(session, stream)
    with suggesting(session, name):
        answer = session.run(lambda manager: manager.stream_info(name, subjects_filter=filter))
    found: dict[str, int] = (answer.raw.get("state") or {}).get("subjects") or {}
    first = SUBJECT_ORDERS[sort]
    rows = sorted(found.items(), key=lambda pair: (pair[first], pair[1 - first]), reverse=reverse)
    if json:
        output.emit_json([subject for subject, _ in rows] if names else dict(rows))
    elif names:
        output.emit_names(subject for subject, _ in rows)
    elif rows:
        output.show_table(render_subjects(name, rows, output.width()))
    else:
        output.emit(f"No subjects match {safe(filter)} in Stream {safe(name)}")
