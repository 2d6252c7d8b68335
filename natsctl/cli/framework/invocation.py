"""Execution of one command: global options are separated from its words, and Typer parses the rest.

Only the command that runs is built. Typer's failures become natsctl's.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.cli.framework.commands import COMMANDS
from natsctl.cli.framework.globals import OF_NOUNS, GlobalOptions, Words, all_spellings, take_out, wants_json
from natsctl.cli.framework.name_cache import READING, forget_names
from natsctl.cli.framework.output import display_settings, hint_of, render_error, write_stderr
from natsctl.cli.framework.parameters import Command, ExitError, command_of
from natsctl.cli.framework.resolve import did_you_mean
from natsctl.cli.framework.session import Session, given_on_stdin
from natsctl.cli.framework.verbs import Verb, find
from natsctl.client.message import DryRunError
from natsctl.client.received import UNUSABLE, UnreadableEntriesError

if TYPE_CHECKING:
    from natsctl.cli.framework.nouns import Noun

_TERMINATED = 128 + signal.SIGTERM


def run_noun(noun: Noun, words: Sequence[str], given: dict[str, Any]) -> int:
    """Run the command of a noun and return its exit code; raises UsageError and the errors of the command."""
    rows, rest = find(COMMANDS[noun.name], words)
    path = " ".join(["natsctl", *(row.name for row in rows)])
    function = rows[-1].function
    if function is None:
        return _show_group(noun, rows[-1], path, rest, given)
    command = command_of(function)
    more, kept = take_out(rest, command.flags, OF_NOUNS.get(noun.name))
    given = {**given, **more}
    if "help" in given:
        from natsctl.cli.framework.help import render_command_help

        print(render_command_help(command.by_typer, path, rows[-1].examples))
        return 0
    before = signal.signal(signal.SIGTERM, _terminate)
    with display_settings(given):
        session = Session(_options(given_on_stdin(given)), json=wants_json(rest))
        try:
            return _run(command, kept, path, session)
        except (NatsctlError, KeyboardInterrupt) as failure:
            _report_unreadable(session, failure)
            raise
        finally:
            session.close()
            signal.signal(signal.SIGTERM, before)
            if rows[-1].name not in READING:
                forget_names(os.environ)


def _show_group(noun: Noun, group: Verb, path: str, words: Sequence[str], given: dict[str, Any]) -> int:
    """Show the page of a group: on stdout for --help, else on stderr as a usage error.

    Raises UsageError for an unknown verb.
    """
    more, kept = take_out(words, {}, OF_NOUNS.get(noun.name))
    asked = "help" in {**given, **more}
    if kept.all and not asked:
        if kept.all[0] == "help":
            return run_noun(noun, [*path.split()[2:], *kept.all[1:], "--help"], {**given, **more})
        raise _unknown(group, kept.all[0], path)
    from natsctl.cli.framework.help import render_group_help

    about = group.help or noun.help
    print(render_group_help(about, group.verbs, path, group.examples), file=sys.stdout if asked else sys.stderr)
    return 0 if asked else UsageError.exit_code


def _unknown(group: Verb, word: str, path: str) -> UsageError:
    """Return the error for an unknown verb of a group, with a suggestion."""
    if word.startswith("-") and word not in ("-", "--"):
        flag = word.partition("=")[0]
        return UsageError(f"unknown flag {flag}", hint=did_you_mean(flag, all_spellings()) or f"see {path} --help")
    by_word = {name: verb for verb in group.verbs for name in verb.words}
    return UsageError(f"unknown command {word!r}", hint=did_you_mean(word, by_word) or f"see {path} --help")


def _terminate(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does, so that unfinished work is cleaned up."""
    sys.exit(_TERMINATED)


def _report_unreadable(session: Session, failure: BaseException) -> None:
    """Report the entries that were left out, before another failure; stderr of -j is one object, so in its hint."""
    faults = session.received.unreported()
    if faults and session.json and isinstance(failure, NatsctlError):
        failure.hint = "\n".join(filter(None, (hint_of(failure), *faults)))
    elif faults:
        write_stderr(render_error(UnreadableEntriesError(faults), session.json))


def _options(given: dict[str, Any]) -> GlobalOptions:
    return GlobalOptions(**{name: value for name, value in given.items() if name in GlobalOptions._fields})


def _run(command: Command, words: Words, path: str, session: Session) -> int:
    """Return the exit code of a command, whose words Typer reads where they are not in order."""
    try:
        values = command.values(words)
        result = _run_by_typer(command, words, path, session) if values is None else command.run(values, session)
        session.received.check()
    except ExitError as end:
        return end.exit_code
    except DryRunError as preview:
        from natsctl.cli.framework.consent import show_preview

        show_preview(preview, session.effect, as_json=session.json)
        return 0
    except UNUSABLE as failure:
        if session.archive:
            raise UsageError(f"{session.archive}: a document of the bundle is damaged: {failure!r}") from failure
        fault = session.received.fault_behind(failure)
        if fault is None:
            raise
        if session.options.trace:
            import traceback

            traceback.print_exception(failure)
        raise fault from failure
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _run_by_typer(command: Command, words: Words, path: str, session: Session) -> Any:
    """Return the result of a command; raises UsageError for what Typer refuses."""
    found = command.by_typer
    import typer

    usage_error: Any = typer.BadParameter.__base__
    click_error: Any = usage_error.__base__
    try:
        # Not `found.main`, which treats an EOFError (of a truncated file, say) as an interruption by the user.
        with found.make_context(path, list(words.all), obj=session) as context:
            return found.invoke(context)
    except usage_error as failure:
        raise _explained(failure, path) from None
    except click_error as failure:
        raise UsageError(failure.format_message()) from None


def _only_when_made(path: str, flag: str) -> str:
    """Return the reason why an edit lacks a flag of `add`; "" for other flags."""
    words = path.split()
    if "edit" not in words[-1].split(",")[0]:
        return ""
    from natsctl.cli.consumer.definition import CONSUMER_ADD
    from natsctl.cli.stream.create import STREAM_ADD

    table = STREAM_ADD if "stream" in words else CONSUMER_ADD
    known = any(flag in (one.name, *one.aliases) for one in table)
    return f"{flag} is set when a {words[1]} is created, and cannot be changed" if known else ""


def _plain(text: str) -> str:
    """Return Typer's text in our form: `--count: x is not a number`, `unexpected argument x`."""
    from natsctl.cli.framework.parameters import EMPTY

    if found := re.fullmatch(r"Invalid value for (?:('[^']*'(?: / '[^']*')*)|(\S+)): (.*)", text, re.DOTALL):
        name = (found[1] or found[2]).replace("'", "").split(" / ")[0].strip("[].")
        return f"{name} is empty" if found[3] == EMPTY else f"{name}: {found[3]}"
    if found := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", text, re.DOTALL):
        return f"unexpected argument: {found[1]}"
    return text


def _explained(failure: Any, path: str) -> UsageError:
    """Return Typer's usage error as natsctl's, with a suggestion."""
    text = failure.format_message().strip()
    if hasattr(failure, "possibilities"):
        text = text.partition(" Did you mean")[0]
    text = _plain(text.removesuffix("."))
    for kind in ("Missing argument ", "Missing option "):
        if text.startswith(kind):
            text = f"{text.removeprefix(kind).strip(chr(39))} is missing"
    context = getattr(failure, "ctx", None)
    hint = ""
    unknown = getattr(failure, "option_name", "") if hasattr(failure, "possibilities") else ""
    if unknown and context is not None:
        flags = [spelling for parameter in context.command.params for spelling in parameter.opts]
        text = f"unknown flag {unknown}"
        hint = _only_when_made(context.command_path, unknown) or did_you_mean(unknown, [*flags, *all_spellings()])
    where = context.command_path if context is not None else path
    return UsageError(text, hint=hint or f"see {where} --help")
