"""Slices so small that the few messages of a simulation take many."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Final
from unittest import mock

SIZES: Final = {
    "STEP": 2,
    "BULK_STEP": 3,
    "LOOK_STEP": 2,
    "FIRST_SLICE": 2,
    "SLICE": 2,
    "GONE_STEP": 2,
    "PRUNE_STEP": 2,
}
"""What `store.steps`, `jetstream.work` and those that work in steps call their sizes."""


@contextlib.contextmanager
def small_steps() -> Iterator[None]:
    """Let every job take one step of a few messages in each turn."""
    with contextlib.ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            for size in SIZES if name.startswith("natsctl.") else ():
                if isinstance(getattr(module, size, None), int):
                    stack.enter_context(mock.patch.object(module, size, SIZES[size]))
        yield
