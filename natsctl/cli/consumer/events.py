"""`natsctl consumer events`: advisories and ack samples of one consumer, as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.api.subjects import ADVISORY_PREFIX, METRIC_PREFIX
from natsctl.cli.consumer.config import live_consumer
from natsctl.cli.names import pick_consumer, pick_stream
from natsctl.cli.options import ConsumerName, Json, StreamName, session_of
from natsctl.cli.waiting import wait_seconds

if TYPE_CHECKING:
    from natsctl.client.manager import Manager


def events(
    ctx: typer.Context,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    count: Annotated[int, typer.Option("--count", metavar="N", help="end after N events", min=0)] = 0,
    wait: Annotated[
        str | None, typer.Option("--wait", metavar="DURATION", help="end after this long without any")
    ] = None,
    short: Annotated[bool, typer.Option("--short", help="one line per event", show_default=False)] = False,
    cloudevent: Annotated[
        bool, typer.Option("--cloudevent", help="one CloudEvents 1.0 document per line", show_default=False)
    ] = False,
    json: Json = False,
) -> None:
    """Show advisories and ack samples of one consumer as they arrive."""
    from natsctl.cli.events.shower import EventShower
    from natsctl.cli.messaging.receive import Listening, listen

    if short and (json or cloudevent):
        raise UsageError("--short is text: it goes with neither --json nor --cloudevent")
    session = session_of(ctx)
    where = pick_stream(session, stream)
    name = pick_consumer(session, where, consumer)
    live_consumer(session, where, name)
    subjects = tuple(f"{prefix}.*.*.{where}.{name}" for prefix in (ADVISORY_PREFIX, METRIC_PREFIX))
    show = EventShower(json, cloudevent=cloudevent, short=short)
    seconds = wait_seconds(wait)

    async def hear(manager: Manager) -> None:
        there = tuple(manager.connection.target.event_subject(subject) for subject in subjects)
        await listen(manager, Listening(there, "", count, seconds), show)

    session.run(hear)
