"""Pages of help: `natsctl --help` (from tables only), and pages of groups and commands.

Nothing is cut off; defaults and the values that flags take are explained.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from natsctl.cli.framework.globals import GLOBAL_FLAGS, GlobalFlag
from natsctl.cli.framework.nouns import BY_WORD, HEADINGS
from natsctl.cli.framework.output import terminal_width

if TYPE_CHECKING:
    from natsctl.cli.framework.command_line import Command, Parameter
    from natsctl.cli.framework.verbs import Verb

_INDENT = "  "
MAX_LEFT = 32
"""Columns for flags; the description of a longer one begins on a line of its own."""


_ABOUT = "Administer NATS JetStream: streams, consumers, messages and backups, on any NATS server or on natsctl's own."
_EXITS = (
    "Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 conflict, 5 unreachable, 6 not authorised, "
    "7 nothing received, 10 drift, 130 interrupted."
)

VALUES = (
    ("DURATION", "such as 30s, 5m, 1h30m, 7d, 1y2d"),
    ("SIZE", "bytes, or such as 10KB, 5MB, 1GiB (steps of 1024)"),
    ("TIME", "such as 2026-01-31T12:00:00Z"),
)


def render_root_help(programs: Mapping[str, str]) -> str:
    """Return the page of `natsctl --help`; `programs` are the paths of other programs by command."""
    lines = ["usage: natsctl [flags] <command> [arguments]", "", *textwrap.wrap(_ABOUT, terminal_width()), ""]
    for title, nouns in HEADINGS.items():
        lines += [f"{title}:", *columns([(noun.names, noun.help) for noun in nouns], 28), ""]
    others = [(name, path) for name, path in programs.items() if name not in BY_WORD]
    if others:
        from natsctl.cli.render.text import safe

        lines += ["Programs on PATH:", *columns([(name, safe(path)) for name, path in others], 28), ""]
    for title, flags in _flags_by_heading():
        lines += [f"{title}:", *columns([(_global_spelling(flag), flag.help) for flag in flags], 28), ""]
    lines += textwrap.wrap(
        "Flags may stand before or after the command. Most commands take -j for JSON.", terminal_width()
    )
    lines += textwrap.wrap(
        "`natsctl <command> --help` explains a command, `natsctl cheat` shows examples.", terminal_width()
    )
    lines += textwrap.wrap(_EXITS, terminal_width(), subsequent_indent=" " * 12)
    return "\n".join(lines)


def _flags_by_heading() -> Iterator[tuple[str, list[GlobalFlag]]]:
    found: dict[str, list[GlobalFlag]] = {}
    for flag in GLOBAL_FLAGS:
        title = flag.heading or list(found)[-1]
        found.setdefault(title, []).append(flag)
    yield from found.items()


def columns(rows: Sequence[tuple[str, str]], least: int = 0) -> list[str]:
    """Return two columns, the right one wrapped; a long word on the left has a line of its own.

    `least` is the minimum width of the left one, to align several lists.
    """
    left_width = min(max(least, *(len(left) for left, _ in rows)), MAX_LEFT)
    indent = f"{_INDENT}{'':<{left_width}}  "
    room = max(terminal_width() - len(indent), 24)
    lines = []
    for left, right in rows:
        words = textwrap.wrap(right, room)
        if len(left) > left_width:
            lines.append(f"{_INDENT}{left}")
        else:
            lines.append(f"{_INDENT}{left:<{left_width}}  {words.pop(0) if words else ''}".rstrip())
        lines += [indent + line for line in words]
    return lines


def _global_spelling(flag: GlobalFlag) -> str:
    short = next((spelling for spelling in flag.spellings if not spelling.startswith("--")), "")
    long = next(spelling for spelling in flag.spellings if spelling.startswith("--"))
    return f"{short + ', ' if short else '    '}{long}{' ' + flag.metavar if flag.metavar else ''}"


def render_command_help(command: Command, path: str, examples: Sequence[str] = ()) -> str:
    """Return the page of a command; `path` is the command line before its arguments."""
    rows = [(_spelling_of(option), _meaning(option)) for option in command.options if not option.declared.hidden]
    usage = " ".join([path, "[FLAGS]", *(_argument(argument) for argument in command.arguments)])
    lines = [*textwrap.wrap(f"Usage: {usage}", terminal_width(), subsequent_indent=" " * 7), ""]
    for paragraph in (command.function.__doc__ or "").split("\n\n"):
        lines += [*textwrap.wrap(" ".join(paragraph.split()), terminal_width()), ""]
    if command.arguments:
        arguments = [
            (argument.declared.metavar or argument.name, argument.declared.help) for argument in command.arguments
        ]
        lines += ["Arguments:", *columns(arguments), ""]
    if rows:
        lines += ["Flags:", *columns(rows), ""]
    lines += _endings(examples, " ".join(left for left, _ in rows))
    lines.append("Flags of every command: see natsctl --help.")
    return "\n".join(lines)


def render_group_help(about: str, verbs: Sequence[Verb], path: str, examples: Sequence[str] = ()) -> str:
    """Return the page of a group; `path` is the command line before one of its verbs."""
    lines = [*textwrap.wrap(f"Usage: {path} COMMAND [FLAGS]", terminal_width(), subsequent_indent=" " * 7), ""]
    lines += [*textwrap.wrap(f"{about}.", terminal_width()), ""]
    commands_first = sorted(verbs, key=lambda verb: verb.is_group)
    lines += ["Commands:", *columns([(verb.names, verb.summary) for verb in commands_first]), ""]
    lines += [*_endings(examples), f"`{path} COMMAND --help` explains one."]
    return "\n".join(lines)


def _endings(examples: Sequence[str], flags: str = "") -> Iterator[str]:
    values = [(word, meaning) for word, meaning in VALUES if word in flags]
    if values:
        yield from ("Values:", *columns(values), "")
    if examples:
        yield from ("Examples:", *(f"  {line}" for line in examples), "")


def _argument(parameter: Parameter) -> str:
    word = parameter.declared.metavar or parameter.name
    return word if parameter.is_needed else f"[{word}]"


def _spelling_of(parameter: Parameter) -> str:
    """Return an option as `-f, --force`, `--[no-]ack` or `--max-age DURATION`."""
    spellings = [f"--[no-]{name.partition('/')[0][2:]}" if "/" in name else name for name in parameter.declared.names]
    spellings.sort(key=lambda spelling: spelling.startswith("--"))
    return f"{', '.join(spellings)}{'' if parameter.is_switch else f' {parameter.declared.metavar}'}"


def _meaning(parameter: Parameter) -> str:
    default = parameter.default if parameter.declared.read is None else None
    shown = "on" if default is True else str(default) if isinstance(default, int) and default else ""
    return f"{parameter.declared.help}{f' [{shown}]' if shown else ''}"
