"""Work in steps: what may concern millions of messages is a generator that stops after each few of them.

Its caller decides when it goes on: the engine lets other work of the loop pass between two steps
(`jetstream.work`), a start or a test calls `finish`. Between two steps the state is whole: every step is a change, or a
look, that could have been asked for by itself.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[int, None, T]
"""Yields after each step its cost, as the messages that could have been looked at one by one; returns the result."""

STEP: Final = 256
"""Messages, subjects or entries that one step looks at one by one: about a millisecond."""
BULK_STEP: Final = 8192
"""Messages that one step works on by whole columns, for about the same."""


def finish(steps: Steps[T]) -> T:
    """Take every step and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def pieces(items: Sequence[T], size: int = 0) -> Iterator[Sequence[T]]:
    """Yield a sequence in pieces, of a step's size unless another is given."""
    size = size or STEP
    for start in range(0, len(items), size):
        yield items[start : start + size]
