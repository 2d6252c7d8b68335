"""The entry point: finds the command by a static table, loads only its module, and ends with the design's exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from natsctl.cli.app import App, Command


class Noun(NamedTuple):
    """A first word of the command line: where its commands are, and what root help says of them."""

    name: str
    aliases: tuple[str, ...]
    module: str
    help: str


NOUNS = (
    Noun("account", ("a", "act"), "account", "Show JetStream use and limits of the account"),
    Noun("stream", ("str", "st", "s"), "stream", "Create, list, show, edit, purge, back up and remove streams"),
    Noun("consumer", ("con", "obs", "c"), "consumer", "Create, list, show, read from and remove consumers"),
    Noun("publish", ("pub",), "publish", "Publish messages"),
    Noun("request", ("req",), "request", "Send a request and show its answers"),
    Noun("subscribe", ("sub",), "subscribe", "Show messages as they arrive"),
    Noun("events", ("event", "e"), "events", "Show advisories and metrics as they arrive"),
    Noun("backup", (), "backup", "Back up the configuration, with --data also the messages, of every stream"),
    Noun("restore", (), "restore", "Restore a configuration backup"),
    Noun("server", ("srv",), "server", "Run the included server"),
    Noun("tour", (), "tour", "Run the ORDERS scenario from start to end on a temporary server"),
)

JSON_FLAGS = frozenset({"-j", "--json"})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command line and exit with its code."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(words: list[str]) -> int:
    """The exit code of one command line; what it has to say was written to stdout and stderr."""
    try:
        code = _dispatch(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read us has gone and wants no more: nothing to say, and nothing may be flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        from natsctl.cli.errors import ExitCode

        return ExitCode.INTERRUPTED
    except Exception as failure:
        return _failed(failure, words)
    return code


def _failed(failure: Exception, words: Sequence[str]) -> int:
    """The exit code of a failure, which is told on stderr; a traceback only with --trace and only for what is our fault."""
    from natsctl.api.errors import NatsctlError
    from natsctl.cli.errors import ExitWith, exit_code_of, render_error

    if not isinstance(failure, ExitWith):
        given = words[: words.index("--")] if "--" in words else words
        if "--trace" in given and not isinstance(failure, NatsctlError):
            import traceback

            traceback.print_exception(failure)
        sys.stdout.flush()
        print(render_error(failure, as_json=not JSON_FLAGS.isdisjoint(given)), file=sys.stderr)
    return int(exit_code_of(failure))


def _dispatch(words: list[str]) -> int:
    if not words or (words[0] in ("--help", "-h", "help") and len(words) == 1):
        return _show(root_help())
    if words[0] == "help":
        words = [*words[1:], "--help"]
    from natsctl.cli.globals import GLOBAL_FLAGS, given_globals
    from natsctl.cli.parse import parse

    root = parse(GLOBAL_FLAGS, words, stop_at_argument=True)
    given = given_globals(root.given)
    if "version" in given:
        from natsctl import __version__

        return _show(__version__)
    if not root.rest:
        return _show(root_help())
    noun = _noun(root.rest[0])
    app: App = importlib.import_module(f"natsctl.cli.{noun.module}").app
    return _run_noun(app, noun.name, root.rest[1:], given)


def _noun(word: str) -> Noun:
    found = next((noun for noun in NOUNS if word == noun.name or word in noun.aliases), None)
    if found is None:
        from natsctl.api.errors import UsageError
        from natsctl.cli.suggest import did_you_mean

        known = [name for noun in NOUNS for name in (noun.name, *noun.aliases)]
        raise UsageError(f"unknown command {word!r}", hint=did_you_mean(word, known) or "see natsctl --help")
    return found


def _run_noun(app: App, path: str, words: list[str], given: dict[str, Any]) -> int:
    """Run the command that the words after a noun name; global flags may stand before it too."""
    from natsctl.cli.globals import GLOBAL_FLAGS, given_globals
    from natsctl.cli.parse import parse

    if app.main_command is not None:
        return _run_command(app.main_command, path, words, given)
    parsed = parse(GLOBAL_FLAGS, words, stop_at_argument=True)
    given = {**given, **given_globals(parsed.given)}
    if not parsed.rest:
        from natsctl.cli.usage import app_help

        return _show(app_help(path, app))
    word, *words = parsed.rest
    if "help" in given:
        words.append("--help")
    if word in app.groups:
        return _run_noun(app.groups[word], f"{path} {word}", words, given)
    command = app.find(word)
    if command is None:
        from natsctl.api.errors import UsageError
        from natsctl.cli.suggest import did_you_mean

        known = [name for command in app.commands.values() for name in (command.name, *command.aliases)]
        hint = did_you_mean(word, [*known, *app.groups]) or f"see natsctl {path} --help"
        raise UsageError(f"unknown command {path} {word!r}", hint=hint)
    return _run_command(command, f"{path} {command.name}", words, given)


def _run_command(command: Command, path: str, words: list[str], given: dict[str, Any]) -> int:
    from natsctl.cli.context import Session
    from natsctl.cli.globals import GLOBAL_FLAGS, given_globals, global_options
    from natsctl.cli.parse import parse

    if command.raw:
        session = Session(global_options(given))
        return int(command.function(session, words) or 0)
    parsed = parse((*command.parameters, *GLOBAL_FLAGS), words)
    given = {**given, **given_globals(parsed.given)}
    if "help" in given:
        from natsctl.cli.usage import command_help

        return _show(command_help(path, command, GLOBAL_FLAGS))
    values = parsed.values(command.parameters)
    session = Session(global_options(given), json=bool(values.get("json", False)))
    try:
        return int(command.function(session, **values) or 0)
    finally:
        session.close()


def _show(text: str) -> int:
    print(text)
    return 0


def root_help() -> str:
    """The page of `natsctl --help`, made from the table alone: no command is loaded."""
    from natsctl.cli.globals import GLOBAL_FLAGS
    from natsctl.cli.usage import flag_rows, rows

    commands = rows((", ".join((noun.name, *noun.aliases)), noun.help) for noun in NOUNS)
    return "\n".join(
        [
            "usage: natsctl [flags] <command> [arguments]",
            "",
            "Administer NATS JetStream: streams, consumers, messages and backups, on any NATS server or the included one.",
            "",
            "Commands:",
            *commands,
            "",
            "Flags, before or after the command:",
            *flag_rows(GLOBAL_FLAGS),
            "",
            "`natsctl <command> --help` explains a command.",
            "Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 conflict, 5 unreachable, 6 not authorised,",
            "            7 nothing received, 10 drift, 130 interrupted.",
        ]
    )
