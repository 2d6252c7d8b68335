"""Messages on their way in and out: bodies, headers, and how what was received is shown."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.render.message import Received, render_headers
from natsctl.cli.render.values import body_text

if TYPE_CHECKING:
    from natsctl.client.message import Message

STDIN = "-"
FILE_MARK = "@"


def check_target(subject: str) -> None:
    """Raise UsageError for a subject with wildcards: nobody would get the message.

    Subjects of the system are left alone, as some requests carry a filter in theirs.
    """
    if not subject.startswith("$") and not {"*", ">"}.isdisjoint(subject.split(".")):
        raise UsageError(
            f"{subject!r} has wildcards: a message goes to one subject", hint="wildcards are for natsctl sub"
        )


def read_body(words: str | None, force_stdin: bool = False) -> bytes:
    """The body that the command line means: text, `@file`, `-` for stdin.

    Without words stdin is read only where someone has put it: a pipe or a file. Raises UsageError for a file that can
    not be read.
    """
    if words == STDIN or force_stdin or (words is None and _is_fed()):
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


def read_headers(words: Sequence[str] | None) -> dict[str, str]:
    """The headers that `-H KEY:VALUE` flags give, names exactly as written. Raises UsageError."""
    headers: dict[str, str] = {}
    for word in words or ():
        key, colon, value = word.partition(":")
        if not colon or not key.strip() or any(mark in word for mark in "\r\n"):
            raise UsageError(f"--header: expected KEY:VALUE, not {word!r}")
        headers[key.strip()] = value.strip()
    return headers


def received(message: Message) -> Received:
    """The message, with the moment it came."""
    return Received(message.subject, message.reply, tuple(message.headers.items()), message.body, time.time_ns())


def show_body(headers: Sequence[tuple[str, str]], payload: bytes) -> None:
    """Headers for a person, the body as the answer: harmless on a terminal, byte for byte in a pipe."""
    if headers:
        output.note("\n".join(["Headers:", "", *(f"  {line}" for line in render_headers(headers)), ""]))
    if sys.stdout.isatty():
        output.emit(body_text(payload))
    else:
        output.emit_bytes(payload + b"\n")
