"""The page of `natsctl COMMAND --help`: nothing is cut off, defaults and the values of flags are explained."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from natsctl.cli.output import terminal_width
from natsctl.cli.root_help import columns

VALUES = (
    ("DURATION", "such as 30s, 5m, 1h30m, 7d, 1y2d"),
    ("SIZE", "bytes, or such as 10KB, 5MB, 1GiB (steps of 1024)"),
    ("TIME", "such as 2026-01-31T12:00:00Z"),
)


def render_command_help(command: Any, path: str, examples: Sequence[str] = ()) -> str:
    """The page of a command or of a group of them; `path` is what a person types before its arguments."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    flags = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    below = getattr(command, "commands", None)
    usage = [path, "COMMAND" if below else "", "[FLAGS]", *(_argument(one) for one in arguments)]
    lines = [*textwrap.wrap(f"Usage: {' '.join(filter(None, usage))}", terminal_width(), subsequent_indent=" " * 7), ""]
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        lines += [*textwrap.wrap(paragraph, terminal_width()), ""]
    if below:
        lines += ["Commands:", *columns([(name, _summary(one)) for name, one in below.items()]), ""]
    if arguments:
        lines += ["Arguments:", *columns([(one.metavar or one.name, one.help or "") for one in arguments]), ""]
    if flags:
        lines += ["Flags:", *columns([(_spelling(one), _meaning(one)) for one in flags]), ""]
    lines += _endings(examples, flags)
    lines.append(f"`{path} COMMAND --help` explains one." if below else "Flags of every command: see natsctl --help.")
    return "\n".join(lines)


def _endings(examples: Sequence[str], flags: list[Any]) -> Iterator[str]:
    metavars = " ".join(str(one.metavar or "") for one in flags)
    values = [(word, meaning) for word, meaning in VALUES if word in metavars]
    if values:
        yield from ("Values:", *columns(values), "")
    if examples:
        yield from ("Examples:", *(f"  {line}" for line in examples), "")


def _argument(parameter: Any) -> str:
    word = str(parameter.metavar or parameter.name)
    return word if parameter.required else f"[{word}]"


def _summary(command: Any) -> str:
    """The first paragraph of what a command says about itself, without its full stop."""
    first = inspect.cleandoc(command.help or "").split("\n\n")[0]
    return " ".join(first.split()).removesuffix(".")


def _spelling(parameter: Any) -> str:
    """`-f, --force`, `--[no-]ack`, `--max-age DURATION`."""
    long = [word for word in parameter.opts if word.startswith("--")]
    short = [word for word in parameter.opts if not word.startswith("--")]
    if parameter.secondary_opts:
        long = [f"--[no-]{long[0].removeprefix('--')}", *long[1:]]
    value = "" if parameter.is_flag else f" {parameter.metavar}"
    return f"{', '.join([*short, *long])}{value}"


def _meaning(parameter: Any) -> str:
    default = parameter.default
    shown = "on" if default is True else str(default) if isinstance(default, int) and default else ""
    return f"{parameter.help or ''}{f' [{shown}]' if shown else ''}"
