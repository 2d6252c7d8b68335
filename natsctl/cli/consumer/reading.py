"""Messages that a consumer delivers: `natsctl consumer next`, `fetch` and `sub`."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from msgspec import field

from natsctl.api import endpoints
from natsctl.api.errors import NothingReceivedError, UsageError
from natsctl.api.model import Model
from natsctl.cli.consumer.listing import ConsumerFlags
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import (
    DURATION,
    ON,
    SIZE,
    SUBJECTS,
    SWITCH,
    TEXT,
    WHOLE,
    Config,
    Flag,
    Given,
    Json,
    Raw,
    apply,
    fields_of,
    flagged,
    length_option,
)
from natsctl.cli.framework.parameters import Option
from natsctl.cli.framework.resolve import live_consumer, pick_stream, suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.messaging.bodies import received, show_message
from natsctl.cli.messaging.subscribe import STARTS
from natsctl.cli.render.message import ReceivedMessage, message_document, render_next
from natsctl.cli.render.text import safe
from natsctl.client.message import DryRunError, Message, Planned
from natsctl.client.messaging.consumers import MAX_BATCH, GroupPlace, PullOptions, pushed, take
from natsctl.client.messaging.feed import Start, ordered_reader, widest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from natsctl.client.manager import Manager


class Delivered(Model):
    """A message that a consumer delivered: `data` in base64, `text` if it is UTF-8, times in RFC 3339."""

    subject: str
    data: str
    received: str
    reply: str = ""
    headers: dict[str, list[str]] = field(default_factory=dict)
    text: str | None = None
    stream: str = ""
    consumer: str = ""
    stream_seq: int = 0
    consumer_seq: int = 0
    deliveries: int = 0
    pending: int = 0
    time: str | None = None


FETCHED = 100
"""Messages that `fetch` asks for by default."""

READING = (
    Flag("--max-bytes", SIZE, "max_bytes", "max bytes, including headers and subjects"),
    Flag("--wait", DURATION, "wait_ns", "how long to wait", default="--timeout"),
    Flag("--no-wait", ON, "no_wait", "take the messages available now"),
    Flag("--ack", SWITCH, "ack", "acknowledge", default="on"),
    Flag("--nak", ON, "nak", "negatively acknowledge: it is delivered again"),
    Flag("--delay", DURATION, "delay_ns", "with --nak: only after this long"),
    Flag("--term", ON, "term", "end its delivery without an ack"),
    Flag("--reason", TEXT, "reason", "with --term: the reason, for the advisory"),
    Flag("--group", TEXT.named("NAME"), "place.group", "priority group to read in"),
    Flag("--min-pending", WHOLE, "place.min_pending", "overflow: only with at least this many unprocessed"),
    Flag("--min-ack-pending", WHOLE, "place.min_ack_pending", "overflow: only with at least this many unacknowledged"),
    Flag("--priority", WHOLE, "place.priority", "prioritized: 0 is first, 9 is last"),
    Flag("--fail-empty", SWITCH, "fail_empty", "exit with 7 when no message arrived", default="on"),
)
"""Flags of the request and of the acknowledgment, the same for `next` and `fetch`."""


@flagged(READING)
def next_message(
    session: Session,
    given: Given,
    chosen: ConsumerFlags,
    count: Annotated[int, Option("--count", metavar="N", help="how many messages", min=1)] = 1,
    batch: Annotated[int | None, Option("--batch", metavar="N", help="max messages per request [256]", min=1)] = None,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Take the next messages of a pull consumer, and acknowledge them.

    It ends after --count messages, or when none came for --wait. No pull request is left open.
    """
    asked = read_flags(session, given)
    wanted = PullOptions(count, batch or MAX_BATCH, **asked.request)
    _read(session, chosen, wanted, asked, DeliveryPrinter(raw, json))


@flagged(READING)
def fetch(
    session: Session,
    given: Given,
    chosen: ConsumerFlags,
    batch: Annotated[int, Option("--batch", "--count", metavar="N", help="max messages", min=1)] = FETCHED,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Take one batch of a pull consumer with a single request, and acknowledge its messages."""
    asked = read_flags(session, given)
    wanted = PullOptions(batch, batch, once=True, **asked.request)
    _read(session, chosen, wanted, asked, DeliveryPrinter(raw, json))


class ReadFlags(NamedTuple):
    """Flags of `READING`: arguments of `PullOptions`, the acknowledgment, and whether no message is a failure."""

    request: dict[str, Any]
    answer: Acknowledgment
    fail_empty: bool


def read_flags(session: Session, given: Given) -> ReadFlags:
    said: Config = {"fail_empty": True, "place": {}}
    apply(said, READING, given)
    if "wait_ns" in said and said.get("no_wait"):
        raise UsageError("--wait and --no-wait exclude each other")
    for flag, key in (("--wait", "wait_ns"), ("--delay", "delay_ns"), ("--max-bytes", "max_bytes")):
        if said.get(key, 1) <= 0:
            raise UsageError(f"{flag}: expected more than zero")
    request = {
        "wait_s": said["wait_ns"] / 1e9 if "wait_ns" in said else session.target().timeout_s,
        "no_wait": said.get("no_wait", False),
        "max_bytes": said.get("max_bytes", 0),
        "place": GroupPlace(**said["place"]),
    }
    words = {name: said[name] for name in ("ack", "nak", "term", "delay_ns", "reason") if name in said}
    return ReadFlags(request, Acknowledgment(**words), said["fail_empty"])


def _read(
    session: Session, chosen: ConsumerFlags, wanted: PullOptions, asked: ReadFlags, show: DeliveryPrinter
) -> None:
    answer = asked.answer
    where, name = chosen.pick(session)
    config = live_consumer(session, where, name).raw["config"]
    if config.get("deliver_subject"):
        raise UsageError(
            f"Consumer {where} > {name} is push-based", hint=f"read it with natsctl con sub {where} {name}"
        )
    answer.check(config)
    if session.dry_run:
        preview_read(session, where, name, wanted, answer)

    async def read(manager: Manager) -> int:
        async with aclosing(take(manager, where, name, wanted, config)) as messages:
            return await _show(manager, messages, 0, None, answer, show)

    if not session.run(read) and asked.fail_empty:
        raise NothingReceivedError(f"no message received from Consumer {where} > {name}")


def preview_read(session: Session, stream: str, consumer: str, wanted: PullOptions, answer: Acknowledgment) -> None:
    """Raise DryRunError with the request, since reading a message changes the consumer's position."""
    request = {
        "batch": min(wanted.batch, wanted.count or wanted.batch),
        **({"no_wait": True} if wanted.no_wait else {}),
    }
    subject = endpoints.CONSUMER_MSG_NEXT.subject(stream, consumer, prefix=session.target().api_prefix)
    raise DryRunError(Planned(subject, request), effect={"each_message": answer.effect})


class Acknowledgment:
    """The acknowledgment that is sent for each message, if any.

    Raises UsageError for flags that exclude each other.
    """

    def __init__(
        self,
        ack: bool = True,
        nak: bool = False,
        term: bool = False,
        delay_ns: int = 0,
        reason: str = "",
    ) -> None:
        if nak and term:
            raise UsageError("--nak and --term exclude each other")
        if delay_ns and not nak:
            raise UsageError("--delay is for --nak")
        if reason and not term:
            raise UsageError("--reason is for --term")
        self.wanted = ack or nak or term
        self.refuses = nak or term
        self.without_acks = False
        self._kind, self._confirmation = b"+ACK", "Acknowledged message"
        if nak:
            self._kind, self._confirmation = _nak(delay_ns), "Negative Acknowledged message"
        elif term:
            self._kind = b"+TERM" + (f" {reason}".encode() if reason else b"")
            self._confirmation = "Terminated message"

    def check(self, config: Mapping[str, Any]) -> None:
        """Adapt to the consumer's ack policy. Raises UsageError for --nak and --term if it needs no acks."""
        self.without_acks = config.get("ack_policy") in ("none", "flow_control")
        if self.without_acks and self.refuses:
            raise UsageError("the consumer needs no acknowledgments: --nak and --term would have no effect")

    @property
    def effect(self) -> str:
        if self.without_acks or not self.wanted:
            return "no acknowledgment"
        return self._kind.decode("utf-8", "backslashreplace")

    async def send(self, manager: Manager, message: Message) -> str:
        """Acknowledge the message and return a line about it, "" if nothing is sent."""
        if not self.wanted or not message.reply:
            return ""
        if self.without_acks:
            return "No acknowledgment: the consumer asks for none"
        from natsctl.client.messaging.messages import acknowledge

        await acknowledge(manager, message, self._kind)
        return self._confirmation


def _nak(delay_ns: int) -> bytes:
    return b'-NAK {"delay": %d}' % delay_ns if delay_ns else b"-NAK"


class DeliveryPrinter:
    """The output of delivered messages: as text, as payloads (`raw`) or as JSON lines."""

    def __init__(self, raw: bool, json: bool) -> None:
        self.raw = raw
        self.json = json

    def head(self, text: str) -> None:
        if not (self.raw or self.json):
            output.log(safe(text))

    def message(self, message: ReceivedMessage) -> None:
        if self.json:
            output.emit_json_line(message_document(message))
        elif self.raw:
            output.emit_bytes(message.payload + b"\n")
        else:
            show_message(f"{render_next(message)} / at {output.clock()}", message.headers, message.payload)

    def reply(self, answer_text: str) -> None:
        """Show the line that `Acknowledgment.send` returned, for text only."""
        if not self.json and not self.raw:
            output.emit(f"\n{answer_text}\n" if answer_text else "")


_STARTS = tuple(flag for flag in STARTS if flag.name != "--all")
"""Start positions without --all: the first message is the default, and --all here is about streams."""
ORDERED = (
    Flag("--ordered", ON, "ordered", "read the stream in order with a temporary consumer"),
    Flag("--subject", SUBJECTS, "subjects", "with --ordered: only messages on these subjects"),
    *_STARTS,
)


@flagged(ORDERED)
def sub(
    session: Session,
    given: Given,
    chosen: ConsumerFlags,
    ack: Annotated[bool, Option("--ack/--no-ack", help="acknowledge")] = True,
    count: Annotated[
        int | None,
        Option(
            "--count", metavar="N", help="end after N messages, 0 for never [pull without --wait: 1, else 0]", min=0
        ),
    ] = None,
    wait: Annotated[float | None, length_option("--wait", help="end after this long without any")] = None,
    deliver_group: Annotated[
        str, Option("--deliver-group", metavar="NAME", help="the consumer's queue group, for compatibility")
    ] = "",
    group: Annotated[str, Option("--group", metavar="NAME", help="priority group to read in")] = "",
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Show the messages of a consumer as they are delivered, and acknowledge them.

    Of a pull consumer one message is requested unless --count or --wait is given; a push consumer is subscribed to,
    in its queue group if it has one. With --ordered there is no CONSUMER: one is created in memory, without acks,
    and created again after the last message if one is missing, heartbeats fail, or it is reset or removed.
    """
    show = DeliveryPrinter(raw, json)
    if "--ordered" in given:
        if chosen.consumer or deliver_group or group:
            raise UsageError("--ordered makes a consumer of its own: CONSUMER and groups are for others")
        _read_ordered(session, pick_stream(session, chosen.stream), given, count or 0, wait, show)
        return
    if given:
        raise UsageError(f"{next(iter(given))} is for --ordered: a consumer that exists has its own")
    where, name = chosen.pick(session)
    reading = SubOptions(ack, deliver_group, group, count, wait, show)
    _read_consumer(session, where, name, reading)


class SubOptions(NamedTuple):
    """Flags of `sub` for a consumer that exists."""

    ack: bool
    deliver_group: str
    group: str
    most: int | None
    """Number of messages; None means one from a pull consumer without `idle_s`, else all."""
    idle_s: float | None
    show: DeliveryPrinter


def _read_consumer(session: Session, where: str, name: str, asked: SubOptions) -> None:
    info = live_consumer(session, where, name).raw
    config = info["config"]
    if asked.deliver_group and asked.deliver_group != config.get("deliver_group"):
        known = config.get("deliver_group") or "none"
        raise UsageError(f"--deliver-group {asked.deliver_group}: the consumer's is {known}")
    answer = Acknowledgment(asked.ack)
    answer.check(config)
    pulls = not config.get("deliver_subject")
    most, idle_s = asked.most, asked.idle_s
    if most is None:
        most = int(pulls and idle_s is None)
        idle_s = session.target().timeout_s if most else idle_s
    wanted = PullOptions(0, min(most or MAX_BATCH, MAX_BATCH), place=GroupPlace(asked.group))
    if session.dry_run and not config.get("deliver_subject"):
        preview_read(session, where, name, wanted, answer)

    async def work(manager: Manager) -> int:
        asked.show.head(f"Reading Consumer {where} > {name}")
        async with aclosing(_messages(manager, where, name, info, wanted)) as messages:
            return await _show(manager, messages, most, idle_s, answer, asked.show)

    with suggesting(session, where, name):
        got = session.run(work, lasting=True)
    if got == 0:
        raise NothingReceivedError(f"no message received from Consumer {where} > {name}")


def _read_ordered(
    session: Session, stream: str, given: Given, count: int, idle_s: float | None, show: DeliveryPrinter
) -> None:
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
            return await _show(manager, messages, count, idle_s, Acknowledgment(ack=False), show)

    with suggesting(session, stream):
        if session.run(work, lasting=True) == 0:
            raise NothingReceivedError(f"no message received from Stream {stream}")


def _messages(
    manager: Manager, stream: str, consumer: str, info: Mapping[str, Any], wanted: PullOptions
) -> AsyncGenerator[Message, None]:
    if info["config"].get("deliver_subject"):
        return pushed(manager, info)
    return take(manager, stream, consumer, wanted, info["config"])


async def _show(
    manager: Manager,
    messages: AsyncGenerator[Message, None],
    count: int,
    idle_s: float | None,
    answer: Acknowledgment,
    show: DeliveryPrinter,
) -> int:
    got = 0
    while not count or got < count:
        try:
            async with asyncio.timeout(idle_s):
                message = await anext(messages, None)
        except TimeoutError:
            break
        if message is None:
            break
        got += 1
        show.message(received(message))
        show.reply(await answer.send(manager, message))
    return got
