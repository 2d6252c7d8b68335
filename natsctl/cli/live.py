"""Views that stay: redrawn in place at a terminal, which is left as it was found; elsewhere printed again and again."""

from __future__ import annotations

import itertools
import os
import re
import select
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

from natsctl.cli import output
from natsctl.cli.screen import console

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

SHORTEST_S = 0.1
"""Seconds between two views: below it a terminal flickers and a server does nothing but answer."""
_KEY = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z])|.", re.DOTALL)
"""One key of what a terminal sends: an arrow or another key with an escape sequence, or a character."""


def paced(every_s: float, rounds: int = 0) -> Iterator[int]:
    """The number of each look, `every_s` seconds apart: `rounds` of them, or without end where that is 0."""
    every_s = max(every_s, SHORTEST_S)
    for number in itertools.count():
        if rounds and number >= rounds:
            return
        if number:
            time.sleep(every_s)
        yield number


def watch(
    view: Callable[[], RenderableType],
    every_s: float,
    *,
    rounds: int = 0,
    press: Callable[[str], bool] | None = None,
    hint: str = "q ends",
) -> None:
    """Show `view()` every `every_s` seconds, `rounds` times, until q, or until Ctrl-C, which raises KeyboardInterrupt.

    At a terminal it has the whole screen, as an editor has, and what was there comes back; the last view stays below.
    There `hint` stands above the view, and `press` is given each key: it returns whether the view has changed with it.
    """
    if not sys.stdout.isatty():
        _print_each(view, every_s, rounds)
        return
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    screen = console(live=True)
    seen: RenderableType = ""
    try:
        with Live(console=screen, screen=True, auto_refresh=False) as live, Keyboard(screen) as keyboard:
            above = Text(hint, style="dim", overflow="fold") if keyboard.is_there else Text("")

            def draw() -> None:
                live.update(Group(above, seen) if keyboard.is_there else seen, refresh=True)

            for number in itertools.count():
                if (rounds and number >= rounds) or (number and not keyboard.wait(every_s, press, draw)):
                    break
                seen = view()
                draw()
    finally:
        screen.print(seen)


class Keyboard:
    """The keys of a live view: none is echoed; the terminal is as it was once this is left, or stopped by Ctrl-Z."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._fd = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else -1
        self._before: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._resized = os.pipe()

    @property
    def is_there(self) -> bool:
        """Whether a person can press keys."""
        return self._fd >= 0

    def __enter__(self) -> Self:
        for end in self._resized:
            os.set_blocking(end, False)
        self._handlers = {signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda *_: os.write(self._resized[1], b"!"))}
        if self.is_there:
            self._before = termios.tcgetattr(self._fd)
            self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._stop)
            self._quiet()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._restore()
        for end in self._resized:
            os.close(end)

    def wait(self, seconds: float, press: Callable[[str], bool] | None, draw: Callable[[], None]) -> bool:
        """Wait for the next look, which a key may bring on, and draw anew in a new size; False when q was pressed."""
        end_s = time.monotonic() + max(seconds, SHORTEST_S)
        watched = [self._resized[0], *([self._fd] if self.is_there else [])]
        while (left_s := end_s - time.monotonic()) > 0:
            ready, _, _ = select.select(watched, [], [], left_s)
            if self._resized[0] in ready:
                os.read(self._resized[0], 4096)
                draw()
            if self._fd in ready:
                keys = _KEY.findall(os.read(self._fd, 64).decode("utf-8", "replace"))
                has_changed = False
                for key in keys:
                    if key in ("q", "Q"):
                        return False
                    has_changed |= press is not None and press(key)
                if has_changed or not keys:
                    return bool(keys)
        return True

    def _quiet(self) -> None:
        """Read single keys, without echo; Ctrl-C and Ctrl-Z stay signals."""
        quiet = termios.tcgetattr(self._fd)
        quiet[3] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(self._fd, termios.TCSADRAIN, quiet)

    def _restore(self) -> None:
        if self._before:
            with suppress(termios.error):  # the terminal may have gone
                termios.tcsetattr(self._fd, termios.TCSAFLUSH, self._before)

    def _stop(self, *_: object) -> None:
        """Give the terminal back while this process is stopped, and take it again when it goes on."""
        self._restore()
        self._screen.set_alt_screen(False)
        self._screen.show_cursor(True)
        before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, before)
        self._quiet()
        self._screen.set_alt_screen(True)
        self._screen.show_cursor(False)
        os.write(self._resized[1], b"!")


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
        with Live(console=screen, screen=True, auto_refresh=False) as live, Keyboard(screen):

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
