"""The subjects and reserved bytes of one account's streams.

A tree of subject tokens and running sums, so that the cost of adding a stream depends on its own subjects and not on
those of all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from natsctl.api.stream import StorageType, StreamConfig


class _Node:
    """The position after one token: the streams whose subject ends here, and the next tokens."""

    __slots__ = ("next", "owners")

    def __init__(self) -> None:
        self.owners: set[str] = set()
        self.next: dict[str, _Node] = {}

    def below(self) -> Iterator[str]:
        """Yield the streams with longer subjects."""
        for node in self.next.values():
            yield from node.owners
            yield from node.below()


class SubjectIndex:
    """The subjects and reservations of all streams, by the stream's name."""

    def __init__(self) -> None:
        self.reserved = dict.fromkeys(StorageType, 0)
        self._configs: dict[str, StreamConfig] = {}
        self._root = _Node()

    def put(self, config: StreamConfig) -> None:
        """Add a stream, or update a changed one."""
        self.drop(config.name)
        self._configs[config.name] = config
        self.reserved[config.storage] += max(config.max_bytes, 0)
        for subject in config.subjects:
            node = self._root
            for token in subject.split("."):
                node = node.next.setdefault(token, _Node())
            node.owners.add(config.name)

    def drop(self, name: str) -> None:
        """Remove a stream, if it is there."""
        config = self._configs.pop(name, None)
        if config is None:
            return
        self.reserved[config.storage] -= max(config.max_bytes, 0)
        for subject in config.subjects:
            path = [self._root]
            tokens = subject.split(".")
            for token in tokens:
                path.append(path[-1].next.get(token) or _Node())
            path[-1].owners.discard(name)
            for node, token in zip(reversed(path[:-1]), reversed(tokens), strict=True):
                child = node.next.get(token)
                if child is not None and not child.owners and not child.next:
                    del node.next[token]

    def overlapping(self, subjects: Iterable[str]) -> Iterator[str]:
        """Yield the names of streams that capture part of `subjects`, some of them more than once."""
        for subject in subjects:
            yield from _overlapping(self._root, subject.split("."), 0)


def _overlapping(node: _Node, tokens: list[str], at: int) -> Iterator[str]:
    if at == len(tokens):
        yield from node.owners
        return
    token = tokens[at]
    if token == ">":
        yield from node.below()
        return
    rest = node.next.get(">")
    if rest is not None:
        yield from rest.owners
    for word, child in node.next.items() if token == "*" else _named(node, token):
        if word != ">":
            yield from _overlapping(child, tokens, at + 1)


def _named(node: _Node, token: str) -> Iterator[tuple[str, _Node]]:
    for word in (token, "*"):
        child = node.next.get(word)
        if child is not None:
            yield word, child
