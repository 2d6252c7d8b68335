"""`consumer next`, `sub` and `events`: what a consumer delivers, and what is told about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.errors import NothingReceived, UsageError
from natsctl.cli import output
from natsctl.cli.names import pick_consumer, pick_stream, suggesting
from natsctl.cli.options import ConsumerName, Json, Raw, StreamName, session_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from natsctl.cli.render.message import Received
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message

MAX_PULL = 256
"""Most messages that one pull asks for, so that those not yet shown do not run into their ack wait."""

Count = Annotated[int, typer.Option("--count", metavar="N", help="how many messages", min=1)]
Wait = Annotated[str | None, typer.Option("--wait", metavar="DURATION", help="how long to wait [--timeout]")]
Ack = Annotated[bool, typer.Option("--ack/--no-ack", help="acknowledge")]


def next_message(
    ctx: typer.Context,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    ack: Ack = True,
    nak: Annotated[bool, typer.Option("--nak", help="refuse, so that it is delivered again")] = False,
    term: Annotated[bool, typer.Option("--term", help="end its delivery without an ack")] = False,
    count: Count = 1,
    wait: Wait = None,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Take the next messages of a pull consumer, and acknowledge them."""
    if nak and term:
        raise UsageError("--nak and --term exclude each other")
    session = session_of(ctx)
    where = pick_stream(session, stream)
    name = pick_consumer(session, where, consumer)
    wait_s = wait_seconds(wait)
    with suggesting(session, where, name):
        config = session.run(lambda manager: manager.consumer_info(where, name)).raw["config"]
    if config.get("deliver_subject"):
        raise UsageError(
            f"Consumer {where} > {name} is push-based", hint=f"read it with natsctl con sub {where} {name}"
        )
    answer = Reply(config, ack, nak, term)
    show = Shown(raw, json)

    async def work(manager: Manager) -> int:
        return await take(manager, where, name, count, wait_s, answer, show, int(config.get("max_batch") or MAX_PULL))

    if session.run(work) == 0:
        raise NothingReceived(f"no message received from Consumer {where} > {name}")


class Reply:
    """What a received message is answered with, and how that is told."""

    def __init__(self, config: Mapping[str, Any], ack: bool, nak: bool, term: bool) -> None:
        self.wanted = ack or nak or term
        self.unasked = config.get("ack_policy") == "none"
        self._kind, self._told = b"+ACK", "Acknowledged message"
        if nak:
            self._kind, self._told = b"-NAK", "Negative Acknowledged message"
        elif term:
            self._kind, self._told = b"+TERM", "Terminated message"

    async def send(self, manager: Manager, message: Message) -> str:
        """Answer the message, and return what was done; "" for nothing."""
        if not self.wanted or not message.reply:
            return ""
        if self.unasked:
            return f"{self._told} (the consumer asks for none)"
        from natsctl.client.messages import acknowledge

        await acknowledge(manager, message, self._kind)
        return self._told


class Shown:
    """How received messages are shown."""

    def __init__(self, raw: bool, json: bool) -> None:
        self.raw = raw
        self.json = json

    def message(self, message: Received) -> None:
        """Show one."""
        from natsctl.cli.messaging.bodies import show_body
        from natsctl.cli.render.message import message_document, render_next

        if self.json:
            output.emit_json_line(message_document(message))
        elif self.raw:
            output.emit_bytes(message.payload)
        else:
            output.note(render_next(message))
            show_body(message.headers, message.payload)

    def reply(self, told: str) -> None:
        """Tell how it was answered."""
        if told and not self.json and not self.raw:
            output.note(f"\n{told}\n")


async def take(
    manager: Manager,
    stream: str,
    consumer: str,
    count: int,
    wait_s: float | None,
    reply: Reply,
    show: Shown,
    max_batch: int,
) -> int:
    """Pull, show and answer up to `count` messages, and return how many came."""
    from natsctl.cli.messaging.bodies import received
    from natsctl.client.messages import pull

    got = 0
    while got < count:
        before = got
        batch = min(count - got, max_batch, MAX_PULL)
        async for message in pull(manager, stream, consumer, batch=batch, expires_s=wait_s):
            got += 1
            show.message(received(message))
            show.reply(await reply.send(manager, message))
        if got == before:
            break
    return got


def sub(
    ctx: typer.Context,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    ack: Ack = True,
    count: Annotated[int, typer.Option("--count", metavar="N", help="end after N messages", min=0)] = 0,
    wait: Annotated[str | None, typer.Option("--wait", metavar="DURATION", help="end when idle this long")] = None,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Show what a consumer delivers, as it comes."""
    from natsctl.cli.messaging.receive import Listening, Shower, listen

    session = session_of(ctx)
    where = pick_stream(session, stream)
    name = pick_consumer(session, where, consumer)
    with suggesting(session, where, name):
        config = session.run(lambda manager: manager.consumer_info(where, name)).raw["config"]
    reply = Reply(config, ack, nak=False, term=False)
    target = config.get("deliver_subject")
    if target:
        shower = Shower(raw=raw, json=json)
        shower.reply = None if reply.unasked else reply
        listening = Listening((target,), config.get("deliver_group") or "", count, wait_seconds(wait))
        session.run(lambda manager: listen(manager, listening, shower))
        return
    wait_s = wait_seconds(wait)
    show = Shown(raw, json)

    async def work(manager: Manager) -> int:
        got = 0
        while not count or got < count:
            came = await take(manager, where, name, min(count - got if count else 1, MAX_PULL), wait_s, reply, show, 1)
            got += came
            if not came and wait_s is not None:
                break
        return got

    if session.run(work) == 0:
        raise NothingReceived(f"no message received from Consumer {where} > {name}")


def events(
    ctx: typer.Context,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    count: Annotated[int, typer.Option("--count", metavar="N", help="end after N events", min=0)] = 0,
    wait: Annotated[str | None, typer.Option("--wait", metavar="DURATION", help="end when idle this long")] = None,
    json: Json = False,
) -> None:
    """Show advisories and ack samples of one consumer, as they come."""
    from natsctl.api.subjects import ADVISORY_PREFIX, METRIC_PREFIX
    from natsctl.cli.messaging.receive import EventShower, Listening, listen

    session = session_of(ctx)
    where = pick_stream(session, stream)
    name = pick_consumer(session, where, consumer)
    with suggesting(session, where, name):
        session.run(lambda manager: manager.consumer_info(where, name))
    subjects = (f"{ADVISORY_PREFIX}.*.*.{where}.{name}", f"{METRIC_PREFIX}.*.*.{where}.{name}")
    listening = Listening(subjects, "", count, wait_seconds(wait))
    session.run(lambda manager: listen(manager, listening, EventShower(json)))


def wait_seconds(text: str | None) -> float | None:
    """Seconds of a `--wait`, None when it was not given. Raises UsageError."""
    if text is None:
        return None
    from natsctl.api.units import parse_duration

    try:
        seconds = parse_duration(text) / 1e9
    except ValueError as error:
        raise UsageError(f"--wait: {error}") from error
    if seconds <= 0:
        raise UsageError("--wait: expected a duration above zero")
    return seconds
