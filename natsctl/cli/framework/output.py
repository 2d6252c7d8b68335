"""Output of a command: the answer goes to stdout and nothing else does, everything for a person to stderr.

Pages and tables are laid out for the terminal's width, and in full length in a pipe. The zone of times and the box and
colour of tables (`--utc`, `--colors`) reach the code that shows something through the environment of the process, as TZ
and NATS_COLOR do when a person sets them; a command that was run inside another program leaves them as they were.
Failures have one mapping to exit codes, one text and one JSON form.
"""

from __future__ import annotations

import os
import sys
import time

from natsctl.cli.framework.globals import COLOURS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
    from typing import IO, Any

    from rich.console import Console, RenderableType

    from natsctl.api.errors import ExitCode
    from natsctl.cli.render.page import Page
    from natsctl.client.manager import Manager


def emit(text: str) -> None:
    sys.stdout.write(f"{_tamed(text)}\n")


def emit_names(names: Iterable[str]) -> None:
    """Print names on stdout, one per line, escaped for a terminal."""
    from natsctl.cli.render.text import safe

    for name in names:
        emit(safe(name))


def emit_bytes(body: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(body)
    sys.stdout.buffer.flush()


def emit_json(document: Any) -> None:
    """Print one JSON document on stdout, two spaces a level.

    Text or bytes are JSON from a server: order of keys, unknown fields and numbers are kept.
    """
    sys.stdout.write(f"{_harmless(json_text(document))}\n")


def emit_json_line(document: Any) -> None:
    sys.stdout.write(f"{_harmless(json_text(document, one_line=True))}\n")
    sys.stdout.flush()


def json_text(document: Any, *, one_line: bool = False) -> str:
    """Return a document (structs included), or JSON text, as JSON with two spaces a level, or on one line."""
    import json

    if isinstance(document, str | bytes):
        document = json.loads(document)
    if "orjson" in sys.modules or not _is_small(document):
        import orjson

        option = None if one_line else orjson.OPT_INDENT_2
        try:
            return orjson.dumps(document, default=_builtins, option=option).decode()
        except TypeError:
            pass  # an integer of more than 64 bits, or half a surrogate pair
    indent, separators = (None, (",", ":")) if one_line else (2, None)
    return json.dumps(document, default=_builtins, indent=indent, separators=separators, ensure_ascii=False)


def _builtins(value: Any) -> Any:
    from msgspec import to_builtins

    return to_builtins(value)


_SMALL = 1000


def _is_small(document: Any) -> bool:
    """Return whether `json` has written a document before orjson is imported, and in the same way: without fractions.

    That import takes a quarter of a short command.
    """
    left = [document]
    seen = 0
    while left:
        one = left.pop()
        seen += 1
        if isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list | tuple):
            left += one
        elif hasattr(one, "__struct_fields__"):
            left += [getattr(one, field) for field in one.__struct_fields__]
        elif not (one is None or isinstance(one, str | int)):
            return False
        if seen + len(left) > _SMALL:
            return False
    return True


def _harmless(text: str) -> str:
    """Return JSON text without control characters for a terminal; in a pipe it is unchanged."""
    if (text.isascii() and "\x7f" not in text) or not sys.stdout.isatty():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    import json

    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else json.dumps(char)[1:-1]


def note(text: str) -> None:
    """Print a note for the user on stderr; long lines are folded."""
    sys.stdout.flush()
    write_stderr(laid_out(_tamed(text), stderr_width()))


_WILD = "\x1b(?!\\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
"""Characters that move the cursor, change the terminal or reorder text; colours, tabs and line ends are not."""


def _tamed(text: str) -> str:
    """Return a text without what drives a terminal, for the names that a caller has not escaped."""
    if text.isprintable():
        return text
    import re

    from natsctl.cli.render.text import safe

    return re.sub(_WILD, lambda match: safe(match[0]), text)


def laid_out(text: str, columns: int | None) -> str:
    """Return a text wrapped at so many columns, with continued lines indented."""
    if columns is None or all(len(line) * 2 <= columns for line in text.splitlines()):
        return text
    from natsctl.cli.render.text import hanging

    lines = []
    for line in text.split("\n"):
        words = line.lstrip(" ")
        indent = line[: len(line) - len(words)]
        lines.append(indent + hanging(words, max(columns - len(indent), 20)).replace("\n", f"\n{indent}"))
    return "\n".join(lines)


def write_stderr(text: str) -> None:
    """Write a line on stderr unchanged; after a failed write, all output there is discarded.

    A full disk below a log, or a closed pipe, must not end a backup half-way, nor make a published message look as
    if it had failed.
    """
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def log(text: str) -> None:
    """Print a line of progress on stderr with the local time, escaped for a terminal."""
    from natsctl.cli.render.text import safe

    note(f"{clock()} {safe(text)}")


def clock() -> str:
    """Return the local time of day, as in `14:02:07`."""
    return time.strftime("%H:%M:%S")


def has_color(stream: IO[str]) -> bool:
    """Return whether that stream shows colours: a terminal that is not dumb, without NO_COLOR."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def terminal_width() -> int:
    """Return the columns to lay text out in: COLUMNS, else the terminal's, else 80."""
    return _columns(sys.__stdout__) or 80


def _columns(stream: IO[str] | None) -> int | None:
    """Return COLUMNS, else the columns of the terminal, None without one; shutil would import four compressions."""
    if (columns := os.environ.get("COLUMNS", "")).isdigit() and int(columns):
        return int(columns)
    try:
        return (stream and os.get_terminal_size(stream.fileno()).columns) or None
    except (OSError, ValueError):
        return None


def stderr_width() -> int | None:
    """Return the columns of the terminal on stderr, COLUMNS if set; None without a terminal."""
    if not sys.stderr.isatty():
        return None
    return _columns(sys.stderr)


PIPE_WIDTH = 4000
"""Columns for tables without a terminal: wider than any row of names."""


def width() -> int | None:
    """Return the columns to lay out for; None for no limit.

    They are COLUMNS if set, else those of the terminal on stdout.
    """
    if os.environ.get("COLUMNS", "").isdigit() or sys.stdout.isatty():
        return max(20, terminal_width())
    return None


def show_page(page: Page) -> None:
    """Print an information page.

    With TESTING=true in the environment it is JSON of labels and values: the `nats` tool does the same, and tests
    written for it compare those.
    """
    if os.environ.get("TESTING") == "true":
        emit_json(page.fields())
        return
    emit(page.text(width(), has_color(sys.stdout)).rstrip("\n"))


def show_table(table: RenderableType) -> None:
    from natsctl.cli.render.tables import Drawn

    if not isinstance(table, Drawn) or sys.platform == "win32":  # rich knows consoles without control sequences
        console().print(table)
        return
    box = "" if sys.stdout.encoding.lower().startswith("utf") else "ascii"
    sys.stdout.write(table.text(width() or PIPE_WIDTH, colour=has_color(sys.stdout), box=box))


def show_list(
    entries: Sequence[Any],
    table: Callable[[], RenderableType],
    none: str,
    *,
    json: bool,
    names: Iterable[str] | None = None,
    say: Callable[[str], None] = emit,
) -> None:
    """Show the `names` only, if there are any to show; else the entries with `json`, their table, or `none` without."""
    if names is not None:
        emit_json([*names]) if json else emit_names(names)
    elif json:
        emit_json(entries)
    elif entries:
        show_table(table())
    else:
        say(none)


def console(*, live: bool = False) -> Console:
    """Return the console for tables and live views: stdout, with its width and colours.

    A `live` console moves the cursor, also on a terminal without colours.
    """
    from rich.console import Console

    colour = has_color(sys.stdout)
    if live and not colour and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        return Console(file=sys.stdout, force_terminal=True, color_system=None, highlight=False, markup=False)
    return Console(
        file=sys.stdout,
        width=None if live and sys.stdout.isatty() else width() or PIPE_WIDTH,
        force_terminal=colour,
        no_color=not colour,
        highlight=False,
        markup=False,
        emoji=False,
    )


COLOUR = "NATS_COLOR"
_ZONE = "TZ"
_BOXES = ("rounded", "double")


class DisplaySettings:
    """A context that applies --utc and --colors while a command runs."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self._before = os.environ.get(_ZONE), os.environ.get(COLOUR)

    def __enter__(self) -> None:
        if self._given.get("colors"):
            os.environ[COLOUR] = self._given["colors"]
        if self._given.get("utc"):
            _set_zone("UTC")

    def __exit__(self, *_: object) -> None:
        zone, colour = self._before
        _put(COLOUR, colour)
        if self._given.get("utc"):
            _set_zone(zone)


def _put(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _set_zone(zone: str | None) -> None:
    _put(_ZONE, zone)
    if hasattr(time, "tzset"):
        time.tzset()


def table_style() -> tuple[str, str]:
    """Return the name of the box of tables and the colour of its lines, "" for the terminal's own."""
    scheme = os.environ.get(COLOUR, "")
    is_colour = scheme in COLOURS and scheme not in _BOXES
    return scheme if scheme in _BOXES else _BOXES[0], scheme if is_colour else ""


def emit_name_pages(
    ask: Callable[[Callable[[Manager], Awaitable[int]]], int],
    pages: Callable[[Manager], AsyncIterator[Iterable[str]]],
) -> int:
    """Print the names of each page on stdout as it arrives, one per line, and return their number.

    `ask` is `Session.ask` where pages are all that is asked for, else `Session.run`. Raises the errors of the pages,
    after printing those before, and BrokenPipeError if the reader is closed.
    """

    shown: set[str] = set()

    async def show(manager: Manager) -> int:
        async for page in pages(manager):
            names = [name for name in page if name not in shown]  # `ask` asks again if a connection fails
            emit_names(names)
            sys.stdout.flush()
            shown.update(names)
        return len(shown)

    return ask(show)


MAX_FAULTS = 200
"""Mistakes of documents that an error lists; natsctl validate shows all."""


def report_failure(failure: Exception, *, as_json: bool, trace: bool = False) -> ExitCode:
    """Report a failure on stderr and return its exit code.

    With `trace` one that is no NatsctlError shows its traceback.
    """
    from natsctl.api.errors import NatsctlError

    failure = translated_failure(failure)
    if trace and not isinstance(failure, NatsctlError):
        import traceback

        traceback.print_exception(failure)
    try:
        sys.stdout.flush()
    except OSError:
        drop_stdout()
    write_stderr(laid_out(render_error(failure, as_json), None if as_json else stderr_width()))
    return exit_code_of(failure)


def translated_failure(failure: Exception) -> Exception:
    """Return the usage error for arguments that are not UTF-8, else the failure.

    They fail only at the wire or a file, as bodies and paths may be any bytes.
    """
    from natsctl.api.errors import UsageError

    if not isinstance(failure, UnicodeEncodeError):
        return failure
    near = failure.object[max(0, failure.start - 20) : failure.end + 20]
    return UsageError(f"not UTF-8 text: {near.encode('utf-8', 'backslashreplace').decode()}")


def drop_stdout() -> None:
    """Discard the rest of stdout: flushed again at exit, it would change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_code_of(failure: BaseException) -> ExitCode:
    from natsctl.api.errors import ExitCode

    if isinstance(failure, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    code = getattr(failure, "exit_code", ExitCode.FAILED)
    return ExitCode(code) if code in {int(known) for known in ExitCode} else ExitCode.FAILED


def text_of(failure: BaseException) -> str:
    """Return the description of a failure in one line; an unexpected one is named by its type too."""
    from natsctl.api.errors import NatsctlError

    if isinstance(failure, NatsctlError):
        return str(failure)
    if isinstance(failure, OSError) and failure.strerror:
        return f"{failure.filename}: {failure.strerror}" if failure.filename else failure.strerror
    return f"unexpected {type(failure).__name__}: {failure}".rstrip(": ")


def hint_of(failure: BaseException) -> str:
    from natsctl.api.errors import ErrCode

    hints = {
        ErrCode.STREAM_OFFLINE_REASON: "natsctl stream rm gives it up and frees its name; natsctl server repair, "
        "on the stopped server, saves it",
        ErrCode.CLUSTER_NOT_AVAIL: "natsctl server report jetstream shows which servers are up; if too few of them can "
        "come back, natsctl server cluster rescue helps",
    }
    said = str(getattr(failure, "hint", None) or "")
    return said or hints.get(getattr(getattr(failure, "error", None), "err_code", 0), "")


def error_object(failure: BaseException) -> dict[str, Any]:
    """Return the failure as the JSON object for stderr with `-j`; unknown values are null."""
    api_error = getattr(failure, "error", None)
    return {
        "error": {
            "code": getattr(api_error, "code", None),
            "err_code": getattr(api_error, "err_code", None),
            "description": getattr(api_error, "description", None) or text_of(failure),
            "subject": getattr(failure, "subject", None) or None,
            "hint": hint_of(failure) or None,
        }
    }


def render_error(failure: BaseException, as_json: bool) -> str:
    """Return the text for stderr: the JSON object on one line, or `natsctl: error: …` with the hint below it.

    A failure with several `faults` has a line for each, below its `headline` or their number.
    """
    if as_json:
        import json

        return json.dumps(error_object(failure), ensure_ascii=False)
    from natsctl.cli.render.text import safe

    err_code = getattr(getattr(failure, "error", None), "err_code", 0)
    faults = [safe(str(fault)) for fault in getattr(failure, "faults", ())]
    headline = getattr(failure, "headline", "") or (f"{len(faults)} faults" if len(faults) > 1 else "")
    if headline:
        lines = [f"natsctl: error: {headline}", *faults]
    else:
        lines = [f"natsctl: error: {safe(text_of(failure))}{f' ({err_code})' if err_code else ''}"]
    hints = hint_of(failure).splitlines()
    return "\n  ".join([*lines, *map(safe, hints)])
