"""Where a command's words go: the answer to stdout and nothing else, everything for a person to stderr."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from typing import IO, Any


def emit(text: str) -> None:
    """Print a piece of the answer on stdout, with its line end."""
    sys.stdout.write(f"{text}\n")


def emit_names(names: Iterable[str]) -> None:
    """Print names on stdout, one on a line, harmless for a terminal."""
    from natsctl.cli.render.text import safe

    for name in names:
        emit(safe(name))


def emit_bytes(body: bytes) -> None:
    """Write a message body to stdout as it is."""
    sys.stdout.flush()
    sys.stdout.buffer.write(body)
    sys.stdout.buffer.flush()


def emit_json(document: Any) -> None:
    """Print one JSON document on stdout, two spaces a level.

    Text or bytes are taken as JSON that a server sent: order of keys, unknown fields and numbers stay as they are.
    """
    if isinstance(document, str | bytes):
        document = json.loads(document)
    emit(_harmless(json.dumps(document, indent=2, ensure_ascii=False)))


def emit_json_line(document: Any) -> None:
    """Print one JSON document on one line of stdout and flush it, for a stream of documents."""
    if isinstance(document, str | bytes):
        document = json.loads(document)
    emit(_harmless(json.dumps(document, separators=(",", ":"), ensure_ascii=False)))
    sys.stdout.flush()


def _harmless(text: str) -> str:
    """JSON text whose strings a terminal does not obey; in a pipe it stays as it is."""
    if (text.isascii() and "\x7f" not in text) or not sys.stdout.isatty():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else json.dumps(char)[1:-1]


def note(text: str) -> None:
    """Print what is for the person at the terminal, and no part of the answer, on stderr; long lines are folded."""
    sys.stdout.flush()
    tell(laid_out(text, stderr_width()))


def laid_out(text: str, columns: int | None) -> str:
    """Return a text whose lines go on below themselves, indented, where they are longer than so many columns."""
    if columns is None or all(len(line) * 2 <= columns for line in text.splitlines()):
        return text
    from natsctl.cli.render.text import hanging

    lines = []
    for line in text.split("\n"):
        words = line.lstrip(" ")
        indent = line[: len(line) - len(words)]
        lines.append(indent + hanging(words, max(columns - len(indent), 20)).replace("\n", f"\n{indent}"))
    return "\n".join(lines)


def tell(text: str) -> None:
    """Write a line on stderr as it is; where that takes nothing, it and all that follows goes nowhere.

    What is for a person is no part of the work: a full disk below a log, or a reader that has gone, must not end a
    backup half-way, nor make a message that was sent look as if it had not been.
    """
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def log(text: str) -> None:
    """Print a line of progress on stderr with the local time before it, harmless for a terminal."""
    from natsctl.cli.render.text import safe

    note(f"{time.strftime('%H:%M:%S')} {safe(text)}")


def has_color(stream: IO[str]) -> bool:
    """Whether that stream takes colours: a terminal, without NO_COLOR, that is not dumb."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def width() -> int:
    """The columns to lay text out in: COLUMNS, else the terminal's, else 80."""
    import shutil

    return shutil.get_terminal_size((80, 24)).columns


def stderr_width() -> int | None:
    """The columns of the terminal on stderr, COLUMNS if set; None where there is no terminal."""
    if not sys.stderr.isatty():
        return None
    if (columns := os.environ.get("COLUMNS", "")).isdigit() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or None
    except OSError:
        return None
