"""Which of many subjects overlap, without comparing each with each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Level(Generic[T]):
    """The tokens that follow a prefix of subjects, and the items whose subjects end here."""

    below: dict[str, _Level[T]] = field(default_factory=dict)
    here: list[T] = field(default_factory=list)


class SubjectTree(Generic[T]):
    """Items by their subjects, which may have wildcards."""

    def __init__(self) -> None:
        self._root: _Level[T] = _Level()

    def add(self, subject: str, item: T) -> None:
        """Add an item."""
        level = self._root
        for token in subject.split("."):
            level = level.below.setdefault(token, _Level())
        level.here.append(item)

    def overlapping(self, subject: str) -> Iterator[T]:
        """Yield the items that share a literal subject with `subject`."""
        # Pending levels are kept in a list: subjects may have thousands of tokens.
        waiting, tokens = [(self._root, 0)], subject.split(".")
        while waiting:
            level, at = waiting.pop()
            if at == len(tokens):
                yield from level.here
                continue
            if ">" in level.below:
                yield from level.below[">"].here
            if tokens[at] == ">":
                yield from _all_below(level)
                continue
            wanted = level.below if tokens[at] == "*" else {tokens[at], "*"}
            waiting.extend((level.below[token], at + 1) for token in wanted if token in level.below and token != ">")


def _all_below(level: _Level[T]) -> Iterator[T]:
    waiting = [below for token, below in level.below.items() if token != ">"]
    while waiting:
        one = waiting.pop()
        yield from one.here
        waiting.extend(one.below.values())
