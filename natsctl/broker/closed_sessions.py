"""Sessions that have ended, kept for monitoring; and what they were subscribed to, while that is not too much."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, overload

from natsctl.wire.parser import Parser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from natsctl.broker.session import Session

SPENT: Final = Parser()
"""The parser of every session that has ended: it is never fed."""
MAX_SUBS: Final = 20_000
"""Subscriptions of all of them together that are remembered, about 200 bytes each."""


class ClosedSessions(Sequence["Session"]):
    """The newest sessions that have ended, the oldest first."""

    __slots__ = ("_most", "_sessions", "_subs", "_with_subs")

    def __init__(self, most: int) -> None:
        """Keep up to `most`."""
        self._most = most
        self._sessions: deque[Session] = deque()
        self._with_subs: deque[Session] = deque()
        self._subs = 0

    def add(self, session: Session) -> None:
        """Keep one more, and forget what is too much."""
        self._sessions.append(session)
        if session.left_subs:
            self._with_subs.append(session)
            self._subs += len(session.left_subs)
        while len(self._sessions) > self._most:
            gone = self._sessions.popleft()
            if gone.left_subs:
                self._forget_subs()  # both are in the order of their ends, so that its subscriptions are the oldest
        while self._subs > MAX_SUBS:
            self._forget_subs()

    def _forget_subs(self) -> None:
        oldest = self._with_subs.popleft()
        self._subs -= len(oldest.left_subs)
        oldest.left_subs = ()

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions)

    @overload
    def __getitem__(self, index: int) -> Session: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Session]: ...

    def __getitem__(self, index: int | slice) -> Session | Sequence[Session]:
        return list(self._sessions)[index] if isinstance(index, slice) else self._sessions[index]
