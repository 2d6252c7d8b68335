"""Subjects of one stream: a small number for each, its newest sequence and its live count.

A subject keeps its number until `renumber`; numbers are what segments store per message. `last` may be stale after
the newest message of a subject was removed: `stale` says which, and the index finds the true one when asked. A `Tally`
has the same of one segment: how many live messages each subject has, and the newest of them.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import count, repeat
from typing import NamedTuple

from natsctl.native import lib

GONE = 0xFFFFFFFF
"""The number in a dead position with a forgotten subject."""


def _numbering(names: Iterable[bytes]) -> dict[bytes, int]:
    """Return the number of each name; a name that is not there gets the next number when it is asked for by `[]`.

    Many names are numbered by one pass in C this way. Look-ups that must not add a name use `get`.
    """
    ids: defaultdict[bytes, int] = defaultdict()
    ids.default_factory = ids.__len__
    ids.update(zip(names, count()))
    return ids


class SubjectTable:
    __slots__ = ("count", "first", "ids", "last", "live", "names", "stale")

    def __init__(self) -> None:
        self.ids = _numbering(())
        self.names: list[bytes] = []
        self.last = array("Q")
        self.first = array("Q")
        self.count = array("Q")
        self.stale: set[int] = set()
        self.live = 0

    def intern(self, subject: bytes) -> int:
        sid = self.ids.get(subject)
        if sid is None:
            sid = self.ids[subject] = len(self.names)
            self.names.append(subject)
            self.last.append(0)
            self.first.append(0)
            self.count.append(0)
        return sid

    def intern_all(self, subjects: list[bytes]) -> array[int]:
        """Return the numbers of `subjects`, all different, giving numbers to the new ones in their order."""
        first = len(self.names)
        sids = array("I", map(self.ids.__getitem__, subjects))
        new = len(self.ids) - first
        if new:
            self.names += (
                subjects if new == len(subjects) else [s for s, sid in zip(subjects, sids, strict=True) if sid >= first]
            )
            self.grow()
        return sids

    def grow(self) -> None:
        """Add zero counts for new subjects, already numbered and named."""
        zeros = bytes(8 * (len(self.names) - len(self.count)))
        if zeros:
            for column in (self.last, self.first, self.count):
                column.frombytes(zeros)

    def add_tally(self, tally: Tally, first_seq: int) -> None:
        """Count the messages of a segment that begins with `first_seq`, above all earlier ones."""
        count, first, last, keys = self.count, self.first, self.last, tally.keys
        if keys and keys[-1] - keys[0] == len(keys) - 1 and not any(count[keys[0] : keys[-1] + 1]):
            span = slice(keys[0], keys[-1] + 1)  # new ones all: the usual case where almost every message has its own
            count[span], last[span] = array("Q", tally.counts), tally.lasts
            first[span] = array("Q", [first_seq]) * len(keys)
            self.live += len(keys)
            return
        for sid, messages, seq in zip(*tally, strict=True):
            if not count[sid]:
                self.live += 1
                first[sid] = first_seq
            count[sid] += messages
            last[sid] = seq

    def removed(self, sid: int, seq: int) -> None:
        left = self.count[sid] - 1
        self.count[sid] = left
        if not left:
            self.live -= 1
            self.last[sid] = 0
            self.stale.discard(sid)
        elif self.last[sid] == seq:
            self.stale.add(sid)
        elif left == 1 and sid not in self.stale:
            self.first[sid] = self.last[sid]

    def crowded(self) -> bool:
        total = len(self.names)
        return total > 4096 and total > 2 * self.live

    def renumber(self) -> array[int]:
        """Forget subjects without messages; return old number → new number (GONE for forgotten subjects)."""
        moves = array("I", repeat(GONE, len(self.names)))
        kept = [sid for sid, count in enumerate(self.count) if count]
        for new, old in enumerate(kept):
            moves[old] = new
        self.stale = {moves[sid] for sid in self.stale}
        self.names = [self.names[sid] for sid in kept]
        self.ids = _numbering(self.names)
        self.last = array("Q", [self.last[sid] for sid in kept])
        self.first = array("Q", [self.first[sid] for sid in kept])
        self.count = array("Q", [self.count[sid] for sid in kept])
        return moves


class Tally(NamedTuple):
    """Subject numbers in ascending order, each with its live messages and the newest sequence of them."""

    keys: array[int]
    counts: array[int]
    lasts: array[int]


def _tally_of(sids: array[int], seqs: array[int] | range) -> Tally:
    """Return the tally of messages in sequence order; the number GONE belongs to no subject."""
    last = dict(zip(sids, seqs, strict=True))
    last.pop(GONE, None)
    keys = array("I", sorted(last))
    lasts = array("Q", map(last.__getitem__, keys))
    if len(keys) == len(sids):
        return Tally(keys, array("I", [1]) * len(keys), lasts)
    return Tally(keys, array("I", map(Counter(sids).__getitem__, keys)), lasts)


def _tally_in_c(sids: array[int], seqs: array[int] | range) -> Tally:
    assert lib is not None
    if len(seqs) != len(sids):
        raise ValueError(f"{len(seqs)} sequences of {len(sids)} messages")
    listed, base = (None, seqs.start) if isinstance(seqs, range) else (seqs, 0)
    keys, counts, lasts = lib.tally(sids, listed, base)
    return Tally(array("I", keys), array("I", counts), array("Q", lasts))


tally_of = _tally_of if lib is None else _tally_in_c
