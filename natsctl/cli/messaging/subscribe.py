"""`natsctl subscribe`: messages as they arrive, or as a stream has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.flags import DURATION, ON, SUBJECTS, SWITCH, TEXT, WHOLE, Flag, Given, apply, flagged
from natsctl.cli.messaging.receive import Listening, follow
from natsctl.cli.names import suggesting
from natsctl.cli.options import Json, Raw, session_of
from natsctl.cli.render.values import safe

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.client.messaging.feed import Feed

STARTS = (
    Flag("--all", ON, "start.all", "from the first stored message on"),
    Flag("--new", ON, "start.new", "only messages that are stored from now on"),
    Flag("--last", ON, "start.last", "from the last stored message on"),
    Flag("--last-per-subject", ON, "start.last_per_subject", "the last stored message of each subject, and new ones"),
    Flag("--start-sequence", WHOLE, "start.by_start_sequence", "from this sequence on"),
    Flag("--since", DURATION, "start.by_start_time", "what was stored since so long ago"),
)
"""Where a stream is read from; at most one."""
FLAGS = (
    Flag("--queue", TEXT.named("GROUP"), "queue", "share messages with the others of this queue group"),
    Flag("--inbox", ON, "inbox", "also on an inbox made for this", aliases=("-i",)),
    Flag("--ignore-subject", SUBJECTS, "ignored", "leave out messages on these", aliases=("-I",)),
    Flag("--ack", SWITCH, "ack", "acknowledge messages that a consumer waits for"),
    Flag("--match-replies", ON, "match_replies", "show answers with the requests that they belong to"),
    Flag("--stream", TEXT.named("STREAM"), "stream", "read this stream, from its first message unless told"),
    *STARTS,
    Flag("--terminate-at-end", ON, "to_end", "end when all stored messages were shown", aliases=("-T",)),
    Flag("--durable", TEXT.named("NAME"), "durable", "read on with this consumer, made unless it exists"),
    Flag("--direct", ON, "direct", "read the stream by direct gets, without a consumer"),
    Flag("--timestamp", ON, "look.stamped", "show when each message came", aliases=("-t",)),
    Flag("--delta-time", ON, "look.since_start", "show how long after the start each came", aliases=("-d",)),
    Flag("--headers-only", ON, "look.headers_only", "do not show bodies"),
    Flag("--subjects-only", ON, "look.subjects_only", "show subjects only"),
    Flag("--translate", TEXT.named("COMMAND"), "look.translate", "show what this makes of each body"),
    Flag("--dump", TEXT.named("FOLDER|-"), "dump", "write each message as JSON: files, or stdout with NUL between"),
    Flag("--report-subjects", ON, "report_subjects", "count messages by subject instead of showing them"),
    Flag("--report-subscriptions", ON, "report_subscriptions", "count messages by the SUBJECTs given here"),
    Flag("--report-top", WHOLE, "report_top", "subjects in the report", default="10"),
    Flag("--graph", ON, "graph", "draw how many come, instead of showing them"),
)


@dataclass(slots=True)
class Asked:
    """What the flags say."""

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

    @property
    def stored(self) -> bool:
        """Whether a stream is read."""
        return bool(self.stream or self.start or self.to_end or self.durable or self.direct)

    @property
    def reported(self) -> bool:
        """Whether messages are counted, not shown."""
        return self.report_subjects or self.report_subscriptions or self.graph

    def check(self, subjects: list[str]) -> None:
        """Raise UsageError for what excludes each other, or leaves nothing to listen on."""
        if not subjects and not self.inbox and not self.stream:
            raise UsageError("SUBJECT is missing", hint="give a subject, --stream or --inbox")
        starts = [f"--{name.replace('_', '-')}" for name in self.start]
        together = [
            name
            for name, used in (
                ("--queue", self.queue),
                ("--inbox", self.inbox),
                ("--match-replies", self.match_replies),
            )
            if used
        ]
        if len(starts) > 1:
            raise UsageError(
                "one place to start from at most: --all, --new, --last, --last-per-subject, --start-sequence or --since"
            )
        if self.stored and together:
            raise UsageError(f"{together[0]} is for messages as they are published, not for those of a stream")
        if self.durable and self.direct:
            raise UsageError("--durable and --direct exclude each other: direct gets need no consumer")
        if sum((self.report_subjects, self.report_subscriptions, self.graph)) > 1:
            raise UsageError("one report at a time: --report-subjects, --report-subscriptions or --graph")
        if self.dump and self.reported:
            raise UsageError("--dump writes messages, which a report does not show")


@flagged(FLAGS)
def subscribe(
    ctx: typer.Context,
    given: Given,
    subjects: Annotated[
        list[str] | None, typer.Argument(metavar="SUBJECT...", help="subjects, wildcards allowed")
    ] = None,
    count: Annotated[int, typer.Option("--count", metavar="N", help="end after N messages", min=0)] = 0,
    wait: Annotated[str | None, typer.Option("--wait", metavar="DURATION", help="end when idle this long")] = None,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Show messages as they arrive, until Ctrl-C, --count or --wait.

    With --stream, a place to start from or --direct, what a stream has stored comes first; no consumer stays behind
    but that of --durable.
    """
    from natsctl.cli.waiting import wait_seconds

    values: dict[str, Any] = {}
    apply(values, FLAGS, given)
    asked, wanted = Asked(**values), list(subjects or ())
    asked.check(wanted)
    session = session_of(ctx)
    listening = Listening((), asked.queue, count, wait_seconds(wait), tuple(asked.ignored))
    with suggesting(session, asked.stream):
        session.run(lambda manager: _run(manager, asked, wanted, listening, raw=raw, json=json))


async def _run(
    manager: Manager,
    asked: Asked,
    subjects: list[str],
    listening: Listening,
    *,
    raw: bool,
    json: bool,
) -> None:
    from dataclasses import replace

    from natsctl.cli.messaging.dump import Dump
    from natsctl.cli.messaging.shower import Look, Shower
    from natsctl.client.messaging.replies import Matcher

    matcher = Matcher(manager.connection) if asked.match_replies else None
    if asked.inbox:
        subjects = [*subjects, manager.connection.new_inbox()]
        output.log(f"Inbox: {safe(subjects[-1])}")
    feed = await _feed(manager, asked, [*subjects, *([matcher.subject] if matcher else [])], listening.count)
    listening = replace(listening, subjects=tuple(subjects or [f"Stream {asked.stream}"]))
    async with feed:
        if asked.reported:
            await _report(manager, feed, listening, asked, json=json)
            return
        look = Look(raw=raw, json=json, **asked.look)
        dump = Dump(asked.dump) if asked.dump else None
        shower = Shower(look, ack=asked.ack or bool(asked.durable), dump=dump, matcher=matcher)
        await follow(manager, feed, listening, shower, may_be_none=True)
        dropped = getattr(feed, "dropped", 0)
        if dropped:
            output.note(f"{dropped:,} messages came faster than they were shown, and were dropped")


async def _report(manager: Manager, feed: Feed, listening: Listening, asked: Asked, *, json: bool) -> None:
    from natsctl.cli.messaging.report import Tally, View, report

    tally = Tally(listening.subjects if asked.report_subscriptions else ())
    what = "Subscription" if asked.report_subscriptions else "Subject"
    view = View(what, tally, asked.report_top, asked.graph)
    await report(manager, feed, listening, tally, view, json=json)


async def _feed(manager: Manager, asked: Asked, subjects: list[str], count: int) -> Feed:
    """Where the messages come from."""
    from natsctl.client.messaging.feed import CoreFeed
    from natsctl.client.messaging.stream_feed import Start, feed_of_stream, widest

    if not asked.stored:
        # A report counts each message once, whatever subjects it came for.
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
