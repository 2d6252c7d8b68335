"""The page of `natsctl --help`, made from tables: no command and no framework is loaded for it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from natsctl.cli.globals import GLOBAL_FLAGS, GlobalFlag
from natsctl.cli.output import terminal_width

if TYPE_CHECKING:
    from natsctl.cli.main import Noun

_INDENT = "  "
MAX_LEFT = 32
"""Columns that flags may take before what they mean begins on a line of its own."""


KIN = (
    ("Streams and their contents", ("stream", "consumer", "kv", "object", "counter")),
    ("Messages", ("publish", "subscribe", "request", "reply", "service", "trace")),
    ("Desired state", ("apply", "plan", "diff", "destroy", "validate", "export", "convert")),
    ("Streams on Spark", ("sql", "pipeline", "spark")),
    ("Backups", ("backup", "restore")),
    ("Servers and accounts", ("server", "account", "events", "top", "rtt", "latency", "bench")),
    ("natsctl itself", ("context", "completion", "schema", "errors", "cheat", "tour")),
)
"""The headings, and the nouns below each; one that is nowhere here comes last."""

_ABOUT = "Administer NATS JetStream: streams, consumers, messages and backups, on any NATS server or on natsctl's own."
_EXITS = (
    "Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 conflict, 5 unreachable, 6 not authorised, "
    "7 nothing received, 10 drift, 130 interrupted."
)


def render_root_help(nouns: Sequence[Noun], programs: Mapping[str, str]) -> str:
    """The page as text, laid out for the terminal's width; `programs` are paths by the command that they are."""
    lines = ["usage: natsctl [flags] <command> [arguments]", "", *textwrap.wrap(_ABOUT, terminal_width()), ""]
    for title, kin in _by_kin(nouns):
        lines += [f"{title}:", *columns([(", ".join((noun.name, *noun.aliases)), noun.help) for noun in kin], 28), ""]
    others = [(name, path) for name, path in programs.items() if name not in _spoken_for(nouns)]
    if others:
        from natsctl.cli.render.text import safe

        lines += ["Programs on PATH:", *columns([(name, safe(path)) for name, path in others], 28), ""]
    for title, flags in _flags_by_kin():
        lines += [f"{title}:", *columns([(_spelling(flag), flag.help) for flag in flags], 28), ""]
    lines += textwrap.wrap(
        "Flags may stand before or after the command. Most commands take -j for JSON.", terminal_width()
    )
    lines += textwrap.wrap(
        "`natsctl <command> --help` explains a command, `natsctl cheat` shows examples.", terminal_width()
    )
    lines += textwrap.wrap(_EXITS, terminal_width(), subsequent_indent=" " * 12)
    return "\n".join(lines)


def _spoken_for(nouns: Sequence[Noun]) -> set[str]:
    """The words that are natsctl's own."""
    return {word for noun in nouns for word in (noun.name, *noun.aliases)}


def _by_kin(nouns: Sequence[Noun]) -> Iterator[tuple[str, list[Noun]]]:
    named = {noun.name: noun for noun in nouns}
    for title, names in KIN:
        yield title, [named.pop(name) for name in names if name in named]
    if named:
        yield "Others", list(named.values())


def _flags_by_kin() -> Iterator[tuple[str, list[GlobalFlag]]]:
    found: dict[str, list[GlobalFlag]] = {}
    for flag in GLOBAL_FLAGS:
        title = flag.kin or list(found)[-1]
        found.setdefault(title, []).append(flag)
    yield from found.items()


def columns(rows: Sequence[tuple[str, str]], least: int = 0) -> list[str]:
    """Two columns, the right one wrapped; a long word on the left has a line of its own.

    `least` columns for the left one keep several of these lists in line with each other.
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


def _spelling(flag: GlobalFlag) -> str:
    short = next((spelling for spelling in flag.spellings if not spelling.startswith("--")), "")
    long = next(spelling for spelling in flag.spellings if spelling.startswith("--"))
    return f"{short + ', ' if short else '    '}{long}{' ' + flag.metavar if flag.metavar else ''}"
