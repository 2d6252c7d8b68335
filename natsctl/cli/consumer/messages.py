"""`consumer next` and `fetch`: messages taken from a pull consumer, and answered."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.errors import NothingReceived, UsageError
from natsctl.cli import output
from natsctl.cli.consumer.config import live_consumer
from natsctl.cli.names import pick_consumer, pick_stream
from natsctl.cli.options import ConsumerName, Json, Raw, StreamName, session_of
from natsctl.cli.waiting import wait_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from natsctl.cli.render.message import Received
    from natsctl.cli.session import Session
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message
    from natsctl.client.pull import Wanted

FETCHED = 100
"""Messages that `fetch` asks for unless told."""

Ack = Annotated[bool, typer.Option("--ack/--no-ack", help="acknowledge")]
Nak = Annotated[bool, typer.Option("--nak", help="refuse, so that it is delivered again")]
Term = Annotated[bool, typer.Option("--term", help="end its delivery without an ack")]
Delay = Annotated[
    str | None, typer.Option("--delay", metavar="DURATION", help="with --nak: not before this long", show_default=False)
]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="with --term: why, for the advisory", show_default=False)
]
Wait = Annotated[str | None, typer.Option("--wait", metavar="DURATION", help="how long to wait [--timeout]")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="take what there is now", show_default=False)]
MaxBytes = Annotated[
    str | None, typer.Option("--max-bytes", metavar="SIZE", help="most bytes, headers and subjects included")
]
FailEmpty = Annotated[bool, typer.Option("--fail-empty/--no-fail-empty", help="exit with 7 when nothing came")]
Group = Annotated[str, typer.Option("--group", metavar="NAME", help="priority group to read in", show_default=False)]
MinPending = Annotated[int, typer.Option("--min-pending", metavar="N", help="overflow: only with so many unprocessed")]
MinAckPending = Annotated[
    int, typer.Option("--min-ack-pending", metavar="N", help="overflow: only with so many unacknowledged")
]
Priority = Annotated[int, typer.Option("--priority", metavar="N", help="prioritized: 0 comes first, 9 last", max=9)]


def next_message(
    ctx: typer.Context,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    count: Annotated[int, typer.Option("--count", metavar="N", help="how many messages", min=1)] = 1,
    batch: Annotated[
        int | None, typer.Option("--batch", metavar="N", help="most that one request asks for [256]", min=1)
    ] = None,
    max_bytes: MaxBytes = None,
    wait: Wait = None,
    no_wait: NoWait = False,
    ack: Ack = True,
    nak: Nak = False,
    delay: Delay = None,
    term: Term = False,
    reason: Reason = None,
    group: Group = "",
    min_pending: MinPending = 0,
    min_ack_pending: MinAckPending = 0,
    priority: Priority = 0,
    fail_empty: FailEmpty = True,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Take the next messages of a pull consumer, and acknowledge them.

    It ends when there are as many as asked for, or when none came for as long as --wait. No request stays behind.
    """
    from natsctl.client.pull import MAX_BATCH, Place, Wanted

    session = session_of(ctx)
    answered = Answered(ack, nak, term, delay, reason)
    place = Place(group, "", min_pending, min_ack_pending, priority)
    wanted = Wanted(
        count, batch or MAX_BATCH, read_wait(session, wait, no_wait), no_wait, read_size(max_bytes), place=place
    )
    _read(session, stream, consumer, wanted, answered, Shown(raw, json), fail_empty)


def fetch(
    ctx: typer.Context,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    batch: Annotated[int, typer.Option("--batch", "--count", metavar="N", help="most messages", min=1)] = FETCHED,
    max_bytes: MaxBytes = None,
    wait: Wait = None,
    no_wait: NoWait = False,
    ack: Ack = True,
    nak: Nak = False,
    delay: Delay = None,
    term: Term = False,
    reason: Reason = None,
    group: Group = "",
    min_pending: MinPending = 0,
    min_ack_pending: MinAckPending = 0,
    priority: Priority = 0,
    fail_empty: FailEmpty = True,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Take one batch of a pull consumer with a single request, and acknowledge it."""
    from natsctl.client.pull import Place, Wanted

    session = session_of(ctx)
    answered = Answered(ack, nak, term, delay, reason)
    place = Place(group, "", min_pending, min_ack_pending, priority)
    wait_s = read_wait(session, wait, no_wait)
    wanted = Wanted(batch, batch, wait_s, no_wait, read_size(max_bytes), once=True, place=place)
    _read(session, stream, consumer, wanted, answered, Shown(raw, json), fail_empty)


def _read(
    session: Session,
    stream: str | None,
    consumer: str | None,
    wanted: Wanted,
    answered: Answered,
    show: Shown,
    fail_empty: bool,
) -> None:
    where = pick_stream(session, stream)
    name = pick_consumer(session, where, consumer)
    config = live_consumer(session, where, name).raw["config"]
    if config.get("deliver_subject"):
        raise UsageError(
            f"Consumer {where} > {name} is push-based", hint=f"read it with natsctl con sub {where} {name}"
        )
    answered.check(config)
    if session.dry_run:
        preview_read(where, name, wanted, answered)
    got = session.run(lambda manager: _take(manager, where, name, wanted, config, answered, show))
    if not got and fail_empty:
        raise NothingReceived(f"no message received from Consumer {where} > {name}")


async def _take(
    manager: Manager,
    stream: str,
    consumer: str,
    wanted: Wanted,
    config: Mapping[str, Any],
    answered: Answered,
    show: Shown,
) -> int:
    """Show and answer messages as they come, and return how many came."""
    from natsctl.cli.messaging.bodies import received
    from natsctl.client.pull import take

    got = 0
    async with aclosing(take(manager, stream, consumer, wanted, config)) as messages:
        async for message in messages:
            got += 1
            show.message(received(message))
            show.reply(await answered.send(manager, message))
    return got


def preview_read(stream: str, consumer: str, wanted: Wanted, answered: Answered) -> None:
    """End a dry run: taking a message changes what the consumer delivers next."""
    from natsctl.api import endpoints
    from natsctl.client.preview import Planned, Previewed

    request = {
        "batch": min(wanted.batch, wanted.count or wanted.batch),
        **({"no_wait": True} if wanted.no_wait else {}),
    }
    subject = endpoints.CONSUMER_MSG_NEXT.subject(stream, consumer)
    raise Previewed(Planned(subject, request), effect={"each_message": answered.effect})


class Answered:
    """What a received message is answered with, and how that is told; UsageError for what does not go together."""

    def __init__(
        self,
        ack: bool = True,
        nak: bool = False,
        term: bool = False,
        delay: str | None = None,
        reason: str | None = None,
    ) -> None:
        if nak and term:
            raise UsageError("--nak and --term exclude each other")
        if delay and not nak:
            raise UsageError("--delay is for --nak")
        if reason and not term:
            raise UsageError("--reason is for --term")
        self.wanted = ack or nak or term
        self.refuses = nak or term
        self.unasked = False
        self._kind, self._told = b"+ACK", "Acknowledged message"
        if nak:
            self._kind, self._told = _nak(delay), "Negative Acknowledged message"
        elif term:
            self._kind = b"+TERM" + (f" {reason}".encode() if reason else b"")
            self._told = "Terminated message"

    def check(self, config: Mapping[str, Any]) -> None:
        """Look whether the consumer asks for acks at all. Raises UsageError for a refusal that nobody would hear."""
        self.unasked = config.get("ack_policy") in ("none", "flow_control")
        if self.unasked and self.refuses:
            raise UsageError("the consumer asks for no acknowledgments: --nak and --term would do nothing")

    @property
    def effect(self) -> str:
        """What becomes of each message."""
        if self.unasked or not self.wanted:
            return "no acknowledgment"
        return self._kind.decode("utf-8", "backslashreplace")

    async def send(self, manager: Manager, message: Message) -> str:
        """Answer the message, and return what was done; "" for nothing."""
        if not self.wanted or not message.reply:
            return ""
        if self.unasked:
            return "No acknowledgment: the consumer asks for none"
        from natsctl.client.messages import acknowledge

        await acknowledge(manager, message, self._kind)
        return self._told


def _nak(delay: str | None) -> bytes:
    if not delay:
        return b"-NAK"
    return b'-NAK {"delay": %d}' % round((wait_seconds(delay, "--delay") or 0) * 1e9)


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


def read_wait(session: Session, text: str | None, no_wait: bool) -> float:
    """Seconds to wait for messages. Raises UsageError."""
    if text is not None and no_wait:
        raise UsageError("--wait and --no-wait exclude each other")
    return wait_seconds(text) or session.target().timeout_s


def read_size(text: str | None) -> int:
    """Bytes of a `--max-bytes`, 0 when it was not given. Raises UsageError."""
    if text is None:
        return 0
    from natsctl.api.units import parse_size

    try:
        size = parse_size(text)
    except ValueError as error:
        raise UsageError(f"--max-bytes: {error}") from error
    if size <= 0:
        raise UsageError("--max-bytes: expected a size above zero")
    return size
