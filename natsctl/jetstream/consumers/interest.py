"""An index of a stream's consumers by the subjects that their filters match.

Theory of operation. Consumers without filters are kept apart: they take everything. The others are in an index of their
patterns. The consumers of a subject are cached until a consumer is added, deleted or changes its filters; the cache has
a limit. A consumer's own filters do not overlap, so that none is found twice.

A commit passes to each consumer only the messages that it takes: a consumer without any costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.config.consumer_config import filters_of
from natsctl.jetstream.consumers.pattern_index import PatternIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from natsctl.jetstream.consumers.consumer_context import ConsumerContext

MAX_KNOWN: Final = 16_384
"""Consumers that stand in remembered answers, plus one per answer; all are forgotten when there are more."""

FEW: Final = 16
"""Number of consumers up to which all get all messages: finding the matching ones would cost more."""

_REST: Final = b">"

Consumers = tuple["ConsumerContext", ...]
Stored = tuple[int, bytes]
"""(sequence, subject)"""


class Interest:
    """The consumers of one stream by their filters."""

    __slots__ = ("_everyone", "_everyone_listed", "_filters", "_known", "_known_size", "_patterns")

    def __init__(self) -> None:
        self._everyone: dict[ConsumerContext, None] = {}
        self._everyone_listed: Consumers | None = None
        self._filters: dict[ConsumerContext, tuple[bytes, ...]] = {}
        self._patterns: PatternIndex[ConsumerContext] = PatternIndex()
        self._known: dict[bytes, Consumers] = {}
        self._known_size = 0

    def __len__(self) -> int:
        """Return how many consumers there are."""
        return len(self._filters)

    def enter(self, consumer: ConsumerContext) -> bool:
        """Add a consumer, or update its filters; return whether they have changed."""
        filters = tuple(subject.encode() for subject in filters_of(consumer.config))
        if _REST in filters:
            filters = ()
        if self._filters.get(consumer) == filters:
            return False
        self.leave(consumer)
        self._filters[consumer] = filters
        if not filters:
            self._everyone[consumer] = None
        for subject in filters:
            self._patterns.add(subject, consumer)
        return True

    def leave(self, consumer: ConsumerContext) -> None:
        """Remove a consumer."""
        self._known.clear()
        self._known_size, self._everyone_listed = 0, None
        self._everyone.pop(consumer, None)
        for subject in self._filters.pop(consumer, ()):
            self._patterns.remove(subject, consumer)

    def takers(self, subject: bytes) -> Consumers:
        """Return the consumers that take a subject."""
        choosers = self._choosers(subject)
        if not self._everyone:
            return choosers
        if self._everyone_listed is None:
            self._everyone_listed = tuple(self._everyone)
        return (*self._everyone_listed, *choosers) if choosers else self._everyone_listed

    def overlapping(self, patterns: Iterable[bytes]) -> dict[ConsumerContext, None]:
        """Return the consumers whose filters overlap some patterns."""
        found = dict(self._everyone)
        for pattern in patterns:
            found.update(self._patterns.overlapping(pattern))
        return found

    def _choosers(self, subject: bytes) -> Consumers:
        """Return the consumers that take a subject by a filter."""
        known = self._known.get(subject)
        if known is None:
            if self._known_size > MAX_KNOWN:
                self._known.clear()
                self._known_size = 0
            known = self._known[subject] = tuple(self._patterns.match(subject))
            self._known_size += len(known) + 1
        return known

    def announce(self, stored: Sequence[Stored]) -> None:
        """Pass messages that became durable, ascending, to the consumers that take them; there must be one."""
        if len(self._filters) <= FEW:
            for consumer in tuple(self._filters):
                consumer.on_messages(stored)
            return
        choosers: dict[ConsumerContext, list[Stored]] = {}
        for message in stored:
            for consumer in self._choosers(message[1]):
                if (wanted := choosers.get(consumer)) is None:
                    choosers[consumer] = [message]
                else:
                    wanted.append(message)
        for consumer in tuple(self._everyone):
            consumer.on_messages(stored)
        for consumer, messages in choosers.items():
            consumer.on_messages(messages)
