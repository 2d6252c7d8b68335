"""Work in steps: an operation that may concern millions of messages is a generator that yields after a few of them.

Its caller decides when it continues: the engine runs other work between two steps (`jetstream.work`), recovery and
tests call `finish`. Between two steps the state is consistent: each step is a change or a query that could have been
made by itself.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

from natsctl.native import lib

T = TypeVar("T")

Steps: TypeAlias = Generator[int, None, T]
"""Yields the cost of each step, as the number of messages that could have been examined one by one meanwhile."""

STEP: Final = 256
"""Messages, subjects or entries that one step examines one by one: about a millisecond."""
BULK_STEP: Final = 8192 if lib is not None else 2048
"""Messages that one step examines by whole columns: less than a millisecond in C, and two or three in Python."""


def finish(steps: Steps[T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def pieces(items: Sequence[T], size: int = 0) -> Iterator[Sequence[T]]:
    """Yield slices of a sequence, `STEP` items long unless `size` is given."""
    size = size or STEP
    for start in range(0, len(items), size):
        yield items[start : start + size]
