"""Subscriptions: `natsctl subscribe` and its report by subject."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from natsctl.api.errors import UsageError
from natsctl.api.subjects import matches
from natsctl.api.units import format_size, plural
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import (
    DURATION,
    ON,
    SUBJECTS,
    SWITCH,
    TEXT,
    WHOLE,
    Flag,
    Given,
    Json,
    Raw,
    apply,
    flagged,
    length_option,
)
from natsctl.cli.framework.live import drawing
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.resolve import suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.messaging.receive import DisplayOptions, Dump, ListenOptions, MessagePrinter, follow
from natsctl.cli.render.plot import Rate, per_second, render_plots, sized
from natsctl.cli.render.tables import render_table
from natsctl.cli.render.text import count, duration, safe
from natsctl.client.messaging.feed import CoreFeed, Start, check_in_order, feed_of_stream, stream_of, widest

if TYPE_CHECKING:
    from rich.console import RenderableType

    from natsctl.client.backup.writer import Capture
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message
    from natsctl.client.messaging.feed import FeedReading, MessageFeed


STARTS = (
    Flag("--all", ON, "start.all", "start with the first stored message"),
    Flag("--new", ON, "start.new", "only new messages"),
    Flag("--last", ON, "start.last", "start with the last stored message"),
    Flag("--last-per-subject", ON, "start.last_per_subject", "start with the last stored message of each subject"),
    Flag("--start-sequence", WHOLE, "start.by_start_sequence", "start at this sequence"),
    Flag("--since", DURATION, "start.by_start_time", "start with messages stored this long ago"),
)
STARTS_IN_ORDER = {
    "by_start_sequence": "--start-sequence",
    "last": "--last",
    "all": "--all",
    "new": "--new",
    "by_start_time": "--since",
    "last_per_subject": "--last-per-subject",
}
"""Deliver policies and their flags; of several the first is taken."""
FLAGS = (
    Flag("--queue", TEXT.named("GROUP"), "queue", "join this queue group"),
    Flag("--inbox", ON, "inbox", "also subscribe to a new inbox", aliases=("-i",)),
    Flag("--ignore-subject", SUBJECTS, "ignored", "ignore messages on these subjects", aliases=("-I",)),
    Flag("--ack", SWITCH, "ack", "acknowledge JetStream messages"),
    Flag("--match-replies", ON, "match_replies", "show replies with the requests that they belong to"),
    Flag("--stream", TEXT.named("STREAM"), "stream", "read this stream [from its first message]"),
    *STARTS,
    Flag("--terminate-at-end", ON, "to_end", "end once all stored messages are shown", aliases=("-T",)),
    Flag("--durable", TEXT.named("NAME"), "durable", "use this durable consumer, creating it if it is missing"),
    Flag("--direct", ON, "direct", "read the stream with direct gets, without a consumer"),
    Flag("--timestamp", ON, "look.stamped", "show the time of each message", aliases=("-t",)),
    Flag("--delta-time", ON, "look.since_start", "show the time since the start with each message", aliases=("-d",)),
    Flag("--headers-only", ON, "look.headers_only", "do not show bodies"),
    Flag("--subjects-only", ON, "look.subjects_only", "show subjects only"),
    Flag("--translate", TEXT.named("COMMAND"), "look.translate", "filter each body through this command"),
    Flag(
        "--dump",
        TEXT.named("FOLDER|-"),
        "dump",
        "write each message as JSON: into files, or to stdout with NUL between",
    ),
    Flag("--report-subjects", ON, "report_subjects", "count messages by subject instead of showing them"),
    Flag("--report-subscriptions", ON, "report_subscriptions", "count messages by the SUBJECTs given here"),
    Flag("--report-top", WHOLE, "report_top", "subjects in the report", default="10"),
    Flag("--graph", ON, "graph", "plot message rates instead of showing messages"),
    Flag("--backup", TEXT.named("PATH"), "backup", "write the messages as a stream backup that can be restored"),
    Flag("--quiet", ON, "look.quiet", "with --backup: show no messages", aliases=("-q",)),
)


@dataclass(slots=True)
class SubscribeFlags:
    """The values of the flags."""

    queue: str = ""
    inbox: bool = False
    ignored: list[str] = field(default_factory=list)
    ack: bool = False
    match_replies: bool = False
    stream: str = ""
    start: dict[str, Any] = field(default_factory=dict)
    to_end: bool = False
    durable: str = ""
    direct: bool = False
    look: dict[str, Any] = field(default_factory=dict)
    dump: str = ""
    report_subjects: bool = False
    report_subscriptions: bool = False
    report_top: int = 10
    graph: bool = False
    backup: str = ""

    @property
    def stored(self) -> bool:
        return bool(self.stream or self.start or self.to_end or self.durable or self.direct)

    @property
    def reported(self) -> bool:
        return self.report_subjects or self.report_subscriptions or self.graph

    def check(self, subjects: list[str]) -> None:
        if not subjects and not self.inbox and not self.stream:
            raise UsageError("SUBJECT is missing", hint="give a subject, --stream or --inbox")
        together = [
            name
            for name, used in (
                ("--queue", self.queue),
                ("--inbox", self.inbox),
                ("--match-replies", self.match_replies),
            )
            if used
        ]
        if self.stored and together:
            raise UsageError(f"{together[0]} is for live messages, not for a stream")
        if self.durable and self.direct:
            raise UsageError("cannot use direct get when a durable name is supplied", hint="--direct uses no consumer")
        if sum((self.report_subjects, self.report_subscriptions, self.graph)) > 1:
            raise UsageError("one report at a time: --report-subjects, --report-subscriptions or --graph")
        if self.dump and self.reported:
            raise UsageError("--dump writes messages, and a report does not show them")
        self._check_backup()

    def one_start(self) -> None:
        """Keep one place to start from, the one that the nats tool takes; a warning names the others."""
        given = [name for name in STARTS_IN_ORDER if name in self.start]
        if len(given) > 1:
            flags = [STARTS_IN_ORDER[name] for name in given]
            output.note(f"warning: ignored with {flags[0]}: {', '.join(flags[1:])}")
            self.start = {given[0]: self.start[given[0]]}

    def _check_backup(self) -> None:
        if self.backup and self.reported:
            raise UsageError("--backup writes messages, and a report does not show them")
        if self.backup and self.direct and "last_per_subject" in self.start:
            raise UsageError(
                "--backup needs messages in their order, and --last-per-subject does not keep it by direct gets"
            )
        if self.look.get("quiet") and not self.backup:
            raise UsageError("--quiet requires --backup")
        if self.look.get("quiet") and self.dump:
            raise UsageError("--quiet and --dump exclude each other")


@flagged(FLAGS)
def subscribe(
    session: Session,
    given: Given,
    subjects: Annotated[list[str] | None, Argument(metavar="SUBJECT...", help="subjects, wildcards allowed")] = None,
    count: Annotated[int, Option("--count", metavar="N", help="end after N messages", min=0)] = 0,
    wait: Annotated[float | None, length_option("--wait", help="end after this long without any")] = None,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Show messages as they arrive, until Ctrl-C, --count or --wait.

    With --stream, --direct or a flag for where to start, stored messages come first. Only the consumer of --durable
    remains.
    """
    values: dict[str, Any] = {}
    apply(values, FLAGS, given)
    asked, wanted = SubscribeFlags(**values), list(subjects or ())
    asked.check(wanted)
    asked.one_start()
    listening = ListenOptions((), asked.queue, count, wait, tuple(asked.ignored))
    with suggesting(session, asked.stream):
        session.run(lambda manager: _run(manager, asked, wanted, listening, raw=raw, json=json), lasting=True)


async def _run(
    manager: Manager,
    asked: SubscribeFlags,
    subjects: list[str],
    listening: ListenOptions,
    *,
    raw: bool,
    json: bool,
) -> None:
    from natsctl.client.messaging.request_reply import RequestLog

    requests = RequestLog(manager.connection) if asked.match_replies else None
    if asked.inbox:
        subjects = [*subjects, manager.connection.new_inbox()]
        output.log(f"Inbox: {safe(subjects[-1])}")
    capture = await _capture(manager, asked, subjects) if asked.backup and asked.stored else None
    feed = await _feed(manager, asked, [*subjects, *([requests.subject] if requests else [])], listening.count)
    listening = replace(listening, subjects=tuple(subjects or [f"Stream {asked.stream}"]))
    async with feed:
        if asked.reported:
            await _report(manager, feed, listening, asked, json=json)
            return
        look = DisplayOptions(raw=raw, json=json, **asked.look)
        dump = Dump(asked.dump) if asked.dump else None
        if asked.backup and capture is None:  # after the subscription, as messages may be waiting for it
            capture = await _capture(manager, asked, subjects)
        ack = asked.ack or bool(asked.durable)
        opening = _opening(feed.reading, asked) if feed.reading else ""
        shower = MessagePrinter(look, ack=ack, dump=dump, requests=requests, capture=capture, opening=opening)
        try:
            await follow(manager, feed, listening, shower, may_be_none=True)
        finally:
            # Also the messages before Ctrl-C, or before the connection was lost.
            dropped = getattr(feed, "dropped", 0)
            if capture is not None:
                _finish(capture, dropped)
        if dropped:
            output.note(f"{dropped:,} messages arrived faster than they could be shown, and were dropped")
        if asked.durable and feed.reading and not json:
            place = safe(f"{feed.reading.stream} {asked.durable}")
            output.note(f"consumer {safe(asked.durable)} stays: natsctl consumer rm {place} removes it")


STARTING = {
    "all": "starting with the first message received",
    "last": "starting with the last message received",
    "new": "delivering any new messages received",
    "last_per_subject": "for the last messages for each subject in the Stream",
}


def _opening(reading: FeedReading, asked: SubscribeFlags) -> str:
    """Return the line before the first message of a stream, as the nats tool writes it."""
    if reading.way in ("pull", "push"):
        made = "existing" if reading.existing else "new"
        line = (
            f'Subscribing to JetStream Stream "{reading.stream}" using {made} {reading.way} consumer "{asked.durable}"'
        )
    else:
        policy, value = next(iter(asked.start.items()), ("all", True))
        if policy == "by_start_sequence":
            starting = f"starting with sequence {value}"
        elif policy == "by_start_time":
            starting = f"starting with messages since {duration(int(value))}"
        else:
            starting = STARTING[policy]
        stream = "(direct)" if reading.way == "direct" else f'"{reading.stream}"'
        subjects = ", ".join(reading.subjects)
        line = f"Subscribing to JetStream Stream {stream} holding messages with subject {subjects} {starting}"
    return line + (f", ignoring {', '.join(asked.ignored)}" if asked.ignored else "")


async def _capture(manager: Manager, asked: SubscribeFlags, subjects: list[str]) -> Capture:
    """Return storage of messages: under the name of their stream, or of the target."""
    from natsctl.client.backup.writer import Capture, captured_config

    target = Path(asked.backup)
    if not asked.stored:
        return Capture(target, captured_config(target, subjects), subjects, stored=False)
    name = asked.stream or await stream_of(manager, subjects)
    info = (await manager.stream_info(name)).raw
    check_in_order(info["config"], last_per_subject="last_per_subject" in asked.start)
    if asked.durable:
        subjects = await _subjects_of(manager, name, asked.durable) or subjects
    return Capture(target, info["config"], subjects, stored=True)


async def _subjects_of(manager: Manager, stream: str, durable: str) -> list[str]:
    """Return the subjects of a durable consumer's messages; raises UsageError if it waits for acks."""
    answer = await manager.find_consumer(stream, durable)
    if answer is None:
        return []
    info = answer.raw
    if waiting := int(info.get("num_ack_pending") or 0):
        raise UsageError(
            f"--backup: consumer {durable} waits for {waiting:,} acks, and their messages would come out of order"
        )
    config = info["config"]
    return list(config.get("filter_subjects") or filter(None, [config.get("filter_subject")]))


def _finish(capture: Capture, dropped: int) -> None:
    done = capture.finish(dropped)
    output.log(
        f"Backup of {plural(done.messages, 'message')} ({format_size(done.bytes)}) written to {done.target},"
        f" {done.dropped:,} dropped"
    )


async def _report(
    manager: Manager, feed: MessageFeed, listening: ListenOptions, asked: SubscribeFlags, *, json: bool
) -> None:

    tally = SubjectCounts(listening.subjects if asked.report_subscriptions else ())
    what = "Subscription" if asked.report_subscriptions else "Subject"
    view = ReportView(what, tally, asked.report_top, asked.graph)
    await report(manager, feed, listening, tally, view, json=json)


async def _feed(manager: Manager, asked: SubscribeFlags, subjects: list[str], count: int) -> MessageFeed:
    if not asked.stored:
        # A report counts each message once, even if several subscriptions match.
        return CoreFeed(manager, widest(subjects) if asked.reported else subjects, asked.queue)
    policy, value = next(iter(asked.start.items()), ("all", True))
    start = Start(policy, 0 if value is True else int(value))
    return await feed_of_stream(
        manager,
        asked.stream,
        subjects,
        start,
        durable=asked.durable,
        direct=asked.direct,
        to_end=asked.to_end,
        headers_only=bool(asked.look.get("headers_only")),
        count=count,
    )


REDRAW_S = 0.5
OTHERS = "(others)"
MAX_SUBJECTS = 100_000
"""Subjects that are counted separately; further ones are counted together."""


class SubjectCounts:
    """Messages and bytes by name; names are subjects, or the first of `patterns` that matches a subject."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._patterns = patterns
        self.messages: dict[str, int] = {}
        self.bytes: dict[str, int] = {}
        self.total = self.total_bytes = 0

    def banner(self, subjects: tuple[str, ...]) -> None:
        """Print nothing: the report names the subjects."""

    def flush(self) -> None:
        """Do nothing: the report is drawn at its own rate."""

    async def show(self, manager: Manager, number: int, message: Message) -> None:
        name = message.subject
        if self._patterns:
            name = next((pattern for pattern in self._patterns if matches(pattern, name)), name)
        if name not in self.messages and len(self.messages) >= MAX_SUBJECTS:
            name = OTHERS
        size = len(message.body)
        self.messages[name] = self.messages.get(name, 0) + 1
        self.bytes[name] = self.bytes.get(name, 0) + size
        self.total += 1
        self.total_bytes += size

    def top(self, most: int) -> list[tuple[str, int, int]]:
        """Return names, messages and bytes of the busiest, in descending order of messages; 0 for all."""
        rows = sorted(self.messages.items(), key=lambda row: (-row[1], row[0]))
        return [(name, number, self.bytes[name]) for name, number in rows[: most or None]]


class ReportView:
    """The report of a tally."""

    def __init__(self, what: str, tally: SubjectCounts, most: int, graph: bool) -> None:
        self._what, self._tally, self._most, self._graph = what, tally, most, graph
        self._rates = (Rate("Messages", per_second), Rate("Bytes a second", sized))

    def sample(self) -> None:
        now_s = time.monotonic()
        self._rates[0].count(self._tally.total, now_s)
        self._rates[1].count(self._tally.total_bytes, now_s)

    def render(self) -> RenderableType:
        tally = self._tally
        heading = f"{plural(tally.total, 'message')}, {format_size(tally.total_bytes)}"
        if self._graph:
            size = shutil.get_terminal_size((80, 24))
            return render_plots(f"{self._what}: {heading}", self._rates, size.columns, size.lines)
        rows = [(name, count(number), format_size(amount)) for name, number, amount in tally.top(self._most)]
        left = len(tally.messages) - len(rows)
        title = f"{heading}{f', {count(left)} more not shown' if left else ''}"
        return render_table(title, (self._what, "Messages", "Bytes"), rows, right=("Messages", "Bytes"))

    def document(self) -> list[dict[str, Any]]:
        return [
            {"subject": name, "messages": number, "bytes": amount}
            for name, number, amount in self._tally.top(self._most)
        ]


async def report(
    manager: Manager, feed: MessageFeed, listening: ListenOptions, tally: SubjectCounts, view: ReportView, *, json: bool
) -> None:
    if json:
        try:
            await follow(manager, feed, listening, tally, may_be_none=True)
        finally:
            output.emit_json(view.document())
        return
    output.log(f"Counting messages on {', '.join(listening.subjects)}; Ctrl-C ends it")
    with drawing() as draw:
        task = asyncio.create_task(_redraw(view, draw))
        try:
            await follow(manager, feed, listening, tally, may_be_none=True)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            view.sample()
            draw(view.render())


async def _redraw(view: ReportView, draw: Any) -> None:
    while True:
        view.sample()
        draw(view.render())
        await asyncio.sleep(REDRAW_S)
