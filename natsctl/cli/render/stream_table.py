"""Streams as tables: the columns of lists and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from natsctl.api.times import parse_time
from natsctl.api.units import format_size
from natsctl.cli.render.columns import Column, render_columns
from natsctl.cli.render.stream import RETENTION
from natsctl.cli.render.table import render_table
from natsctl.cli.render.values import age_limit, ago, count, duration, is_zero, limit, listed, size_limit, when
from natsctl.client.assets.stream_filter import level_of, required_level

if TYPE_CHECKING:
    from rich.table import Table

    from natsctl.api.stream import ClusterInfo, StreamInfo, StreamSource, StreamSourceInfo


class Row(NamedTuple):
    """A stream and what time it is; `raw` shows plain numbers; `status` says why a stream could not be seen."""

    info: StreamInfo
    now_ns: int
    raw: bool = False
    status: str = ""


def stream_rows(infos: Iterable[StreamInfo], absent: Mapping[str, str], now_ns: int, *, raw: bool = False) -> list[Row]:
    """A row for every stream, those that could not be seen included."""
    from natsctl.api.stream import StreamConfig, StreamInfo

    seen = [Row(info, now_ns, raw) for info in infos]
    return seen + [
        Row(StreamInfo(config=StreamConfig(name=name)), now_ns, raw, status) for name, status in absent.items()
    ]


def _number(
    title: str, value: Callable[[StreamInfo], int], show: Callable[[int], str] = count, **kind: Any
) -> Column[Row]:
    """A column of numbers, which a stream that could not be seen does not have."""

    def cell(row: Row) -> str:
        if row.status:
            return ""
        return str(value(row.info)) if row.raw else show(value(row.info))

    return Column(title, cell, lambda row: value(row.info), **kind)


def _text(title: str, value: Callable[[StreamInfo], str], **kind: Any) -> Column[Row]:
    return Column(title, lambda row: "" if row.status else value(row.info), **kind)


def _moment(
    title: str, value: Callable[[StreamInfo], str | None], show: Callable[[Row], str], **kind: Any
) -> Column[Row]:
    """A column of times, written by `show` and sorted by the moment."""

    def order(row: Row) -> int:
        text = value(row.info)
        return 0 if text is None or is_zero(text) else parse_time(text)

    return Column(title, lambda row: "" if row.status else show(row), order, **kind)


def _lost(info: StreamInfo) -> int:
    return len(info.state.lost.msgs or ()) if info.state.lost else 0


def _status(row: Row) -> str:
    return row.status or ("sealed" if row.info.config.sealed else "ok")


def _placement(info: StreamInfo) -> str:
    wanted = info.config.placement
    parts = [wanted.cluster, *(f"tag {tag}" for tag in wanted.tags or ())] if wanted is not None else []
    return ", ".join(filter(None, parts))


def replicas(cluster: ClusterInfo | None) -> str:
    """`n1*, n2, n3!`: the leader with a star, who lags behind with a mark of exclamation."""
    if cluster is None:
        return ""
    peers = [f"{peer.name}{'' if peer.current and not peer.offline else '!'}" for peer in cluster.replicas or ()]
    leader = [f"{cluster.leader}*"] if cluster.leader and (peers or cluster.name) else []
    return ", ".join(sorted(leader + peers))


_MESSAGES = _number("Messages", lambda info: info.state.messages)
_CONSUMERS = _number("Consumers", lambda info: info.state.consumer_count, wide=True)
_DELETED = _number("Deleted", lambda info: info.state.num_deleted, wide=True)
_STORAGE = _text("Storage", lambda info: info.config.storage.value.capitalize(), wide=True)
_WIDE: tuple[Column[Row], ...] = (
    _text("Subjects", lambda info: listed(info.config.subjects), wide=True),
    _text("Retention", lambda info: RETENTION[info.config.retention.value], wide=True),
    _text("Discard", lambda info: info.config.discard.value.capitalize(), wide=True),
    _number("Max Messages", lambda info: info.config.max_msgs, limit, wide=True),
    _number("Max Bytes", lambda info: info.config.max_bytes, size_limit, wide=True),
    _number("Max Age", lambda info: info.config.max_age, age_limit, wide=True),
    _number("Subject Count", lambda info: info.state.num_subjects, wide=True),
    _number("First", lambda info: info.state.first_seq, wide=True),
    _number("Last", lambda info: info.state.last_seq, wide=True),
    _text("Leader", lambda info: info.cluster.leader if info.cluster else "", wide=True),
    _text("Cluster", lambda info: info.cluster.name if info.cluster else "", wide=True),
    _text("Mirror", lambda info: info.config.mirror.name if info.config.mirror else "", wide=True),
    _text("Sources", lambda info: listed([one.name for one in info.config.sources or ()]), wide=True),
)

LIST: tuple[Column[Row], ...] = (
    Column("Name", lambda row: row.info.config.name),
    _text("Description", lambda info: info.config.description, spare=2),
    _moment("Created", lambda info: info.created, lambda row: when(row.info.created), spare=1),
    _MESSAGES,
    _number("Size", lambda info: info.state.bytes, format_size),
    _moment("Last Message", lambda info: info.state.last_ts, lambda row: ago(row.info.state.last_ts, row.now_ns)),
    _STORAGE,
    _number("Replicas", lambda info: info.config.num_replicas, wide=True),
    _CONSUMERS,
    _DELETED,
    _number("Lost", _lost, wide=True),
    *_WIDE,
    Column("Status", _status, wide=True),
)
"""The columns of `stream ls` and `stream find`."""

WIDE = "name,subjects,storage,retention,replicas,consumers,messages,size,deleted,last-message,leader,status"
"""What `--wide` shows: more than this no terminal has room for."""

REPORT: tuple[Column[Row], ...] = (
    Column("Stream", lambda row: row.info.config.name),
    _text("Storage", lambda info: info.config.storage.value.capitalize(), spare=4),
    _text("Placement", _placement, spare=2),
    _number("Consumers", lambda info: info.state.consumer_count, spare=7),
    _MESSAGES,
    _number("Bytes", lambda info: info.state.bytes, format_size),
    _number("Lost", _lost, spare=3),
    _number("Deleted", lambda info: info.state.num_deleted, spare=5),
    _number("API Level", required_level, spare=1),
    _text("Replicas", lambda info: replicas(info.cluster), spare=6),
    _number("Server Level", level_of, wide=True),
    *_WIDE,
    Column("Status", _status, wide=True),
)
"""The columns of `stream report`."""

SUMMED = ("Consumers", "Messages", "Bytes", "Lost", "Deleted")
"""Columns of the report that have a sum in its last row."""


def render_stream_list(title: str, columns: Sequence[Column[Row]], rows: Sequence[Row]) -> Table:
    """The table of `stream ls`; where a stream could not be seen, the reason has a column."""
    return render_columns(title, _with_status(columns, LIST, rows), rows)


def render_stream_report(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> Table:
    """The table of `stream report`, with a row of totals where there is more than one stream."""
    shown = _with_status(columns, REPORT, rows)
    table = render_columns("Stream Report", shown, rows)
    seen = [row for row in rows if not row.status]
    if len(seen) > 1:
        table.add_section()
        table.add_row(*(_total(column, seen) for column in shown))
    return table


def _with_status(
    columns: Sequence[Column[Row]], table: Sequence[Column[Row]], rows: Sequence[Row]
) -> list[Column[Row]]:
    titles = [column.title for column in columns]
    if "Status" in titles or not any(row.status for row in rows):
        return list(columns)
    return [*columns, next(column for column in table if column.title == "Status")]


def _total(column: Column[Row], rows: Sequence[Row]) -> str:
    if column.title == "Stream":
        return "Total"
    if column.title not in SUMMED:
        return ""
    total = sum(column.key(row) for row in rows)
    return str(total) if rows[0].raw else format_size(total) if column.title == "Bytes" else count(total)


class Flow(NamedTuple):
    """One stream that copies from another: the copying one, how, what is configured, and how far it has come."""

    stream: str
    kind: str
    config: StreamSource
    info: StreamSourceInfo | None


def flows(infos: Iterable[StreamInfo]) -> list[Flow]:
    """Everything that is copied between streams."""
    found = []
    for info in infos:
        if info.config.mirror is not None:
            found.append(Flow(info.config.name, "Mirror", info.config.mirror, info.mirror))
        for at, source in enumerate(info.config.sources or ()):
            shown = info.sources or []
            # The server sends them in an order of its own; two sources of one stream differ by their filters.
            same = [one for one in shown if one.name == source.name]
            exact = [one for one in same if one.filter_subject == source.filter_subject]
            fallback = shown[at] if at < len(shown) and shown[at].name == source.name else None
            found.append(Flow(info.config.name, "Source", source, next(iter(exact or same), fallback)))
    return found


def render_replication(found: Sequence[Flow], *, raw: bool) -> Table:
    """The table of mirrors and sources."""
    rows = [
        (
            flow.stream,
            flow.kind,
            flow.config.external.api if flow.config.external else "",
            flow.config.name,
            _mapped(flow.config),
            *_progress(flow.info, raw),
        )
        for flow in found
    ]
    columns = ("Stream", "Kind", "API Prefix", "Source Stream", "Filters and Transforms", "Active", "Lag", "Error")
    return render_table("Replication Report", columns, rows, ("Active", "Lag"), least=("API Prefix",))


def _mapped(source: StreamSource) -> str:
    if source.subject_transforms:
        return ", ".join(f"{one.src or '>'} to {one.dest}" for one in source.subject_transforms)
    return source.filter_subject


def _progress(info: StreamSourceInfo | None, raw: bool) -> tuple[str, str, str]:
    if info is None:
        return "", "", ""
    error = f"{info.error.description} ({info.error.err_code})" if info.error else ""
    active = "never" if info.active < 0 else duration(info.active)
    return active, str(info.lag) if raw else count(info.lag), error


def leaders(infos: Iterable[StreamInfo]) -> list[tuple[str, str, int]]:
    """How many streams each server leads: server, cluster and number, by name."""
    led: dict[tuple[str, str], int] = {}
    for info in infos:
        cluster = info.cluster
        if cluster is None or not cluster.name:
            continue
        for name in (cluster.leader, *(peer.name for peer in cluster.replicas or ())):
            if name:
                led[name, cluster.name] = led.get((name, cluster.name), 0) + (name == cluster.leader)
    return [(server, cluster, number) for (server, cluster), number in sorted(led.items())]


def render_leaders(found: Sequence[tuple[str, str, int]]) -> Table:
    """The table of the streams that each server leads."""
    most = max((number for *_, number in found), default=0) or 1
    rows = [(server, cluster, count(number), "*" * -(-10 * number // most)) for server, cluster, number in found]
    return render_table("RAFT Leader Report", ("Server", "Cluster", "Streams", "Distribution"), rows, ("Streams",))


def dot_graph(found: Sequence[Flow], names: Iterable[str]) -> str:
    """What is copied between streams, for GraphViz."""
    nodes = dict.fromkeys([*names, *(flow.config.name for flow in found)])
    numbers = {name: f"n{at}" for at, name in enumerate(nodes, 1)}
    lines = ["digraph streams {", '\tlabel="Stream replication";', '\tnode [shape="box"];']
    lines += [f"\t{number} [label={_quoted(name)}];" for name, number in numbers.items()]
    for flow in found:
        label = ", ".join(filter(None, (flow.kind, _mapped(flow.config))))
        colour = "blue" if flow.kind == "Mirror" else "darkgreen"
        ends = f"{numbers[flow.config.name]} -> {numbers[flow.stream]}"
        lines.append(f"\t{ends} [color={colour}, label={_quoted(label)}];")
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
