"""`natsctl stream purge`: takes messages away; what would go is told before it does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.answers import StreamInfoAnswer, StreamPurgeAnswer
from natsctl.api.errors import UsageError
from natsctl.api.subjects import subject_fault
from natsctl.api.units import plural
from natsctl.cli import output
from natsctl.cli.consent import check_consent, confirmed, named
from natsctl.cli.names import suggesting
from natsctl.cli.options import Force, Json, session_of
from natsctl.cli.render.text import count, safe
from natsctl.cli.stream.bucket import bucket_named, warn_of_bucket
from natsctl.cli.stream.chosen import StreamNames, chosen_streams, has_pattern
from natsctl.cli.stream.config import show_info
from natsctl.client.answer import Answer
from natsctl.client.preview import Planned, Previewed

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.client.assets.purging import Effect, Purge


def purge(
    ctx: typer.Context,
    streams: StreamNames = None,
    force: Force = False,
    subject: Annotated[
        str, typer.Option("--subject", metavar="SUBJECT", help="only messages on this subject", show_default=False)
    ] = "",
    seq: Annotated[
        int | None, typer.Option("--seq", metavar="SEQ", help="only messages before this sequence", min=1)
    ] = None,
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", help="keep the newest N messages", min=0, show_default=False)
    ] = 0,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="DURATION", help="only messages stored longer ago than this")
    ] = "",
    json: Json = False,
) -> None:
    """Remove messages from streams: all, or those selected by flags."""
    if sum(map(bool, (seq, keep, older_than))) > 1:
        raise UsageError("--seq, --keep and --older-than exclude each other")
    before_ns = _moment(older_than)
    if subject and (fault := subject_fault(subject)):
        raise UsageError(f"--subject: {fault}")
    session = session_of(ctx)
    check_consent(session, f"purge {named('Stream', streams or [])}", force)
    names = chosen_streams(session, streams)
    live = {name: _live(session, name) for name in names}
    purges = {name: _purge(session, one, subject, seq or 0, keep, before_ns) for name, one in live.items()}
    if not force or session.dry_run:
        effects = {name: _effect(session, live[name], purges[name]) for name in names}
        session.effect.update(_documents(effects))
        if not json and not session.dry_run:
            output.note("\n".join(_told(effect, name) for name, effect in effects.items()))
    for name in names:
        warn_of_bucket(name, json=json or session.dry_run)
    several = len(names) > 1 or has_pattern(streams)
    whole = any(one.is_whole for one in purges.values()) or any(bucket_named(name) for name in names)
    typed = "" if not whole else names[0] if len(names) == 1 else str(len(names))
    if not confirmed(session, f"purge {named('Stream', names)}", force, typed=typed):
        return
    answers = _send(session, purges)
    if json:
        output.emit_json(_answers(answers, several))
        return
    for name, answer in answers.items():
        output.note(f"Purged {plural(answer.value.purged, 'message')} from {safe(name)}")
    if not several:
        show_info(_live(session, names[0]), json)


def _moment(older_than: str) -> int:
    """The moment before which messages go, 0 for none."""
    if not older_than:
        return 0
    from natsctl.api.units import parse_length

    try:
        return time.time_ns() - parse_length(older_than)
    except ValueError as failure:
        raise UsageError(f"--older-than: {failure}") from failure


def _live(session: Session, name: str) -> Answer[StreamInfoAnswer]:
    with suggesting(session, name):
        return session.run(lambda manager: manager.stream_info(name))


def _purge(
    session: Session, live: Answer[StreamInfoAnswer], subject: str, seq: int, keep: int, before_ns: int
) -> Purge:
    """What to ask of one stream; a moment becomes the sequence that it lies at."""
    from natsctl.client.assets.purging import Purge, sequence_at

    if before_ns:
        seq = session.run(lambda manager: sequence_at(manager, live, before_ns))
    return Purge(subject, seq, keep)


def _effect(session: Session, live: Answer[StreamInfoAnswer], purge: Purge) -> Effect:
    from natsctl.client.assets.purging import purge_effect

    return session.run(lambda manager: purge_effect(manager, live, purge))


def _documents(effects: dict[str, Effect]) -> dict[str, Any]:
    if len(effects) == 1:
        return next(iter(effects.values())).document()
    total = sum(effect.messages for effect in effects.values())
    return {"messages": total, "streams": {name: effect.document() for name, effect in effects.items()}}


def _told(effect: Effect, name: str) -> str:
    """What would go, for a person who is about to be asked."""
    from natsctl.api.units import format_size

    if not effect.messages:
        return f"No messages of Stream {safe(name)} would be removed"
    most = "at most " if effect.at_most else ""
    ends = (effect.first_seq, effect.last_seq)
    span = f", sequences {count(ends[0])} to {count(ends[1])}" if ends[1] else f", the first is {count(ends[0])}"
    size = f"about {format_size(effect.bytes)}"
    return f"{most}{plural(effect.messages, 'message')} of Stream {safe(name)} would be removed ({size}{span})"


def _send(session: Session, purges: dict[str, Purge]) -> dict[str, Answer[Any]]:
    """Purge one stream after the other. In a dry run raises Previewed with every request."""
    planned: list[Planned] = []
    answers: dict[str, Answer[Any]] = {}
    for name, one in purges.items():
        try:
            answers[name] = _purge_one(session, name, one)
        except Previewed as preview:
            planned += preview.planned
    if session.dry_run:
        raise Previewed(*planned)
    return answers


def _purge_one(session: Session, name: str, one: Purge) -> Answer[Any]:
    if one.seq == 1:
        # No message is below it, and servers before 2.10.4 take it for no limit at all.
        return Answer(StreamPurgeAnswer, "", raw={"success": True, "purged": 0})
    return session.run(lambda manager: manager.stream_purge(name, filter=one.filter, seq=one.seq, keep=one.keep))


def _answers(answers: dict[str, Answer[Any]], several: bool) -> Any:
    if several:
        return [{"stream": name, **answer.raw} for name, answer in answers.items()]
    return next(iter(answers.values())).raw
