"""Pages of help: `natsctl --help` (from tables only), and pages of groups and commands.

Nothing is cut off; defaults and the values that flags take are explained.
"""

from __future__ import annotations

from natsctl.cli.framework.globals import GLOBAL_FLAGS, GlobalFlag
from natsctl.cli.framework.nouns import BY_WORD, HEADINGS
from natsctl.cli.framework.output import terminal_width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from natsctl.cli.framework.command_line import Command, Parameter
    from natsctl.cli.framework.verbs import Verb

_INDENT = "  "
MAX_LEFT = 32
"""Columns for flags; the description of a longer one begins on a line of its own."""


_ABOUT = "Administer NATS JetStream: streams, consumers, messages and backups, on any NATS server or on natsctl's own."
_NOTES = (
    "Flags may stand before or after the command. Most commands take -j for JSON.",
    "`natsctl <command> --help` explains a command, `natsctl cheat` shows examples.",
)
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
    lines = ["usage: natsctl [flags] <command> [arguments]", "", *wrapped(_ABOUT, terminal_width()), ""]
    for title, nouns in HEADINGS.items():
        lines += [f"{title}:", *columns([(noun.names, noun.help) for noun in nouns], 28), ""]
    others = [(name, path) for name, path in programs.items() if name not in BY_WORD]
    if others:
        from natsctl.cli.render.text import safe

        lines += ["Programs on PATH:", *columns([(name, safe(path)) for name, path in others], 28), ""]
    for title, flags in _flags_by_heading():
        lines += [f"{title}:", *columns([(_global_spelling(flag), flag.help) for flag in flags], 28), ""]
    for text in _NOTES:
        lines += wrapped(text, terminal_width())
    lines += wrapped(_EXITS, terminal_width(), " " * 12)
    return "\n".join(lines)


def _flags_by_heading() -> Iterator[tuple[str, list[GlobalFlag]]]:
    found: dict[str, list[GlobalFlag]] = {}
    for flag in GLOBAL_FLAGS:
        title = flag.heading or list(found)[-1]
        found.setdefault(title, []).append(flag)
    yield from found.items()


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Return a text in lines of at most `width`, those after the first indented.

    Lines end at blanks, or after a hyphen in a word. textwrap does the same with regular expressions; to compile
    them takes longer than all of root help.
    """
    lines: list[str] = []
    line = ""
    for word in text.split():
        blank = " " if line else ""
        for part in _parts(word):
            while len(part) > width - len(indent) * bool(lines):  # longer than a line
                cut = max(width - len(line + blank), 1)
                lines.append(line + blank + part[:cut])
                line, blank, part = indent, "", part[cut:]
            if line.strip() and len(line) + len(blank) + len(part) > width:
                lines.append(line)
                line, blank = indent, ""
            line += blank + part
            blank = ""
    return [*lines, line] if line else lines


def _parts(word: str) -> list[str]:
    """Split a word after each hyphen that has two letters on each side."""
    parts, begin = [], 0
    for index in range(2, len(word) - 2):
        if word[index] == "-" and word[index - 2 : index].isalpha() and word[index + 1 : index + 3].isalpha():
            parts.append(word[begin : index + 1])
            begin = index + 1
    return [*parts, word[begin:]]


def columns(rows: Sequence[tuple[str, str]], least: int = 0) -> list[str]:
    """Return two columns, the right one wrapped; a long word on the left has a line of its own.

    `least` is the minimum width of the left one, to align several lists.
    """
    left_width = min(max(least, *(len(left) for left, _ in rows)), MAX_LEFT)
    indent = f"{_INDENT}{'':<{left_width}}  "
    room = max(terminal_width() - len(indent), 24)
    lines = []
    for left, right in rows:
        texts = wrapped(right, room)
        if len(left) > left_width:
            lines.append(f"{_INDENT}{left}")
        else:
            lines.append(f"{_INDENT}{left:<{left_width}}  {texts.pop(0) if texts else ''}".rstrip())
        lines += [indent + text for text in texts]
    return lines


def _global_spelling(flag: GlobalFlag) -> str:
    short = next((spelling for spelling in flag.spellings if not spelling.startswith("--")), "")
    long = next(spelling for spelling in flag.spellings if spelling.startswith("--"))
    return f"{short + ', ' if short else '    '}{long}{' ' + flag.metavar if flag.metavar else ''}"


def render_command_help(command: Command, path: str, examples: Sequence[str] = ()) -> str:
    """Return the page of a command; `path` is the command line before its arguments."""
    rows = [(_spelling_of(option), _meaning(option)) for option in command.options if not option.declared.hidden]
    usage = " ".join([path, "[FLAGS]", *(_argument(argument) for argument in command.arguments)])
    lines = [*wrapped(f"Usage: {usage}", terminal_width(), " " * 7), ""]
    for paragraph in (command.function.__doc__ or "").split("\n\n"):
        lines += [*wrapped(paragraph, terminal_width()), ""]
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
    lines = [*wrapped(f"Usage: {path} COMMAND [FLAGS]", terminal_width(), " " * 7), ""]
    lines += [*wrapped(f"{about}.", terminal_width()), ""]
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
