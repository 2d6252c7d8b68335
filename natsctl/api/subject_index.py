"""An index of subject patterns: finds the owners of patterns that match a subject or overlap another pattern.

Theory of operation. Patterns live in a trie of their tokens, with `*` and `>` as ordinary children, so that the cost of
a lookup depends on its tokens and not on the number of patterns. A literal subject is matched by walking all nodes that
its tokens can reach, one level at a time. The walk also finds on how many leading tokens the result depends: below the
last level at which a reached node has a literal child, subjects with the same number of tokens have the same result; if
no reached node has a child except `>`, so have all longer subjects. The broker caches its routes by this rule.

A pattern is at most `MAX_DEPTH` nodes deep: the tokens after them are split into blocks of as many, and blocks are
compared with each other. So a pattern of a megabyte costs about as much as one that fits into a line of the protocol.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence, Sized
from itertools import chain
from typing import Any, Final, Generic, TypeAlias, TypeVar

from natsctl.api.subjects import is_subset, matches, overlaps

T = TypeVar("T")
S = TypeVar("S", str, bytes)

Steps: TypeAlias = Generator[int, None, T]
"""Work on very many subjects: yields the cost of each step (`store.steps`), so that other work can run between two."""
STEP: Final = 128
"""Subjects that one step examines: less than a millisecond."""
APART_STEP: Final = 2048
"""Subjects that one step only puts into a set."""
NODES_PER_SUBJECT: Final = 4
"""Nodes of an index that cost as much to visit as a subject costs anyway."""
BYTES_PER_SUBJECT: Final = 32
"""Bytes of long subjects that cost as much as a short one."""

WALK_STEP: Final = 1024
"""Nodes that one step of a walk visits: less than a millisecond."""

MAX_DEPTH: Final = 2048
"""Tokens that have nodes of their own: as many as a line of the protocol can have."""
NODES_PER_BLOCK: Final = MAX_DEPTH // 8
"""Nodes that cost as much to visit as the comparison of two blocks."""

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

    __slots__ = ("_nodes", "_root", "count", "inserted")

    def __init__(self) -> None:
        self._root: IndexNode[T] = IndexNode()
        self._nodes = 0
        """Nodes that `meeting` has visited since their cost was taken."""
        self.count = 0
        """Patterns in the index, once for each owner."""
        self.inserted = 0
        """Patterns that were ever added; patterns with a zero count were removed."""

    def add(self, pattern: bytes, owner: T) -> IndexNode[T]:
        """Add a new owner of a valid pattern; return the node of that pattern."""
        node = self._root
        for token in _blocked(pattern.split(b".")):
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
        for token in _blocked(pattern.split(b".")):
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
        for token in _blocked(pattern.split(b".")):
            child = node.children.get(token)
            if child is None:
                return ()
            node = child
        return node.owners

    def match(self, tokens: list[bytes]) -> tuple[list[IndexNode[T]], int, int]:
        """Return the nodes of matching patterns, and the number of leading tokens that decided.

        The last number is how many leading tokens decided it for subjects of every length above that; 0: none.
        """
        if len(tokens) > MAX_DEPTH:
            return finish(self.walking(tokens))
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
        for index, token in enumerate(_blocked(tokens), 1):
            reached: list[IndexNode[T]] = []
            if index > MAX_DEPTH:
                decided = len(tokens)
                for key, child in _edges(level):
                    if matches(key, token):
                        (found if _is_open(key) else reached).append(child)
                    cost += NODES_PER_BLOCK
                    if cost >= WALK_STEP:
                        yield cost
                        cost = 0
                level = []
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
        tokens = subject.split(b".")
        if len(tokens) > MAX_DEPTH:
            return [owner for node in self.match(tokens)[0] for owner in node.owners]
        found: list[T] = []
        level = [self._root]
        for token in tokens:
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
        return dict.fromkeys(chain.from_iterable(self.meeting(pattern)))

    def covering(self, pattern: bytes) -> Iterator[T]:
        """Yield the owners of the patterns that match every subject which `pattern` matches, once for each pattern."""
        return chain.from_iterable(self.meeting(pattern, covering=True))

    def meeting(self, pattern: bytes, covering: bool = False) -> Iterator[list[T]]:
        """Yield the result of `overlapping` or `covering` in parts of about `WALK_STEP` visited nodes, possibly empty.

        Patterns that are added or removed between two parts may be missed.
        """
        owners: list[T] = []
        below: list[IndexNode[T]] = []
        level, cost = [self._root], 0
        for depth, token in enumerate(_blocked(pattern.split(b"."))):
            reached: list[IndexNode[T]] = []
            if depth >= MAX_DEPTH:
                for key, child in _edges(level):
                    if is_subset(token, key) if covering else overlaps(token, key):
                        (below if _is_open(key) else reached).append(child)
                    cost += NODES_PER_BLOCK
                    if cost >= WALK_STEP:
                        yield self._visited(cost, owners)
                        owners, cost = [], 0
                level = []
            for node in level:
                children = node.children
                if token == REST and not covering:
                    below += children.values()
                    continue
                if (rest := children.get(REST)) is not None:
                    owners += rest.owners
                if token == ANY and not covering:
                    reached += [child for name, child in children.items() if name != REST]
                elif token != REST:
                    if (wider := children.get(ANY)) is not None:
                        reached.append(wider)
                    if token != ANY and (same := children.get(token)) is not None:
                        reached.append(same)
                cost += 1
                if cost >= WALK_STEP:
                    yield self._visited(cost, owners)
                    owners, cost = [], 0
            level = reached
        if _is_open(pattern) and not covering:
            below, level = below + level, []
        while below:
            node = below.pop()
            owners += node.owners
            below += node.children.values()
            cost += 1
            if cost >= WALK_STEP:
                yield self._visited(cost, owners)
                owners, cost = [], 0
        for node in level:
            owners += node.owners
        yield self._visited(cost, owners)

    def _visited(self, nodes: int, owners: list[T]) -> list[T]:
        self._nodes += nodes
        return owners

    def take_cost(self) -> int:
        """Return the cost of the nodes that `meeting` has visited since the last call."""
        cost, self._nodes = self._nodes // NODES_PER_SUBJECT, 0
        return cost

    def clearing(self) -> Steps[None]:
        """Free all nodes in steps."""
        waiting, count = [self._root], 0
        self._root = IndexNode()
        while waiting:
            node = waiting.pop()
            waiting += node.children.values()
            node.children = _CHILDLESS
            count += 1
            if not count % WALK_STEP:
                yield STEP

    def __iter__(self) -> Iterator[T]:
        """Yield the owners; the index may change meanwhile, and changes may show or not."""
        waiting = [self._root]
        while waiting:
            node = waiting.pop()
            waiting += node.children.values()
            yield from tuple(node.owners)


def _blocked(tokens: list[bytes]) -> list[bytes]:
    """Return tokens with those beyond `MAX_DEPTH` in blocks."""
    if len(tokens) <= MAX_DEPTH:
        return tokens
    starts = range(MAX_DEPTH, len(tokens), MAX_DEPTH)
    return tokens[:MAX_DEPTH] + [b".".join(tokens[start : start + MAX_DEPTH]) for start in starts]


def _edges(nodes: list[IndexNode[T]]) -> list[tuple[bytes, IndexNode[T]]]:
    return [edge for node in nodes for edge in node.children.items()]


def _is_open(pattern: bytes) -> bool:
    return pattern == REST or pattern[-2:] == b".>"


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

    def __init__(self) -> None:
        self._index: SubjectIndex[bytes] | None = None
        self.patterns: tuple[bytes, ...] = ()

    def fill(self, patterns: Iterable[bytes]) -> Steps[None]:
        """Set the patterns of an empty set."""
        self.patterns = tuple(dict.fromkeys(patterns))
        if len(self.patterns) > FEW_PATTERNS:
            self._index = SubjectIndex()
            for pattern in self.patterns:
                self._index.add(pattern, pattern)
                yield cost_of(pattern)

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
            return any(self._index.meeting(subject, covering=True))
        return any(is_subset(subject, pattern) for pattern in self.patterns)

    def meet(self, subject: bytes) -> bool:
        """Return whether some subject matches both `subject` and a pattern."""
        if self._index is not None:
            return any(self._index.meeting(subject))
        return any(overlaps(pattern, subject) for pattern in self.patterns)


def finish(steps: Generator[Any, None, T]) -> T:
    """Run all steps and return the result (`store.steps` has the same for the store)."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def cost_of(subject: Sized) -> int:
    """Return the cost of the examination of a subject."""
    return 1 + len(subject) // BYTES_PER_SUBJECT


def subject_pieces(subjects: Sequence[S], step: int = STEP) -> Iterator[Sequence[S]]:
    """Yield slices of a list of subjects that cost about one step each: fewer if they are long."""
    start = cost = 0
    for end, subject in enumerate(subjects, 1):
        cost += cost_of(subject)
        if cost >= step:
            yield subjects[start:end]
            start, cost = end, 0
    if start < len(subjects):
        yield subjects[start:]


def first_overlap(patterns: Sequence[str]) -> Steps[tuple[int, int] | None]:
    """Return the place of the first pattern that overlaps a later one, and the place of that one; None if none do.

    Two overlap if some subject matches both; equal ones do. The index holds the patterns that may still be the first:
    those before the first one found so far. No two of them overlap, so that nothing is found more than once.
    """
    if (yield from _being_apart(patterns)):
        return None
    index: SubjectIndex[int] = SubjectIndex()
    found: tuple[int, int] | None = None
    cost = 0
    for place, pattern in enumerate(patterns):
        raw, first = pattern.encode("utf-8", "surrogatepass"), place
        cost += cost_of(raw)
        for places in index.meeting(raw):
            first = min([first, *places])
            cost += index.take_cost()
            if cost >= STEP:
                yield cost
                cost = 0
        if first < place:
            for later in range(first, found[0] if found is not None else place):
                index.remove(patterns[later].encode("utf-8", "surrogatepass"), later)
                cost += cost_of(patterns[later])
                if cost >= STEP:
                    yield cost
                    cost = 0
            found = first, place
        elif found is None:
            index.add(raw, place)
    yield from index.clearing()
    return found


def _being_apart(patterns: Sequence[str]) -> Steps[bool]:
    """Return whether all are literal and distinct: this common case needs no index."""
    known = set[str]()
    for start in range(0, len(patterns), APART_STEP):
        if start:
            yield STEP
        some = patterns[start : start + APART_STEP]
        text = "".join(some)
        if "*" in text or ">" in text:
            return False
        known.update(some)
    return len(known) == len(patterns)


def first_covered(patterns: Sequence[str]) -> Steps[int | None]:
    """Return the place of the first pattern that another one covers, or None; equal ones cover each other."""
    if (yield from _being_apart(patterns)):
        return None
    index: SubjectIndex[int] = SubjectIndex()
    cost = 0
    for place, pattern in enumerate(patterns):
        index.add(pattern.encode("utf-8", "surrogatepass"), place)
        cost += cost_of(pattern)
        if cost >= STEP:
            yield cost
            cost = 0
    for place, pattern in enumerate(patterns):
        cost += cost_of(pattern)
        for owners in index.meeting(pattern.encode("utf-8", "surrogatepass"), covering=True):
            if any(owner != place for owner in owners):
                yield from index.clearing()
                return place
            cost += index.take_cost()
            if cost >= STEP:
                yield cost
                cost = 0
    yield from index.clearing()
    return None
