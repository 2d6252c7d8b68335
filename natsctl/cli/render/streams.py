"""Streams as pages and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from natsctl.api.times import is_zero, parse_time
from natsctl.api.units import format_size, plural
from natsctl.api.versions import LEVEL_KEY, REQUIRED_LEVEL_KEY, SERVER_METADATA, VERSION_KEY, metadata_level
from natsctl.cli.render.page import Page, Section
from natsctl.cli.render.tables import TROUBLE, Column, Table, render_columns, render_table
from natsctl.cli.render.text import (
    age_limit,
    ago,
    count,
    duration,
    limit,
    listed,
    safe,
    size_limit,
    stamp,
    when,
    yes,
)
from natsctl.hints import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from natsctl.api.answers import StreamInfoAnswer, StreamTemplateInfo
    from natsctl.api.stream import (
        ClusterInfo,
        DesiredCluster,
        StreamAlternate,
        StreamConfig,
        StreamInfo,
        StreamSource,
        StreamSourceInfo,
        SubjectTransform,
    )
    from natsctl.client.requests import ListedFields

    AnyStreamInfo = StreamInfo | StreamInfoAnswer

NO_STREAMS = "This template has created no Streams yet"
RETENTION = {"limits": "Limits", "interest": "Interest", "workqueue": "WorkQueue"}


def render_stream(info: AnyStreamInfo) -> Page:
    config = info.config
    page = Page(f"Information for Stream {safe(config.name)} created {when(info.created)}")
    _identity(page.section(), config)
    _options(page.section("Options"), config)
    _limits(page.section("Limits"), config)
    render_metadata(page, config.metadata)
    _replication(page.section("Replication"), config)
    render_cluster(page, info.cluster, info.ts, config=info.config)
    if info.mirror is not None:
        _source_info(page.section("Mirror Information"), info.mirror)
    for number, source in enumerate(info.sources or ()):
        _source_info(page.section("" if number else "Source Information"), source)
    _state(page.section("State"), info)
    return page


def render_template(info: StreamTemplateInfo) -> Page:
    config = info.config.config
    page = Page(f"Information for Stream Template {safe(info.config.name)}")
    section = page.section("Configuration")
    _identity(section, config)
    _options(page.section("Options"), config)
    limits = page.section("Limits")
    _limits(limits, config)
    limits.row("Maximum Streams", limit(info.config.max_streams))
    render_metadata(page, config.metadata)
    managed = page.section("Managed Streams")
    managed.many("Streams" if info.streams else "", [safe(name) for name in info.streams] or [NO_STREAMS])
    return page


def render_stream_state(info: AnyStreamInfo) -> Page:
    page = Page(f"State for Stream {safe(info.config.name)} created {when(info.created)}")
    render_cluster(page, info.cluster, info.ts, config=info.config)
    _state(page.section("State"), info)
    return page


def _identity(section: Section, config: StreamConfig) -> None:
    section.maybe("Description", safe(config.description))
    section.maybe("Subjects", listed(config.subjects))
    section.row("Replicas", count(config.num_replicas))
    section.maybe("Sealed", "true" if config.sealed else "")
    section.row("Storage", str(config.storage.value).capitalize())
    if config.compression.value != "none":
        section.row("Compression", f"{config.compression.value.upper()} Compression")
    if config.persist_mode and str(getattr(config.persist_mode, "value", config.persist_mode)) == "async":
        section.row("Persistence Mode", "Async")
    section.maybe("First Sequence", count(config.first_seq) if config.first_seq else "")
    render_placement(section, config)


def render_placement(section: Section, config: StreamConfig) -> None:
    if config.placement is not None:
        section.maybe("Placement Cluster", safe(config.placement.cluster))
        section.maybe("Placement Tags", listed(config.placement.tags))


def _options(section: Section, config: StreamConfig) -> None:
    if config.subject_transform is not None:
        section.row("Subject Transform", _transform(config.subject_transform))
    if config.republish is not None:
        section.row("Republishing", f"{safe(config.republish.src or '>')} to {safe(config.republish.dest)}")
        section.maybe("Republishing Headers", "only" if config.republish.headers_only else "")
    section.row("Retention", RETENTION.get(config.retention.value, str(config.retention.value)))
    section.row("Acknowledgments", yes(not config.no_ack))
    per_subject = " Per Subject" if config.discard_new_per_subject else ""
    section.row("Discard Policy", config.discard.value.capitalize() + per_subject)
    section.row("Duplicate Window", duration(config.duplicate_window))
    section.maybe("Direct Get", "true" if config.allow_direct else "")
    section.maybe("Mirror Direct Get", "true" if config.mirror_direct else "")
    section.row("Allows Atomic Batch Publish", yes(config.allow_atomic))
    section.row("Allows Fast Batch Publish", yes(config.allow_batched))
    section.row("Allows Counters", yes(config.allow_msg_counter))
    section.row("Allows Msg Delete", yes(not config.deny_delete))
    section.row("Allows Per-Message TTL", yes(config.allow_msg_ttl))
    section.row("Allows Purge", yes(not config.deny_purge))
    section.row("Allows Schedules", yes(config.allow_msg_schedules))
    if config.subject_delete_marker_ttl:
        section.row("Subject Delete Markers TTL", duration(config.subject_delete_marker_ttl))
    section.row("Allows Rollups", yes(config.allow_rollup_hdrs))


def render_limits(section: Section, config: StreamConfig) -> None:
    section.row("Maximum Messages", limit(config.max_msgs))
    section.row("Maximum Per Subject", limit(config.max_msgs_per_subject))
    section.row("Maximum Bytes", size_limit(config.max_bytes))
    section.row("Maximum Age", age_limit(config.max_age))
    section.row("Maximum Message Size", size_limit(config.max_msg_size))
    section.row("Maximum Consumers", limit(config.max_consumers))


def _limits(section: Section, config: StreamConfig) -> None:
    render_limits(section, config)
    bounds = config.consumer_limits
    if bounds is not None:
        section.maybe(
            "Consumer Inactive Threshold", duration(bounds.inactive_threshold) if bounds.inactive_threshold else ""
        )
        section.maybe("Consumer Max Ack Pending", count(bounds.max_ack_pending) if bounds.max_ack_pending else "")


def render_metadata(page: Page, metadata: Mapping[str, str] | None) -> None:
    """Add the metadata of a stream or consumer, without the server's own keys."""
    section = page.section("Metadata")
    for key, value in sorted((metadata or {}).items()):
        if not key.startswith(SERVER_METADATA):
            section.row(safe(key), safe(value))


def _replication(section: Section, config: StreamConfig) -> None:
    if config.mirror is not None:
        section.row("Mirror", _source(config.mirror))
    section.many("Sources", [_source(source) for source in config.sources or ()])


def _source(source: StreamSource) -> str:
    parts = [safe(source.name)]
    if source.filter_subject:
        parts.append(f"filter {safe(source.filter_subject)}")
    parts += [f"transform {_transform(transform)}" for transform in source.subject_transforms or ()]
    if source.opt_start_seq:
        parts.append(f"from sequence {count(source.opt_start_seq)}")
    if source.opt_start_time and not is_zero(source.opt_start_time):
        parts.append(f"from {when(source.opt_start_time)}")
    if source.external is not None:
        parts.append(f"API prefix {safe(source.external.api)}")
        if source.external.deliver:
            parts.append(f"delivery prefix {safe(source.external.deliver)}")
    return ", ".join(parts)


def _transform(transform: SubjectTransform) -> str:
    return f"{safe(transform.src or '>')} to {safe(transform.dest)}"


def render_cluster(
    page: Page,
    cluster: ClusterInfo | None,
    ts: str = "",
    group: str = "Cluster Group",
    config: StreamConfig | None = None,
) -> None:
    """Add the placement of a stream or consumer in its cluster; with `ts`, the answer's time, its leader's age.

    `group` is the label of its Raft group; `config` is of a stream, for the settings that a move changes.

    A standalone server names itself as the leader of no cluster; only the page's fields show it.
    """
    if cluster is None:
        return
    if not (cluster.name or cluster.replicas):
        alone = page.section("Cluster Information", shown=False)
        alone.row("Name", "")
        alone.row("Leader", safe(cluster.leader))
        return
    section = page.section("Cluster Information")
    section.maybe("Name", safe(cluster.name))
    traffic = "System Account" if cluster.system_account else safe(cluster.traffic_account)
    section.maybe("Cluster Traffic Account", traffic)
    section.maybe(group, safe(cluster.raft_group))
    section.maybe("Leader", safe(cluster.leader) + _since(cluster.leader_since, ts) if cluster.leader else "")
    for replica in cluster.replicas or ():
        state = ["OFFLINE" if replica.offline else "current" if replica.current else "outdated"]
        state.append(f"seen {duration(replica.active)} ago" if replica.active > 0 else "not seen")
        if replica.lag:
            state.append(f"{plural(replica.lag, 'operation')} behind")
        if replica.pending:
            state.append("joining or leaving")
        section.row("Replica", ", ".join([safe(replica.name), *state]))
    if cluster.desired is not None:
        _migration(page.section("Cluster Migration Status"), cluster, cluster.desired, ts, config)


def _migration(
    section: Section, cluster: ClusterInfo, desired: DesiredCluster, ts: str, config: StreamConfig | None
) -> None:
    if (status := desired.status) is not None:
        section.maybe("Status", safe(status.description))
        section.maybe("Type", safe(status.type))
        section.maybe("Error", safe(status.err))
    if not is_zero(desired.created):
        section.row("Created", when(desired.created) + _since(desired.created, ts))
    if desired.name != cluster.name:
        section.row("Cluster", f"{safe(cluster.name)} → {safe(desired.name)}")
    if (origin := desired.origin) is not None and config is not None:
        before, after = origin.placement, config.placement
        for label, was, now in (
            ("Replicas", count(origin.replicas), count(config.num_replicas)),
            ("Placement Tags", *(", ".join(one.tags) if one else "" for one in (before, after))),
            ("Preferred", *(one.preferred if one else "" for one in (before, after))),
            ("Retention Policy", origin.retention, str(config.retention.value) if origin.retention else ""),
        ):
            if was != now:
                section.row(label, f"{safe(was) or 'none'} → {safe(now) or 'none'}")
    peers = [f"{safe(peer.name)}{' (offline)' if peer.offline else ''}" for peer in desired.replicas]
    section.many("Desired Peers", peers)


def render_version(section: Section, metadata: Mapping[str, str]) -> None:
    """Add the server's version and the API level that a configuration needs, as the server notes them in metadata."""
    section.maybe("Host Version", safe(metadata.get(VERSION_KEY, "")))
    level, hosted = metadata.get(REQUIRED_LEVEL_KEY), metadata.get(LEVEL_KEY)
    if level is not None:
        section.row("Required API Level", safe(level) + (f" hosted at level {safe(hosted)}" if hosted else ""))


def _since(moment: str | None, ts: str) -> str:
    return "" if is_zero(moment) or is_zero(ts) else f" ({ago(moment, parse_time(ts))})"


def _source_info(section: Section, source: StreamSourceInfo) -> None:
    section.row("Stream Name", safe(source.name))
    section.maybe("Subject Filter", safe(source.filter_subject))
    transforms = [_transform(transform) for transform in source.subject_transforms or ()]
    section.many(f"Subject {'Filter and Transform' if len(transforms) == 1 else 'Filters and Transforms'}", transforms)
    section.row("Lag", count(source.lag))
    section.row("Last Seen", "never" if source.active < 0 else f"{duration(source.active)} ago")
    if source.external is not None:
        section.maybe("Ext. API Prefix", safe(source.external.api))
        section.maybe("Ext. Delivery Prefix", safe(source.external.deliver))
    if source.error is not None:
        section.row("Error", f"{safe(source.error.description)} ({source.error.err_code})")


def _state(section: Section, info: AnyStreamInfo) -> None:
    state = info.state
    render_version(section, info.config.metadata or {})
    section.row("Messages", count(state.messages))
    section.row("Bytes", format_size(state.bytes))
    if state.lost is not None:
        section.row("Lost Messages", f"{count(len(state.lost.msgs or ()))} ({format_size(state.lost.bytes)})")
    section.row("First Sequence", _sequence(state.first_seq, state.first_ts))
    section.row("Last Sequence", _sequence(state.last_seq, state.last_ts))
    section.maybe("Deleted Messages", count(state.num_deleted) if state.num_deleted else "")
    section.row("Active Consumers", count(state.consumer_count))
    section.maybe("Number of Subjects", count(state.num_subjects) if state.num_subjects else "")
    section.many("Alternates", [_alternate(alternate) for alternate in info.alternates or ()])
    section.maybe("Write Error", safe(info.write_error))


def _alternate(alternate: StreamAlternate) -> str:
    places = [("cluster", alternate.cluster), ("domain", alternate.domain)]
    where = ", ".join(f"{kind} {safe(name)}" for kind, name in places if name)
    return f"{safe(alternate.name)} ({where})" if where else safe(alternate.name)


def _sequence(seq: int, moment: str) -> str:
    return count(seq) if is_zero(moment) else f"{count(seq)} @ {when(moment)}"


def render_item(stream: str, seq: int, subject: str, moment: str, now_ns: int) -> str:
    age = duration(max(0, now_ns - parse_time(moment)))
    return f"Item: {safe(stream)}#{count(seq)} received {stamp(parse_time(moment))} ({age}) on Subject {safe(subject)}"


def render_viewed(seq: int, subject: str, moment: str) -> str:
    return f"[{count(seq)}] Subject: {safe(subject)} Received: {stamp(parse_time(moment))}"


MAX_PAIRS = 3
FRAME = 6
"""Columns that boxes and blanks take for each pair."""


def render_subjects(stream: str, rows: Sequence[tuple[str, int]], width: int | None) -> Table:
    """Return the table of subjects and counts, in order down the first pair of columns, then the next."""
    pairs = _pairs(rows, width)
    height = -(-len(rows) // pairs)
    lines = []
    for line in range(height):
        cells = [text for at in range(line, len(rows), height) for text in (rows[at][0], count(rows[at][1]))]
        lines.append([*cells, *[""] * (2 * pairs - len(cells))])
    title = f"{plural(len(rows), 'Subject')} in stream {stream}"
    return render_table(title, ("Subject", "Count") * pairs, lines, ("Count",))


def _pairs(rows: Sequence[tuple[str, int]], width: int | None) -> int:
    if width is None:
        return 1
    each = max(7, *(len(safe(subject)) for subject, _ in rows)) + max(5, *(len(count(n)) for _, n in rows)) + FRAME
    return max(1, min(MAX_PAIRS, width // each, len(rows)))


class Row(NamedTuple):
    """A stream and the current time; `raw` shows plain numbers; `status` is the reason for a missing stream."""

    info: StreamInfo
    now_ns: int
    raw: bool = False
    status: str = ""


def stream_rows(infos: Iterable[StreamInfo], absent: Mapping[str, str], now_ns: int, *, raw: bool = False) -> list[Row]:
    """Return a row for every stream, also for missing ones."""
    seen = [Row(info, now_ns, raw) for info in infos]
    if not absent:
        return seen
    from natsctl.api.stream import StreamConfig, StreamInfo

    return seen + [
        Row(StreamInfo(config=StreamConfig(name=name)), now_ns, raw, status) for name, status in absent.items()
    ]


def _number(
    title: str, value: Callable[[StreamInfo], int], show: Callable[[int], str] = count, **kind: Any
) -> Column[Row]:
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
    """Return `n1*, n2, n3!`: the leader with a star, a lagging replica with an exclamation mark."""
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

LISTED: ListedFields = {
    "config": {"name": "", "description": "", "sealed": False},
    "created": "",
    "state": {"messages": 0, "bytes": 0, "last_ts": ""},
}
"""Fields that the columns of `stream ls` need without `--wide` and `--columns`."""

WIDE = "name,subjects,storage,retention,replicas,consumers,messages,size,deleted,last-message,leader,status"

REPORT: tuple[Column[Row], ...] = (
    Column("Stream", lambda row: row.info.config.name),
    _text("Storage", lambda info: info.config.storage.value.capitalize(), spare=3),
    _text("Placement", _placement, spare=2),
    _number("Consumers", lambda info: info.state.consumer_count, spare=5),
    _MESSAGES,
    _number("Bytes", lambda info: info.state.bytes, format_size),
    _number("Lost", _lost, spare=TROUBLE),
    _number("Deleted", lambda info: info.state.num_deleted, spare=4),
    _number("API Level", lambda info: metadata_level(info.config.metadata), spare=1),
    _text("Replicas", lambda info: replicas(info.cluster), spare=6),
    _number("Server Level", lambda info: metadata_level(info.config.metadata, LEVEL_KEY), wide=True),
    *_WIDE,
    Column("Status", _status, wide=True),
)

SUMMED = ("Consumers", "Messages", "Bytes", "Lost", "Deleted")
"""Columns of the report that have a sum in its last row."""


def render_stream_list(title: str, columns: Sequence[Column[Row]], rows: Sequence[Row]) -> Table:
    return render_columns(title, _with_status(columns, LIST, rows), rows)


def render_stream_report(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> Table:
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


class StreamFlow(NamedTuple):
    """A mirror or source: the copying stream, the kind, its configuration and progress."""

    stream: str
    kind: str
    config: StreamSource
    info: StreamSourceInfo | None


def flows(infos: Iterable[StreamInfo]) -> list[StreamFlow]:
    found = []
    for info in infos:
        if info.config.mirror is not None:
            found.append(StreamFlow(info.config.name, "Mirror", info.config.mirror, info.mirror))
        for index, source in enumerate(info.config.sources or ()):
            shown = info.sources or []
            # The server sends them in an order of its own; two sources of one stream differ by their filters.
            same = [one for one in shown if one.name == source.name]
            exact = [one for one in same if one.filter_subject == source.filter_subject]
            fallback = shown[index] if index < len(shown) and shown[index].name == source.name else None
            found.append(StreamFlow(info.config.name, "Source", source, next(iter(exact or same), fallback)))
    return found


def render_replication(found: Sequence[StreamFlow], *, raw: bool) -> Table:
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
        return ", ".join(
            f"{subject_transform.src or '>'} to {subject_transform.dest}"
            for subject_transform in source.subject_transforms
        )
    return source.filter_subject


def _progress(info: StreamSourceInfo | None, raw: bool) -> tuple[str, str, str]:
    if info is None:
        return "", "", ""
    error = f"{info.error.description} ({info.error.err_code})" if info.error else ""
    active = "never" if info.active < 0 else duration(info.active)
    return active, str(info.lag) if raw else count(info.lag), error


def leaders_of(infos: Iterable[StreamInfo]) -> list[tuple[str, str, int]]:
    """Return the number of streams that each server leads: server, cluster and number, by name."""
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
    most = max((number for *_, number in found), default=0) or 1
    rows = [(server, cluster, count(number), "*" * -(-10 * number // most)) for server, cluster, number in found]
    return render_table("RAFT Leader Report", ("Server", "Cluster", "Streams", "Distribution"), rows, ("Streams",))


def dot_graph(found: Sequence[StreamFlow], names: Iterable[str]) -> str:
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
