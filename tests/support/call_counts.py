"""The cost of an action in calls of functions, Python's and C's: the same on every machine, however busy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class CallCounter:
    """Counts calls while it is entered; `noting` functions note what each of their calls costs."""

    def __init__(self) -> None:
        self.calls = 0
        self.turns: list[int] = [0]

    def __enter__(self) -> CallCounter:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        self.calls += event in ("call", "c_call")

    def noting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same and adds the number of its calls to `turns`."""

        def noted(*arguments: Any) -> Any:
            before = self.calls
            try:
                return function(*arguments)
            finally:
                self.turns.append(self.calls - before)

        return noted


def calls_of(act: Callable[[], object]) -> int:
    with CallCounter() as counter:
        act()
    return counter.calls
