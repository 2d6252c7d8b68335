"""Requests to the system account, and their queue.

A handler copies a request into the queue and returns, so that it is answered after everything read with it has been
counted, and a flood of expensive requests does not hold up a turn: `run` answers a bounded number, and begins none
after a bounded time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    from natsctl.api.times import Clock
    from natsctl.broker.account import Account
    from natsctl.broker.session import Session


MAX_WAITING: Final = 4096
"""Requests that may wait for their answers; more are dropped."""
MAX_WAITING_BYTES: Final = 8 << 20
"""Bytes of their bodies and headers; more are dropped."""
MAX_RUN: Final = 32
RUN_NS: Final = 4_000_000
"""Time of a turn for answers."""


class SystemRequest(msgspec.Struct, frozen=True):
    """One request; `account` is the account of the requester and of the answer."""

    account: Account
    subject: str
    reply: bytes
    header: bytes
    body: bytes
    origin: Session | None


Responder: TypeAlias = Callable[[SystemRequest], Iterator[object] | None]
"""Handles a request, and answers it or not; returns the rest of the work on a long answer."""


class RequestQueue:
    def __init__(self, wake: Callable[[], None], clock: Clock) -> None:
        """`wake` requests a turn that calls `run`."""
        self._wake = wake
        self._clock = clock
        self._size = 0
        """Bytes of bodies and headers that wait."""
        self._waiting: deque[tuple[Responder, SystemRequest]] = deque()
        self._rest: Iterator[object] | None = None
        """The rest of the answer under way."""

    def listen(self, account: Account, subject: str, responder: Responder) -> None:
        account.subscribe(subject.encode(), partial(self._enqueue, account, responder))

    def _enqueue(
        self, account: Account, responder: Responder, subject: bytes, reply: bytes, header: bytes, payload: bytes,
        origin: Session | None,
    ) -> None:  # fmt: skip
        size = len(header) + len(payload)
        if len(self._waiting) < MAX_WAITING and self._size + size <= MAX_WAITING_BYTES:
            self._size += size
            text = subject.decode("utf-8", "replace")
            self._waiting.append((responder, SystemRequest(account, text, reply, header, payload, origin)))
            self._wake()

    def run(self) -> None:
        """Answer some of the queued requests, and ask for another turn where some are left."""
        if self._rest is None and not self._waiting:
            return
        end = self._clock.monotonic_ns() + RUN_NS
        for answered in range(MAX_RUN + 1):
            for _ in self._rest or ():
                if self._clock.monotonic_ns() > end:
                    self._wake()
                    return
            self._rest = None
            if not self._waiting:
                return
            if answered == MAX_RUN or self._clock.monotonic_ns() > end:
                self._wake()
                return
            responder, request = self._waiting.popleft()
            self._size -= len(request.header) + len(request.body)
            self._rest = responder(request)


ALL_SERVERS: Final = "PING"
"""The token for all servers or accounts instead of an id or name."""
