"""`natsctl __complete SHELL WORD…`: what may stand in place of the last word, for the scripts of the shells.

Whoever types waits for it, so it answers within `DEADLINE_S` or not at all: an alarm ends the process, and nothing that
is slow is loaded (no Typer, no nats-py, no asyncio, never an embedded server). A failure is silence too.
NATSCTL_COMPLETION_MS gives slow machines more time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from natsctl.cli.completion.place import Place

DEADLINE_S = 0.3
"""Seconds from the start of the process; the alarm is set to what the start has left of them."""
_BUDGET = "NATSCTL_COMPLETION_MS"
FILES = ":files"
ANY_FILE = "\0files"
"""Stands for a word that is a file, which the shell completes better."""


class Candidate(NamedTuple):
    """A word that may stand there, and what it means."""

    word: str
    meaning: str = ""


def answer(words: Sequence[str]) -> int:
    """Print the candidates; always success."""
    deadline_s = time.monotonic() - _age_s() + _budget_s()
    with _silence_after(deadline_s):
        from natsctl.api.errors import NatsctlError
        from natsctl.cli.completion.line import shown, split

        shell, *rest = words or ("",)
        typed, breaks = (split(rest[0]), rest[1] if len(rest) > 1 else "") if shell == "bash" and rest else (rest, "")
        found: list[Candidate] = []
        with contextlib.suppress(NatsctlError, LookupError, ValueError, OSError):
            found = list(candidates(typed or [""], deadline_s))
        sys.stdout.write(shown(found, shell, (rest or [""])[0], breaks))
    return 0


def _budget_s() -> float:
    given = os.environ.get(_BUDGET, "")
    return int(given) / 1000 if given.isdigit() else DEADLINE_S


def _age_s() -> float:
    """Return the seconds since this process was started.

    Where the system does not have them, it is the processor time that was used.
    """
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123  # quicker
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, AttributeError, IndexError):
        return time.process_time()


@contextlib.contextmanager
def _silence_after(deadline_s: float) -> Iterator[None]:
    """End the process without a word at the deadline; what is written before is all or nothing."""
    before = signal.signal(signal.SIGALRM, lambda number, frame: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, max(0.001, deadline_s - time.monotonic()))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def candidates(words: Sequence[str], deadline_s: float) -> Iterator[Candidate]:
    """Yield the candidates for the last of the words, which begin behind `natsctl`."""
    from natsctl.cli.completion.place import find
    from natsctl.cli.completion.values import values_of

    current = words[-1]
    place = find(words[:-1])
    if place.takes:
        yield from _beginning(values_of(place, place.takes, deadline_s, current), current)
    elif current.startswith("-"):
        yield from _of_flag(place, current, deadline_s)
    elif place.commands:
        yield from _commands(place, current)
    elif metavar := place.argument():
        yield from _beginning(values_of(place, metavar, deadline_s, current), current)


def _of_flag(place: Place, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.cli.completion.values import values_of

    name, equals, begun = current.partition("=")
    if equals:
        metavar = place.flags.get(name, ("", ""))[0]
        for one in _beginning(values_of(place, metavar, deadline_s, begun), begun):
            yield one if one.word == ANY_FILE else Candidate(f"{name}={one.word}", one.meaning)
        return
    for spelling, (_, meaning) in place.flags.items():
        if spelling.startswith(current) and (spelling.startswith("--") or current == spelling):
            yield Candidate(spelling, meaning)


def _commands(place: Place, current: str) -> Iterator[Candidate]:
    """Yield names of commands; an alias only where no name begins so."""
    named = [one for one in place.commands if one.names[0].startswith(current)]
    if named:
        yield from (Candidate(one.names[0], one.meaning) for one in named)
        return
    for one in place.commands:
        yield from (Candidate(alias, one.meaning) for alias in one.names[1:] if alias.startswith(current))


def _beginning(found: Iterator[Candidate], current: str) -> Iterator[Candidate]:
    return (one for one in found if one.word == ANY_FILE or one.word.startswith(current))
