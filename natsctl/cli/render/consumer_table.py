"""Consumers in tables: `con ls`, `con find` and `con report`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from natsctl.api.consumer import ConsumerInfo
from natsctl.api.times import ZERO_NS, parse_time
from natsctl.api.units import plural
from natsctl.cli.render.columns import Column, render_columns
from natsctl.cli.render.consumer import policy
from natsctl.cli.render.table import render_table
from natsctl.cli.render.values import ago, count, duration, is_zero, when

if TYPE_CHECKING:
    from rich.table import Table

    from natsctl.client.assets.consumer_progress import Progress

BAR = "*"
LONGEST_BAR = 20
REQUIRED_LEVEL = "_nats.req.level"


Row = Any
"""An answer whose `value` is a consumer's information."""


def consumer_columns(now_ns: int) -> list[Column[Row]]:
    """The columns of lists."""
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
    """The columns of reports; `raw` shows plain numbers."""
    figure: Callable[[int], str] = str if raw else count
    length: Callable[[int], str] = str if raw else duration
    return [
        Column("Consumer", lambda row: row.value.name),
        Column("Mode", lambda row: mode(row.value), spare=4),
        Column("Ack Policy", lambda row: policy(row.value.config.ack_policy.value), spare=3),
        Column("Ack Wait", *_number(lambda info: info.config.ack_wait, length), spare=2),
        Column("Ack Pending", *_number(lambda info: info.num_ack_pending, figure)),
        Column("Redelivered", *_number(lambda info: info.num_redelivered, figure), spare=7),
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
    found: Progress, shown: Sequence[Column[Row]], order: Callable[[Sequence[Row]], list[Row]], now_ns: int
) -> Table:
    """The report on a stream's consumers, with the totals below it."""
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
    """The column with what part of the stream's messages that is, where it is about the whole stream."""

    def cell(row: Row) -> str:
        info = row.value
        if not messages or not info.num_pending or filters(info):
            return column.cell(row)
        return f"{column.cell(row)} / {100 * info.num_pending / messages:.0f}%"

    return replace(column, cell=cell)


def render_leaders(led: Sequence[tuple[str, str, int]]) -> Table:
    """How many consumers each server leads."""
    most = max((number for _, _, number in led), default=1)
    rows = [
        (server, cluster, count(number), BAR * max(1, round(LONGEST_BAR * number / most)))
        for server, cluster, number in led
    ]
    return render_table("RAFT Leader Report", ("Server", "Cluster", "Consumers", "Distribution"), rows, ("Consumers",))


def mode(info: ConsumerInfo) -> str:
    """How it delivers."""
    return "Push" if info.config.deliver_subject else "Pull"


def filters(info: ConsumerInfo) -> list[str]:
    """The subjects that it takes; none for all."""
    return [info.config.filter_subject] if info.config.filter_subject else list(info.config.filter_subjects or ())


def level(info: ConsumerInfo) -> str:
    """The API level that its configuration needs."""
    return (info.config.metadata or {}).get(REQUIRED_LEVEL, "")


def servers(info: ConsumerInfo) -> str:
    """The servers that have a copy: `n1*, n2, n3!`, the leader with a star, one that lags or is away with a mark."""
    if info.cluster is None:
        return ""
    names = [f"{info.cluster.leader}*"] if info.cluster.leader else []
    names += [f"{one.name}{'' if one.current and not one.offline else '!'}" for one in info.cluster.replicas or ()]
    return ", ".join(sorted(names))


def _paused(info: ConsumerInfo) -> str:
    return when(info.config.pause_until) if info.paused else ""


def _number(
    field: Callable[[ConsumerInfo], int], shown: Callable[[int], str] = count
) -> tuple[Callable[[Row], str], Callable[[Row], Any]]:
    return lambda row: shown(field(row.value)), lambda row: field(row.value)


def _level() -> tuple[Callable[[Row], str], Callable[[Row], Any]]:
    """A number that older servers do not tell."""

    def order(row: Row) -> int:
        told = level(row.value)
        return int(told) if told.isdecimal() else -1

    return lambda row: level(row.value), order


def _age(field: Callable[[ConsumerInfo], str | None], now_ns: int) -> tuple[Callable[[Row], str], Callable[[Row], Any]]:
    """Newest first, as the smallest age is."""

    def order(row: Row) -> int:
        moment = field(row.value)
        return -(ZERO_NS if moment is None or is_zero(moment) else parse_time(moment))

    return lambda row: ago(field(row.value), now_ns), order
