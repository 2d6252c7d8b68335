"""`natsctl consumer report`: how far the consumers of a stream are, and who leads them."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.cli import output
from natsctl.cli.names import pick_stream, suggesting
from natsctl.cli.options import All, Json, Rounds, StreamName, Watch, session_of
from natsctl.cli.render.tables import Columns, Reverse, Sort, Wide, chosen, ordered
from natsctl.cli.render.text import safe
from natsctl.cli.waiting import watch_seconds
from natsctl.client.assets.leaders import leader_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from natsctl.cli.session import Session
    from natsctl.client.assets.consumer_progress import Progress

Figures = Annotated[bool, typer.Option("--raw", "-r", help="plain numbers", show_default=False)]
Leaders = Annotated[
    bool, typer.Option("--leaders", "-l", help="number of consumers that each server leads", show_default=False)
]


def report(
    ctx: typer.Context,
    stream: StreamName = None,
    leaders: Leaders = False,
    raw: Figures = False,
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

    every_s = watch_seconds(watch, rounds)
    session = session_of(ctx)
    where = pick_stream(session, stream, all_streams=all_streams)
    table = report_columns(raw)
    shown = chosen(table, columns, wide)
    ordered((), table, sort, reverse, "consumer")

    def view() -> RenderableType:
        return _view(session, where, shown, leaders, lambda rows: ordered(rows, table, sort, reverse, "consumer"))

    def document() -> dict[str, Any]:
        return _document(_load(session, where), leaders)

    if every_s:
        from natsctl.cli.live import emit_each
        from natsctl.cli.live import watch as redraw

        emit_each(document, every_s, rounds) if json else redraw(view, every_s, rounds=rounds)
    elif json:
        output.emit_json(document())
    else:
        from natsctl.cli.screen import show_table

        show_table(view())


def _view(session: Session, stream: str, shown: Any, leaders: bool, order: Any) -> RenderableType:
    from rich.console import Group

    from natsctl.cli.render.consumers import render_leaders, render_report

    found = _load(session, stream)
    if found.missing:
        output.note(f"warning: inaccessible consumers: {', '.join(map(safe, found.missing))}")
    if not found.infos and not found.missing:
        from rich.text import Text

        return Text("No Consumers defined")
    pages: list[RenderableType] = [render_report(found, shown, order, time.time_ns())]
    if leaders:
        pages += ["", render_leaders(_led(found))]
    return Group(*pages)


def _load(session: Session, stream: str) -> Progress:
    """The stream's consumers and how many messages it has. Raises ApiFailure, with what may have been meant."""
    from natsctl.client.assets.consumer_progress import progress

    with suggesting(session, stream):
        return session.run(lambda manager: progress(manager, stream))


def _document(found: Progress, leaders: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "stream": found.stream,
        "messages": found.messages,
        "consumers": [one.raw for one in found.infos],
    }
    if found.missing:
        document["missing"] = [*found.missing]
    if leaders:
        document["leaders"] = [
            {"server": server, "cluster": cluster, "consumers": number} for server, cluster, number in _led(found)
        ]
    return document


def _led(found: Progress) -> list[tuple[str, str, int]]:
    """Server, cluster and how many consumers it leads, the busiest first."""
    led = Counter(
        (leader_of(one.raw), str((one.raw.get("cluster") or {}).get("name") or ""))
        for one in found.infos
        if leader_of(one.raw)
    )
    return [(server, cluster, number) for (server, cluster), number in led.most_common()]
