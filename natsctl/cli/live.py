"""Views that stay: redrawn in place at a terminal, which is left as it was found; elsewhere printed again and again."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from natsctl.cli import output
from natsctl.cli.screen import console

if TYPE_CHECKING:
    from rich.console import RenderableType

SHORTEST_S = 0.1
"""Seconds between two views: below it a terminal flickers and a server does nothing but answer."""


def paced(every_s: float, rounds: int = 0) -> Iterator[int]:
    """The number of each look, `every_s` seconds apart: `rounds` of them, or without end where that is 0."""
    every_s = max(every_s, SHORTEST_S)
    for number in itertools.count():
        if rounds and number >= rounds:
            return
        if number:
            time.sleep(every_s)
        yield number


def watch(view: Callable[[], RenderableType], every_s: float, *, rounds: int = 0) -> None:
    """Show `view()` every `every_s` seconds, `rounds` times or until Ctrl-C, which raises KeyboardInterrupt.

    At a terminal it has the whole screen, as an editor has, and what was there comes back; the last view stays below.
    """
    if not sys.stdout.isatty():
        _print_each(view, every_s, rounds)
        return
    from rich.live import Live

    screen = console(live=True)
    seen: RenderableType = ""
    try:
        with Live(console=screen, screen=True, auto_refresh=False) as live:
            for _ in paced(every_s, rounds):
                seen = view()
                live.update(seen, refresh=True)
    finally:
        screen.print(seen)


@contextmanager
def drawing() -> Iterator[Callable[[RenderableType], None]]:
    """What draws a view in place of the last one, for whoever decides when; the last one stays below.

    Without a terminal only that last one is printed, once it is over.
    """
    seen: RenderableType = ""
    screen = console(live=True)
    if not sys.stdout.isatty():

        def keep(view: RenderableType) -> None:
            nonlocal seen
            seen = view

        try:
            yield keep
        finally:
            screen.print(seen)
            sys.stdout.flush()
        return
    from rich.live import Live

    try:
        with Live(console=screen, screen=True, auto_refresh=False) as live:

            def draw(view: RenderableType) -> None:
                nonlocal seen
                seen = view
                live.update(view, refresh=True)

            yield draw
    finally:
        screen.print(seen)


def _print_each(view: Callable[[], RenderableType], every_s: float, rounds: int) -> None:
    for number in paced(every_s, rounds):
        if number:
            output.emit("")
        console().print(view())
        sys.stdout.flush()


def emit_each(document: Callable[[], Any], every_s: float, rounds: int = 0) -> None:
    """Print a JSON document of each look on a line of stdout: what a live view is to a program."""
    for _ in paced(every_s, rounds):
        output.emit_json_line(document())
