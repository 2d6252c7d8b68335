"""Many command lines in one process and on one connection: `natsctl batch`."""

from __future__ import annotations

import itertools
import json as json_module
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any, Final, NamedTuple

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.api.model import Model
from natsctl.api.units import plural
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json
from natsctl.cli.framework.invocation import CommandHost, CommandOutcome, OccupiedStdin
from natsctl.cli.framework.parameters import Argument, Option, as_usage_error
from natsctl.cli.framework.session import Session

MAX_LINE_BYTES: Final = 4 << 20
"""Limit of a command line, for a message of 1 MiB (nats-server's default `max_payload`) with quotes."""
PROGRAMS: Final = ("natsctl", "nats")
"""Program names that command lines copied from a shell script begin with."""
STDIN: Final = "-"
_WORD: Final = re.compile(r"""(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s'"\\])+""", re.DOTALL)


class BatchResult(Model, kw_only=True, omit_defaults=False):
    """One command line: its line number, its command without arguments, and how it ended.

    `output` is the command's JSON document, a list of documents if it prints one per line, or its text if it has no
    JSON; null without output. `error` is null unless the command failed with an error.
    """

    line: int
    command: str
    exit_status: int
    output: Any = None
    error: dict[str, Any] | None = None


class BatchLine(NamedTuple):
    """A command line with the number of its first line; `fault` is the reason why it cannot be split into arguments."""

    number: int
    words: list[str]
    fault: str = ""


def batch(
    session: Session,
    file: Annotated[str, Argument(metavar="FILE", help="file of command lines; - for stdin")] = STDIN,
    keep_going: Annotated[bool, Option("--keep-going", "-k", help="run the other lines after a failure")] = False,
    json: Json = False,
) -> int:
    """Run command lines in one process and on one connection

    A line has the arguments of natsctl as in a shell: with quotes, backslashes and comments (#), without
    variables and pipes. A line that ends with a backslash continues. The batch stops at the first command that fails
    and ends with its exit status. Options for the server apply to all lines; a line that names another server or login
    uses a connection of its own.
    """
    if session.host is not None:
        raise UsageError("a command line of a batch cannot be a batch")
    reason = "it has the command lines of the batch" if file == STDIN else ""
    host = CommandHost(session, unattended=reason and "stdin has the command lines of the batch")
    name = "stdin" if file == STDIN else file
    first_failure = count = failures = 0
    try:
        with _opened(file, reason) as source:
            for line in read_lines(source):
                count += 1
                exit_code, is_end = _run_line(host, line, name)
                if exit_code:
                    failures += 1
                    first_failure = first_failure or exit_code
                if is_end or (exit_code and not keep_going):
                    break
    finally:
        host.close()
    if failures and keep_going and not json:
        output.note(f"{failures} of {plural(count, 'command')} failed")
    return first_failure


@contextmanager
def _opened(file: str, reason: str) -> Iterator[IO[bytes]]:
    """Yield the command lines; commands cannot read stdin if that has them."""
    if file != STDIN:
        with as_usage_error(file):
            opened = Path(file).open("rb")  # noqa: SIM115  # closed below
        with opened:
            yield opened
        return
    before = sys.stdin
    if before.isatty():
        output.note("reading command lines from stdin; end them with Ctrl-D")
    sys.stdin = OccupiedStdin(reason)
    try:
        yield before.buffer
    finally:
        sys.stdin = before


def read_lines(source: IO[bytes]) -> Iterator[BatchLine]:
    number, begun, length, parts = 0, 0, 0, list[str]()
    while raw := source.readline(MAX_LINE_BYTES + 1):
        number += 1
        begun, length = (begun, length + len(raw)) if parts else (number, len(raw))
        if length > MAX_LINE_BYTES:
            raise UsageError(f"line {number} has more than {MAX_LINE_BYTES // 2**20} MiB")
        text = raw.decode("utf-8", "surrogateescape").rstrip("\r\n")
        is_comment = not parts and text.lstrip().startswith("#")
        if (len(text) - len(text.rstrip("\\"))) % 2 == 1 and not is_comment:
            parts.append(text[:-1])
            continue
        line = _split(begun, "".join([*parts, text]))
        parts.clear()
        if line.words or line.fault:
            yield line
    if parts:
        yield BatchLine(begun, [], "it ends with a backslash, and no line follows")


def _split(number: int, text: str) -> BatchLine:
    if any(mark in text for mark in "'\"\\"):
        # shlex ends a word at any #, a shell only before a word.
        begun = next((word.start() for word in _WORD.finditer(text) if word[0].startswith("#")), len(text))
        try:
            words = shlex.split(text[:begun])
        except ValueError as failure:
            return BatchLine(number, [], str(failure)[:1].lower() + str(failure)[1:])
    else:
        words = list(itertools.takewhile(lambda word: not word.startswith("#"), text.split()))
    return BatchLine(number, words[1:] if words and words[0] in PROGRAMS else words)


def _run_line(host: CommandHost, line: BatchLine, name: str) -> tuple[int, bool]:
    """Run and report a command line; return its exit code, and whether the batch ends here in any case."""
    if line.fault:
        outcome = CommandOutcome(UsageError.exit_code, UsageError(line.fault))
    else:
        outcome = (host.run_captured if host.json else host.run)(line.words)
    place = f"line {line.number} of {name}"
    if host.json:
        output.emit_json_line(_result(host, line, outcome))
    elif isinstance(outcome.failure, Exception):
        failure = output.translated_failure(outcome.failure)
        if isinstance(failure, NatsctlError):
            failure.hint = "\n".join(filter(None, (output.hint_of(failure), place)))
        output.report_failure(
            failure, as_json="-j" in line.words or "--json" in line.words, trace="--trace" in line.words
        )
    elif outcome.exit_code:
        output.note(f"{place}: exit status {outcome.exit_code}")
    return outcome.exit_code, isinstance(outcome.failure, KeyboardInterrupt)


def _result(host: CommandHost, line: BatchLine, outcome: CommandOutcome) -> BatchResult:
    failure, error = outcome.failure, None
    if isinstance(failure, Exception):
        error = output.error_object(output.translated_failure(failure))["error"]
    return BatchResult(
        line=line.number,
        command=host.path,
        exit_status=outcome.exit_code,
        output=_embedded(outcome.output, per_line="*" in host.answer),
        error=error,
    )


def _embedded(printed: bytes, *, per_line: bool) -> Any:
    if not printed:
        return None
    try:
        if per_line:
            return [json_module.loads(document) for document in printed.splitlines()]
    except ValueError:
        pass  # an alternative with one document
    try:
        return json_module.loads(printed)
    except ValueError:
        return printed.decode("utf-8", "backslashreplace")
