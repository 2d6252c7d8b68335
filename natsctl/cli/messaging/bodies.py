"""Bodies and headers of messages: from flags and stdin, and printed.

A body on the command line is used as it is. Without one, stdin is the body: if it is no terminal, if stdin and stdout
are both terminals, and with --force-stdin; the rule of the nats tool.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Sequence

from natsctl.api.errors import UsageError
from natsctl.cli.framework import output
from natsctl.cli.framework.command_line import Dash
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.render.message import ReceivedMessage, render_headers
from natsctl.cli.render.text import body_text
from natsctl.hints import TYPE_CHECKING, Annotated

if TYPE_CHECKING:
    from natsctl.client.message import Message as ClientMessage
    from natsctl.client.messaging.messages import Outgoing


STDIN = "-"
SILENT_S = 2.0
"""Seconds without input after which a reminder is printed that a body is being read."""

Subject = Annotated[str, Argument(metavar="SUBJECT", help="the subject")]
Body = Annotated[str | None, Argument(metavar="BODY", help="the body; without it, stdin is read")]
Templates = Annotated[
    bool,
    Option(
        "--templates/--no-templates",
        help="execute templates in subject and body: {{Count}}, {{Time}}, {{TimeStamp}}, {{Unix}}, {{UnixNano}}, "
        "{{ID}}, {{Random 1 9}}; those in headers always are",
    ),
]
ForceStdin = Annotated[bool, Option("--force-stdin", help="read stdin where BODY is not given")]
SendOn = Annotated[str, Option("--send-on", metavar="eof|newline", help="stdin is one body, or each line of it [eof]")]
Translate = Annotated[
    str,
    Option("--translate", metavar="COMMAND", help="filter each body through this command; {{Subject}} is expanded"),
]


def check_target(subject: str) -> None:
    """Raise UsageError for a subject with an empty token or wildcards: no subscription would receive it.

    Wildcards in subjects of the system are not refused, as some requests carry a filter in theirs.
    """
    if "" in subject.split("."):
        raise UsageError(
            f"{subject!r} is not a subject: {'a token between dots is empty' if subject else 'it is empty'}",
            hint="a server drops its messages",
        )
    if not subject.startswith("$") and not {"*", ">"}.isdisjoint(subject.split(".")):
        raise UsageError(
            f"{subject!r} has wildcards: a message goes to one subject", hint="wildcards are for natsctl sub"
        )


def reads_stdin(words: str | None, force_stdin: bool = False) -> bool:
    """Return whether the body is on stdin: none was given, and stdin is no terminal, or stdout is one as well."""
    if words is not None or sys.stdin is None:
        return False
    return force_stdin or not sys.stdin.isatty() or sys.stdout.isatty()


def read_body(words: str | None, force_stdin: bool = False) -> bytes:
    """Return the body of the command line, else all of stdin if that is to be read, else an empty one.

    A lone `-` is no body, as in the nats tool; after `--` it is that text.
    """
    if words is not None:
        return b"" if isinstance(words, Dash) else words.encode("utf-8", "surrogateescape")
    if not reads_stdin(words, force_stdin):
        return b""
    _remind_if_silent()
    return sys.stdin.buffer.read()


def _remind_if_silent() -> None:
    """Print on stderr that a body is being read, if none arrives."""
    if not sys.stderr.isatty():
        return
    import select

    try:
        ready, _, _ = select.select([sys.stdin], [], [], 0 if sys.stdin.isatty() else SILENT_S)
    except (OSError, ValueError):
        return
    if not ready:
        output.note("reading the body from stdin; end it with Ctrl-D, or give BODY ('' for none)")


def filled(message: Outgoing, count: int, templates: bool) -> Iterator[Outgoing]:
    """Yield a message `count` times, each with its templates executed: all of them, or only those in headers."""
    texts = [value for _, value in message.headers] + ([message.subject] if templates else [])
    if not (templates and b"{{" in message.body) and not any("{{" in text for text in texts):
        yield from itertools.repeat(message, count)
        return
    from natsctl.cli.messaging.message_templates import fill_message

    for number in range(1, count + 1):
        yield fill_message(message, number, headers_only=not templates)


def read_headers(words: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    """Return the headers of `-H KEY:VALUE` flags, names as given, with all values of a name. Raises UsageError."""
    headers: list[tuple[str, str]] = []
    for word in words or ():
        key, colon, value = word.partition(":")
        if not colon or not key.strip() or any(mark in word for mark in "\r\n"):
            raise UsageError(f"--header: expected KEY:VALUE, not {word!r}")
        headers.append((key.strip(), value.strip()))
    return tuple(headers)


def received(message: ClientMessage) -> ReceivedMessage:
    return ReceivedMessage(message.subject, message.reply, message.headers.pairs, message.body, time.time_ns())


def shown_body(payload: bytes, *, raw: bool = False, translated: bool = False) -> bytes:
    """Return a body as `sub` and `req` of the nats tool print it, byte for byte.

    It ends with a newline, and one or two more follow unless `raw`; an empty body is named, unless a program made it.
    """
    line = payload or (b"" if translated else b"nil body")
    line += b"\n" * (not payload.endswith(b"\n"))
    return line if raw else line + b"\n" * (1 if payload.endswith(b"\n") else 2)


def emit_body(payload: bytes) -> None:
    """Print a body on stdout: escaped on a terminal, byte for byte in a pipe."""
    if sys.stdout.isatty():
        output.emit(body_text(payload))
    else:
        output.emit_bytes(payload + b"\n")


def show_message(head: str, headers: Sequence[tuple[str, str]], payload: bytes) -> None:
    lines = [head, ""]
    if headers:
        lines += ["Headers:", "", *(f"  {line}" for line in render_headers(headers)), "", "Data:", ""]
    output.emit("\n".join(lines))
    emit_body(payload)
