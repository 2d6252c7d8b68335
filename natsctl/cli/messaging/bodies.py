"""Messages on their way in and out: bodies, headers, and how what was received is shown.

Stdin is read for `-` and --force-stdin, and where no body was given only if it is a pipe or a file: a terminal, the
null device of a container or a socket is left alone.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.render.message import Received, render_headers
from natsctl.cli.render.values import body_text

if TYPE_CHECKING:
    from natsctl.client.message import Message

STDIN = "-"
FILE_MARK = "@"
SILENT_S = 2.0
"""Seconds after which a person is told that a body is waited for."""

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="the subject")]
Body = Annotated[
    str | None, typer.Argument(metavar="BODY", help="the body; @FILE, or - for stdin; else a pipe is read")
]
Templates = Annotated[
    bool,
    typer.Option(
        "--templates/--no-templates",
        help="fill in {{Count}}, {{Time}}, {{TimeStamp}}, {{Unix}}, "
        "{{UnixNano}}, {{ID}} and {{Random 1 9}} in subject, body and headers",
    ),
]
ForceStdin = Annotated[bool, typer.Option("--force-stdin", help="read the body from stdin")]
SendOn = Annotated[
    str, typer.Option("--send-on", metavar="eof|newline", help="stdin is one body, or each line of it [eof]")
]
Translate = Annotated[
    str, typer.Option("--translate", metavar="COMMAND", help="show what this makes of each body; {{Subject}} is known")
]


def check_target(subject: str) -> None:
    """Raise UsageError for a subject with wildcards: nobody would get the message.

    Subjects of the system are left alone, as some requests carry a filter in theirs.
    """
    if not subject.startswith("$") and not {"*", ">"}.isdisjoint(subject.split(".")):
        raise UsageError(
            f"{subject!r} has wildcards: a message goes to one subject", hint="wildcards are for natsctl sub"
        )


def read_body(words: str | None, force_stdin: bool = False) -> bytes:
    """The body that the command line means. Raises UsageError for a file that can not be read."""
    if words == STDIN or force_stdin or (words is None and _is_fed()):
        _tell_if_silent()
        return sys.stdin.buffer.read()
    if words is None:
        return b""
    if not words.startswith(FILE_MARK) or words == FILE_MARK:
        return words.encode("utf-8", "surrogateescape")
    path = words[len(FILE_MARK) :]
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{words}: {error.strerror or error}") from error


def _is_fed() -> bool:
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _tell_if_silent() -> None:
    """Say on stderr what is waited for, when nothing comes for a while and a person looks."""
    if not sys.stderr.isatty():
        return
    try:
        ready, _, _ = select.select([sys.stdin], [], [], SILENT_S)
    except (OSError, ValueError):
        return
    if not ready:
        output.note("reading the body from stdin; end it with Ctrl-D, or give BODY ('' for none)")


def read_headers(words: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    """The headers that `-H KEY:VALUE` flags give, names exactly as written, all of one name. Raises UsageError."""
    headers: list[tuple[str, str]] = []
    for word in words or ():
        key, colon, value = word.partition(":")
        if not colon or not key.strip() or any(mark in word for mark in "\r\n"):
            raise UsageError(f"--header: expected KEY:VALUE, not {word!r}")
        headers.append((key.strip(), value.strip()))
    return tuple(headers)


def received(message: Message) -> Received:
    """The message, with the moment it came."""
    return Received(message.subject, message.reply, message.headers.pairs, message.body, time.time_ns())


def show_body(headers: Sequence[tuple[str, str]], payload: bytes) -> None:
    """Headers for a person, the body as the answer: harmless on a terminal, byte for byte in a pipe."""
    if headers:
        output.note("\n".join(["Headers:", "", *(f"  {line}" for line in render_headers(headers)), ""]))
    if sys.stdout.isatty():
        output.emit(body_text(payload))
    else:
        output.emit_bytes(payload + b"\n")
