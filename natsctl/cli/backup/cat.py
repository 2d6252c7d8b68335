"""`backup cat`: the messages of a backup, without a server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.cli import output
from natsctl.cli.backup import picking
from natsctl.cli.backup.options import Source
from natsctl.cli.options import Json, Raw

if TYPE_CHECKING:
    from natsctl.api.archive.archive import ArchivedMessage


def cat(
    path: Source,
    subject: picking.Subjects = None,
    since: picking.Since = None,
    until: picking.Until = None,
    seq: picking.Sequences = "",
    count: Annotated[int, typer.Option("--count", metavar="N", help="at most N", min=0, show_default=False)] = 0,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Print the messages of a backup in order, with -j one document on a line. Needs no server."""
    from natsctl.client.backup.contents import read_messages
    from natsctl.client.backup.opened import open_backup

    pick = picking.read_pick(subject, since, until, seq)
    left = count or -1
    with open_backup(path) as backup:
        for messages in read_messages(backup):
            for message in filter(pick, messages):
                if not left:
                    return
                left -= 1
                _show(backup.stream, message, raw, json)


def _show(stream: str, message: ArchivedMessage, raw: bool, json: bool) -> None:
    subject = message.subject.decode("utf-8", "backslashreplace")
    if json:
        output.emit_json_line(_document(message, subject))
    elif raw:
        output.emit_bytes(message.payload)
    else:
        output.emit(_text_of(stream, message, subject))


def _text_of(stream: str, message: ArchivedMessage, subject: str) -> str:
    """The message for a person: what it is, its headers, its body, an empty line."""
    from natsctl.api import headers
    from natsctl.api.times import format_time
    from natsctl.cli.render.message import render_headers
    from natsctl.cli.render.streams import render_item
    from natsctl.cli.render.text import body_text

    item = render_item(stream, message.seq, subject, format_time(message.ts_ns), time.time_ns())
    pairs = render_headers([(_text(key), _text(value)) for key, value in headers.parse(message.header)])
    body = body_text(message.payload).removesuffix("\n")
    return "\n".join([item, *pairs, *([""] if pairs else []), body, ""])


def _document(message: ArchivedMessage, subject: str) -> dict[str, object]:
    """The message as STREAM.MSG.GET gives it."""
    from msgspec import to_builtins

    from natsctl.api.messages import StoredMsg
    from natsctl.api.times import format_time

    stored = StoredMsg(
        subject=subject,
        seq=message.seq,
        hdrs=message.header or None,
        data=message.payload or None,
        time=format_time(message.ts_ns),
    )
    return dict(to_builtins(stored))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
