"""API requests whose answers are long: served one a turn, so that nobody else waits for many of them.

A page of infos takes milliseconds to make and is hundreds of kilobytes long. Hundreds of such requests in one chunk
would hold the loop for seconds, and their answers would gather unsent until their reader counts as slow. The rest of
the API is answered at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from natsctl.jetstream.requests import ApiRequest

if TYPE_CHECKING:
    from natsctl.jetstream.engine import Engine

LONG_ANSWERS: Final = frozenset({"STREAM.LIST", "CONSUMER.LIST"})
"""Verbs that answer with a page of infos."""

MOST_WAITING: Final = 10_000
"""Requests of one account that may wait; later ones are dropped, as by the reference server's request queue."""

COST: Final = 256
"""What one request takes of a turn's budget of messages: the infos of a page."""


class ApiQueue:
    """Waiting requests of one account, in their order."""

    __slots__ = ("_engine", "_serve", "_waiting")

    def __init__(self, engine: Engine, serve: Callable[[ApiRequest], None]) -> None:
        """Prepare to hand requests to `serve`, from the engine's ready queue."""
        self._engine = engine
        self._serve = serve
        self._waiting: deque[ApiRequest] = deque()

    def put(self, request: ApiRequest) -> None:
        """Let `request` be served in a later turn."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(request)
            self._engine.ready(self)

    def run(self, budget: int) -> int:
        """Serve the oldest request whose client is still there."""
        waiting = self._waiting
        while waiting:
            request = waiting.popleft()
            if request.origin is not None and request.origin.close_reason is not None:
                continue
            if waiting:
                self._engine.ready(self)
            self._serve(request)
            return COST
        return 0
