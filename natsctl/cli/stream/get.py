"""`natsctl stream get`: one message."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.cli import output
from natsctl.cli.messaging.bodies import Translate
from natsctl.cli.names import pick_stream, suggesting
from natsctl.cli.options import Json, Raw, StreamName, session_of
from natsctl.cli.stream.sequence import Sequence, ask_sequence

if TYPE_CHECKING:
    from natsctl.api.messages import StoredMsg
    from natsctl.cli.session import Session


def get(
    ctx: typer.Context,
    stream: StreamName = None,
    seq: Sequence = None,
    last_for: Annotated[
        str, typer.Option("--last-for", "-S", metavar="SUBJECT", help="the last message of this subject")
    ] = "",
    raw: Raw = False,
    translate: Translate = "",
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
        message = answer.value.message
        _show_message(name, message, shown_body(session, name, message, translate), raw)


def _ask_message(session: Session) -> tuple[int, str]:
    """The sequence, or 0 and the subject whose last message is wanted."""
    seq = ask_sequence(session, "Message Sequence to retrieve", "-1")
    if seq > 0:
        return seq, ""
    from natsctl.cli.prompts.ask import Question, prompt

    help = "The subject of the message. Settable using --last-for"
    return 0, str(prompt(Question("Subject to retrieve last message for", help, required=True)))


def shown_body(session: Session, stream: str, message: StoredMsg, command: str) -> bytes:
    """Return the body of a message, or what a program makes of it."""
    body = message.data or b""
    if not command:
        return body
    from natsctl.cli.messaging.template import translated
    from natsctl.client.message import Message

    return session.run(lambda manager: translated(command, Message(message.subject, body), stream))


def _show_message(stream: str, message: StoredMsg, body: bytes, raw: bool) -> None:
    from natsctl.api import headers
    from natsctl.cli.messaging.bodies import show_message
    from natsctl.cli.render.streams import render_item

    if raw:
        output.emit_bytes(body)
        return
    pairs = [(_text(key), _text(value)) for key, value in headers.parse(message.hdrs or b"")]
    show_message(render_item(stream, message.seq, message.subject, message.time, time.time_ns()), pairs, body)
    output.emit("")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
