"""An index of subject patterns: finds the owners of patterns that match a subject or overlap another pattern.

Theory of operation. Patterns live in a trie of their tokens, with `*` and `>` as ordinary children, so that the cost of
a lookup depends on its tokens and not on the number of patterns. A literal subject is matched by walking all nodes that
its tokens can reach, one level at a time. The walk also finds on how many leading tokens the result depends: below the
last level at which a reached node has a literal child, subjects with the same number of tokens have the same result; if
no reached node has a child except `>`, so have all longer subjects. The broker caches its routes by this rule.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from natsctl.api.subjects import is_subset, matches, overlaps

T = TypeVar("T")

Steps: TypeAlias = Generator[int, None, T]
"""Work on very many subjects: yields the cost of each step (`store.steps`), so that other work can run between two."""
STEP: Final = 128
"""Subjects that one step examines: less than a millisecond."""
NODES_PER_SUBJECT: Final = 4
"""Nodes of an index that cost as much to visit as a subject costs anyway."""

WALK_STEP: Final = 1024
"""Nodes that one step of a walk visits: less than a millisecond."""

ANY: Final = b"*"
REST: Final = b">"

FEW: Final = 4
"""Owners at a node that are kept in a tuple: most nodes have one, and a dict for it takes four times the memory."""


class IndexNode(Generic[T]):
    """The owners of the pattern that ends here, in the order of their arrival, and the tokens that lead on."""

    __slots__ = ("children", "owners")

    def __init__(self) -> None:
        self.children: dict[bytes, IndexNode[T]] = _CHILDLESS
        self.owners: tuple[T, ...] | dict[T, None] = ()

    def add(self, owner: T) -> None:
        """Add an owner that is not here yet."""
        owners = self.owners
        if isinstance(owners, dict):
            owners[owner] = None
        elif len(owners) < FEW:
            self.owners = (*owners, owner)
        else:
            self.owners = dict.fromkeys((*owners, owner))

    def discard(self, owner: T) -> None:
        """Remove an owner that is here."""
        owners = self.owners
        if isinstance(owners, dict):
            del owners[owner]
        else:
            self.owners = tuple([one for one in owners if one != owner])


_CHILDLESS: Final[dict[bytes, IndexNode[Any]]] = {}
"""The children of every leaf; it is never written to."""


class SubjectIndex(Generic[T]):
    """Subject patterns with their owners."""

    __slots__ = ("_root", "count", "inserted", "visited")

    def __init__(self) -> None:
        self._root: IndexNode[T] = IndexNode()
        self.visited = 0
        """Nodes that `overlapping` and `covering` have visited: their cost."""
        self.count = 0
        """Patterns in the index, once for each owner."""
        self.inserted = 0
        """Patterns that were ever added; patterns with a zero count were removed."""

    def add(self, pattern: bytes, owner: T) -> IndexNode[T]:
        """Add a new owner of a valid pattern; return the node of that pattern."""
        node = self._root
        for token in pattern.split(b"."):
            children = node.children
            child = children.get(token)
            if child is None:
                if children is _CHILDLESS:
                    children = node.children = {}
                child = children[token] = IndexNode()
            node = child
        if node.owners:
            node.add(owner)
        else:
            node.owners = (owner,)
        self.count += 1
        self.inserted += 1
        return node

    def remove(self, pattern: bytes, owner: T) -> bool:
        """Remove an owner of a pattern, and the nodes that only it needed; return False if it was missing."""
        node = self._root
        path: list[tuple[IndexNode[T], bytes]] = []
        for token in pattern.split(b"."):
            path.append((node, token))
            child = node.children.get(token)
            if child is None:
                return False
            node = child
        if owner not in node.owners:
            return False
        node.discard(owner)
        for parent, token in reversed(path):
            if node.children or node.owners:
                break
            del parent.children[token]
            node = parent
        self.count -= 1
        return True

    def owners_of(self, pattern: bytes) -> Iterable[T]:
        """Return the owners of this very pattern."""
        node = self._root
        for token in pattern.split(b"."):
            child = node.children.get(token)
            if child is None:
                return ()
            node = child
        return node.owners

    def match(self, tokens: list[bytes]) -> tuple[list[IndexNode[T]], int, int]:
        """Return the nodes of matching patterns, and the number of leading tokens that decided.

        The last number is how many leading tokens decided it for subjects of every length above that; 0: none.
        """
        found: list[IndexNode[T]] = []
        level = [self._root]
        decided = 0
        for index, token in enumerate(tokens, 1):
            reached: list[IndexNode[T]] = []
            if _pass(level, token, found, reached):
                decided = index
            if not reached:
                return found, decided, index - 1 if decided < index else 0
            level = reached
        return found + level, decided, 0

    def walking(self, tokens: list[bytes]) -> Steps[tuple[list[IndexNode[T]], int, int]]:
        """Return what `match` does, in steps; patterns that are added or removed between two of them may be missed."""
        found: list[IndexNode[T]] = []
        level = [self._root]
        decided = cost = 0
        for index, token in enumerate(tokens, 1):
            reached: list[IndexNode[T]] = []
            for start in range(0, len(level), WALK_STEP):
                if _pass(level[start : start + WALK_STEP], token, found, reached):
                    decided = index
                cost += min(len(level) - start, WALK_STEP)
                if cost >= WALK_STEP:
                    yield cost
                    cost = 0
            if not reached:
                return found, decided, index - 1 if decided < index else 0
            level = reached
        return found + level, decided, 0

    def matching(self, subject: bytes) -> list[T]:
        """Return the owners of the patterns that a literal subject matches, once for each pattern."""
        found: list[T] = []
        level = [self._root]
        for token in subject.split(b"."):
            reached: list[IndexNode[T]] = []
            for node in level:
                children = node.children
                if (rest := children.get(REST)) is not None:
                    found += rest.owners
                if (child := children.get(ANY)) is not None:
                    reached.append(child)
                if (child := children.get(token)) is not None and token != ANY and token != REST:
                    reached.append(child)
            level = reached
            if not level:
                return found
        return found + [owner for node in level for owner in node.owners]

    def overlapping(self, pattern: bytes) -> dict[T, None]:
        """Return the owners of the patterns that match a subject which `pattern` matches as well."""
        found: dict[T, None] = {}
        level = [self._root]
        for token in pattern.split(b"."):
            for node in level:
                if (rest := node.children.get(REST)) is not None:
                    found.update(dict.fromkeys(rest.owners))
            self.visited += len(level)
            if token == REST:
                level = [child for node in level for child in node.children.values()]
                while level:
                    node = level.pop()
                    self.visited += 1
                    found.update(dict.fromkeys(node.owners))
                    level += node.children.values()
                return found
            level = [child for node in level for child in _meeting(node.children, token)]
        for node in level:
            found.update(dict.fromkeys(node.owners))
        return found

    def covering(self, pattern: bytes) -> Iterator[T]:
        """Yield the owners of the patterns that match every subject which `pattern` matches, once for each pattern."""
        level = [self._root]
        for token in pattern.split(b"."):
            reached: list[IndexNode[T]] = []
            self.visited += len(level)
            for node in level:
                children = node.children
                if (rest := children.get(REST)) is not None:
                    yield from rest.owners
                if token == REST:
                    continue
                if (child := children.get(ANY)) is not None:
                    reached.append(child)
                if token != ANY and (child := children.get(token)) is not None:
                    reached.append(child)
            level = reached
        for node in level:
            yield from node.owners

    def __iter__(self) -> Iterator[T]:
        """Yield the owners; the index may change meanwhile, and changes may show or not."""
        waiting = [self._root]
        while waiting:
            node = waiting.pop()
            waiting += node.children.values()
            yield from tuple(node.owners)


def _pass(nodes: list[IndexNode[T]], token: bytes, found: list[IndexNode[T]], reached: list[IndexNode[T]]) -> bool:
    """Go on from some nodes by a token of a subject; return whether it mattered which token that is."""
    decided = False
    for node in nodes:
        children = node.children
        known = 0
        rest = children.get(REST)
        if rest is not None:
            known = 1
            found.append(rest)
        child = children.get(ANY)
        if child is not None:
            known += 1
            reached.append(child)
        if len(children) > known:
            decided = True
            child = children.get(token)
            if child is not None and token != ANY and token != REST:
                reached.append(child)
    return decided


FEW_PATTERNS: Final = 8
"""Patterns that are tried one after another."""


class PatternSet:
    """Patterns that are looked up one by one if they are few, else in an index."""

    __slots__ = ("_index", "patterns")

    def __init__(self, patterns: Iterable[bytes] = ()) -> None:
        self._index: SubjectIndex[bytes] | None = None
        finish(self.fill(patterns))

    def fill(self, patterns: Iterable[bytes]) -> Steps[None]:
        """Set the patterns of an empty set."""
        self.patterns = tuple(dict.fromkeys(patterns))
        if len(self.patterns) > FEW_PATTERNS:
            self._index = SubjectIndex()
            for pattern in self.patterns:
                self._index.add(pattern, pattern)
                yield 1

    def match(self, subject: bytes) -> bool:
        """Return whether a pattern matches `subject`; wildcards in `subject` are plain text."""
        if self._index is not None:
            return bool(self._index.matching(subject))
        return any(matches(pattern, subject) for pattern in self.patterns)

    def matching(self, subject: bytes) -> list[bytes]:
        """Return the patterns that match a subject."""
        if self._index is not None:
            return self._index.matching(subject)
        return [pattern for pattern in self.patterns if matches(pattern, subject)]

    def cover(self, subject: bytes) -> bool:
        """Return whether one pattern matches everything that `subject` does."""
        if self._index is not None:
            return any(True for _ in self._index.covering(subject))
        return any(is_subset(subject, pattern) for pattern in self.patterns)

    def meet(self, subject: bytes) -> bool:
        """Return whether some subject matches both `subject` and a pattern."""
        if self._index is not None:
            return bool(self._index.overlapping(subject))
        return any(overlaps(pattern, subject) for pattern in self.patterns)


def _meeting(children: dict[bytes, IndexNode[T]], token: bytes) -> list[IndexNode[T]]:
    """Return the children that a token of a pattern can meet, `>` apart."""
    if token == ANY:
        return [child for name, child in children.items() if name != REST]
    return [child for name in (token, ANY) if (child := children.get(name)) is not None]


def finish(steps: Generator[Any, None, T]) -> T:
    """Run all steps and return the result (`store.steps` has the same for the store)."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def pieces(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield slices of a sequence, as long as one step."""
    for start in range(0, len(items), STEP):
        yield items[start : start + STEP]


def first_overlap(patterns: Sequence[str]) -> Steps[tuple[int, int] | None]:
    """Return the place of the first pattern that overlaps a later one, and the place of that one; None if none do.

    Two overlap if some subject matches both; equal ones do. The index holds the patterns that may still be the first:
    those before the first one found so far. No two of them overlap, so that nothing is found more than once.
    """
    if _are_apart(patterns):
        return None
    index: SubjectIndex[int] = SubjectIndex()
    found: tuple[int, int] | None = None
    cost = 0
    for place, pattern in enumerate(patterns):
        raw = pattern.encode("utf-8", "surrogatepass")
        before = index.visited
        if earlier := index.overlapping(raw):
            first = min(earlier)
            for later in range(first, found[0] if found is not None else place):
                index.remove(patterns[later].encode("utf-8", "surrogatepass"), later)
            found = first, place
        elif found is None:
            index.add(raw, place)
        cost += 1 + (index.visited - before) // NODES_PER_SUBJECT
        if cost >= STEP:
            yield cost
            cost = 0
    return found


def _are_apart(patterns: Sequence[str]) -> bool:
    """Return whether all are literal and distinct: this common case needs no index."""
    text = "".join(patterns)
    return "*" not in text and ">" not in text and len({*patterns}) == len(patterns)


def first_covered(patterns: Sequence[str]) -> Steps[int | None]:
    """Return the place of the first pattern that another one covers, or None; equal ones cover each other."""
    if _are_apart(patterns):
        return None
    index: SubjectIndex[int] = SubjectIndex()
    for place, pattern in enumerate(patterns):
        index.add(pattern.encode("utf-8", "surrogatepass"), place)
        if not (place + 1) % STEP:
            yield STEP
    cost = 0
    for place, pattern in enumerate(patterns):
        before = index.visited
        if any(owner != place for owner in index.covering(pattern.encode("utf-8", "surrogatepass"))):
            return place
        cost += 1 + (index.visited - before) // NODES_PER_SUBJECT
        if cost >= STEP:
            yield cost
            cost = 0
    return None
