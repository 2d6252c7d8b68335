"""Live views at a terminal, and progress of long work.

A view is redrawn in place and the terminal is left as it was found; without a terminal it is printed again and again.
Progress goes to stderr: a bar with rate and remaining time at a terminal, else a line now and then.
"""

from __future__ import annotations

import itertools
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from natsctl.api.errors import ProtocolError, UsageError
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import interval_seconds
from natsctl.cli.framework.output import console
from natsctl.cli.framework.parameters import Option
from natsctl.cli.render.text import count, duration, safe
from natsctl.hints import TYPE_CHECKING, Annotated, Any, Protocol, Self, TypeVar

if sys.platform != "win32":
    import termios

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress, TaskID


View = TypeVar("View")

SHORTEST_S = 0.1
"""Minimum seconds between two views: with less, a terminal flickers and a server is kept busy."""
_KEY = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z])|.", re.DOTALL)
"""One key from a terminal: an arrow or another key with an escape sequence, or a character."""


def paced(every_s: float, rounds: int = 0) -> Iterator[int]:
    """Yield the number of each round, `every_s` seconds apart: `rounds` of them, or without end if that is 0."""
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
    """Show `view()` every `every_s` seconds, `rounds` times, until q, or until Ctrl-C (KeyboardInterrupt).

    At a terminal it takes the whole screen, as an editor does, and restores it; the last view stays below.
    There `hint` is shown above the view, and `press` is called with each key; it returns whether the view changes.
    After the first view, an unreadable answer is reported and does not end the rounds.
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
        with Live(console=screen, screen=True, auto_refresh=False) as live, keyboard_of(screen) as keyboard:
            above = Text(hint, style="dim", overflow="fold") if keyboard.is_there else Text("")

            def draw() -> None:
                live.update(Group(above, seen) if keyboard.is_there else seen, refresh=True)

            for number in itertools.count():
                if (rounds and number >= rounds) or (number and not keyboard.wait(every_s, press, draw)):
                    break
                if (latest := next_view(view, number)) is not None:
                    seen = latest
                draw()
    finally:
        screen.print(seen)


def next_view(view: Callable[[], View], number: int) -> View | None:
    """Return the view of a round, or None if an answer was unreadable (it is reported); the first round raises."""
    try:
        return view()
    except ProtocolError as failure:
        if not number:
            raise
        output.log(f"warning: {output.text_of(failure)}")
        return None


def keyboard_of(screen: Console) -> Keyboard | WindowsKeyboard:
    return WindowsKeyboard() if sys.platform == "win32" else Keyboard(screen)


class WindowsKeyboard:
    """The keys of a live view in a Windows console: it neither reports a resize nor stops programs."""

    POLL_S = 0.05

    def __init__(self) -> None:
        self.is_there = sys.stdin is not None and sys.stdin.isatty()
        """Whether keys can be read."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the console as it is: nothing was changed."""

    def wait(self, seconds: float, press: Callable[[str], bool] | None, draw: Callable[[], None]) -> bool:
        """Wait for the next round, or a key that starts it; return False after q."""
        end_s = time.monotonic() + max(seconds, SHORTEST_S)
        while (left_s := end_s - time.monotonic()) > 0:
            key = self._key()
            if key in ("q", "Q"):
                return False
            if key and press is not None and press(key):
                return True
            if not key:
                time.sleep(min(self.POLL_S, left_s))
        return True

    def _key(self) -> str:
        if sys.platform != "win32" or not self.is_there:
            return ""
        import msvcrt

        if not msvcrt.kbhit():
            return ""
        key = msvcrt.getwch()
        arrows = {"H": "\x1b[A", "P": "\x1b[B", "M": "\x1b[C", "K": "\x1b[D"}
        return arrows.get(msvcrt.getwch(), "") if key in ("\x00", "\xe0") else key


class Keyboard:
    """The keys of a live view, without echo; the terminal is restored at the end, and while stopped by Ctrl-Z."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._fd = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else -1
        self._before: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._resized = os.pipe()

    @property
    def is_there(self) -> bool:
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
        """Wait for the next round, or a key that starts it, and redraw after a resize; return False after q."""
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
            with suppress(termios.error):  # the terminal may be closed
                termios.tcsetattr(self._fd, termios.TCSAFLUSH, self._before)

    def _stop(self, *_: object) -> None:
        """Restore the terminal while this process is stopped, and take it again when it continues."""
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
    """Yield a function that redraws a view; the last one stays.

    Without a terminal only the last one is printed, at the end.
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
        if (latest := next_view(view, number)) is not None:
            if number:
                output.emit("")
            console().print(latest)
            sys.stdout.flush()


def emit_each(document: Callable[[], Any], every_s: float, rounds: int = 0) -> None:
    for number in paced(every_s, rounds):
        if (latest := next_view(document, number)) is not None:
            output.emit_json_line(latest)


LINE_EVERY_S = 2.0
"""Seconds between two lines without a terminal."""
RATE_FROM_COLUMNS = 70
"""Columns below which a bar has no rate, as it would wrap."""
BYTES = "bytes"
"""The unit for numbers shown as sizes; any other is a noun in the plural, such as `messages`."""

_LOOK = {
    "bar.back": "dim",
    "bar.complete": "none",
    "bar.finished": "none",
    "bar.pulse": "dim",
    "progress.percentage": "none",
    "progress.remaining": "none",
}
"""Bold instead of colours: these may be invisible on a light or a dark background."""


class Tracker(Protocol):
    """Progress of a piece of work, as its steps report it."""

    def at(self, done: float, total: float | None = None) -> None:
        """Report the amount done, and the total once it is known."""


@contextmanager
def progress(
    what: str, total: float | None, unit: str = BYTES, *, bar: bool = True, quiet: bool = False, timed: bool = True
) -> Iterator[Tracker]:
    """Yield a tracker of progress towards `total` (None: unknown); with `quiet` nothing is shown.

    Without `timed` neither rate nor remaining time is shown: for totals that grow, as with Spark's tasks.
    """
    if quiet:
        yield _Silent()
    elif bar and sys.stderr.isatty():
        with _bars(unit, timed=timed) as bars:
            yield _Bar(bars, bars.add_task(safe(what), total=total))
    else:
        yield _Lines(what, total, unit, timed=timed)


class _Silent:
    def at(self, done: float, total: float | None = None) -> None:
        """Show nothing."""


class _Lines:
    def __init__(self, what: str, total: float | None, unit: str, *, timed: bool = True) -> None:
        self._what, self._total, self._unit, self._timed = what, total, unit, timed
        self._last_s = time.monotonic()
        self._begin: tuple[float, float] | None = None
        """First known amount and its time: earlier work does not count for the rate."""

    def at(self, done: float, total: float | None = None) -> None:
        self._total = total if total is not None else self._total
        now_s = time.monotonic()
        begun, begin_s = self._begin = self._begin or (done, now_s)
        if now_s - self._last_s < LINE_EVERY_S:
            return
        self._last_s = now_s
        output.log(safe(f"{self._what}: {self._figures(done, done - begun, now_s - begin_s)}"))

    def _figures(self, done: float, newly: float, elapsed_s: float) -> str:
        """Return the figures of a line; `newly` were done in the time."""
        rate = newly / elapsed_s if elapsed_s and self._timed else 0
        if not self._total:
            known = amount(done, self._unit)
            return f"{known}, {amount(rate, self._unit)}/s" if self._timed else known
        share = f"{100 * done / self._total:.0f}% of {amount(self._total, self._unit)}"
        if not rate:
            return share
        left_s = max((self._total - done) / rate, 0)
        return f"{share}, {amount(rate, self._unit)}/s, {duration(int(left_s) * 1_000_000_000)} left"


class _Bar:
    def __init__(self, bars: Progress, task: TaskID) -> None:
        self._bars, self._task = bars, task

    def at(self, done: float, total: float | None = None) -> None:
        known = total if total is not None else self._bars.tasks[self._task].total
        self._bars.update(self._task, completed=done, total=known)


def _bars(unit: str, *, timed: bool = True) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column
    from rich.text import Text
    from rich.theme import Theme

    class Figures(ProgressColumn):
        """Amount done, total, and rate a second."""

        def render(self, task: Task) -> Text:
            done = amount(task.completed, unit)
            if task.total:
                done = f"{_number(task.completed, unit)} of {amount(task.total, unit)}"
            has_rate = timed and task.speed and terminal.width >= RATE_FROM_COLUMNS
            rate = f", {_number(task.speed or 0, unit)}/s" if has_rate else ""
            return Text(f"{done}{rate}", no_wrap=True)

    terminal = Console(
        stderr=True, highlight=False, markup=False, no_color=not output.has_color(sys.stderr), theme=Theme(_LOOK)
    )
    what = TextColumn("{task.description}", markup=False)
    # The bar takes the remaining width; without a ratio of its own it would narrow the text.
    bar = BarColumn(bar_width=None, table_column=Column(ratio=1))
    remaining = [TimeRemainingColumn()] if timed else []
    return Progress(what, bar, TaskProgressColumn(), Figures(), *remaining, console=terminal, expand=True)


def _number(number: float, unit: str) -> str:
    """Return `1.2 MiB` or `1,234`, before the name of the unit."""
    return amount(number, unit) if unit == BYTES else count(round(number))


def amount(number: float, unit: str) -> str:
    """Return `1.2 MiB` or `1,234 messages`."""
    from natsctl.api.units import format_size, plural

    return format_size(int(number)) if unit == BYTES else plural(round(number), unit.removesuffix("s"))


Every = Annotated[
    float, Option("--watch", metavar="DURATION", help="time between two refreshes", read=interval_seconds)
]


def plot_room(rounds: int) -> tuple[int, int]:
    """Return the columns and lines to plot in.

    Raises UsageError if they are too few, or if no user could end the rounds.
    """
    from natsctl.cli.render.plot import SMALLEST

    if not rounds and not sys.stdout.isatty():
        raise UsageError("there is no terminal to draw on: give --count N to end after N refreshes")
    screen = console()
    columns, lines = min(screen.width, output.terminal_width()), screen.height
    if columns < SMALLEST[0] or lines < SMALLEST[1]:
        raise UsageError(f"the terminal is too small to plot: {SMALLEST[0]} columns and {SMALLEST[1]} lines are needed")
    return columns, lines - 1
