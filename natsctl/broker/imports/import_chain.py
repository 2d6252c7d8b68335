"""Chain of imported services that one message has come through, from account to account.

Theory of operation. A service import publishes a request in another account while it is being called, so the messages
under way form a stack. What is published is known by the subject object itself: a handler that asks `of` for its
subject gets the hop that brought the message, and for what it publishes meanwhile on its own account there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from natsctl.api.advisories import ClientInfo


MAX_HOPS: Final = 64
"""Service imports that one message may pass: each takes a few frames of the stack."""


class ImportHop(NamedTuple):
    """One step of a message into another account."""

    before: ImportHop | None
    service: tuple[str, str]
    """Exporting account and subject of the export: one that comes again is a circle."""
    info: ClientInfo | None
    """First requester; None for responses."""
    share: bool
    """Whether the first import shares all facts about the requester."""
    depth: int

    def passed(self, service: tuple[str, str]) -> bool:
        """Return whether the message has come through a service before, or has gone too far."""
        hop: ImportHop | None = self
        while hop is not None:
            if hop.service == service:
                return True
            hop = hop.before
        return self.depth >= MAX_HOPS


class ImportChain:
    """The messages that service imports are delivering now."""

    __slots__ = ("_stack",)

    def __init__(self) -> None:
        self._stack: list[tuple[bytes, ImportHop]] = []

    def of(self, subject: bytes) -> ImportHop | None:
        """Return how the message came whose subject is this very object."""
        return next((hop for to, hop in reversed(self._stack) if to is subject), None) if self._stack else None

    def enter(self, subject: bytes, hop: ImportHop) -> None:
        """Record the hop of a message that is about to be delivered on `subject`."""
        self._stack.append((subject, hop))

    def leave(self) -> None:
        """Remove the hop of the last message: it has been delivered."""
        self._stack.pop()
