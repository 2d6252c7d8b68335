"""Activity of consumers: `natsctl consumer report`, `graph` and `events`."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import field

from natsctl.api.consumer import ConsumerInfo
from natsctl.api.errors import UsageError
from natsctl.api.model import Model
from natsctl.api.subjects import ADVISORY_PREFIX, METRIC_PREFIX
from natsctl.cli.consumer.listing import ConsumerFlags
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import All, Json, Rounds, StreamName, Watch, check_rounds, length_option
from natsctl.cli.framework.live import Every, emit_each, plot_room
from natsctl.cli.framework.live import watch as redraw
from natsctl.cli.framework.parameters import Option
from natsctl.cli.framework.resolve import live_consumer, pick_stream, suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.render.tables import Columns, Drawn, Reverse, Sort, Stack, Wide, selected_columns, sorted_rows
from natsctl.cli.render.text import safe
from natsctl.client.leaders import leader_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from natsctl.client.manager import Manager
    from natsctl.client.stream_state import LiveProgress


class Leader(Model):
    """A server of the cluster, and how many of the consumers it leads."""

    server: str
    cluster: str
    consumers: int


class Report(Model):
    """The consumers of a stream, with `leaders` if requested; `messages` is the number in the stream."""

    stream: str
    messages: int
    consumers: list[ConsumerInfo]
    missing: list[str] = field(default_factory=list)
    """Consumers with leaders that do not answer."""
    leaders: list[Leader] = field(default_factory=list)


class Removed(Model):
    """Outcome for several consumers, or for one that did not exist."""

    success: bool
    removed: list[str]
    missing: list[str]


def report(
    session: Session,
    stream: StreamName = None,
    leaders: Annotated[bool, Option("--leaders", "-l", help="number of consumers that each server leads")] = False,
    raw: Annotated[bool, Option("--raw", "-r", help="plain numbers")] = False,
    sort: Sort = None,
    reverse: Reverse = False,
    columns: Columns = None,
    wide: Wide = False,
    watch: Watch = None,
    rounds: Rounds = 0,
    all_streams: All = False,
    json: Json = False,
) -> None:
    """Report the position and backlog of each consumer of a stream."""
    from natsctl.cli.render.consumers import report_columns

    check_rounds(watch, rounds)
    where = pick_stream(session, stream, all_streams=all_streams)
    table = report_columns(raw)
    shown = selected_columns(table, columns, wide)
    sorted_rows((), table, sort, reverse, "consumer")

    def view() -> Drawn:
        return _view(session, where, shown, leaders, lambda rows: sorted_rows(rows, table, sort, reverse, "consumer"))

    def document() -> dict[str, Any]:
        return _document(_load(session, where), leaders)

    if watch:
        session.lasting = True
        emit_each(document, watch, rounds) if json else redraw(view, watch, rounds=rounds)
    elif json:
        output.emit_json(document())
    else:
        output.show_table(view())


def _view(session: Session, stream: str, shown: Any, leaders: bool, order: Any) -> Drawn:
    from natsctl.cli.render.consumers import render_leaders, render_report

    found = _load(session, stream)
    if found.missing:
        output.note(f"warning: inaccessible consumers: {', '.join(map(safe, found.missing))}")
    if not found.infos and not found.missing:
        return Stack("No Consumers defined")
    pages: list[Drawn | str] = [render_report(found, shown, order, time.time_ns())]
    if leaders:
        pages += ["", render_leaders(_led(found))]
    return Stack(*pages)


def _load(session: Session, stream: str) -> LiveProgress:
    from natsctl.client.stream_state import progress

    with suggesting(session, stream):
        return session.ask(lambda manager: progress(manager, stream))


def _document(found: LiveProgress, leaders: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "stream": found.stream,
        "messages": found.messages,
        "consumers": [info.raw for info in found.infos],
    }
    if found.missing:
        document["missing"] = [*found.missing]
    if leaders:
        document["leaders"] = [
            {"server": server, "cluster": cluster, "consumers": number} for server, cluster, number in _led(found)
        ]
    return document


def _led(found: LiveProgress) -> list[tuple[str, str, int]]:
    """Return each server with its cluster and number of leaders, the busiest first."""
    led = Counter(
        (leader_of(info.raw), str((info.raw.get("cluster") or {}).get("name") or ""))
        for info in found.infos
        if leader_of(info.raw)
    )
    return [(server, cluster, number) for (server, cluster), number in led.most_common()]


def graph(
    session: Session,
    chosen: ConsumerFlags,
    every: Every = 1.0,
    rounds: Rounds = 0,
) -> None:
    """Plot undelivered and unacknowledged messages of a consumer, and their rates, until Ctrl-C."""
    from natsctl.cli.render.plot import Rate, Series, render_plots

    columns, lines = plot_room(rounds)
    where, name = chosen.pick(session)
    pending, unacked = Series("Unprocessed Messages"), Series("Outstanding Acks")
    delivered, acked = Rate("Delivered"), Rate("Acknowledged")

    def view() -> RenderableType:
        info = live_consumer(session, where, name).value
        at_s = time.monotonic()
        pending.add(info.num_pending)
        unacked.add(info.num_ack_pending)
        delivered.count(info.delivered.consumer_seq, at_s)
        acked.count(info.ack_floor.consumer_seq, at_s)
        heading = f"Consumer {safe(where)} > {safe(name)}"
        return render_plots(heading, (pending, unacked, delivered, acked), columns, lines)

    view()
    session.lasting = True
    redraw(view, every, rounds=rounds)


def events(
    session: Session,
    chosen: ConsumerFlags,
    count: Annotated[int, Option("--count", metavar="N", help="end after N events", min=0)] = 0,
    wait: Annotated[float | None, length_option("--wait", help="end after this time without an event")] = None,
    short: Annotated[bool, Option("--short", help="one line per event")] = False,
    cloudevent: Annotated[bool, Option("--cloudevent", help="one CloudEvents 1.0 document per line")] = False,
    json: Json = False,
) -> None:
    """Show advisories and ack samples of one consumer as they arrive."""
    from natsctl.cli.events import EventPrinter
    from natsctl.cli.messaging.receive import ListenOptions, listen

    if short and (json or cloudevent):
        raise UsageError("--short is text: it goes with neither --json nor --cloudevent")
    where, name = chosen.pick(session)
    live_consumer(session, where, name)
    subjects = tuple(f"{prefix}.*.*.{where}.{name}" for prefix in (ADVISORY_PREFIX, METRIC_PREFIX))
    show = EventPrinter(json, cloudevent=cloudevent, short=short)

    async def hear(manager: Manager) -> None:
        there = tuple(manager.connection.target.event_subject(subject) for subject in subjects)
        await listen(manager, ListenOptions(there, "", count, wait), show)

    session.run(hear, lasting=True)
