"""`natsctl stream rm`, `purge` and `rmm`: what takes messages away."""

from __future__ import annotations

from typing import Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.names import check_stream, confirmed, pick_stream, suggesting
from natsctl.cli.options import Force, Json, StreamName, session_of
from natsctl.cli.render.values import safe
from natsctl.cli.stream.config import show_info
from natsctl.cli.stream.sequence import Sequence, ask_sequence


def rm(ctx: typer.Context, stream: StreamName = None, force: Force = False, json: Json = False) -> None:
    """Remove a stream with all that it holds."""
    session = session_of(ctx)
    name = pick_stream(session, stream)
    if not force:
        check_stream(session, name)
    if not confirmed(session, f"delete Stream {name}", force, needs_force=True):
        return
    with suggesting(session, name):
        answer = session.run(lambda manager: manager.stream_delete(name))
    output.emit_json(answer.raw) if json else output.note(f"Stream {safe(name)} was removed")


def purge(
    ctx: typer.Context,
    stream: StreamName = None,
    force: Force = False,
    subject: Annotated[str, typer.Option("--subject", metavar="SUBJECT", help="only messages of this subject")] = "",
    seq: Annotated[int, typer.Option("--seq", metavar="SEQ", help="only messages below this sequence", min=0)] = 0,
    keep: Annotated[int, typer.Option("--keep", metavar="N", help="keep the newest N messages", min=0)] = 0,
    json: Json = False,
) -> None:
    """Remove messages from a stream: all, or those that the flags say."""
    if seq and keep:
        raise UsageError("--seq and --keep exclude each other")
    session = session_of(ctx)
    name = pick_stream(session, stream)
    if not force:
        check_stream(session, name)
    if not confirmed(session, f"purge Stream {name}", force, needs_force=False, json=json):
        return
    with suggesting(session, name):
        answer = session.run(lambda manager: manager.stream_purge(name, filter=subject, seq=seq, keep=keep))
    if json:
        output.emit_json(answer.raw)
    else:
        output.note(f"Purged {answer.value.purged:,} messages from {safe(name)}")
        show_info(session.run(lambda manager: manager.stream_info(name)), json)


def rmm(
    ctx: typer.Context,
    stream: StreamName = None,
    seq: Sequence = None,
    force: Force = False,
    erase: Annotated[bool, typer.Option("--erase/--no-erase", help="overwrite the message's bytes")] = True,
    json: Json = False,
) -> None:
    """Remove one message securely."""
    session = session_of(ctx)
    name = pick_stream(session, stream)
    number = seq if seq is not None else ask_sequence(session, "Message Sequence to remove")
    with suggesting(session, name):
        session.run(lambda manager: manager.message_get(name, seq=number))
    if not confirmed(session, f"remove message {number} from Stream {name}", force, needs_force=True):
        return
    with suggesting(session, name):
        answer = session.run(lambda manager: manager.message_delete(name, number, no_erase=not erase))
    output.emit_json(answer.raw) if json else output.note(f"Removed message {number} from Stream {safe(name)}")
