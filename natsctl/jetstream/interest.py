"""Which consumers of a stream take which subjects, found without asking every consumer.

Theory of operation. A consumer stands under each of its filters: literal ones in a dictionary, wildcards grouped by
their text, no filter at all apart. Who takes a subject is put together once and remembered until a consumer comes,
goes or changes its filters; what is remembered has a limit. A consumer's own filters do not overlap, so that nobody is
found twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.jetstream.consumer_config import filters_of
from natsctl.store.filters import Filters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from natsctl.jetstream.consumer import Consumer

MAX_KNOWN: Final = 16_384
"""Consumers that stand in remembered answers, plus one per answer; all are forgotten when there are more."""

Takers = tuple["Consumer", ...]


class Interest:
    """The consumers of one stream by what they take."""

    __slots__ = ("_all", "_everyone", "_known", "_known_size", "_literals", "_patterns", "_subjects")

    def __init__(self) -> None:
        self._all: dict[Consumer, None] = {}
        self._everyone: Takers | None = None
        self._literals: dict[bytes, dict[Consumer, None]] = {}
        self._patterns: dict[bytes, tuple[Filters, dict[Consumer, None]]] = {}
        self._subjects: dict[Consumer, tuple[bytes, ...]] = {}
        self._known: dict[bytes, Takers] = {}
        self._known_size = 0

    def __len__(self) -> int:
        """Return how many consumers there are."""
        return len(self._subjects)

    def enter(self, consumer: Consumer) -> bool:
        """Take note of a consumer, or of what it takes from now on; tell whether that is new."""
        filters = Filters([subject.encode() for subject in filters_of(consumer.config)])
        if self._subjects.get(consumer) == filters.subjects:
            return False
        self.leave(consumer)
        self._subjects[consumer] = filters.subjects
        if filters.everything:
            self._all[consumer] = None
        for subject in filters.literals:
            self._literals.setdefault(subject, {})[consumer] = None
        for subject in filters.wildcards:
            group = self._patterns.get(subject)
            if group is None:
                group = self._patterns[subject] = (Filters((subject,)), {})
            group[1][consumer] = None
        return True

    def leave(self, consumer: Consumer) -> None:
        """Forget a consumer."""
        self._known.clear()
        self._known_size, self._everyone = 0, None
        for subject in self._subjects.pop(consumer, ()):
            if (group := self._literals.get(subject)) is not None:
                group.pop(consumer, None)
                if not group:
                    del self._literals[subject]
            elif (found := self._patterns.get(subject)) is not None:
                found[1].pop(consumer, None)
                if not found[1]:
                    del self._patterns[subject]
        self._all.pop(consumer, None)

    def takers(self, subject: bytes) -> Takers:
        """Return the consumers that take a subject."""
        known = self._known.get(subject)
        if known is None:
            found = dict(self._literals.get(subject, {}))
            for filters, group in self._patterns.values():
                if filters.matches_wildcard(subject):
                    found.update(group)
            if self._known_size > MAX_KNOWN:
                self._known.clear()
                self._known_size = 0
            if self._everyone is None:
                self._everyone = tuple(self._all)
            known = self._known[subject] = (*self._everyone, *found) if found else self._everyone
            self._known_size += len(known) + 1 if found else 1
        return known

    def takers_of_any(self, subjects: Iterable[bytes]) -> Iterable[Consumer]:
        """Return the consumers that take one of some subjects, each once."""
        different = set(subjects)
        if len(different) == 1:
            return self.takers(different.pop())
        found: dict[Consumer, None] = {}
        for subject in different:
            if len(found) == len(self._subjects):
                break
            found.update(dict.fromkeys(self.takers(subject)))
        return found
