"""Execution of one command: its global options, its help page or its function, and its exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.cli.framework.globals import OF_NOUNS, GlobalOptions, Words, all_spellings, take_out, wants_json
from natsctl.cli.framework.name_cache import READING, forget_names
from natsctl.cli.framework.output import display_settings, hint_of, render_error, write_stderr
from natsctl.cli.framework.parameters import Command, ExitError, command_of
from natsctl.cli.framework.resolve import did_you_mean
from natsctl.cli.framework.session import Session, given_on_stdin
from natsctl.cli.framework.verbs import Verb, find
from natsctl.client.message import DryRunError
from natsctl.client.received import UNUSABLE, UnreadableEntriesError

_TERMINATED = 128 + signal.SIGTERM


def run_noun(noun: Verb, words: Sequence[str], given: dict[str, Any]) -> int:
    """Run the command of a noun and return its exit code; raises UsageError and the errors of the command."""
    rows, rest = find(noun, words)
    path = " ".join(["natsctl", *(row.name for row in rows)])
    function = rows[-1].function
    if function is None:
        return _show_group(noun, rows[-1], path, rest, given)
    command = command_of(function)
    more, kept = take_out(rest, command.flags, OF_NOUNS.get(noun.name))
    given = {**given, **more}
    if "help" in given:
        from natsctl.cli.framework.help import render_command_help

        print(render_command_help(command, path, rows[-1].examples))
        return 0
    before = signal.signal(signal.SIGTERM, _terminate)
    with display_settings(given):
        session = Session(GlobalOptions(**given_on_stdin(given)), json=wants_json(rest))
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


def _show_group(noun: Verb, group: Verb, path: str, words: Sequence[str], given: dict[str, Any]) -> int:
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

    print(render_group_help(group.help, group.verbs, path, group.examples), file=sys.stdout if asked else sys.stderr)
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


def _run(command: Command, words: Words, path: str, session: Session) -> int:
    try:
        result = command.call(command.values(words, path), session)
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
