"""Which consumers of a stream take which subjects, found without asking every consumer.

Theory of operation. Consumers without filters stand apart: they take everything. The others stand in a trie of subject
tokens, with `*` and `>` as ordinary children, so that a subject costs by its tokens and not by how many consumers there
are. Who takes a subject is remembered until a consumer comes, goes or changes its filters; what is remembered has a
limit. A consumer's own filters do not overlap, so that nobody is found twice.

A commit tells each consumer only of the messages that it takes: one that is not concerned costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.jetstream.consumer_config import filters_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from natsctl.jetstream.consumer import Consumer

MAX_KNOWN: Final = 16_384
"""Consumers that stand in remembered answers, plus one per answer; all are forgotten when there are more."""

FEW: Final = 16
"""Consumers that are all told of all messages: to look for the right ones would cost more."""

_ANY: Final = b"*"
_REST: Final = b">"

Takers = tuple["Consumer", ...]
Stored = tuple[int, bytes]
"""(sequence, subject)"""


class _Node:
    """The consumers with a filter that ends here, and the tokens that lead on."""

    __slots__ = ("children", "takers")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] = {}
        self.takers: dict[Consumer, None] = {}

    def overlapping(self, token: bytes) -> list[_Node]:
        """Return the children that a token of a filter can meet, `>` apart."""
        if token == _ANY:
            return [child for name, child in self.children.items() if name != _REST]
        found = (self.children.get(token), self.children.get(_ANY))
        return [child for child in found if child is not None]


class Interest:
    """The consumers of one stream by what they take."""

    __slots__ = ("_everyone", "_everyone_listed", "_filters", "_known", "_known_size", "_root")

    def __init__(self) -> None:
        self._everyone: dict[Consumer, None] = {}
        self._everyone_listed: Takers | None = None
        self._filters: dict[Consumer, tuple[bytes, ...]] = {}
        self._root = _Node()
        self._known: dict[bytes, Takers] = {}
        self._known_size = 0

    def __len__(self) -> int:
        """Return how many consumers there are."""
        return len(self._filters)

    def enter(self, consumer: Consumer) -> bool:
        """Take note of a consumer, or of what it takes from now on; tell whether that is new."""
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
            node = self._root
            for token in subject.split(b"."):
                child = node.children.get(token)
                if child is None:
                    child = node.children[token] = _Node()
                node = child
            node.takers[consumer] = None
        return True

    def leave(self, consumer: Consumer) -> None:
        """Forget a consumer."""
        self._known.clear()
        self._known_size, self._everyone_listed = 0, None
        self._everyone.pop(consumer, None)
        for subject in self._filters.pop(consumer, ()):
            path, node = [], self._root
            for token in subject.split(b"."):
                path.append((node, token))
                node = node.children[token]
            node.takers.pop(consumer, None)
            for parent, token in reversed(path):
                if node.children or node.takers:
                    break
                del parent.children[token]
                node = parent

    def takers(self, subject: bytes) -> Takers:
        """Return the consumers that take a subject."""
        choosers = self._choosers(subject)
        if not self._everyone:
            return choosers
        if self._everyone_listed is None:
            self._everyone_listed = tuple(self._everyone)
        return (*self._everyone_listed, *choosers) if choosers else self._everyone_listed

    def overlapping(self, patterns: Iterable[bytes]) -> dict[Consumer, None]:
        """Return the consumers that take a subject which one of some filters takes as well."""
        found = dict(self._everyone)
        for pattern in patterns:
            level = [self._root]
            for token in pattern.split(b"."):
                for node in level:
                    if (rest := node.children.get(_REST)) is not None:
                        found.update(rest.takers)
                if token == _REST:
                    level = [child for node in level for child in node.children.values()]
                    while level:
                        node = level.pop()
                        found.update(node.takers)
                        level += node.children.values()
                    break
                level = [child for node in level for child in node.overlapping(token)]
            for node in level:
                found.update(node.takers)
        return found

    def _choosers(self, subject: bytes) -> Takers:
        """Return the consumers that take a subject by a filter."""
        known = self._known.get(subject)
        if known is None:
            if self._known_size > MAX_KNOWN:
                self._known.clear()
                self._known_size = 0
            known = self._known[subject] = tuple(self._match(subject))
            self._known_size += len(known) + 1
        return known

    def _match(self, subject: bytes) -> dict[Consumer, None]:
        found: dict[Consumer, None] = {}
        level = [self._root]
        for token in subject.split(b"."):
            reached: list[_Node] = []
            for node in level:
                children = node.children
                if (rest := children.get(_REST)) is not None:
                    found.update(rest.takers)
                if (child := children.get(_ANY)) is not None:
                    reached.append(child)
                if (child := children.get(token)) is not None:
                    reached.append(child)
            level = reached
            if not level:
                break
        for node in level:
            found.update(node.takers)
        return found

    def announce(self, stored: Sequence[Stored]) -> None:
        """Tell the consumers of messages that became durable, ascending; there must be one."""
        if len(self._filters) <= FEW:
            for consumer in tuple(self._filters):
                consumer.on_messages(stored)
            return
        choosers: dict[Consumer, list[Stored]] = {}
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
