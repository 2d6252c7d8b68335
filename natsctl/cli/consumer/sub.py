"""`natsctl consumer sub`: what a consumer delivers, as it comes, until Ctrl-C, --count or --wait."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from natsctl.api.errors import NothingReceived, UsageError
from natsctl.cli.consumer.config import live_consumer
from natsctl.cli.consumer.messages import Answered, Shown, preview_read
from natsctl.cli.flags import ON, SUBJECTS, Flag, Given, fields_of, flagged
from natsctl.cli.messaging.subscribe import STARTS
from natsctl.cli.names import pick_consumer, pick_stream, suggesting
from natsctl.cli.options import ConsumerName, Json, Raw, StreamName, session_of
from natsctl.cli.waiting import wait_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from natsctl.cli.session import Session
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message
    from natsctl.client.messaging.pull import Wanted


_STARTS = tuple(flag for flag in STARTS if flag.name != "--all")
"""From the first message is what goes without saying, and --all is about streams here."""
ORDERED = (
    Flag("--ordered", ON, "ordered", "read the stream in order with a temporary consumer"),
    Flag("--subject", SUBJECTS, "subjects", "with --ordered: only messages on these subjects"),
    *_STARTS,
)


@flagged(ORDERED)
def sub(
    ctx: typer.Context,
    given: Given,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    ack: Annotated[bool, typer.Option("--ack/--no-ack", help="acknowledge")] = True,
    count: Annotated[
        int | None,
        typer.Option(
            "--count", metavar="N", help="end after N messages, 0 for never [pull without --wait: 1, else 0]", min=0
        ),
    ] = None,
    wait: Annotated[
        str | None, typer.Option("--wait", metavar="DURATION", help="end after this long without any")
    ] = None,
    deliver_group: Annotated[
        str, typer.Option("--deliver-group", metavar="NAME", help="the consumer's queue group, for compatibility")
    ] = "",
    group: Annotated[
        str, typer.Option("--group", metavar="NAME", help="priority group to read in", show_default=False)
    ] = "",
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Show what a consumer delivers, as it comes, and acknowledge it.

    A pull consumer is asked for one message unless --count or --wait says when to end; a push consumer is listened to,
    in its queue group if it has one. With --ordered there is no CONSUMER: one is made in memory, without acks, and made
    anew behind the last message where a message is missing, its heartbeats stay away, or somebody resets or removes it.
    """
    session = session_of(ctx)
    idle_s, show = wait_seconds(wait), Shown(raw, json)
    if "--ordered" in given:
        if consumer or deliver_group or group:
            raise UsageError("--ordered makes a consumer of its own: CONSUMER and groups are for others")
        _read_ordered(session, pick_stream(session, stream), given, count or 0, idle_s, show)
        return
    if given:
        raise UsageError(f"{next(iter(given))} is for --ordered: a consumer that exists has its own")
    where = pick_stream(session, stream)
    name = pick_consumer(session, where, consumer)
    reading = Reading(ack, deliver_group, group, count, idle_s, show)
    _read_consumer(session, where, name, reading)


class Reading(NamedTuple):
    """How a consumer is read."""

    ack: bool
    deliver_group: str
    group: str
    most: int | None
    """How many messages; None for one of a pull consumer that is not to be read until it rests, and else for all."""
    idle_s: float | None
    show: Shown


def _read_consumer(session: Session, where: str, name: str, asked: Reading) -> None:
    from natsctl.client.messaging.pull import MAX_BATCH, Place, Wanted

    config = live_consumer(session, where, name).raw["config"]
    if asked.deliver_group and asked.deliver_group != config.get("deliver_group"):
        known = config.get("deliver_group") or "none"
        raise UsageError(f"--deliver-group {asked.deliver_group}: the consumer's is {known}")
    answered = Answered(asked.ack)
    answered.check(config)
    pulls = not config.get("deliver_subject")
    most, idle_s = asked.most, asked.idle_s
    if most is None:
        most = int(pulls and idle_s is None)
        idle_s = session.target().timeout_s if most else idle_s
    wanted = Wanted(0, min(most or MAX_BATCH, MAX_BATCH), place=Place(asked.group))
    if session.dry_run and not config.get("deliver_subject"):
        preview_read(session, where, name, wanted, answered)

    async def work(manager: Manager) -> int:
        asked.show.head(f"Reading Consumer {where} > {name}")
        async with aclosing(_messages(manager, where, name, config, wanted)) as messages:
            return await _show(manager, messages, most, idle_s, answered, asked.show)

    if session.run(work) == 0:
        raise NothingReceived(f"no message received from Consumer {where} > {name}")


def _read_ordered(session: Session, stream: str, given: Given, count: int, idle_s: float | None, show: Shown) -> None:
    """Show what a stream stores, in order."""
    from natsctl.client.messaging.stream_feed import Start, ordered_reader, widest

    said = fields_of(ORDERED, given)
    starts = said.get("start") or {}
    if len(starts) > 1:
        raise UsageError(f"at most one place to start from: {', '.join(flag.name for flag in _STARTS)}")
    policy, value = next(iter(starts.items()), ("all", True))
    start = Start(policy, 0 if value is True else int(value))

    async def work(manager: Manager) -> int:
        show.head(f"Reading Stream {stream} in order")
        reader = ordered_reader(manager, stream, widest(said.get("subjects") or ()), start)
        async with reader, aclosing(reader.messages()) as messages:
            return await _show(manager, messages, count, idle_s, Answered(ack=False), show)

    with suggesting(session, stream):
        if session.run(work) == 0:
            raise NothingReceived(f"no message received from Stream {stream}")


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
