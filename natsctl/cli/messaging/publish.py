"""Publishing: `natsctl publish`, and the bodies that it reads from stdin."""

from __future__ import annotations

import io
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from natsctl.api.errors import UsageError
from natsctl.api.units import plural
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import (
    ON,
    SUBJECT,
    TEXT,
    WHOLE,
    Flag,
    Given,
    Header,
    Json,
    apply,
    choice,
    flagged,
    length_option,
)
from natsctl.cli.framework.parameters import Option
from natsctl.cli.framework.session import Session
from natsctl.cli.messaging.bodies import (
    Body,
    ForceStdin,
    SendOn,
    Subject,
    Templates,
    check_target,
    filled,
    read_body,
    read_headers,
    reads_stdin,
)
from natsctl.cli.render.message import render_ack
from natsctl.cli.render.text import safe
from natsctl.client.message import DryRunError, Planned
from natsctl.client.messaging.messages import Outgoing, numbered, publish_batch, stream_headers
from natsctl.client.messaging.messages import publish as publish_stored
from natsctl.hints import TYPE_CHECKING, Annotated, Any, NamedTuple

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.client.requests import Answer


LINES_AHEAD = 1000
"""Lines that are read ahead of the sending."""
_CHUNK_BYTES = 64 * 1024


class BodySource:
    """The bodies of BODY, --force-stdin and --send-on. Raises UsageError for an unknown --send-on."""

    def __init__(self, words: str | None, force_stdin: bool, send_on: str) -> None:
        if send_on not in ("eof", "newline"):
            raise UsageError(f"--send-on: expected eof or newline, not {send_on!r}")
        self.lines = send_on == "newline" and reads_stdin(words, force_stdin)
        self._body = b"" if self.lines else read_body(words, force_stdin)

    def all(self) -> Iterator[bytes]:
        if self.lines:
            yield from _lines()
        else:
            yield self._body

    async def arriving(self) -> AsyncIterator[bytes]:
        """Yield every body as it arrives, without blocking the loop."""
        if not self.lines:
            yield self._body
            return
        import asyncio
        import threading

        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        room = threading.Semaphore(LINES_AHEAD)

        def read() -> None:
            try:
                for line in _lines():
                    room.acquire()
                    loop.call_soon_threadsafe(queue.put_nowait, line)
                loop.call_soon_threadsafe(queue.put_nowait, None)
            except RuntimeError:
                return  # the loop has ended: the rest is not needed

        threading.Thread(target=read, daemon=True).start()
        while (line := await queue.get()) is not None:
            room.release()
            yield line


def _lines() -> Iterator[bytes]:
    """Yield the lines of stdin without their ends; a last one may lack its end."""
    rest = b""
    for chunk in _chunks():
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.removesuffix(b"\r") for line in whole)
    if rest:
        yield rest


def _chunks() -> Iterator[bytes]:
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, io.UnsupportedOperation):
        yield sys.stdin.buffer.read()
        return
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        yield chunk


MANY = 20
"""The number of messages above which progress is shown instead of each message."""
SHOWN_DRY = 100
"""Messages of a dry run that are shown whole; the rest are counted."""

_DURATION = TEXT.named("DURATION")
STREAM_FLAGS = (
    Flag("--msg-id", TEXT.named("ID"), "msg_id", "message id for deduplication (Nats-Msg-Id)"),
    Flag("--ttl", _DURATION, "ttl", "remove the message after this time; never: no limit (Nats-TTL)"),
    Flag("--expect-stream", TEXT.named("STREAM"), "expect_stream", "fail unless this stream stores it"),
    Flag("--expect-last-seq", WHOLE, "expect_last_seq", "fail unless this is the stream's last sequence"),
    Flag(
        "--expect-last-subject-seq", WHOLE, "expect_last_subject_seq", "fail unless this is the subject's last sequence"
    ),
    Flag("--expect-last-msg-id", TEXT.named("ID"), "expect_last_msg_id", "fail unless the last message has this id"),
    Flag(
        "--rollup",
        choice("sub", "all", subject="sub", stream="all"),
        "rollup",
        "roll up: remove the messages before it",
    ),
    Flag("--schedule-after", _DURATION, "schedule_after", "publish it to --schedule-dest after this time"),
    Flag("--schedule-at", TEXT.named("TIME"), "schedule_at", "publish it to --schedule-dest at this time"),
    Flag("--schedule-every", _DURATION, "schedule_every", "publish it to --schedule-dest repeatedly"),
    Flag("--schedule-cron", TEXT.named("CRON"), "schedule_cron", "publish it on a cron schedule of six fields"),
    Flag("--schedule-dest", SUBJECT, "schedule_dest", "the subject that scheduled messages go to"),
    Flag("--schedule-source", SUBJECT, "schedule_source", "publish the last message of this subject instead"),
    Flag("--schedule-ttl", _DURATION, "schedule_ttl", "time to live of the scheduled messages"),
)
"""Flags that concern a stream; each implies --jetstream."""
FLAGS = (
    Flag("--jetstream", ON, "jetstream", "wait for the stream's ack and show it", aliases=("-J", "--wait", "-w")),
    Flag("--atomic", ON, "atomic", "store all messages or none, with one ack; with --count or --send-on newline"),
    *STREAM_FLAGS,
)


class Pause(NamedTuple):
    """The pause between two messages: `least_s`, and up to `jitter_s` more."""

    least_s: float
    jitter_s: float

    def __bool__(self) -> bool:
        return bool(self.least_s or self.jitter_s)

    async def wait(self) -> None:
        import asyncio
        import random

        await asyncio.sleep(self.least_s + random.uniform(0, self.jitter_s))


class UnsentMessages:
    """The messages of the command line that were not sent; another connection continues with the same one."""

    def __init__(self, messages: Iterator[Outgoing]) -> None:
        self.sent = 0
        self._messages = messages
        self._first: Outgoing | None = None

    def __iter__(self) -> Iterator[Outgoing]:
        """Yield each message; it counts as sent when the next one is requested."""
        while (message := self._first or next(self._messages, None)) is not None:
            self._first = message
            yield message
            self._first = None
            self.sent += 1


class Publishing(NamedTuple):
    """The messages to publish, their number and options."""

    subject: str
    input: BodySource
    headers: tuple[tuple[str, str], ...]
    reply: str
    times: int
    pause: Pause
    templates: bool
    quiet: bool
    json: bool
    unsent: UnsentMessages

    @property
    def total(self) -> int | None:
        """The number of messages, None if stdin determines it."""
        return None if self.input.lines else self.times

    @property
    def many(self) -> bool:
        return self.total is None or self.total > MANY

    async def arriving(self) -> AsyncIterator[Outgoing]:
        if not self.input.lines:
            for message in self.unsent:
                yield message
            return
        async for body in self.input.arriving():
            for message in filled(Outgoing(self.subject, body, self.headers), self.times, self.templates):
                yield message

    def report(self, message: Outgoing) -> None:
        if not self.quiet and not self.json and not self.many:
            output.log(f'Published {plural(len(message.body), "byte")} to "{safe(message.subject)}"')


ReplyTo = Annotated[str, Option("--reply", metavar="SUBJECT", help="subject for replies")]
Times = Annotated[int, Option("--count", metavar="N", help="how many messages", min=1)]
Sleep = Annotated[float, length_option("--sleep", help="pause between messages")]
Jitter = Annotated[float, length_option("--jitter", help="add a random time up to this to each pause")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="do not report published messages")]


@flagged(FLAGS)
def publish(
    session: Session,
    subject: Subject,
    given: Given,
    body: Body = None,
    reply: ReplyTo = "",
    header: Header = None,
    count: Times = 1,
    sleep: Sleep = 0.0,
    jitter: Jitter = 0.0,
    quiet: Quiet = False,
    templates: Templates = True,
    force_stdin: ForceStdin = False,
    send_on: SendOn = "eof",
    json: Json = False,
) -> None:
    """Publish a message, or many.

    Streams store messages on their subjects; --jetstream waits for the acknowledgement.
    """
    check_target(subject)
    asked: dict[str, Any] = {}
    apply(asked, FLAGS, given)
    stored = asked.pop("jetstream", False) | asked.pop("atomic", False) | bool(asked)
    if stored and reply:
        raise UsageError("--jetstream and --reply exclude each other: the stream's ack is the answer")
    flagged_headers = stream_headers(asked, time.time_ns())
    by_flag = {name.lower() for name, _ in flagged_headers}
    headers = (*(pair for pair in read_headers(header) if pair[0].lower() not in by_flag), *flagged_headers)
    pause = Pause(sleep, jitter)
    read = BodySource(body, force_stdin, send_on)
    message = Outgoing(subject, b"", headers)
    every = (one for part in read.all() for one in filled(message._replace(body=part), count, templates))
    outgoing = Publishing(subject, read, headers, reply, count, pause, templates, quiet, json, UnsentMessages(every))
    atomic = "--atomic" in given
    if atomic and not read.lines and count == 1:
        raise UsageError(
            "atomic batch publishing requires JetStream and several messages",
            hint="give --send-on newline and a line of stdin for each, or --count",
        )
    if session.dry_run:
        _preview(outgoing, atomic, stored)
    work = _publish_batch if atomic else _publish_stored if stored else _publish_plain
    sequential = count == 1 or (stored and not pause)
    if sequential and not (atomic or read.lines):
        session.ask(lambda manager: work(manager, outgoing), changes=True)
    else:
        session.run(lambda manager: work(manager, outgoing))


def _preview(outgoing: Publishing, atomic: bool, stored: bool) -> None:
    every = iter(outgoing.unsent)
    messages = numbered(every) if atomic else list(itertools.islice(every, SHOWN_DRY))
    total = len(messages) + sum(1 for _ in every)
    shown = [Planned(message.subject, message.body, message.headers) for message in messages[:SHOWN_DRY]]
    raise DryRunError(*shown, effect={"messages": total, "acknowledged": stored})


async def _publish_plain(manager: Manager, outgoing: Publishing) -> None:
    number = size = 0
    with _tracking(outgoing) as show_number:
        async for message in outgoing.arriving():
            if number and outgoing.pause:
                await manager.connection.flush()
                await outgoing.pause.wait()
            await manager.connection.publish(
                message.subject, message.body, reply=outgoing.reply, headers=message.headers
            )
            number, size = number + 1, size + len(message.body)
            outgoing.report(message)
            show_number(number)
        await manager.connection.flush()
    if outgoing.json:
        output.emit_json({"subject": outgoing.subject, "published": number, "bytes": size})
    elif outgoing.many and not outgoing.quiet:
        output.log(f'Published {number:,} messages to "{safe(outgoing.subject)}"')


async def _publish_stored(manager: Manager, outgoing: Publishing) -> None:
    number = outgoing.unsent.sent
    with _tracking(outgoing) as show_number:
        async for message in outgoing.arriving():
            if number and outgoing.pause:
                await outgoing.pause.wait()
            answer = await publish_stored(manager, message.subject, message.body, headers=message.headers)
            number += 1
            outgoing.report(message)
            _show_ack(answer, outgoing, single=outgoing.total == 1)
            show_number(number)


async def _publish_batch(manager: Manager, outgoing: Publishing) -> None:
    messages = list(outgoing.unsent)
    if not messages:
        raise UsageError("no messages to publish: stdin is empty")
    answer = await publish_batch(manager, messages)
    if not outgoing.quiet and not outgoing.json:
        output.log(f'Published {len(messages):,} messages to "{safe(outgoing.subject)}" as one batch')
    _show_ack(answer, outgoing, single=True)


@contextmanager
def _tracking(outgoing: Publishing) -> Iterator[Callable[[int], None]]:
    """Yield what shows the number of sent messages, if there are many."""
    if outgoing.quiet or outgoing.json or not outgoing.many:
        yield lambda number: None
        return
    from natsctl.cli.framework.live import progress

    with progress(f"Publishing to {outgoing.subject}", outgoing.total, "messages") as tracker:
        yield tracker.at


def _show_ack(answer: Answer[Any], outgoing: Publishing, *, single: bool) -> None:
    if outgoing.json:
        show = output.emit_json if single else output.emit_json_line
        show(answer.raw)
    elif not outgoing.quiet:
        output.emit(f"{output.clock()} {render_ack(answer.value)}")
        if outgoing.total is None:  # the sender of the lines may wait for each result
            sys.stdout.flush()
