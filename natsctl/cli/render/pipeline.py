"""Pipelines: their events as lines, their flows as a table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from natsctl.api.units import format_size
from natsctl.cli.render.table import render_table
from natsctl.cli.render.values import ago, count, duration, safe

if TYPE_CHECKING:
    from rich.table import Table

    from natsctl.cli.pipeline.shapes import FlowStatus, Known, Status
    from natsctl.spark.pipeline.events import Event


def event_line(event: Event) -> str:
    """`21:04:05 orders COMPLETED, ORDERS +1,234`, with a failure behind it."""
    what = f"{event.flow} {event.state}" if event.flow else event.message
    read = "".join(f", {name} +{count(number)}" for name, number in event.read.items())
    failure = f": {event.error}" if event.error else ""
    return safe(f"{_clock(event.time)} {what}{read}{failure}")


def render_status(status: Status) -> Table:
    """A row for each stream of each flow, below what the run does."""
    columns: tuple[str, ...] = (
        "Flow",
        "State",
        "Updated",
        "Stream",
        "Sequence",
        "Behind",
        "Messages",
        "Bytes",
        "Trouble",
    )
    rows = [row for flow in status.flows for row in _rows(flow)]
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    right = ("Sequence", "Behind", "Messages", "Bytes")
    return render_table(_title(status), columns, rows, right, least=("Bytes", "Updated", "Sequence"))


def render_known(pipelines: Sequence[Known]) -> Table:
    """A row for each pipeline."""
    rows = [(one.pipeline, one.state, str(one.pid or ""), _ago(one.updated), one.folder) for one in pipelines]
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
    if not flow.streams:
        return [(*head, "", "", "", "", "", flow.error)]
    rows: list[tuple[str, ...]] = []
    for one in flow.streams:
        numbers = (count(one.seq), count(one.sequences), count(one.messages), format_size(one.bytes))
        rows.append((*head, one.stream, *numbers, one.trouble or flow.error))
        head = ("", "", "")
    return rows


def _clock(moment: datetime) -> str:
    return moment.astimezone().strftime("%H:%M:%S")


def _ago(moment: str) -> str:
    return ago(moment, time.time_ns()) if moment else ""
