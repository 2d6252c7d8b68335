"""Messages that failed: `natsctl deadletter`."""

from __future__ import annotations

import base64
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from natsctl.api.errors import ApiResponseError, ErrCode, NatsctlError, UsageError
from natsctl.api.model import Model
from natsctl.api.subjects import subject_fault
from natsctl.api.times import format_time
from natsctl.api.units import parse_length, plural
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import check_consent, confirmed
from natsctl.cli.framework.flags import (
    TEXT,
    WORDS,
    Flag,
    FlagKind,
    Force,
    Given,
    Json,
    flagged,
    read_past_moment,
)
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.resolve import pick_stream, suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.messaging.bodies import emit_body
from natsctl.cli.render.message import render_headers
from natsctl.cli.render.page import Page
from natsctl.cli.render.tables import render_table
from natsctl.cli.render.text import ago, count, safe, when
from natsctl.client.deadletters.capture import EVERY_STREAM, CaptureOptions, capture_streams, capture_to_disable
from natsctl.client.deadletters.capture import disable as disable_capture
from natsctl.client.deadletters.capture import enable as enable_capture
from natsctl.client.deadletters.letters import (
    DeadLetter,
    FailedMessage,
    LetterFilter,
    LetterSource,
    count_letters,
    describe,
    follow_letters,
    read_letters,
)
from natsctl.client.deadletters.replay import ReplayOptions, ReplayReport, SkippedMessage, by_message
from natsctl.client.deadletters.replay import discard as discard_letters
from natsctl.client.deadletters.replay import replay as replay_letters
from natsctl.client.message import DryRunError

if TYPE_CHECKING:
    from natsctl.client.explain.message import MessageExplanation
    from natsctl.client.manager import Manager


def _subject(text: str) -> str:
    if fault := subject_fault(text):
        raise ValueError(fault)
    return text


_TIME = FlagKind("TIME", read_past_moment)
SELECTION = (
    Flag("--consumer", WORDS.named("CONSUMER[,CONSUMER]"), "consumers", "only of this consumer"),
    Flag("--since", _TIME, "since_ns", "only those reported at this time or later, or this long ago"),
    Flag("--until", _TIME, "until_ns", "only those reported before this time, or before so long ago"),
    Flag("--subject", FlagKind("SUBJECT", _subject), "subject", "only messages on this subject; may have wildcards"),
    Flag("--reason", TEXT, "reason", "only those with this in their reason, ignoring case"),
)

Stream = Annotated[str | None, Argument(metavar="STREAM", help="name of the stream [all streams]")]
SomeStream = Annotated[str | None, Argument(metavar="STREAM", help="name of the stream")]
Sequences = Annotated[list[int] | None, Argument(metavar="[SEQ]...", help="sequences of the messages [all]", min=1)]
Every = Annotated[bool, Option("--all", help="every stream of the account")]


class CaptureDocument(Model):
    """A capture stream as `enable` leaves it."""

    stream: str
    capture: str
    created: bool
    changed: bool
    config: dict[str, Any]


class DisabledCapture(Model):
    """Whether a capture stream was deleted."""

    stream: str
    removed: bool


class LetterDetails(Model):
    """A message, its dead letters, and the view of each consumer; `message` is null if neither it nor a copy exists."""

    stream: str
    seq: int
    message: dict[str, Any] | None
    letters: list[dict[str, Any]]
    consumers: list[dict[str, str]]


class CopyOutcome(Model):
    """A dead letter that `run` has handled."""

    stream: str
    consumer: str
    seq: int
    outcome: str


def enable(
    session: Session,
    stream: SomeStream = None,
    all: Every = False,
    max_age: Annotated[
        int | None,
        Option("--max-age", metavar="DURATION", help="keep them this long [30d]; 0: no limit", read=parse_length),
    ] = None,
    max_msgs: Annotated[
        int | None, Option("--max-msgs", metavar="N", help="keep this many, the newest [-1: no limit]", min=-1)
    ] = None,
    replicas: Annotated[
        int | None, Option("--replicas", metavar="N", help="replicas [as the stream; with --all 1]", min=1, max=5)
    ] = None,
    copy: Annotated[
        bool | None, Option("--copy/--no-copy", help="also keep the messages, copied by natsctl deadletter run")
    ] = None,
    json: Json = False,
) -> None:
    """Keep dead letters of a stream, or with --all of every stream.

    Creates the stream DEADLETTERS_STREAM, or DEADLETTERS for --all. If it exists, the limits that are given change.
    """
    name = _one_or_all(session, stream, all)
    options = CaptureOptions(max_age, max_msgs, replicas, copy)
    with suggesting(session, name):
        outcome = session.run(lambda manager: enable_capture(manager, name, options))
    if json:
        config = msgspec.to_builtins(outcome.config)
        output.emit_json(CaptureDocument(outcome.stream, outcome.name, outcome.created, outcome.changed, config))
        return
    done = "was created" if outcome.created else "was changed" if outcome.changed else "exists already"
    output.note(f"Stream {safe(outcome.name)} {done}: it keeps the dead letters of {_named(outcome.stream)}")
    if copy:
        output.note("natsctl deadletter run copies the messages: run it as a service")


def disable(
    session: Session, stream: SomeStream = None, all: Every = False, force: Force = False, json: Json = False
) -> None:
    """Stop keeping dead letters, and delete the stored ones."""
    check_consent(session, f"delete the dead letters of {_named(EVERY_STREAM if all else stream or 'a stream')}", force)
    name = _one_or_all(session, stream, all)
    capture = session.run(lambda manager: capture_to_disable(manager, name))
    if capture is not None:
        state = capture.info.state
        session.effect.update({"streams": 1, "messages": state.messages, "bytes": state.bytes})
        question = f"delete Stream {capture.name} with {plural(state.messages, 'message')}"
        if not confirmed(session, question, force, typed=capture.name):
            return
        session.run(lambda manager: disable_capture(manager, name))
    if json:
        output.emit_json(DisabledCapture(name, capture is not None))
    elif capture is None:
        output.note(f"no stream made by natsctl keeps the dead letters of {_named(name)}")
    else:
        output.note(f"Stream {safe(capture.name)} was removed")


@flagged(SELECTION)
def ls(
    session: Session,
    given: Given,
    stream: Stream = None,
    limit: Annotated[int, Option("--limit", metavar="N", help="only the newest N", min=0)] = 0,
    json: Json = False,
) -> None:
    """List dead letters: messages that a consumer gave up or terminated.

    A message that no longer exists was removed by the server: a terminated one of a work queue at once, others by
    limits or by hand.
    """
    selection = _selection(stream, given)

    async def work(manager: Manager) -> list[DeadLetter]:
        letters = (await read_letters(manager, selection))[-limit:]
        if not selection.subject:
            await describe(manager, letters, await capture_streams(manager, selection.stream))
        return letters

    letters = _run(session, stream, work)
    rows, least = map(_row, letters), ("Deliveries", "Consumer")
    table = partial(render_table, "Dead Letters", _COLUMNS, rows, ("Sequence", "Deliveries"), least=least)
    output.show_list(letters, table, "no dead letters", json=json, say=output.note)


_COLUMNS = ("Time", "Stream", "Consumer", "Sequence", "Subject", "Deliveries", "Reason", "Message")


def _row(letter: DeadLetter) -> tuple[str, ...]:
    return (
        when(letter.time),
        letter.stream,
        letter.consumer,
        count(letter.seq),
        letter.subject,
        count(letter.deliveries),
        letter.reason,
        _whereabouts(letter),
    )


def _whereabouts(letter: DeadLetter) -> str:
    if letter.exists is None:
        return ""
    if letter.exists:
        return "stored, copied" if letter.copied else "stored"
    return "copied" if letter.copied else "no longer exists"


def show(
    session: Session,
    stream: SomeStream = None,
    seq: Annotated[int | None, Argument(metavar="SEQ", help="the message's sequence", min=1)] = None,
    json: Json = False,
) -> None:
    """Show a message that failed, its advisories, and its state for each consumer."""
    name = pick_stream(session, stream)
    if seq is None:
        raise UsageError("a message is needed: give SEQ")
    number = seq

    async def work(
        manager: Manager,
    ) -> tuple[list[DeadLetter], FailedMessage | None, MessageExplanation | None]:
        from natsctl.client.explain.message import explain_message

        letters = await read_letters(manager, LetterFilter(name, sequences=[number]))
        captures = await capture_streams(manager, name)
        await describe(manager, letters, captures)
        source = LetterSource(manager, captures)
        message = None
        for letter in letters:
            message = message or await source.stored(letter) or await source.copy(letter)
        try:
            explanation = await explain_message(manager, name, number)
        except ApiResponseError as failure:
            if failure.err_code != ErrCode.STREAM_NOT_FOUND:
                raise
            explanation = None
        for view in explanation.consumers if explanation is not None else ():
            view.state = next((letter.reason for letter in letters if letter.consumer == view.consumer), view.state)
        return letters, message, explanation

    letters, message, explanation = _run(session, name, work)
    if not letters:
        failure = NatsctlError(f"message {number} of Stream {name} is no dead letter")
        failure.hint = f"natsctl deadletter ls {name} lists them; natsctl explain message {name} {number} explains it"
        raise failure
    if json:
        document = LetterDetails(
            name,
            number,
            _document(message) if message is not None else None,
            [msgspec.to_builtins(letter) for letter in letters],
            [msgspec.to_builtins(view) for view in explanation.consumers] if explanation is not None else [],
        )
        output.emit_json(document)
        return
    output.show_page(_page(letters, message, explanation))
    if message is not None:
        output.emit("\nData:\n")
        emit_body(message.body)


def _document(message: FailedMessage) -> dict[str, Any]:
    headers: dict[str, list[str]] = {}
    for name, value in message.headers:
        headers.setdefault(name, []).append(value)
    stored = format_time(message.time_ns)
    data = base64.b64encode(message.body).decode()
    return {"subject": message.subject, "seq": message.seq, "time": stored, "headers": headers, "data": data}


def _page(letters: Sequence[DeadLetter], message: FailedMessage | None, explanation: MessageExplanation | None) -> Page:
    last = letters[-1]
    page = Page(f"Message {last.seq:,} of Stream {safe(last.stream)}: {safe(last.reason)}")
    section = page.section()
    state = "no longer exists, and there is no copy" if message is None else ""
    section.row(
        "Message",
        state or {"stored": "stored in its stream", "copied": "a copy"}.get(_whereabouts(last), _whereabouts(last)),
    )
    if message is not None:
        section.row("Subject", safe(message.subject))
        section.row("Stored", when(format_time(message.time_ns)))
        section.row("Size", plural(len(message.body), "byte"))
        section.many("Headers", list(render_headers(message.headers)))
    for letter in letters:
        section = page.section(f"Consumer {safe(letter.consumer)}")
        for advisory in letter.advisories:
            section.line(f"{when(advisory.time)}: {safe(advisory.reason)} (deliveries: {advisory.deliveries:,})")
    if explanation is not None:
        section = page.section("State for each consumer")
        for view in explanation.consumers:
            section.line(safe(f"{view.consumer}: {view.state}, {view.evidence}"))
        if message is None:
            section.line(safe(explanation.verdict))
    return page


@flagged(SELECTION)
def report(session: Session, given: Given, stream: Stream = None, json: Json = False) -> None:
    """Count dead letters by stream, consumer and reason."""
    selection = _selection(stream, given)
    counts = count_letters(_run(session, stream, lambda manager: read_letters(manager, selection)))
    if json:
        output.emit_json(counts)
        return
    if not counts:
        output.note("no dead letters")
        return
    now_ns = time.time_ns()
    columns = ("Stream", "Consumer", "Reason", "Messages", "Oldest", "Newest")
    rows = [
        (row.stream, row.consumer, row.reason, count(row.messages), ago(row.oldest, now_ns), ago(row.newest, now_ns))
        for row in counts
    ]
    total = sum(row.messages for row in counts)
    output.show_table(render_table(f"Dead Letters: {total:,}", columns, rows, right=("Messages", "Oldest", "Newest")))


@flagged([flag for flag in SELECTION if flag.name != "--until"])
def watch(
    session: Session,
    given: Given,
    stream: Stream = None,
    limit: Annotated[int, Option("--count", metavar="N", help="end after N dead letters", min=0)] = 0,
    json: Json = False,
) -> None:
    """Show dead letters as they are reported, until Ctrl-C or --count."""
    selection = _selection(stream, given)

    async def work(manager: Manager) -> None:
        number = 0
        async for letter in follow_letters(manager, selection):
            number += 1
            if json:
                output.emit_json_line(letter)
            else:
                place = f"{letter.stream} > {letter.consumer} message {letter.seq:,}"
                output.emit(
                    safe(f"{when(letter.time)} {place} {letter.subject}: {letter.reason} ({_whereabouts(letter)})")
                )
            if number == limit:
                return

    _run(session, stream, work, lasting=True)


def run(
    session: Session,
    stream: Stream = None,
    copy: Annotated[bool, Option("--copy", help="first let every stream of dead letters keep copies")] = False,
    once: Annotated[bool, Option("--once", help="end when every dead letter is copied")] = False,
    json: Json = False,
) -> None:
    """Copy the messages of dead letters into the streams that keep them, as a service.

    Copies are kept by streams enabled with --copy. It continues after a restart, and copies each message once.
    """
    from natsctl.client.deadletters.copying import CopyReport, copy_messages, turn_on_copies

    def show_outcome(letter: DeadLetter, outcome: str) -> None:
        if json:
            output.emit_json_line(CopyOutcome(letter.stream, letter.consumer, letter.seq, outcome))
        elif outcome not in ("copied", "copied before"):
            output.log(f"{letter.stream} > {letter.consumer} message {letter.seq:,}: {outcome}")

    async def work(manager: Manager) -> CopyReport:
        if copy:
            await turn_on_copies(manager, stream or "")
        return await copy_messages(manager, stream or "", once=once, on_outcome=show_outcome)

    result = _run(session, stream, work, lasting=True)
    if not json:
        output.note(
            f"{plural(result.copied, 'message')} copied, {result.copied_before:,} copied before,"
            f" {result.missing:,} missing, {result.refused:,} refused"
        )


@flagged(SELECTION)
def replay(
    session: Session,
    given: Given,
    stream: SomeStream = None,
    sequences: Sequences = None,
    all: Every = False,
    to: Annotated[str, Option("--to", metavar="SUBJECT", help="publish on this subject [the message's own]")] = "",
    rate: Annotated[int, Option("--rate", metavar="N", help="at most N messages a second", min=0)] = 0,
    limit: Annotated[
        int, Option("--limit", metavar="N", help="at most N messages, the first in the stream", min=0)
    ] = 0,
    keep: Annotated[bool, Option("--keep", help="keep the dead letters of replayed messages")] = False,
    json: Json = False,
) -> int:
    """Publish messages that failed again, each once, and remove their dead letters.

    On a work-queue or interest stream the original is removed once its replay is stored. A replay that was interrupted
    continues when it is repeated. --dry-run shows the messages.
    """
    if (to and (fault := subject_fault(to))) or "*" in to or ">" in to:
        raise UsageError(f"--to: {fault or f'{to} has wildcards'}")
    name = _one_or_all(session, stream, all)
    selection = _selection(name, given, sequences)

    async def work(manager: Manager) -> ReplayReport:
        letters = await read_letters(manager, selection)
        return await replay_letters(manager, letters, ReplayOptions(to, rate, limit, keep))

    result = _run(session, name, work)
    if json:
        output.emit_json(result)
    else:
        parts = [f"{plural(result.replayed, 'message')} replayed"]
        parts += [f"{result.duplicates:,} of them stored by an earlier run"] if result.duplicates else []
        parts += [f"{plural(result.removed, 'original')} removed"] if result.removed else []
        parts += [f"{result.missing:,} no longer exist"] if result.missing else []
        output.note(", ".join(parts))
        _note_skipped(result.skipped)
    return NatsctlError.exit_code if result.skipped else 0


@flagged(SELECTION)
def discard(
    session: Session,
    given: Given,
    stream: SomeStream = None,
    sequences: Sequences = None,
    all: Every = False,
    messages: Annotated[bool, Option("--messages", help="remove the messages from their streams, too")] = False,
    force: Force = False,
    json: Json = False,
) -> int:
    """Remove dead letters and their copies, and with --messages the messages themselves."""
    goods = "dead letters and their messages" if messages else "dead letters"
    check_consent(session, f"remove {goods} of {_named(EVERY_STREAM if all else stream or 'a stream')}", force)
    name = _one_or_all(session, stream, all)
    selection = _selection(name, given, sequences)
    letters = _run(session, name, lambda manager: read_letters(manager, selection))
    session.effect.update({"dead_letters": len(letters)})
    if messages:
        session.effect.update({"messages_at_most": len(by_message(letters))})
    if session.dry_run:
        raise DryRunError
    if letters and not confirmed(session, f"remove {len(letters):,} {goods} of {_named(name)}", force):
        return 0
    result = session.run(lambda manager: discard_letters(manager, letters, messages=messages))
    if json:
        output.emit_json(result)
    else:
        removed = f", {plural(result.messages, 'message')} removed" if messages else ""
        output.note(f"{plural(result.discarded, 'dead letter')} discarded{removed}")
        _note_skipped(result.skipped)
    return NatsctlError.exit_code if result.skipped else 0


def _one_or_all(session: Session, stream: str | None, every: bool) -> str:
    if every and stream:
        raise UsageError("--all and STREAM exclude each other")
    return EVERY_STREAM if every else pick_stream(session, stream)


def _named(stream: str) -> str:
    return "every stream" if stream == EVERY_STREAM else safe(stream)


def _selection(stream: str | None, given: Given, sequences: Sequence[int] | None = None) -> LetterFilter:
    """Return the dead letters that arguments and flags select. Raises UsageError for times in the wrong order."""
    fields = {str(flag.to): given[flag.name] for flag in SELECTION if flag.name in given}
    since_ns, until_ns = fields.get("since_ns", 0), fields.get("until_ns", 0)
    if since_ns and until_ns and since_ns >= until_ns:
        raise UsageError("--since: must be earlier than --until")
    return LetterFilter("" if stream in (None, EVERY_STREAM) else stream, sequences=sequences or (), **fields)


def _run(
    session: Session, stream: str | None, work: Callable[[Manager], Awaitable[Any]], *, lasting: bool = False
) -> Any:
    with suggesting(session, stream if stream and stream != EVERY_STREAM else ""):
        return session.run(work, lasting=lasting)


def _note_skipped(skipped: Sequence[SkippedMessage]) -> None:
    for message in skipped:
        output.note(f"not replayed or removed: {safe(message.stream)} message {message.seq:,}: {safe(message.reason)}")


VERBS = (
    verb(
        "enable",
        enable,
        "deadletter:CaptureDocument",
        "natsctl deadletter enable ORDERS --max-age 30d --copy",
        "natsctl dlq enable --all --replicas 3",
    ),
    verb("disable", disable, "deadletter:DisabledCapture", "natsctl deadletter disable ORDERS"),
    verb(
        "ls, list",
        ls,
        "client.deadletters.letters:DeadLetter[]",
        "natsctl deadletter ls",
        "natsctl dlq ls ORDERS --consumer NEW --since 1h",
    ),
    verb("show, info", show, "deadletter:LetterDetails", "natsctl deadletter show ORDERS 17"),
    verb("report", report, "client.deadletters.letters:DeadLetterCount[]", "natsctl deadletter report"),
    verb("watch", watch, "client.deadletters.letters:DeadLetter*", "natsctl deadletter watch ORDERS"),
    verb(
        "run", run, "deadletter:CopyOutcome*", "natsctl deadletter run --copy", "natsctl deadletter run ORDERS --once"
    ),
    verb(
        "replay",
        replay,
        "client.deadletters.replay:ReplayReport",
        "natsctl deadletter replay ORDERS --dry-run",
        "natsctl dlq replay ORDERS 17 18",
        "natsctl dlq replay ORDERS --consumer NEW --to ORDERS.retry --rate 100",
    ),
    verb(
        "discard",
        discard,
        "client.deadletters.replay:DiscardReport",
        "natsctl deadletter discard ORDERS --until 7d",
        "natsctl dlq discard ORDERS 17 --messages",
    ),
)
