"""`natsctl stream`: the commands about streams."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output, stream_backup, stream_config, stream_template
from natsctl.cli.group import AliasGroup
from natsctl.cli.names import check_stream, confirmed, is_internal, pick_stream, suggesting
from natsctl.cli.options import All, Force, Json, Names, Raw, StreamName, session_of
from natsctl.cli.render.values import safe
from natsctl.cli.stream_config import show_info

if TYPE_CHECKING:
    from natsctl.api.messages import StoredMsg
    from natsctl.cli.context import Session

app = typer.Typer(
    cls=AliasGroup, help="Create, list, show, edit, purge, back up and remove streams.", no_args_is_help=True
)

app.command("add, create, new")(stream_config.add)
app.command("edit, update")(stream_config.edit)
app.command("copy, cp")(stream_config.copy)
app.command("backup, snapshot")(stream_backup.backup)
app.command("restore")(stream_backup.restore)
app.add_typer(stream_template.app, name="template, tmpl")


@app.command("ls, list, l")
def ls(
    ctx: typer.Context,
    subject: Annotated[str, typer.Option("--subject", metavar="SUBJECT", help="streams that store this subject")] = "",
    names: Names = False,
    all_streams: All = False,
    json: Json = False,
) -> None:
    """List the streams."""
    session = session_of(ctx)
    if names:
        found = session.run(lambda manager: manager.stream_names(subject=subject))
        shown = [name for name in found if all_streams or not is_internal(name)]
        output.emit_json(shown) if json else output.emit_names(shown)
        return
    answers = session.run(lambda manager: manager.stream_list(subject=subject))
    kept = [one for one in answers if all_streams or not is_internal(one.value.config.name)]
    if json:
        output.emit_json([one.raw for one in kept])
    elif kept:
        from natsctl.cli.render.stream import render_streams
        from natsctl.cli.screen import show_table

        show_table(render_streams([one.value for one in kept], time.time_ns()))
    else:
        none = f"No Streams store {safe(subject)}" if subject else "No Streams defined"
        output.emit(none + (", pass -a to include system streams" if answers else ""))
    absent = [*(answers.raw.get("missing") or ()), *(answers.raw.get("offline") or ())]
    if absent:
        output.note(f"warning: inaccessible streams: {', '.join(safe(name) for name in absent)}")


@app.command("info, nfo, i")
def info(
    ctx: typer.Context,
    stream: StreamName = None,
    state_only: Annotated[bool, typer.Option("--state", help="the state only")] = False,
    no_select: Annotated[bool, typer.Option("--no-select", help="do not offer a list to pick from")] = False,
    json: Json = False,
) -> None:
    """Show a stream's configuration and state."""
    session = session_of(ctx)
    name = _existing(session, stream, no_select)
    with suggesting(session, name):
        answer = session.run(lambda manager: manager.stream_info(name))
    if json or not state_only:
        show_info(answer, json)
        return
    from natsctl.cli.render.stream import render_stream_state
    from natsctl.cli.screen import show_page

    show_page(render_stream_state(answer.value))


@app.command("state")
def state(ctx: typer.Context, stream: StreamName = None, json: Json = False) -> None:
    """Show a stream's state."""
    info(ctx, stream, state_only=True, json=json)


def _existing(session: Session, stream: str | None, no_select: bool) -> str:
    if no_select and not stream:
        raise UsageError("a stream is needed: give STREAM")
    return pick_stream(session, stream)


@app.command("rm, delete, del")
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


@app.command("purge")
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


Sequence = Annotated[
    int | None, typer.Argument(metavar="SEQ", help="the message's sequence", min=1, show_default=False)
]


@app.command("rmm")
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
    number = seq if seq is not None else _ask_sequence(session, "Message Sequence to remove")
    with suggesting(session, name):
        session.run(lambda manager: manager.message_get(name, seq=number))
    if not confirmed(session, f"remove message {number} from Stream {name}", force, needs_force=True):
        return
    with suggesting(session, name):
        answer = session.run(lambda manager: manager.message_delete(name, number, no_erase=not erase))
    output.emit_json(answer.raw) if json else output.note(f"Removed message {number} from Stream {safe(name)}")


@app.command("get")
def get(
    ctx: typer.Context,
    stream: StreamName = None,
    seq: Sequence = None,
    last_for: Annotated[
        str, typer.Option("--last-for", "-S", metavar="SUBJECT", help="the last message of this subject")
    ] = "",
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Show one message of a stream."""
    session = session_of(ctx)
    name = pick_stream(session, stream)
    if seq is None and not last_for:
        seq, last_for = _ask_message(session)
    with suggesting(session, name):
        answer = session.run(lambda manager: manager.message_get(name, seq=seq or 0, last_by_subj=last_for))
    if json:
        output.emit_json(answer.raw["message"])
    else:
        _show_message(name, answer.value.message, raw)


def _ask_message(session: Session) -> tuple[int, str]:
    """The sequence, or 0 and the subject whose last message is wanted."""
    seq = _ask_sequence(session, "Message Sequence to retrieve", "-1")
    if seq > 0:
        return seq, ""
    from natsctl.cli.prompts.ask import Question, prompt

    help = "The subject of the message. Settable using --last-for"
    return 0, str(prompt(Question("Subject to retrieve last message for", help, required=True)))


def _ask_sequence(session: Session, question: str, default: str = "") -> int:
    if not session.interactive:
        raise UsageError("a message is needed: give SEQ")
    from natsctl.cli.flags import WHOLE
    from natsctl.cli.prompts.ask import Question, prompt

    help = "The sequence of the message. Settable as the second argument"
    return int(prompt(Question(question, help, default, WHOLE.read, required=True)))


def _show_message(stream: str, message: StoredMsg, raw: bool) -> None:
    from natsctl.api import headers
    from natsctl.cli.messages import show_body
    from natsctl.cli.render.stream import render_item

    if raw:
        output.emit_bytes(message.data or b"")
        return
    output.note(render_item(stream, message.seq, message.subject, message.time, time.time_ns()))
    pairs = headers.parse(message.hdrs or b"")
    show_body([(_text(key), _text(value)) for key, value in pairs], message.data or b"")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
