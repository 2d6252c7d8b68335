"""Logins that take long to work out: bcrypt in a thread of its own, while everybody else is served.

One thread, because passwords are no reason to take a second core from those who are in; it belongs to logins alone, so
that guessing keeps nothing else waiting. A connection that ends gives up its place in the queue, which is therefore
never longer than there are connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from natsctl.broker.grant import Grant, Refusal

if TYPE_CHECKING:
    from natsctl.broker.session import Session

Answer = Grant | Refusal


class Logins:
    """Works out what sessions wait for and brings it to them, in the order of their CONNECT."""

    def __init__(self, loop: asyncio.AbstractEventLoop, decided: Callable[[Session], None]) -> None:
        """Call `decided` on the loop after each session has its answer."""
        self._loop = loop
        self._decided = decided
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: dict[Session, Future[Answer]] = {}

    def begin(self, session: Session) -> bool:
        """Have the answer for a session worked out; False where that is under way."""
        if session in self._waiting:
            return False
        pending = session.login.pending
        if pending is None:
            return True
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "natsctl-logins")
        future = self._waiting[session] = self._thread.submit(pending.work)
        future.add_done_callback(partial(self._done, session))
        return True

    def _done(self, session: Session, future: Future[Answer]) -> None:
        """Go back to the loop; runs in the thread, or where the future was cancelled."""
        if not future.cancelled():
            self._loop.call_soon_threadsafe(self._bring, session, future)

    def _bring(self, session: Session, future: Future[Answer]) -> None:
        if self._waiting.get(session) is not future:
            return
        del self._waiting[session]
        fault = future.exception()
        session.login.decide(Refusal(f"the answer failed: {fault}") if fault is not None else future.result())
        self._decided(session)

    def forget(self, session: Session) -> None:
        """Give up on a session that has ended."""
        future = self._waiting.pop(session, None)
        if future is not None:
            future.cancel()

    def stop(self) -> None:
        """Decide nothing any more."""
        for session in tuple(self._waiting):
            self.forget(session)
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None
