"""The page of `natsctl --help`, made from tables: no command and no framework is loaded for it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from natsctl.cli.globals import GLOBAL_FLAGS, GlobalFlag
from natsctl.cli.output import width

if TYPE_CHECKING:
    from natsctl.cli.main import Noun

_INDENT = "  "
MAX_LEFT = 32
"""Columns that flags may take before what they mean begins on a line of its own."""


def render_root_help(nouns: Sequence[Noun]) -> str:
    """The page as text, laid out for the terminal's width."""
    return "\n".join(
        [
            "usage: natsctl [flags] <command> [arguments]",
            "",
            "Administer NATS JetStream: streams, consumers, messages and backups, on any NATS server",
            "or on the included one.",
            "",
            "Commands:",
            *columns([(", ".join((noun.name, *noun.aliases)), noun.help) for noun in nouns]),
            "",
            "Flags, before or after the command:",
            *columns([(_spelling(flag), flag.help) for flag in GLOBAL_FLAGS]),
            "",
            "`natsctl <command> --help` explains a command.",
            "Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 conflict, 5 unreachable,",
            "            6 not authorised, 7 nothing received, 10 drift, 130 interrupted.",
        ]
    )


def columns(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Two columns, the right one wrapped; a long word on the left has a line of its own."""
    left_width = min(max(len(left) for left, _ in rows), MAX_LEFT)
    indent = f"{_INDENT}{'':<{left_width}}  "
    room = max(width() - len(indent), 24)
    lines = []
    for left, right in rows:
        words = textwrap.wrap(right, room)
        if len(left) > left_width:
            lines.append(f"{_INDENT}{left}")
        else:
            lines.append(f"{_INDENT}{left:<{left_width}}  {words.pop(0) if words else ''}".rstrip())
        lines += [indent + line for line in words]
    return lines


def _spelling(flag: GlobalFlag) -> str:
    short = next((spelling for spelling in flag.spellings if not spelling.startswith("--")), "")
    long = next(spelling for spelling in flag.spellings if spelling.startswith("--"))
    return f"{short + ', ' if short else '    '}{long}{' ' + flag.metavar if flag.metavar else ''}"
