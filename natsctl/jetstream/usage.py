"""The bytes stored in memory and on disk, by the whole server and by each account.

Theory of operation. A stream reports added or removed bytes to its account's usage of one storage type (`moved`), once
a commit, and before each message where the account is limited; the account passes it on to the server's. The server
refuses everything once it is `full`, of which streams are informed; an account refuses the message that would go beyond
its limit.
"""

from __future__ import annotations

from collections.abc import Callable


class ServerUsage:
    """Bytes of messages in all streams of one storage type; `limit` below 0: none."""

    __slots__ = ("_changed", "full", "limit", "used")

    def __init__(self, limit: int, changed: Callable[[], None]) -> None:
        """Call `changed` whenever `full` turned."""
        self.limit = limit
        self.used = 0
        self.full = False
        self._changed = changed

    def moved(self, delta: int) -> None:
        """Record added (or, negative, removed) bytes."""
        self.used += delta
        full = 0 <= self.limit < self.used
        if full is not self.full:
            self.full = full
            self._changed()


class AccountUsage:
    """Bytes of messages in the streams of one account and storage type; `limit` below 0: none."""

    __slots__ = ("_server", "limit", "used")

    def __init__(self, server: ServerUsage, limit: int) -> None:
        self._server = server
        self.limit = limit
        self.used = 0

    @property
    def full(self) -> bool:
        """Return whether the server refuses all messages."""
        return self._server.full

    @property
    def limited(self) -> bool:
        """Return whether every message has to be checked."""
        return self.limit >= 0

    def refuses(self, size: int) -> bool:
        """Return whether a message of `size` bytes would go beyond the account's limit."""
        return 0 <= self.limit < self.used + size

    @property
    def room(self) -> int:
        """Return how many bytes may still come."""
        rooms = [usage.limit - usage.used for usage in (self, self._server) if usage.limit >= 0]
        return min(rooms, default=1 << 62)

    def moved(self, delta: int) -> None:
        """Record added (or, negative, removed) bytes."""
        self.used += delta
        self._server.moved(delta)
