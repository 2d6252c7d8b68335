"""How much of what the server may keep in memory or on disk is used, over all accounts."""

from __future__ import annotations

from collections.abc import Callable


class Usage:
    """Bytes of messages in all streams of one storage type; `limit` 0 or less: none."""

    __slots__ = ("_changed", "full", "limit", "used")

    def __init__(self, limit: int, changed: Callable[[], None]) -> None:
        """Call `changed` whenever `full` turned."""
        self.limit = limit
        self.used = 0
        self.full = False
        self._changed = changed

    def moved(self, delta: int) -> None:
        """Take note of bytes that came (or, negative, went)."""
        self.used += delta
        full = 0 < self.limit <= self.used
        if full is not self.full:
            self.full = full
            self._changed()
