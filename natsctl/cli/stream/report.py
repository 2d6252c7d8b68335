"""`natsctl stream report`: all streams with their sums, what is copied between them, and who leads them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.flags import flagged
from natsctl.cli.names import pick_stream
from natsctl.cli.options import Json, Rounds, StreamName, Watch, session_of
from natsctl.cli.render.tables import Columns, Reverse, Sort
from natsctl.cli.spark_flags import SparkFlags
from natsctl.cli.stream.deep import DeepFlags, deep_report
from natsctl.cli.stream.listing import Streams, Subject, list_streams, nothing_found, tell_absent
from natsctl.cli.waiting import watch_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from natsctl.api.stream import StreamInfo
    from natsctl.cli.render.streams import Row
    from natsctl.cli.render.tables import Column

RawNumbers = Annotated[bool, typer.Option("--raw", "-r", help="plain numbers", show_default=False)]
STDOUT = "-"


def _sort_flag(letter: str, word: str) -> Any:
    return typer.Option(f"--{word}", f"-{letter}", help=f"sort by {word}", show_default=False)


class Order(NamedTuple):
    """By which column: a bundle of flags, of which one may be used."""

    by_consumers: Annotated[bool, _sort_flag("o", "consumers")] = False
    by_messages: Annotated[bool, _sort_flag("m", "messages")] = False
    by_name: Annotated[bool, _sort_flag("n", "name")] = False
    by_storage: Annotated[bool, _sort_flag("t", "storage")] = False
    sort: Sort = None

    @property
    def column(self) -> str:
        """The column; raises UsageError where several were asked for."""
        words = ("consumers", "messages", "stream", "storage", self.sort)
        asked = [word for word, given in zip(words, self, strict=True) if word and given]
        if len(asked) > 1:
            raise UsageError("only one order can be given")
        return (asked or ["bytes"])[0]


OfCluster = Annotated[
    str, typer.Option("--cluster", metavar="NAME", help="streams of this cluster", show_default=False)
]
Leaders = Annotated[
    bool, typer.Option("--leaders", "-l", help="number of streams that each server leads", show_default=False)
]
Dot = Annotated[
    str, typer.Option("--dot", metavar="FILE", help="write the replication graph for GraphViz", show_default=False)
]


InAnyCase = Annotated[bool, typer.Option("--all", "-a", help="all streams, which is the default", show_default=False)]


@flagged()
def report(
    ctx: typer.Context,
    by: Order,
    deep: DeepFlags,
    spark: SparkFlags,
    stream: StreamName = None,
    subject: Subject = "",
    cluster: OfCluster = "",
    reverse: Reverse = False,
    columns: Columns = None,
    raw: RawNumbers = False,
    leaders: Leaders = False,
    dot: Dot = "",
    watch: Watch = None,
    rounds: Rounds = 0,
    all_streams: InAnyCase = False,
    json: Json = False,
) -> None:
    """Report on all streams, those of buckets too, by size: their sums, mirrors and sources, and who leads them.

    With --deep, on one stream, of which every message is read: its subjects, the sizes of payloads, how many were
    stored when, what is there twice and what is missing.
    """
    deep.check(stream, others=bool(subject or cluster or leaders or dot or watch or columns or all_streams))
    session = session_of(ctx)
    if deep.deep:
        deep_report(session, spark, pick_stream(session, stream), deep, json=json)
        return
    from natsctl.cli.live import emit_each
    from natsctl.cli.live import watch as show_again
    from natsctl.cli.render.streams import REPORT
    from natsctl.cli.render.tables import chosen

    order = by.column
    every_s = watch_seconds(watch, rounds)
    if every_s and dot:
        raise UsageError("--watch excludes --dot")
    picked = chosen(REPORT, columns, False)

    def look() -> Streams:
        found = list_streams(session, subject=subject, all_streams=True)
        kept = [one for one in found.answers if not cluster or _cluster_of(one.value) == cluster]
        return found._replace(answers=kept)

    if every_s and json:
        emit_each(lambda: _document(look(), order, reverse), every_s, rounds)
        return
    if every_s:
        show_again(lambda: _tables(look(), picked, order, reverse, raw, leaders), every_s, rounds=rounds)
        return
    streams = look()
    if dot:
        _write_dot(streams, dot)
    if json:
        output.emit_json(_document(streams, order, reverse))
    elif dot != STDOUT or not (streams.answers or streams.absent):
        _show(streams, subject, lambda: _tables(streams, picked, order, reverse, raw, leaders))
    tell_absent(streams.absent)


def _show(streams: Streams, subject: str, tables: Callable[[], RenderableType]) -> None:
    if not streams.answers and not streams.absent:
        output.emit(nothing_found(streams, subject, None))
        return
    from natsctl.cli.screen import show_table

    show_table(tables())


def _cluster_of(info: StreamInfo) -> str:
    return info.cluster.name if info.cluster is not None else ""


def _rows(streams: Streams, order: str, reverse: bool, raw: bool) -> list[Row]:
    from natsctl.cli.render.streams import REPORT, stream_rows
    from natsctl.cli.render.tables import ordered

    rows = stream_rows([one.value for one in streams.answers], streams.absent, time.time_ns(), raw=raw)
    return ordered(ordered(rows, REPORT, "stream", False), REPORT, order, reverse)


def _tables(
    streams: Streams, columns: list[Column[Row]], order: str, reverse: bool, raw: bool, leaders: bool
) -> RenderableType:
    """The tables of a report below each other; one that would be empty is left out."""
    from rich.console import Group

    from natsctl.cli.render.streams import flows, leaders_of, render_leaders, render_replication, render_stream_report

    infos = [one.value for one in streams.answers]
    parts: list[RenderableType] = [
        render_stream_report(columns, _rows(streams, order, reverse, raw)),
    ]
    if copied := flows(infos):
        parts += ["", render_replication(copied, raw=raw)]
    if leaders:
        led = leaders_of(infos)
        parts += ["", render_leaders(led) if led else "No Stream has a leader: this is not a cluster"]
    return Group(*parts)


def _document(streams: Streams, order: str, reverse: bool) -> dict[str, Any]:
    """The report as data: whole streams in order, and what the tables add to them."""
    from natsctl.cli.render.streams import SUMMED, leaders_of

    rows = _rows(streams, order, reverse, True)
    raw = {one.value.config.name: one.raw for one in streams.answers}
    infos = [one.value for one in streams.answers]
    led = [{"server": server, "cluster": name, "streams": number} for server, name, number in leaders_of(infos)]
    return {
        "streams": [raw[row.info.config.name] for row in rows if not row.status],
        "totals": {"streams": len(infos), **{word.lower(): _sum(word, rows) for word in SUMMED}},
        "leaders": led,
        "unavailable": streams.absent,
    }


def _sum(title: str, rows: list[Row]) -> int:
    from natsctl.cli.render.streams import REPORT

    column = next(one for one in REPORT if one.title == title)
    return sum(column.key(row) for row in rows)


def _write_dot(streams: Streams, path: str) -> None:
    from natsctl.cli.render.streams import dot_graph, flows

    infos = [one.value for one in streams.answers]
    text = dot_graph(flows(infos), sorted(info.config.name for info in infos))
    if path == STDOUT:
        output.emit(text.rstrip("\n"))
        return
    try:
        Path(path).write_text(text)
    except OSError as failure:
        raise UsageError(f"--dot {path}: {failure.strerror or failure}") from failure
    output.note(f"Wrote the graph to {path}")
