"""Subject filters, compiled once and shared by everyone who asks the same question."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from natsctl.native import lib
from natsctl.store.steps import STEP, Steps, pieces

MATCH_CACHE_ENTRIES = 8192
"""Verdicts remembered per filter; the cache is emptied when full."""
MANY_PATTERNS = 8
"""Min number of patterns to look subjects up by token: a regular expression would try each in turn."""
NATIVE_PATTERNS = 8192
"""Maximum number of patterns that the native module makes a tree of for each step: half a millisecond."""
BYTES_PER_SUBJECT = 32
"""Bytes of a long pattern that cost as much as a short one."""
PATTERNS_PER_SUBJECT = 8
"""A tree of that many patterns takes as long as one lookup in Python."""

_ANY, _REST, _END = b" *", b" >", b" "
"""Edges of the tree of patterns that no token of a subject can be: `*`, a final `>`, and the end of a pattern."""


class Filters:
    """A set of subject patterns; empty means every subject."""

    __slots__ = ("_cache", "_given", "_regex", "literals", "subjects", "wildcards")

    def __init__(self, subjects: Iterable[bytes] = ()) -> None:
        """Compile `subjects`; a pattern that takes everything makes the set empty (= all)."""
        given = dict.fromkeys(subjects)
        patterns = dict.fromkeys([s for s in given if _is_wide(s)])
        self._compile(given, patterns, [s for s in given if s not in patterns] if patterns else given)

    @classmethod
    def compiling(cls, subjects: Sequence[str]) -> Steps[Filters]:
        """Compile subjects in steps, so that `matches` has nothing left to prepare."""
        given: dict[bytes, None] = {}
        patterns: dict[bytes, None] = {}
        literals: dict[bytes, None] = {}
        for piece in pieces(subjects):
            for subject in piece:
                raw = subject.encode("utf-8", "surrogateescape")
                given[raw] = None
                (patterns if _is_wide(raw) else literals)[raw] = None
            yield len(piece)
        filters = cls.__new__(cls)
        filters._compile(given, patterns, literals)
        if len(filters.wildcards) > MANY_PATTERNS:
            tree = _Patterns()
            cost = 0
            for pattern in filters.wildcards:
                tree.add((pattern,))
                cost += 1 + len(pattern) // BYTES_PER_SUBJECT
                if cost >= STEP:
                    yield cost
                    cost = 0
            filters._regex = tree.fullmatch
        return filters

    def _compile(self, given: dict[bytes, None], patterns: dict[bytes, None], literals: Iterable[bytes]) -> None:
        if b">" in given:
            given, patterns, literals = {}, {}, ()
        self._given = given
        self.subjects: tuple[bytes, ...] = tuple(given)
        self.wildcards = tuple(patterns)
        self.literals = tuple(literals) if patterns else self.subjects
        self._regex: Callable[[bytes], object] | None = None
        self._cache: dict[bytes, bool] = {}

    @property
    def everything(self) -> bool:
        return not self.subjects

    def has(self, subject: bytes) -> bool:
        return subject in self._given

    def matches(self, subject: bytes) -> bool:
        """Return whether `subject` passes; verdicts of wildcards are cached."""
        given = self._given
        if subject in given or not given:
            return True
        if not self.wildcards:
            return False
        cache = self._cache
        verdict = cache.get(subject)
        if verdict is None:
            if len(cache) >= MATCH_CACHE_ENTRIES:
                cache.clear()
            verdict = cache[subject] = self.matches_wildcard(subject)
        return verdict

    def matches_wildcard(self, subject: bytes) -> bool:
        """Return whether one of the wildcard patterns takes `subject`; nothing is cached."""
        if self._regex is None:
            if not self.wildcards:
                return False
            # Only now: it costs more than all else that a consumer is made of, and most are never asked.
            if len(self.wildcards) > MANY_PATTERNS:
                tree = _Patterns()
                tree.add(self.wildcards)
                self._regex = tree.fullmatch
            else:
                self._regex = re.compile(b"|".join(map(_as_regex, self.wildcards)), re.DOTALL).fullmatch
        return self._regex(subject) is not None

    @property
    def quick(self) -> bool:
        """Return whether `numbers_of` costs far less than a look at each subject."""
        return lib is not None and len(self.wildcards) <= NATIVE_PATTERNS

    def numbers_of(self, names: list[bytes], start: int, end: int) -> array[int]:
        most = min(NATIVE_PATTERNS, PATTERNS_PER_SUBJECT * (end - start))
        if lib is not None and len(self.wildcards) <= most:
            return array("I", lib.matching(names, start, end, self.wildcards))
        return self._numbers_of(names, start, end)

    def _numbers_of(self, names: list[bytes], start: int, end: int) -> array[int]:
        matches = self.matches_wildcard
        return array("I", [number for number in range(start, end) if matches(names[number])])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filters) and other.subjects == self.subjects

    def __hash__(self) -> int:
        return hash(self.subjects)

    def __repr__(self) -> str:
        return f"Filters({self.subjects!r})"


ALL = Filters()
"""The filter that takes every subject."""


def _is_wide(subject: bytes) -> bool:
    if b"*" not in subject and b">" not in subject:
        return False
    tokens = subject.split(b".")
    return b"*" in tokens or b">" in tokens


def _as_regex(pattern: bytes) -> bytes:
    tokens = pattern.split(b".")
    parts = [
        rb"[^.]+" if t == b"*" else rb".+" if t == b">" and i == len(tokens) - 1 else re.escape(t)
        for i, t in enumerate(tokens)
    ]
    return rb"\.".join(parts)


class _Patterns:
    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: dict[bytes, Any] = {}

    def add(self, patterns: Iterable[bytes]) -> None:
        for pattern in patterns:
            node, tokens = self._root, pattern.split(b".")
            for number, token in enumerate(tokens, 1):
                if token == b"*":
                    token = _ANY
                elif token == b">" and number == len(tokens):
                    token = _REST
                node = node.setdefault(token, {})
            node[_END] = {}

    def fullmatch(self, subject: bytes) -> bool | None:
        """Return True if one of the patterns matches a subject, else None."""
        level, tokens = [self._root], subject.split(b".")
        last = len(tokens) - 1
        for index, token in enumerate(tokens):
            below: list[dict[bytes, Any]] = []
            for node in level:
                if _REST in node and (token or index < last):
                    return True
                if (child := node.get(token)) is not None:
                    below.append(child)
                if token and (child := node.get(_ANY)) is not None:
                    below.append(child)
            if not below:
                return None
            level = below
        return True if any(_END in node for node in level) else None
