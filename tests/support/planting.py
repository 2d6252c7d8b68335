"""What a set of planted faults is: one function each, and the search for the first seed that notices one.

A plant replaces one function while it is active, and breaks one promise. A simulation that does not notice it within
its seeds proves nothing about that promise.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

Patch: TypeAlias = contextlib.AbstractContextManager[Any]


def do_nothing(*arguments: Any, **named: Any) -> None:
    """Do not do it."""


def noticed_at(
    plant: Callable[[], Patch],
    simulate: Callable[[int], object],
    seeds: int,
    noticed: tuple[type[Exception], ...],
    first: int = 0,
) -> int | None:
    """Return one of `seeds` at which a simulation with the plant raises one of `noticed`; None: at none.

    They are tried from `first` on, and those before it then.
    """
    with plant():
        for seed in itertools.chain(range(first, seeds), range(first)):
            try:
                simulate(seed)
            except noticed:
                return seed
    return None
