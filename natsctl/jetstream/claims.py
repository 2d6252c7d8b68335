"""Claims: the patterns of one stream or consumer in an index of many, added and removed in steps.

A claim is an owner in the index before its stream or consumer exists, and until the last of its patterns is removed
after it has ended; whoever looks into the index skips the claims that are not in use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from natsctl.api.subject_index import SubjectIndex, cost_of
from natsctl.broker.deferred_work import MANY_SUBS, SUBS_STEP, LongWork

C = TypeVar("C", bound="Claim")


class Claim:
    """Patterns of one owner; patterns of an ended claim only wait for removal."""

    __slots__ = ("ended", "subjects")

    def __init__(self) -> None:
        self.subjects: list[bytes] = []
        """Patterns that are in the index."""
        self.ended = False

    def end(self: C, index: SubjectIndex[C], long_work: LongWork) -> None:
        if self.ended:
            return
        self.ended = True
        removing = self._removing(index)
        if len(self.subjects) > MANY_SUBS or sum(map(cost_of, self.subjects)) > MANY_SUBS:
            long_work.add(removing, index)
        else:
            for _ in removing:
                pass

    def _removing(self: C, index: SubjectIndex[C]) -> Iterator[None]:
        while self.subjects:
            cost = 0
            while self.subjects and cost < SUBS_STEP:
                subject = self.subjects.pop()
                index.remove(subject, self)
                cost += cost_of(subject)
            yield
