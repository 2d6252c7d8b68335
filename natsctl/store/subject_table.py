"""The subjects of one stream: a small number for each, its newest sequence and its live count.

A subject keeps its number until `renumber`; numbers are what segments store per message. `last` may be stale after
the newest message of a subject was removed: `stale` says which, and the index finds the true one when asked.
"""

from __future__ import annotations

from array import array
from itertools import repeat

GONE = 0xFFFFFFFF
"""The number in a dead position whose subject was forgotten."""


class SubjectTable:
    """Subjects, interned."""

    __slots__ = ("count", "first", "ids", "last", "live", "names", "stale")

    def __init__(self) -> None:
        self.ids: dict[bytes, int] = {}
        self.names: list[bytes] = []
        self.last = array("Q")
        self.first = array("Q")
        self.count = array("Q")
        self.stale: set[int] = set()
        self.live = 0

    def intern(self, subject: bytes) -> int:
        """Return the number of `subject`, giving it one if it is new."""
        sid = self.ids.get(subject)
        if sid is None:
            sid = self.ids[subject] = len(self.names)
            self.names.append(subject)
            self.last.append(0)
            self.first.append(0)
            self.count.append(0)
        return sid

    def added(self, sid: int, seq: int) -> None:
        """Count one more message of `sid` with the highest sequence so far."""
        if not self.count[sid]:
            self.live += 1
            self.first[sid] = seq
        self.count[sid] += 1
        self.last[sid] = seq
        if self.stale:
            self.stale.discard(sid)

    def removed(self, sid: int, seq: int) -> None:
        """Count one message of `sid` less."""
        left = self.count[sid] - 1
        self.count[sid] = left
        if not left:
            self.live -= 1
            self.last[sid] = 0
            self.stale.discard(sid)
        elif self.last[sid] == seq:
            self.stale.add(sid)

    def removed_many(self, sid: int, count: int) -> None:
        """Count `count` of the oldest messages of `sid` less."""
        self.count[sid] -= count
        if not self.count[sid]:
            self.live -= 1
            self.last[sid] = 0
            self.stale.discard(sid)

    def crowded(self) -> bool:
        """Return whether forgotten subjects take most of the table."""
        total = len(self.names)
        return total > 4096 and total > 2 * self.live

    def renumber(self) -> array[int]:
        """Forget subjects without messages; return old number → new number (GONE for the forgotten)."""
        moves = array("I", repeat(GONE, len(self.names)))
        kept = [sid for sid, count in enumerate(self.count) if count]
        for new, old in enumerate(kept):
            moves[old] = new
        self.stale = {moves[sid] for sid in self.stale}
        self.names = [self.names[sid] for sid in kept]
        self.ids = {name: sid for sid, name in enumerate(self.names)}
        self.last = array("Q", [self.last[sid] for sid in kept])
        self.first = array("Q", [self.first[sid] for sid in kept])
        self.count = array("Q", [self.count[sid] for sid in kept])
        return moves
