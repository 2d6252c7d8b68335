"""The places where a version 2 archive can be cut, though nothing marks where its records begin.

From somewhere in the middle, every place that looks like the head of a record is tried: a chain of records that goes on
to the end of a window, with sequences that ascend, is found from the first true record on, and by chance nowhere else.
Chains that begin inside a payload which itself holds records end or join the true one where that payload does. So the
window's last place that all chains have in common is where a record begins, unless one payload fills the whole window;
then the task before, which has to end exactly there, finds it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from natsctl.spark.source.archive.content import Content, Mark
from natsctl.spark.source.archive.records import head_at

_WINDOWS_BYTES: Final = (256 << 10, 4 << 20)
_LEAST_RECORDS: Final = 8
_LIKE_A_HEAD: Final = re.compile(rb"(?=(?:[\x80-\xff][\x01-\x7f]|[\x01-\x7f])[\x80-\xff]{8}[\x01-\x7f])", re.DOTALL)
"""A name, and a time between 1972 and 2116, which takes nine bytes."""
_NO_SUBJECT: Final = re.compile(rb"[\x00-\x20\x7f]")


class Cut(NamedTuple):
    """A place where a record begins: the frame to begin to read at, the place itself, and the sequence before it."""

    mark: Mark
    at: int
    seq: int


def cut_behind(content: Content, at: int) -> Cut | None:
    """Return the places where the first records behind `at` certainly begin; None where that is not certain."""
    content.reach(at)
    mark = content.mark
    window = b""
    for size in _WINDOWS_BYTES:
        window += content.read(at + len(window), size - len(window))
        found = _common_end(window)
        if found:
            return Cut(mark, at + found[0], found[1])
    return None


def _common_end(window: bytes) -> tuple[int, int] | None:
    """Return the place that all chains of records lead to, and the last sequence before it."""
    seen: set[int] = set()
    ends: set[tuple[int, int]] = set()
    for match in _LIKE_A_HEAD.finditer(window, 0, len(window) // 2):
        if match.start() not in seen:
            end = _followed(window, match.start(), seen)
            if end:
                ends.add(end)
    return ends.pop() if len(ends) == 1 else None


def _followed(window: bytes, at: int, seen: set[int]) -> tuple[int, int] | None:
    """Return the end of a chain that begins there; None for one that breaks, is short, or joins a followed one."""
    records = last = 0
    chain: list[int] = []
    while True:
        try:
            head = head_at(window, at)
        except ValueError:
            return None
        if head is None or head.end > len(window):
            seen.update(chain)
            return (at, last) if records >= _LEAST_RECORDS else None
        if at in seen:
            return None
        subject = window[head.body_at : head.body_at + head.name]
        if head.seq <= last or not subject or _NO_SUBJECT.search(subject):
            return None
        chain.append(at)
        records, last, at = records + 1, head.seq, head.end
