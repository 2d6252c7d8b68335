"""Messages of a stream: `natsctl stream get`, `view`, `rmm` and `purge`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Any

from natsctl.api import headers
from natsctl.api.answers import StreamInfoAnswer, StreamMsgGetAnswer, StreamPurgeAnswer
from natsctl.api.errors import ApiResponseError, ErrCode, UsageError
from natsctl.api.model import Model
from natsctl.api.requests import StoredMsg
from natsctl.api.stream import StreamState
from natsctl.api.subjects import subject_fault
from natsctl.api.units import format_size, parse_length, plural
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import check_consent, confirmed, named
from natsctl.cli.framework.flags import WHOLE, Force, Json, MissingOk, Raw, StreamName
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.resolve import live_stream, pick_stream, suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.messaging.bodies import Translate, emit_body, show_message
from natsctl.cli.render.message import render_headers
from natsctl.cli.render.text import count, safe
from natsctl.cli.stream.info import bucket_named, warn_of_bucket
from natsctl.cli.stream.remove import StreamNames, chosen_streams, has_pattern, one_by_one
from natsctl.client.message import DryRunError, Message
from natsctl.client.requests import Answer
from natsctl.client.stream_state import Purge, PurgeEffect, next_answer, purge_effect, sequence_at

Sequence = Annotated[int | None, Argument(metavar="SEQ", help="the message's sequence", min=1)]


def ask_sequence(session: Session, question: str, default: str = "") -> int:
    if not session.interactive:
        raise UsageError("a message is needed: give SEQ")
    from natsctl.cli.framework.prompts import Question, prompt

    help = "The sequence of the message. Settable as the second argument"
    return int(prompt(Question(question, help, default, WHOLE.read, required=True)))


def get(
    session: Session,
    stream: StreamName = None,
    seq: Sequence = None,
    last_for: Annotated[
        str, Option("--last-for", "-S", metavar="SUBJECT", help="the last message of this subject")
    ] = "",
    raw: Raw = False,
    translate: Translate = "",
    json: Json = False,
) -> None:
    """Show one message of a stream."""
    name = pick_stream(session, stream)
    if seq is None and not last_for:
        seq, last_for = _ask_message(session)
    with _locating(session, name, seq or last_for):
        answer = session.ask(lambda manager: manager.message_get(name, seq=seq or 0, last_by_subj=last_for))
    if json:
        output.emit_json(answer.raw["message"])
    else:
        message = answer.value.message
        _show_message(name, message, shown_body(session, name, message, translate), raw)


@contextmanager
def _locating(session: Session, stream: str, wanted: int | str | None) -> Iterator[None]:
    """Add to the error for a message that does not exist which one it is, and the sequences that the stream holds."""
    try:
        with suggesting(session, stream):
            yield
    except ApiResponseError as failure:
        if failure.err_code == ErrCode.NO_MESSAGE_FOUND and not failure.hint:
            which = f"message {wanted}" if isinstance(wanted, int) else f"message on {wanted}"
            state = live_stream(session, stream).value.state
            held = f"it holds {count(state.first_seq)} to {count(state.last_seq)}" if state.messages else "it is empty"
            failure.hint = safe(f"Stream {stream} has no {which}; {held}")
        raise


def _ask_message(session: Session) -> tuple[int, str]:
    """Return the sequence, or 0 and a subject, meaning its last message."""
    seq = ask_sequence(session, "Message Sequence to retrieve", "-1")
    if seq > 0:
        return seq, ""
    from natsctl.cli.framework.prompts import Question, prompt

    help = "The subject of the message. Settable using --last-for"
    return 0, str(prompt(Question("Subject to retrieve last message for", help, required=True)))


def shown_body(session: Session, stream: str, message: StoredMsg, command: str) -> bytes:
    body = message.data or b""
    if not command:
        return body
    from natsctl.cli.messaging.message_templates import translated

    return session.run(lambda manager: translated(command, Message(message.subject, body), stream))


def _show_message(stream: str, message: StoredMsg, body: bytes, raw: bool) -> None:
    from natsctl.cli.render.streams import render_item

    if raw:
        output.emit_bytes(body)
        return
    pairs = [(_text(key), _text(value)) for key, value in headers.parse(message.hdrs or b"")]
    show_message(render_item(stream, message.seq, message.subject, message.time, time.time_ns()), pairs, body)
    output.emit("")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def view(
    session: Session,
    stream: StreamName = None,
    size: Annotated[int, Argument(metavar="[SIZE]", help="messages per page", min=1)] = 10,
    seq: Annotated[int, Option("--id", "--seq", metavar="SEQ", help="start at this sequence", min=1)] = 1,
    since: Annotated[
        int, Option("--since", metavar="DURATION", help="start with messages stored this long ago", read=parse_length)
    ] = 0,
    subject: Annotated[str, Option("--subject", metavar="SUBJECT", help="only messages on this subject")] = ">",
    raw: Annotated[bool, Option("--raw", help="bodies only, unchanged")] = False,
    translate: Translate = "",
    json: Json = False,
) -> None:
    """Show messages of a stream: a page at a time at a terminal, else all of them.

    Creates no consumer.
    """
    if since and seq > 1:
        raise UsageError("--id and --since exclude each other")
    name = pick_stream(session, stream)
    first = _since(session, name, since) if since else seq
    messages = _messages(session, name, first, subject)
    while page := list(islice(messages, size)):
        for answer in page:
            _show_viewed(session, name, answer, raw, translate, json)
        if len(page) < size or not _next_page(session, json):
            break
    if len(page) < size and not json:
        output.log("Reached apparent end of data")


def _next_page(session: Session, json: bool) -> bool:
    if json or not session.interactive or not sys.stdout.isatty():
        return True
    from natsctl.cli.framework.prompts import prompt_confirm

    return prompt_confirm("Next Page?", True)


def _since(session: Session, name: str, since_ns: int) -> int:
    before_ns = time.time_ns() - since_ns
    live = live_stream(session, name)
    return session.run(lambda manager: sequence_at(manager, live, before_ns))


def _messages(session: Session, name: str, seq: int, subject: str) -> Iterator[Answer[StreamMsgGetAnswer]]:
    while True:
        with suggesting(session, name):
            answer = session.run(lambda manager, seq=seq: next_answer(manager, name, seq, subject))  # type: ignore[misc]  # its default binds the sequence
        if answer is None:
            return
        yield answer
        seq = answer.value.message.seq + 1


def _show_viewed(
    session: Session, name: str, answer: Answer[StreamMsgGetAnswer], raw: bool, translate: str, json: bool
) -> None:
    if json:
        output.emit_json_line(answer.raw["message"])
        return
    from natsctl.cli.render.streams import render_viewed

    message = answer.value.message
    body = shown_body(session, name, message, translate)
    if raw:
        output.emit_bytes(body + b"\n")
        return
    pairs = [(_text(key), _text(value)) for key, value in headers.parse(message.hdrs or b"")]
    lines = [
        render_viewed(message.seq, message.subject, message.time),
        *(f"  {header}" for header in render_headers(pairs)),
    ]
    output.emit("\n".join([*lines, ""]))
    emit_body(body)
    output.emit("")


class Removed(Model):
    """A stream or message that was removed, or did not exist; `stream` if there were several."""

    success: bool
    stream: str = ""


class Purged(Model):
    """Outcome of a purge with several requests; `stream` if there were several."""

    success: bool
    purged: int
    stream: str = ""


def purge(
    session: Session,
    streams: StreamNames = None,
    force: Force = False,
    subject: Annotated[str, Option("--subject", metavar="SUBJECT", help="only messages on this subject")] = "",
    seq: Annotated[int | None, Option("--seq", metavar="SEQ", help="only messages before this sequence", min=1)] = None,
    keep: Annotated[int, Option("--keep", metavar="N", help="keep the newest N messages", min=0)] = 0,
    older_than: Annotated[
        int | None,
        Option("--older-than", metavar="DURATION", help="only messages stored longer ago than this", read=parse_length),
    ] = None,
    json: Json = False,
) -> None:
    """Remove messages from streams: all, or those selected by flags."""
    if bool(seq) + bool(keep) + (older_than is not None) > 1:
        raise UsageError("--seq, --keep and --older-than exclude each other")
    before_ns = 0 if older_than is None else time.time_ns() - older_than
    if subject and (fault := subject_fault(subject)):
        raise UsageError(f"--subject: {fault}")
    check_consent(session, f"purge {named('Stream', streams or [])}", force)
    names = chosen_streams(session, streams)
    live = {name: live_stream(session, name) for name in names}
    purges = {name: _purge(session, one, subject, seq or 0, keep, before_ns) for name, one in live.items()}
    if not force or session.dry_run:
        effects = {name: _effect(session, live[name], purges[name]) for name in names}
        session.effect.update(_documents(effects))
        if not json and not session.dry_run:
            output.note("\n".join(_effect_text(effect, name) for name, effect in effects.items()))
    for name in names:
        warn_of_bucket(name, json=json or session.dry_run)
    several = len(names) > 1 or has_pattern(streams)
    whole = any(one.is_whole for one in purges.values()) or any(bucket_named(name) for name in names)
    typed = "" if not whole else names[0] if len(names) == 1 else str(len(names))
    if not confirmed(session, f"purge {named('Stream', names)}", force, typed=typed):
        return
    answers = one_by_one(purges, lambda name: _send(session, name, purges[name]))
    if json:
        output.emit_json(_answers(answers, several))
        return
    for name, answer in answers.items():
        output.note(f"Purged {plural(answer.value.purged, 'message')} from {safe(name)}")
    if not several:
        output.note("\n".join(_state_changes(live[names[0]].value.state, live_stream(session, names[0]).value.state)))


def _state_changes(before: StreamState, after: StreamState) -> Iterator[str]:
    rows = (
        ("Messages", count(before.messages), count(after.messages)),
        ("Bytes", format_size(before.bytes), format_size(after.bytes)),
        ("First Sequence", count(before.first_seq), count(after.first_seq)),
    )
    return (f"  {label}: {old} → {new}" for label, old, new in rows if old != new)


def _purge(
    session: Session, live: Answer[StreamInfoAnswer], subject: str, seq: int, keep: int, before_ns: int
) -> Purge:
    if before_ns:
        seq = session.run(lambda manager: sequence_at(manager, live, before_ns))
    return Purge(subject, seq, keep)


def _effect(session: Session, live: Answer[StreamInfoAnswer], purge: Purge) -> PurgeEffect:
    return session.run(lambda manager: purge_effect(manager, live, purge))


def _documents(effects: dict[str, PurgeEffect]) -> dict[str, Any]:
    if len(effects) == 1:
        return next(iter(effects.values())).document()
    total = sum(effect.messages for effect in effects.values())
    return {"messages": total, "streams": {name: effect.document() for name, effect in effects.items()}}


def _effect_text(effect: PurgeEffect, name: str) -> str:
    if not effect.messages:
        return f"No messages of Stream {safe(name)} would be removed"
    most = "at most " if effect.at_most else ""
    ends = (effect.first_seq, effect.last_seq)
    span = f", sequences {count(ends[0])} to {count(ends[1])}" if ends[1] else f", the first is {count(ends[0])}"
    size = f"about {format_size(effect.bytes)}"
    return f"{most}{plural(effect.messages, 'message')} of Stream {safe(name)} would be removed ({size}{span})"


def _send(session: Session, name: str, one: Purge) -> Answer[Any]:
    if one.seq == 1:
        # No message is below it, and servers before 2.10.4 read it as no limit.
        if session.dry_run:
            raise DryRunError
        return Answer(StreamPurgeAnswer, "", raw={"success": True, "purged": 0})
    return session.ask(
        lambda manager: manager.stream_purge(name, filter=one.filter, seq=one.seq, keep=one.keep), changes=True
    )


def _answers(answers: dict[str, Answer[Any]], several: bool) -> Any:
    if several:
        return [{"stream": name, **answer.raw} for name, answer in answers.items()]
    return next(iter(answers.values())).raw


def rmm(
    session: Session,
    stream: StreamName = None,
    seq: Sequence = None,
    force: Force = False,
    erase: Annotated[bool, Option("--erase/--no-erase", help="overwrite the message's bytes")] = True,
    missing_ok: MissingOk = False,
    json: Json = False,
) -> None:
    """Remove one message securely."""
    check_consent(session, f"remove a message from {named('Stream', [stream] if stream else [])}", force)
    name = pick_stream(session, stream)
    number = seq if seq is not None else ask_sequence(session, "Message Sequence to remove")
    try:
        with _locating(session, name, number):
            found = session.ask(lambda manager: manager.message_get(name, seq=number)).value.message
    except ApiResponseError as failure:
        if not missing_ok or failure.err_code != ErrCode.NO_MESSAGE_FOUND:
            raise
        output.emit_json({"success": True}) if json else output.note(f"Stream {safe(name)} has no message {number}")
        return
    session.effect.update({"messages": 1, "subject_of_message": found.subject, "stored": found.time})
    warn_of_bucket(name, json=json or session.dry_run)
    if not confirmed(session, f"remove message {number} from Stream {name}", force):
        return
    with suggesting(session, name):
        answer = session.ask(lambda manager: manager.message_delete(name, number, no_erase=not erase), changes=True)
    output.emit_json(answer.raw) if json else output.note(f"Removed message {number} from Stream {safe(name)}")
