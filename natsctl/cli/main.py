"""The entry point: finds the noun in a static table, loads only its module, and ends with the documented exit codes.

`natsctl --help` and `--version` come from the tables, without Typer.
"""

from __future__ import annotations

import gc
import io
import os
import sys

from natsctl.cli.framework.nouns import BY_WORD, NOUNS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from natsctl.cli.framework.invocation import CommandHost

MAX_NOUNS = 4
"""Most nouns that the error for a verb without its noun shows."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command line and exit with its code."""
    # Imported objects never become garbage; collection is enabled when the command starts its work.
    gc.disable()
    _open_missing()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Boxes, arrows and names must not fail if the output is not UTF-8; stderr escapes already.
        sys.stdout.reconfigure(errors="backslashreplace")
    _leave(run(list(sys.argv[1:] if arguments is None else arguments)))


def _open_missing() -> None:
    """Open the null device for a closed stdin, stdout or stderr, before a socket gets the free descriptor."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # The lowest free descriptor is this one, as those below are open by now.
            setattr(sys, name, open(os.devnull, "r" if number == 0 else "w"))  # noqa: SIM115, PTH123  # stays open


def _leave(code: int) -> NoReturn:
    """End the process, without taking its modules apart: that is up to a tenth of a short command.

    Threads, exit handlers, debuggers and profilers need Python's own end.
    """
    is_watched = sys.gettrace() or sys.getprofile() or sys.flags.inspect
    if is_watched or not sys.modules.keys().isdisjoint(("atexit", "threading")):
        sys.exit(code)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)
    os._exit(code)


def run(words: list[str]) -> int:
    try:
        code = dispatch(words)
        sys.stdout.flush()
    except BrokenPipeError:
        from natsctl.cli.framework.output import drop_stdout

        drop_stdout()  # the reader has closed the pipe
        return 0
    except KeyboardInterrupt:
        from natsctl.api.errors import ExitCode

        return ExitCode.INTERRUPTED
    except Exception as failure:
        from natsctl.cli.framework.command_line import wants_json
        from natsctl.cli.framework.output import report_failure

        return report_failure(failure, as_json=wants_json(words), trace="--trace" in words)
    return code


def dispatch(words: list[str], host: CommandHost | None = None) -> int:
    """Return the exit code of a command line; raises its errors. With a `host` it runs inside another command."""
    if not words or words in (["--help"], ["-h"], ["help"]):
        return _show_root_help()
    if words[0] == "__complete" and host is None:
        from natsctl.cli.framework.candidates import answer

        return answer(words[1:])
    if words[:2] == ["server", "run"] and host is None:
        return _serve(words[2:])
    if words in (["--version"], ["version"]):
        return _show_version()
    if words[0] == "help":
        words = [*words[1:], "--help"]
    from natsctl.api.errors import UsageError
    from natsctl.cli.framework.command_line import leading, run_noun

    given, rest = leading(words)
    if "version" in given or rest == ["version"]:
        return _show_version()
    if not rest:
        return _show_root_help()
    noun = BY_WORD.get(rest[0])
    if noun is None:
        return _run_other(rest, given, host)
    if [noun.name, *rest[1:2]] == ["server", "run"]:
        if host is not None:
            raise UsageError("server run cannot run inside another command", hint="start it in its own process")
        return _serve(rest[2:])
    return run_noun(noun, rest[1:], given, host)


def _show_version() -> int:
    from natsctl import __version__

    print(__version__)
    return 0


def _serve(words: Sequence[str]) -> int:
    """Return the exit status of the server that `server run` asks for.

    Its flags are nats-server's, not Typer's: loading Typer would only double the time to a ready server; the server
    enables garbage collection.
    """
    from natsctl.cli.server.provisioned import serve

    return serve(words)


def _run_other(words: Sequence[str], given: dict[str, Any], host: CommandHost | None) -> int:
    """Execute the program that the first word names; raises UsageError if it does not exist, or a host is there."""
    from natsctl.api.errors import UsageError
    from natsctl.cli.framework.programs import program_of, programs, run_program
    from natsctl.cli.framework.resolve import did_you_mean

    if path := program_of(words[0]):
        if host is not None:
            raise UsageError(f"{path} cannot run inside another command", hint="run it from a shell")
        run_program(path, words[1:], given)

    known = {**BY_WORD, **{name: name for name in programs()}}
    hint = did_you_mean(words[0], known) or _with_nouns(words[0]) or "see natsctl --help"
    raise UsageError(f"unknown command {words[0]!r}", hint=hint)


def _with_nouns(word: str) -> str:
    nouns = [noun.name for noun in NOUNS if any(word in verb.words for verb in noun.verbs)][:MAX_NOUNS]
    return f"it needs a noun: {', '.join(f'natsctl {noun} {word}' for noun in nouns)}" if nouns else ""


def _show_root_help() -> int:
    from natsctl.cli.framework.help import render_root_help
    from natsctl.cli.framework.programs import programs

    print(render_root_help(programs()))
    return 0
