"""`natsctl stream view`: messages of a stream, a page at a time at a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.messaging.bodies import Translate, emit_body
from natsctl.cli.names import pick_stream, suggesting
from natsctl.cli.options import Json, StreamName, session_of
from natsctl.cli.stream.get import shown_body

if TYPE_CHECKING:
    from natsctl.api.answers import StreamMsgGetAnswer
    from natsctl.cli.session import Session
    from natsctl.client.answer import Answer


def view(
    ctx: typer.Context,
    stream: StreamName = None,
    size: Annotated[int, typer.Argument(metavar="[SIZE]", help="messages per page", min=1)] = 10,
    seq: Annotated[
        int, typer.Option("--id", "--seq", metavar="SEQ", help="start at this sequence", min=1, show_default=False)
    ] = 1,
    since: Annotated[
        str, typer.Option("--since", metavar="DURATION", help="start with messages stored this long ago")
    ] = "",
    subject: Annotated[str, typer.Option("--subject", metavar="SUBJECT", help="only messages on this subject")] = ">",
    raw: Annotated[bool, typer.Option("--raw", help="bodies only, unchanged", show_default=False)] = False,
    translate: Translate = "",
    json: Json = False,
) -> None:
    """Show messages of a stream: a page at a time at a terminal, all of them where nobody can be asked for more.

    No consumer is made.
    """
    if since and seq > 1:
        raise UsageError("--id and --since exclude each other")
    session = session_of(ctx)
    name = pick_stream(session, stream)
    first = _since(session, name, since) if since else seq
    messages = _messages(session, name, first, subject)
    while page := list(islice(messages, size)):
        for answer in page:
            _show(session, name, answer, raw, translate, json)
        if len(page) < size or not _next_page(session, json):
            break
    if len(page) < size and not json:
        output.log("Reached apparent end of data")


def _next_page(session: Session, json: bool) -> bool:
    """Return whether more is wanted, which only a person at a terminal is asked."""
    import sys

    if json or not session.interactive or not sys.stdout.isatty():
        return True
    from natsctl.cli.prompts.ask import prompt_confirm

    return prompt_confirm("Next Page?", True)


def _since(session: Session, name: str, since: str) -> int:
    from natsctl.api.units import parse_length
    from natsctl.client.assets.purging import sequence_at

    try:
        before_ns = time.time_ns() - parse_length(since)
    except ValueError as failure:
        raise UsageError(f"--since: {failure}") from failure
    with suggesting(session, name):
        live = session.run(lambda manager: manager.stream_info(name))
    return session.run(lambda manager: sequence_at(manager, live, before_ns))


def _messages(session: Session, name: str, seq: int, subject: str) -> Iterator[Answer[StreamMsgGetAnswer]]:
    """The messages on `subject` from `seq` on, each asked for when it is wanted."""
    from natsctl.client.assets.purging import next_answer

    while True:
        with suggesting(session, name):
            answer = session.run(lambda manager, seq=seq: next_answer(manager, name, seq, subject))  # type: ignore[misc]  # its default binds the sequence
        if answer is None:
            return
        yield answer
        seq = answer.value.message.seq + 1


def _show(
    session: Session, name: str, answer: Answer[StreamMsgGetAnswer], raw: bool, translate: str, json: bool
) -> None:
    if json:
        output.emit_json_line(answer.raw["message"])
        return
    from natsctl.api import headers
    from natsctl.cli.render.message import render_headers
    from natsctl.cli.render.streams import render_viewed

    message = answer.value.message
    body = shown_body(session, name, message, translate)
    if raw:
        output.emit_bytes(body + b"\n")
        return
    pairs = [(_text(key), _text(value)) for key, value in headers.parse(message.hdrs or b"")]
    lines = [render_viewed(message.seq, message.subject, message.time), *(f"  {one}" for one in render_headers(pairs))]
    output.emit("\n".join([*lines, ""]))
    emit_body(body)
    output.emit("")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
