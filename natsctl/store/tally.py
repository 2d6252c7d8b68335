"""The subjects of one segment: how many live messages each has, and which is its newest."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import NamedTuple

from natsctl.store.subject_table import GONE


class Tally(NamedTuple):
    """Subject numbers in ascending order, each with its live messages and the newest sequence of them."""

    keys: array[int]
    counts: array[int]
    lasts: array[int]


def tally_of(sids: array[int], seqs: array[int] | range) -> Tally:
    """Return the tally of messages in sequence order; the number GONE belongs to no subject."""
    last = dict(zip(sids, seqs, strict=True))
    last.pop(GONE, None)
    keys = array("I", sorted(last))
    lasts = array("Q", map(last.__getitem__, keys))
    if len(keys) == len(sids):
        return Tally(keys, array("I", [1]) * len(keys), lasts)
    return Tally(keys, array("I", map(Counter(sids).__getitem__, keys)), lasts)
