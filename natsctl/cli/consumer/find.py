"""`natsctl consumer find`: the consumers of a stream that answer to a description."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.consumer.ls import list_consumers, show_consumers, warn_of_absent
from natsctl.cli.names import pick_stream
from natsctl.cli.options import All, Json, Names, StreamName, session_of
from natsctl.cli.render.columns import Columns, Reverse, Sort, Wide
from natsctl.client.consumer_find import Wanted

Pull = Annotated[bool, typer.Option("--pull", help="pull consumers", show_default=False)]
Push = Annotated[bool, typer.Option("--push", help="push consumers", show_default=False)]
Bound = Annotated[bool, typer.Option("--bound", help="those that somebody reads from now", show_default=False)]
Waiting = Annotated[int | None, typer.Option("--waiting", metavar="N", help="fewer waiting pulls than this")]
AckPending = Annotated[int | None, typer.Option("--ack-pending", metavar="N", help="fewer outstanding acks than this")]
Pending = Annotated[int | None, typer.Option("--pending", metavar="N", help="fewer unprocessed messages than this")]
Idle = Annotated[str | None, typer.Option("--idle", metavar="DURATION", help="nothing delivered for this long")]
Created = Annotated[str | None, typer.Option("--created", metavar="DURATION", help="made longer ago than this")]
Replicas = Annotated[int | None, typer.Option("--replicas", metavar="N", help="with at most so many copies")]
Leader = Annotated[str, typer.Option("--leader", metavar="SERVER", help="led by this server", show_default=False)]
Pinned = Annotated[bool, typer.Option("--pinned", help="every priority group has its client", show_default=False)]
ApiLevel = Annotated[int | None, typer.Option("--api-level", metavar="N", help="needs at least this API level")]
Expression = Annotated[
    str,
    typer.Option(
        "--expression", metavar="EXPR", help="a condition over config, state and info, such as state.num_pending > 10"
    ),
]
Invert = Annotated[bool, typer.Option("--invert/--no-invert", help="those that each condition does not hold for")]


def find(
    ctx: typer.Context,
    stream: StreamName = None,
    pull: Pull = False,
    push: Push = False,
    bound: Bound = False,
    waiting: Waiting = None,
    ack_pending: AckPending = None,
    pending: Pending = None,
    idle: Idle = None,
    created: Created = None,
    replicas: Replicas = None,
    leader: Leader = "",
    pinned: Pinned = False,
    api_level: ApiLevel = None,
    expression: Expression = "",
    invert: Invert = False,
    names: Names = False,
    all_streams: All = False,
    sort: Sort = None,
    reverse: Reverse = False,
    columns: Columns = None,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Show the consumers for which every given condition holds."""
    session = session_of(ctx)
    wanted = Wanted(
        pull=pull,
        push=push,
        bound=bound,
        waiting=waiting,
        ack_pending=ack_pending,
        pending=pending,
        idle_ns=age_ns("--idle", idle),
        created_ns=age_ns("--created", created),
        replicas=replicas,
        leader=leader,
        pinned=pinned,
        api_level=api_level,
        expression=expression,
        invert=invert,
    )
    test = wanted.test(time.time_ns())
    answers = list_consumers(session, pick_stream(session, stream, all_streams=all_streams))
    found = [one for one in answers if test(one.raw)]
    if names:
        shown = [one.raw["name"] for one in found]
        output.emit_json(shown) if json else output.emit_names(shown)
    else:
        none = "No Consumers match" if answers else "No Consumers defined"
        show_consumers(found, sort=sort, reverse=reverse, columns=columns, wide=wide, json=json, none=none)
    warn_of_absent(answers)


def age_ns(flag: str, text: str | None) -> int | None:
    """Nanoseconds of a flag, None when it was not given. Raises UsageError."""
    if text is None:
        return None
    from natsctl.api.units import parse_duration

    try:
        return abs(parse_duration(text))
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error
