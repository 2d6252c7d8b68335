"""The command reference: one page of docs/commands for each noun, with the help pages of it and its verbs."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

from natsctl.cli.commands import COMMANDS
from natsctl.cli.main import run
from natsctl.cli.nouns import NOUNS, Noun

WIDTH = 100
"""Columns of the pages."""


def pages() -> Iterator[tuple[str, str]]:
    """The name and the text of every page."""
    with _width():
        yield "README.md", _contents()
        for noun in NOUNS:
            yield f"{noun.name}.md", _page(noun)


def _contents() -> str:
    rows = [f"| [{noun.name}]({noun.name}.md) | {', '.join(noun.aliases)} | {_cell(noun.help)} |" for noun in NOUNS]
    lines = [
        "# Commands",
        "",
        "What `natsctl COMMAND --help` says, made of the code by `python -m natsctl.cli.generate`.",
        "",
        "| command | aliases | |",
        "|---|---|---|",
        *rows,
        "",
    ]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _page(noun: Noun) -> str:
    paths = [noun.name]
    paths += [f"{noun.name} {path}" for path, _ in COMMANDS[noun.name].below()]
    parts = [f"# natsctl {noun.name}", "", f"{noun.help}.", ""]
    for path in paths:
        if path != noun.name:
            parts += [f"## {path}", ""]
        parts += ["```text", help_page(path).rstrip("\n"), "```", ""]
    return "\n".join(parts)


def help_page(path: str) -> str:
    """What `natsctl PATH --help` prints."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        run([*path.split(), "--help"])
    return printed.getvalue()


@contextmanager
def _width() -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(WIDTH)
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
