"""An index of the owners of subject patterns, by a matching subject or an overlapping pattern.

Theory of operation. Patterns are kept in a trie of their tokens, with `*` and `>` as ordinary children, so that the
cost of a lookup depends on its tokens and not on the number of patterns.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

T = TypeVar("T")

_ANY: Final = b"*"
_REST: Final = b">"


class _Node(Generic[T]):
    """The owners of the pattern that ends here, and the tokens that lead on."""

    __slots__ = ("children", "owners")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node[T]] = {}
        self.owners: dict[T, None] = {}

    def meeting(self, token: bytes) -> list[_Node[T]]:
        """Return the children that a token of a pattern can meet, `>` apart."""
        if token == _ANY:
            return [child for name, child in self.children.items() if name != _REST]
        found = (self.children.get(token), self.children.get(_ANY))
        return [child for child in found if child is not None]


class PatternIndex(Generic[T]):
    """Subject patterns with their owners."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def __bool__(self) -> bool:
        """Return whether there is any pattern."""
        return bool(self._root.children)

    def add(self, pattern: bytes, owner: T) -> None:
        """Add `owner` to the owners of a pattern."""
        node = self._root
        for token in pattern.split(b"."):
            child = node.children.get(token)
            if child is None:
                child = node.children[token] = _Node()
            node = child
        node.owners[owner] = None

    def remove(self, pattern: bytes, owner: T) -> None:
        """Remove an owner of a pattern, and the nodes that only it needed."""
        path, node = [], self._root
        for token in pattern.split(b"."):
            path.append((node, token))
            node = node.children[token]
        node.owners.pop(owner, None)
        for parent, token in reversed(path):
            if node.children or node.owners:
                break
            del parent.children[token]
            node = parent

    def match(self, subject: bytes) -> dict[T, None]:
        """Return the owners of the patterns that a literal subject matches."""
        found: dict[T, None] = {}
        level = [self._root]
        for token in subject.split(b"."):
            reached: list[_Node[T]] = []
            for node in level:
                children = node.children
                if (rest := children.get(_REST)) is not None:
                    found.update(rest.owners)
                if (child := children.get(_ANY)) is not None:
                    reached.append(child)
                if token != _ANY and (child := children.get(token)) is not None:
                    reached.append(child)
            level = reached
            if not level:
                break
        for node in level:
            found.update(node.owners)
        return found

    def overlapping(self, pattern: bytes) -> dict[T, None]:
        """Return the owners of the patterns that match a subject which `pattern` matches as well."""
        found: dict[T, None] = {}
        level = [self._root]
        for token in pattern.split(b"."):
            for node in level:
                if (rest := node.children.get(_REST)) is not None:
                    found.update(rest.owners)
            if token == _REST:
                below = [child for node in level for child in node.children.values()]
                while below:
                    node = below.pop()
                    found.update(node.owners)
                    below += node.children.values()
                return found
            level = [child for node in level for child in node.meeting(token)]
        for node in level:
            found.update(node.owners)
        return found
