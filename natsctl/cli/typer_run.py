"""Running a noun's Typer app: global options taken out, Typer's own failures as natsctl's."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from natsctl.api.errors import UsageError
from natsctl.cli.globals import OF_NOUNS, all_spellings, take_out, wants_json
from natsctl.cli.output import looking, tell
from natsctl.cli.session import GlobalOptions, Session, given_on_stdin
from natsctl.cli.suggest import did_you_mean
from natsctl.cli.verbs import begun, build, build_single, load, named, verbs_first, walk
from natsctl.client.preview import DryRunError

if TYPE_CHECKING:
    from natsctl.cli.main import Noun

_USE_RICH = "TYPER_USE_RICH"
_TERMINATED = 128 + signal.SIGTERM


def run_noun(noun: Noun, words: Sequence[str], given: dict[str, Any]) -> int:
    """The exit code of a noun's command; raises UsageError and whatever the command raises."""
    if ":" not in noun.where and not noun.alone:
        words = verbs_first(load(noun.where), words)
    group, command = _made(noun, words)
    chain = _named(command, words)
    path = " ".join(["natsctl", noun.name, *(one.name.partition(",")[0] for one in chain[1:])])
    more, arguments = take_out(words, _flags_of(chain[-1]), OF_NOUNS.get(noun.name))
    given = {**given, **more}
    if "help" in given or (group and len(arguments) < len(chain) and hasattr(chain[-1], "commands")):
        return _help(chain[-1], path, _examples(noun, path), asked="help" in given)
    _read_plainly(chain)
    before = signal.signal(signal.SIGTERM, _terminate)
    with looking(given):
        session = Session(_options(given_on_stdin(given)), json=wants_json(words))
        try:
            return _run(command, arguments, f"natsctl {noun.name}", session)
        finally:
            session.close()
            signal.signal(signal.SIGTERM, before)


_commands: Final[dict[tuple[Any, ...], Any]] = {}
"""Commands that were made, by what they are made of: to make one takes as long as to run it."""


def _made(noun: Noun, words: Sequence[str]) -> tuple[bool, Any]:
    """Whether the noun is a group of verbs here, and its command, made once in a process."""
    typer_main = import_typer()
    verbs = () if ":" in noun.where else load(noun.where)
    first = next((word for word in words if word == "-" or not word.startswith("-")), "")
    alone = noun.where if ":" in noun.where else "" if named(verbs, first) else noun.alone
    path = [*begun(verbs, words)]
    runs = alone or (path[-1].where if path and not path[-1].is_group else "")
    key = (noun.name, *(one.names for one in path), load(runs) if runs else None)
    if key not in _commands:
        if alone:
            _commands[key] = typer_main.get_command(build_single(alone))
        else:
            _commands[key] = typer_main.get_group(build(f"{noun.help}.", verbs, words))
    return not alone, _commands[key]


def _terminate(number: int, frame: FrameType | None) -> None:
    """End like Ctrl-C does, so that what was half done is cleared away."""
    sys.exit(_TERMINATED)


def import_typer() -> Any:
    """`typer.main`, told not to bring rich along: help and errors are plain text."""
    before = os.environ.get(_USE_RICH)
    os.environ[_USE_RICH] = "0"
    try:
        return importlib.import_module("typer.main")
    finally:
        if before is None:
            del os.environ[_USE_RICH]
        else:
            os.environ[_USE_RICH] = before


def _options(given: dict[str, Any]) -> GlobalOptions:
    known = GlobalOptions.__dataclass_fields__
    return GlobalOptions(**{name: value for name, value in given.items() if name in known})


def _named(command: Any, words: Sequence[str]) -> list[Any]:
    """The commands that the words name, from the noun down."""
    chain = [command]
    for word in words:
        find = getattr(chain[-1], "find", None)
        if find is None:
            break
        if word == "-" or not word.startswith("-"):
            found = find(word)
            if found is None:
                break
            chain.append(found)
    return chain


def _flags_of(command: Any) -> dict[str, bool]:
    """The flags that a command declares, and whether each takes a value."""
    return {
        spelling: not getattr(parameter, "is_flag", False)
        for parameter in command.params
        for spelling in (*parameter.opts, *parameter.secondary_opts)
        if spelling.startswith("-")
    }


def _examples(noun: Noun, path: str) -> Sequence[str]:
    """The examples of the command that `path` names."""
    _, _, below = path.removeprefix("natsctl ").partition(" ")
    if not below or ":" in noun.where:
        return noun.examples
    return dict(walk(load(noun.where)))[below].examples


def _help(command: Any, path: str, examples: Sequence[str], *, asked: bool) -> int:
    """Show a command's page: the answer when it was asked for, else what is missing."""
    from natsctl.cli.command_help import render_command_help

    print(render_command_help(command, path, examples), file=sys.stdout if asked else sys.stderr)
    return 0 if asked else UsageError.exit_code


def _read_plainly(chain: Sequence[Any]) -> None:
    """Keep pydantic out of commands with plain values; `--help` was seen to before, so they need no flag for it."""
    from natsctl.cli.plain_values import read_plainly

    for command in chain:
        read_plainly(command.params)
        command.add_help_option = False


def _run(command: Any, arguments: list[str], path: str, session: Session) -> int:
    import typer

    usage_error: Any = typer.BadParameter.__base__
    click_error: Any = usage_error.__base__
    try:
        # Not `command.main`, which takes an EOFError, as a truncated file raises it, for an interruption by the user.
        with command.make_context(path, list(arguments), obj=session) as context:
            result = command.invoke(context)
    except typer.Exit as end:
        return int(end.exit_code)
    except DryRunError as preview:
        from natsctl.cli.consent import show_preview

        show_preview(preview, session.effect, as_json=session.json)
        return 0
    except usage_error as failure:
        if type(failure).__name__ == "NoArgsIsHelpError":
            tell(failure.format_message())
            return UsageError.exit_code
        raise _explained(failure, path) from None
    except click_error as failure:
        raise UsageError(failure.format_message()) from None
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _only_when_made(path: str, flag: str) -> str:
    """Why an edit has no such flag, if adding has it."""
    words = path.split()
    if "edit" not in words[-1].split(",")[0]:
        return ""
    from natsctl.cli.consumer.definition import CONSUMER_ADD
    from natsctl.cli.stream.create import STREAM_ADD

    table = STREAM_ADD if "stream" in words else CONSUMER_ADD
    known = any(flag in (one.name, *one.aliases) for one in table)
    return f"{flag} is set when a {words[1]} is created, and cannot be changed" if known else ""


def _plain(text: str) -> str:
    """Return Typer's text as ours: `--count: x is not a number`, `unexpected argument x`."""
    from natsctl.cli.plain_values import EMPTY

    if found := re.fullmatch(r"Invalid value for (?:('[^']*'(?: / '[^']*')*)|(\S+)): (.*)", text, re.DOTALL):
        name = (found[1] or found[2]).replace("'", "").split(" / ")[0].strip("[].")
        return f"{name} is empty" if found[3] == EMPTY else f"{name}: {found[3]}"
    if found := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", text, re.DOTALL):
        return f"unexpected argument: {found[1]}"
    return text


def _explained(failure: Any, path: str) -> UsageError:
    """Typer's usage error as natsctl's, with what may have been meant."""
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
