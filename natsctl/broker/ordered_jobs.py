"""Jobs that change accounts: one after another, each in slices of turns.

A job relies on the accounts as they were when it began, so it begins only after the one before it has ended. A short
one that waits for nothing is done at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from natsctl.api.subject_index import Steps

if TYPE_CHECKING:
    from natsctl.broker.deferred_work import LongWork

AT_ONCE_COST: Final = 512
"""Maximum cost of a job to do immediately: about two milliseconds."""


class OrderedJobs:
    def __init__(self, long_work: LongWork) -> None:
        """Continue jobs as part of `long_work`, in its order."""
        self._long_work = long_work
        self._waiting = 0
        self.wake: Callable[[], None] = lambda: None
        """Asks for a turn."""

    def run(self, job: Steps[Any]) -> None:
        """Do a job now if it is short and no other waits, else in later turns."""
        if not self._waiting:
            self._waiting += 1  # jobs that it requests meanwhile come after it
            try:
                if _is_done_within(job, AT_ONCE_COST):
                    return
            finally:
                self._waiting -= 1
        self.add(job)

    def add(self, job: Steps[Any]) -> None:
        self._waiting += 1
        self._long_work.add(self._continuing(job))
        self.wake()

    def _continuing(self, job: Steps[Any]) -> Iterator[None]:
        try:
            for _ in job:
                yield
        finally:
            self._waiting -= 1


def begun(work: Iterator[int]) -> Iterator[int] | None:
    """Do the first step; return the remaining steps, or None."""
    return None if next(work, None) is None else work


def _is_done_within(job: Steps[Any], cost: int) -> bool:
    """Do steps of a job until they have cost so much; return whether it has ended."""
    for step in job:
        cost -= step
        if cost <= 0:
            return False
    return True
