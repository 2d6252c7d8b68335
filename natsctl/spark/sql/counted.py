"""Queries whose answer the server knows: how many messages there are, of which subjects, from where to where.

The rows and the names of their columns are those that Spark would give.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

What = Literal["subject", "count", "subjects", "first", "last"]


class Facts(NamedTuple):
    """What a server says of a stream; `subjects` counts messages by subject and may be left empty where not needed.

    `first` and `last` are the sequences of messages that are there, None in an empty stream.
    """

    messages: int
    first: int | None = None
    last: int | None = None
    subjects: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Item:
    """A column of the answer: what it is and its name."""

    what: What
    title: str
    alias: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """By which column of the answer rows are ordered."""

    column: int
    descending: bool = False


@dataclass(frozen=True, slots=True)
class CountedQuery:
    """A query that needs no message: what it asks of which stream."""

    table: str
    items: tuple[Item, ...]
    grouped: bool = False
    only: tuple[str, ...] | None = None
    """The subjects that count; None for all."""
    order: tuple[Order, ...] = ()
    limit: int | None = None

    @property
    def columns(self) -> list[str]:
        """The names of the answer's columns."""
        return [item.alias or item.title for item in self.items]

    @property
    def numbers(self) -> frozenset[str]:
        """The columns that are numbers."""
        return frozenset(item.alias or item.title for item in self.items if item.what != "subject")

    @property
    def needs_subjects(self) -> bool:
        """Whether messages must be counted by subject."""
        return self.grouped or self.only is not None or any(item.what == "subjects" for item in self.items)

    @property
    def needs_ends(self) -> bool:
        """Whether the first and the last sequence must be known."""
        return any(item.what in ("first", "last") for item in self.items)

    def answer(self, facts: Facts) -> list[tuple[Any, ...]]:
        """The rows."""
        if self.only is not None:
            kept = {subject: facts.subjects[subject] for subject in self.only if subject in facts.subjects}
            facts = Facts(sum(kept.values()), subjects=kept)
        rows = self._grouped(facts) if self.grouped else [tuple(_whole(item.what, facts) for item in self.items)]
        for order in reversed(self.order):
            rows.sort(key=lambda row: _sortable(row[order.column]), reverse=order.descending)
        return rows if self.limit is None else rows[: self.limit]

    def _grouped(self, facts: Facts) -> list[tuple[Any, ...]]:
        return [
            tuple(subject if item.what == "subject" else number for item in self.items)
            for subject, number in sorted(facts.subjects.items())
        ]


def _whole(what: What, facts: Facts) -> int | None:
    if what in ("first", "last"):
        return facts.first if what == "first" else facts.last
    return len(facts.subjects) if what == "subjects" else facts.messages


def _sortable(value: Any) -> Any:
    """Spark orders texts by their bytes."""
    return value.encode() if isinstance(value, str) else value
