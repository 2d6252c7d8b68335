"""Help pages as plain text, from the table of commands and what their parameters declare."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from natsctl.cli.app import App, Command, Option, Parameter
from natsctl.cli.output import width

_INDENT = 2
_MAX_LEFT = 30


def rows(entries: Iterable[tuple[str, str]]) -> list[str]:
    """Two columns, the right one wrapped to the terminal; a long left cell gets a line of its own."""
    entries = list(entries)
    left_width = min(max((len(left) for left, _ in entries), default=0), _MAX_LEFT)
    room = max(width() - left_width - _INDENT - 2, 24)
    lines = []
    for left, right in entries:
        wrapped = textwrap.wrap(right, room) or [""]
        if len(left) > left_width:
            lines.append(f"{' ' * _INDENT}{left}")
        else:
            lines.append(f"{' ' * _INDENT}{left:<{left_width}}  {wrapped.pop(0)}".rstrip())
        lines += [f"{' ' * (_INDENT + left_width + 2)}{line}" for line in wrapped]
    return lines


def flag_rows(parameters: Sequence[Parameter]) -> list[str]:
    """The rows of the flags that help shows."""
    entries = []
    for parameter in parameters:
        spec = parameter.spec
        if isinstance(spec, Option) and not spec.hidden:
            entries.append((_spelling(parameter, spec), _explained(parameter, spec.help)))
    return rows(entries)


def _spelling(parameter: Parameter, spec: Option) -> str:
    short = next((flag for flag in spec.flags if not flag.startswith("--")), "")
    long = next((flag for flag in spec.flags if flag.startswith("--")), "")
    if spec.negatable and long:
        long = f"--[no-]{long[2:]}"
    names = ", ".join(name for name in (short, long) if name) if short else f"    {long}"
    if parameter.switch:
        return names
    return f"{names} {spec.metavar or parameter.name.upper()}"


def _explained(parameter: Parameter, text: str) -> str:
    if parameter.choices:
        text = f"{text} ({', '.join(parameter.choices)})".strip()
    if parameter.default not in (None, "", False, [], ()) and not parameter.switch:
        default = getattr(parameter.default, "value", parameter.default)
        text = f"{text} [{default}]"
    return text


def command_help(path: str, command: Command, global_flags: Sequence[Parameter]) -> str:
    """The page of one command."""
    arguments = [parameter for parameter in command.parameters if not isinstance(parameter.spec, Option)]
    words = [_placeholder(parameter) for parameter in arguments]
    lines = [f"usage: natsctl {path} {' '.join([*words, '[flags]'])}", "", command.help]
    if command.aliases:
        lines += ["", f"Aliases: {', '.join(command.aliases)}"]
    if arguments:
        lines += ["", "Arguments:", *rows((parameter.label, parameter.spec.help) for parameter in arguments)]
    if own := flag_rows(command.parameters):
        lines += ["", "Flags:", *own]
    lines += ["", "Global flags:", *flag_rows(global_flags)]
    return "\n".join(lines)


def _placeholder(parameter: Parameter) -> str:
    name = f"<{parameter.label.lower()}>{'...' if parameter.repeated else ''}"
    return name if parameter.required else f"[{name}]"


def app_help(path: str, app: App) -> str:
    """The page of a noun: its commands."""
    shown = [command for command in app.commands.values() if not command.hidden]
    entries = [(", ".join((command.name, *command.aliases)), first_line(command.help)) for command in shown]
    entries += [(name, first_line(group.help)) for name, group in app.groups.items()]
    return "\n".join(
        [
            f"usage: natsctl {path} <command> [flags]",
            "",
            app.help,
            "",
            "Commands:",
            *rows(entries),
            "",
            f"`natsctl {path} <command> --help` explains a command, `natsctl --help` the global flags.",
        ]
    )


def first_line(text: str) -> str:
    """The first line of a text."""
    return text.partition("\n")[0]
