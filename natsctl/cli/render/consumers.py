"""Consumers as pages and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from natsctl.api.times import ZERO_NS, is_zero, parse_time
from natsctl.api.units import format_size, plural
from natsctl.api.versions import REQUIRED_LEVEL_KEY
from natsctl.cli.render.page import Page, Section
from natsctl.cli.render.streams import render_cluster, render_metadata, render_version
from natsctl.cli.render.tables import TROUBLE, Column, Table, render_columns, render_table
from natsctl.cli.render.text import ago, count, duration, listed, safe, when
from natsctl.hints import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from natsctl.api.consumer import ConsumerConfig, ConsumerInfo, PriorityGroupState, SequenceInfo
    from natsctl.client.requests import ListedFields
    from natsctl.client.stream_state import LiveProgress


POLICIES = {
    "all": "All",
    "last": "Last",
    "new": "New",
    "last_per_subject": "Last Per Subject",
    "none": "None",
    "explicit": "Explicit",
    "flow_control": "Flow Control",
    "instant": "Instant",
    "original": "Original",
    "pinned_client": "Pinned Client",
    "overflow": "Overflow",
    "prioritized": "Prioritized",
}


def render_consumer(info: ConsumerInfo, now_ns: int) -> Page:
    page = Page(f"Information for Consumer {_title(info)} created {when(info.created)}")
    section = page.section("Configuration")
    _identity(section, info)
    _delivery(section, info.config)
    _bounds(section, info, now_ns)
    if info.config.priority_groups:
        kind = info.config.priority_policy
        section.row("Priority Policy", policy(kind.value) if kind else "None")
        section.row("Priority Groups", listed(info.config.priority_groups))
        section.maybe("Pinned TTL", duration(info.config.priority_timeout) if info.config.priority_timeout else "")
    render_metadata(page, info.config.metadata)
    render_cluster(page, info.cluster, info.ts or "", "Raft Group")
    _state(page.section("State"), info, now_ns)
    return page


def render_consumer_state(info: ConsumerInfo, now_ns: int) -> Page:
    page = Page(f"State for Consumer {_title(info)} created {when(info.created)}")
    render_cluster(page, info.cluster, info.ts or "", "Raft Group")
    _state(page.section("State"), info, now_ns)
    return page


def _title(info: ConsumerInfo) -> str:
    return f"{safe(info.stream_name)} > {safe(info.name)}"


def _identity(section: Section, info: ConsumerInfo) -> None:
    config = info.config
    section.row("Name", safe(info.name))
    if config.durable_name and config.durable_name != info.name:
        section.row("Durable Name", safe(config.durable_name))
    section.maybe("Description", safe(config.description))
    if config.deliver_subject:
        section.row("Delivery Subject", safe(config.deliver_subject))
    else:
        section.row("Pull Mode", "true")
    filters = [config.filter_subject] if config.filter_subject else list(config.filter_subjects or ())
    section.maybe("Filter Subject" if len(filters) < 2 else "Filter Subjects", listed(filters))


def _delivery(section: Section, config: ConsumerConfig) -> None:
    section.row("Deliver Policy", _deliver(config))
    section.maybe("Deliver Queue Group", safe(config.deliver_group))
    section.row("Ack Policy", policy(config.ack_policy.value))
    section.maybe("Ack Wait", duration(config.ack_wait) if config.ack_wait else "")
    section.row("Replay Policy", policy(config.replay_policy.value))
    section.maybe("Maximum Deliveries", count(config.max_deliver) if config.max_deliver > 0 else "")
    section.maybe("Sampling Rate", safe(config.sample_freq).rstrip("%"))
    section.maybe("Rate Limit", f"{format_size(config.rate_limit_bps // 8)} / second" if config.rate_limit_bps else "")


def policy(value: str) -> str:
    return POLICIES.get(value, value)


def _deliver(config: ConsumerConfig) -> str:
    start = config.deliver_policy.value
    if start == "by_start_sequence":
        return f"From Sequence {count(config.opt_start_seq)}"
    if start == "by_start_time":
        return f"Since {when(config.opt_start_time)}"
    return policy(start)


def _bounds(section: Section, info: ConsumerInfo, now_ns: int) -> None:
    config = info.config
    push = bool(config.deliver_subject)
    section.maybe("Max Ack Pending", count(config.max_ack_pending) if config.max_ack_pending > 0 else "")
    section.maybe("Max Waiting Pulls", count(config.max_waiting) if config.max_waiting and not push else "")
    section.maybe("Idle Heartbeat", duration(config.idle_heartbeat) if config.idle_heartbeat else "")
    if push:
        section.row("Flow Control", "true" if config.flow_control else "false")
    section.maybe("Headers Only", "true" if config.headers_only else "")
    section.maybe("Inactive Threshold", duration(config.inactive_threshold) if config.inactive_threshold else "")
    section.maybe("Max Pull Expire", duration(config.max_expires) if config.max_expires else "")
    section.maybe("Max Pull Batch", count(config.max_batch) if config.max_batch else "")
    section.maybe("Max Pull MaxBytes", format_size(config.max_bytes) if config.max_bytes else "")
    section.maybe("Backoff", ", ".join(duration(step) for step in config.backoff or ()))
    section.maybe("Replicas", count(config.num_replicas) if config.num_replicas else "")
    section.maybe("Memory Storage", "true" if config.mem_storage else "")
    if config.pause_until and not is_zero(config.pause_until):
        left_ns = parse_time(config.pause_until) - now_ns
        label = f"{duration(left_ns)} remaining" if left_ns > 0 else "passed"
        section.row("Paused Until Deadline", f"{when(config.pause_until)} ({label})")
    section.maybe("Mirror or Source Target", "true" if config.sourcing or config.direct else "")


def _state(section: Section, info: ConsumerInfo, now_ns: int) -> None:
    config = info.config
    render_version(section, config.metadata or {})
    section.row("Last Delivered Message", _position(info.delivered, "Last delivery", now_ns))
    if config.ack_policy.value != "none":
        section.row("Acknowledgment Floor", _position(info.ack_floor, "Last Ack", now_ns))
        bound = f" out of maximum {count(config.max_ack_pending)}" if config.max_ack_pending > 0 else ""
        section.row("Outstanding Acks", count(info.num_ack_pending) + bound)
        section.row("Redelivered Messages", count(info.num_redelivered))
    section.row("Unprocessed Messages", count(info.num_pending))
    if config.deliver_subject:
        group = f" using Queue Group {safe(config.deliver_group)}" if config.deliver_group else ""
        section.row("Active Interest", f"Active{group}" if info.push_bound else "No interest")
    else:
        section.row("Waiting Pulls", f"{count(info.num_waiting)} of maximum {count(config.max_waiting)}")
    if info.paused:
        section.row("Paused Until", f"{when(config.pause_until)} ({duration(info.pause_remaining)} remaining)")
    if config.priority_policy is not None and config.priority_policy.value == "pinned_client":
        section.many("Priority Groups", [_pin(state) for state in info.priority_groups or ()])


def _pin(state: PriorityGroupState) -> str:
    if not state.pinned_client_id:
        return f"{safe(state.group)}: no client"
    since = "" if is_zero(state.pinned_ts) else f" since {when(state.pinned_ts)}"
    return f"{safe(state.group)}: pinned to {safe(state.pinned_client_id)}{since}"


def _position(at: SequenceInfo, event: str, now_ns: int) -> str:
    text = f"Consumer sequence: {count(at.consumer_seq)} Stream sequence: {count(at.stream_seq)}"
    return text if is_zero(at.last_active) else f"{text} {event}: {ago(at.last_active, now_ns)} ago"


BAR = "*"
LONGEST_BAR = 20


Row = Any


LISTED: ListedFields = {
    "name": "",
    "config": {"description": ""},
    "created": "",
    "delivered": {"last_active": ""},
    "num_ack_pending": 0,
    "num_pending": 0,
}
"""Fields that the columns of `consumer ls` need without `--wide` and `--columns`."""


def consumer_columns(now_ns: int) -> list[Column[Row]]:
    return [
        Column("Name", lambda row: row.value.name),
        Column("Description", lambda row: row.value.config.description, spare=2),
        Column("Created", lambda row: when(row.value.created), spare=1),
        Column("Ack Pending", *_number(lambda info: info.num_ack_pending)),
        Column("Unprocessed", *_number(lambda info: info.num_pending)),
        Column("Last Delivery", *_age(lambda info: info.delivered.last_active, now_ns)),
        Column("Mode", lambda row: mode(row.value), wide=True),
        Column("Filters", lambda row: ", ".join(filters(row.value)), wide=True),
        Column("Ack Policy", lambda row: policy(row.value.config.ack_policy.value), wide=True),
        Column("Redelivered", *_number(lambda info: info.num_redelivered), wide=True),
        Column("Waiting", *_number(lambda info: info.num_waiting), wide=True),
        Column("Paused", lambda row: _paused(row.value), wide=True),
        Column("API Level", *_level(), wide=True),
        Column("Leader", lambda row: row.value.cluster.leader if row.value.cluster else "", wide=True),
    ]


def report_columns(raw: bool) -> list[Column[Row]]:
    figure: Callable[[int], str] = str if raw else count
    length: Callable[[int], str] = str if raw else duration
    return [
        Column("Consumer", lambda row: row.value.name),
        Column("Mode", lambda row: mode(row.value), spare=4),
        Column("Ack Policy", lambda row: policy(row.value.config.ack_policy.value), spare=3),
        Column("Ack Wait", *_number(lambda info: info.config.ack_wait, length), spare=2),
        Column("Ack Pending", *_number(lambda info: info.num_ack_pending, figure)),
        Column("Redelivered", *_number(lambda info: info.num_redelivered, figure), spare=TROUBLE),
        Column("Unprocessed", *_number(lambda info: info.num_pending, figure)),
        Column("Ack Floor", *_number(lambda info: info.ack_floor.stream_seq, figure), spare=6),
        Column("API Level", *_level(), spare=1),
        Column("Cluster", lambda row: servers(row.value), spare=5),
        Column("Delivered", *_number(lambda info: info.delivered.stream_seq, figure), wide=True),
        Column("Waiting", *_number(lambda info: info.num_waiting, figure), wide=True),
        Column("Max Ack Pending", *_number(lambda info: info.config.max_ack_pending, figure), wide=True),
        Column("Max Deliver", *_number(lambda info: info.config.max_deliver, figure), wide=True),
        Column("Filters", lambda row: ", ".join(filters(row.value)), wide=True),
        Column("Paused", lambda row: _paused(row.value), wide=True),
        Column("Description", lambda row: row.value.config.description, wide=True),
    ]


def render_report(
    found: LiveProgress, shown: Sequence[Column[Row]], order: Callable[[Sequence[Row]], list[Row]], now_ns: int
) -> Table:
    rows = order(found.infos)
    columns = [_with_share(column, found.messages) if column.title == "Unprocessed" else column for column in shown]
    title = f"Consumer report for {found.stream} with {plural(len(rows), 'consumer')}"
    table = render_columns(title, columns, rows)
    values = [row.value for row in rows]
    paused = sum(value.paused for value in values)
    table.caption = (
        f"{plural(sum(value.num_ack_pending for value in values), 'outstanding ack')}, "
        f"{count(sum(value.num_redelivered for value in values))} redelivered, "
        f"{count(sum(value.num_pending for value in values))} unprocessed"
        f"{f', {count(paused)} paused' if paused else ''}"
    )
    return table


def _with_share(column: Column[Row], messages: int) -> Column[Row]:
    """Return the column with its share of the stream's messages, even if a filter selects some of them."""

    def cell(row: Row) -> str:
        info = row.value
        if not messages or not info.num_pending:
            return column.cell(row)
        return f"{column.cell(row)} / {min(100, 100 * info.num_pending // messages)}%"

    return column._replace(cell=cell)


def render_leaders(led: Sequence[tuple[str, str, int]]) -> Table:
    most = max((number for _, _, number in led), default=1)
    rows = [
        (server, cluster, count(number), BAR * max(1, round(LONGEST_BAR * number / most)))
        for server, cluster, number in led
    ]
    return render_table("RAFT Leader Report", ("Server", "Cluster", "Consumers", "Distribution"), rows, ("Consumers",))


def mode(info: ConsumerInfo) -> str:
    return "Push" if info.config.deliver_subject else "Pull"


def filters(info: ConsumerInfo) -> list[str]:
    """Return its filter subjects; none for all."""
    return [info.config.filter_subject] if info.config.filter_subject else list(info.config.filter_subjects or ())


def level(info: ConsumerInfo) -> str:
    return (info.config.metadata or {}).get(REQUIRED_LEVEL_KEY, "")


def servers(info: ConsumerInfo) -> str:
    """Return the servers that have a copy: `n1*, n2, n3!`.

    The leader has a star, a replica that lags or is offline an exclamation mark.
    """
    if info.cluster is None:
        return ""
    names = [f"{info.cluster.leader}*"] if info.cluster.leader else []
    names += [
        f"{replica.name}{'' if replica.current and not replica.offline else '!'}"
        for replica in info.cluster.replicas or ()
    ]
    return ", ".join(sorted(names))


def _paused(info: ConsumerInfo) -> str:
    return when(info.config.pause_until) if info.paused else ""


def _number(
    field: Callable[[ConsumerInfo], int], shown: Callable[[int], str] = count
) -> tuple[Callable[[Row], str], Callable[[Row], Any]]:
    return lambda row: shown(field(row.value)), lambda row: field(row.value)


def _level() -> tuple[Callable[[Row], str], Callable[[Row], Any]]:
    """Return a number that older servers do not send."""

    def order(row: Row) -> int:
        label = level(row.value)
        return int(label) if label.isdecimal() else -1

    return lambda row: level(row.value), order


def _age(field: Callable[[ConsumerInfo], str | None], now_ns: int) -> tuple[Callable[[Row], str], Callable[[Row], Any]]:
    def order(row: Row) -> int:
        moment = field(row.value)
        return -(ZERO_NS if moment is None or is_zero(moment) else parse_time(moment))

    return lambda row: ago(field(row.value), now_ns), order
