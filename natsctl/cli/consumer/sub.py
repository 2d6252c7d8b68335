"""`natsctl consumer sub`: what a consumer delivers, as it comes, until Ctrl-C, --count or --wait."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.errors import NothingReceived, UsageError
from natsctl.cli import output
from natsctl.cli.consumer.config import live_consumer
from natsctl.cli.consumer.messages import Answered, Shown, preview_read
from natsctl.cli.names import pick_consumer, pick_stream
from natsctl.cli.options import ConsumerName, Json, Raw, StreamName, session_of
from natsctl.cli.render.values import safe
from natsctl.cli.waiting import wait_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from natsctl.client.manager import Manager
    from natsctl.client.message import Message
    from natsctl.client.messaging.pull import Wanted


def sub(
    ctx: typer.Context,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    ack: Annotated[bool, typer.Option("--ack/--no-ack", help="acknowledge")] = True,
    count: Annotated[int, typer.Option("--count", metavar="N", help="end after N messages", min=0)] = 0,
    wait: Annotated[str | None, typer.Option("--wait", metavar="DURATION", help="end when idle this long")] = None,
    deliver_group: Annotated[
        str, typer.Option("--deliver-group", metavar="NAME", help="the consumer's queue group, which is known")
    ] = "",
    group: Annotated[
        str, typer.Option("--group", metavar="NAME", help="priority group to read in", show_default=False)
    ] = "",
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Show what a consumer delivers, as it comes, and acknowledge it.

    A pull consumer is asked again and again; a push consumer is listened to, in its queue group if it has one.
    """
    from natsctl.client.messaging.pull import MAX_BATCH, Place, Wanted

    session = session_of(ctx)
    where = pick_stream(session, stream)
    name = pick_consumer(session, where, consumer)
    config = live_consumer(session, where, name).raw["config"]
    if deliver_group and deliver_group != config.get("deliver_group"):
        raise UsageError(f"--deliver-group {deliver_group}: the consumer's is {config.get('deliver_group') or 'none'}")
    answered = Answered(ack)
    answered.check(config)
    idle_s, show = wait_seconds(wait), Shown(raw, json)
    wanted = Wanted(0, min(count or MAX_BATCH, MAX_BATCH), place=Place(group))
    if session.dry_run and not config.get("deliver_subject"):
        preview_read(session, where, name, wanted, answered)

    async def work(manager: Manager) -> int:
        if not (raw or json):
            output.log(f"Reading Consumer {safe(where)} > {safe(name)}")
        async with aclosing(_messages(manager, where, name, config, wanted)) as messages:
            return await _show(manager, messages, count, idle_s, answered, show)

    if session.run(work) == 0:
        raise NothingReceived(f"no message received from Consumer {where} > {name}")


def _messages(
    manager: Manager, stream: str, consumer: str, config: Mapping[str, Any], wanted: Wanted
) -> AsyncGenerator[Message, None]:
    """The consumer's messages without end."""
    if config.get("deliver_subject"):
        from natsctl.client.messaging.push import pushed

        return pushed(manager, config)
    from natsctl.client.messaging.pull import take

    return take(manager, stream, consumer, wanted, config)


async def _show(
    manager: Manager,
    messages: AsyncGenerator[Message, None],
    count: int,
    idle_s: float | None,
    answered: Answered,
    show: Shown,
) -> int:
    import asyncio

    from natsctl.cli.messaging.bodies import received

    got = 0
    while not count or got < count:
        try:
            async with asyncio.timeout(idle_s):
                message = await anext(messages)
        except TimeoutError:
            break
        got += 1
        show.message(received(message))
        show.reply(await answered.send(manager, message))
    return got
