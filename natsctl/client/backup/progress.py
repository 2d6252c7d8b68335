"""How far one stream's backup or restore is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Progress:
    """Sizes in bytes, `archive_bytes` as they go over the wire; `total_bytes` is what the stream is said to have.

    `attempt` counts from 1; each starts from nothing, as neither server can go on in the middle.
    """

    stream: str
    total_bytes: int
    archive_bytes: int = 0
    chunks: int = 0
    attempt: int = 1
    started_s: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started_s

    def again(self) -> None:
        """Start from nothing, one attempt later."""
        self.archive_bytes = self.chunks = 0
        self.attempt += 1


OnProgress = Callable[[Progress], None]
Say = Callable[[str], None]
"""Takes a sentence for the person who waits."""


def silent(progress: Progress) -> None:
    """Show nothing."""


def mute(text: str) -> None:
    """Tell nobody."""
