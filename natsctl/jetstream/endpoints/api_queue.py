"""API requests with long answers: served one per turn, so that other clients do not wait for many of them.

A page of infos takes milliseconds to make and is hundreds of kilobytes long. Hundreds of such requests in one chunk
would hold the loop for seconds, and their answers would gather unsent until their reader counts as slow. The rest of
the API is answered at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from natsctl.api.advisories import API_LIMIT_REACHED, ApiLimitReached
from natsctl.api.codec import encode
from natsctl.api.times import format_time
from natsctl.jetstream.consumers.consumer_events import nuid
from natsctl.jetstream.endpoints.requests import ApiRequest

if TYPE_CHECKING:
    from natsctl.jetstream.engine_context import EngineContext

LONG_ANSWERS: Final = frozenset({"STREAM.LIST", "CONSUMER.LIST", "STREAM.BLOCKS"})
"""Verbs that answer with a page of infos, or a block of messages."""

MOST_WAITING: Final = 10_000
"""Requests of one account that may wait; one more, and all of them are dropped, as by nats-server's queue."""

COST: Final = 256
"""Share of one request in a turn's budget of messages: the infos of a page."""

_LIMIT_REACHED: Final = API_LIMIT_REACHED.encode()


class ApiQueue:
    """Waiting requests of one account, in their order."""

    __slots__ = ("_engine", "_serve", "_waiting")

    def __init__(self, engine: EngineContext, serve: Callable[[ApiRequest], None]) -> None:
        """Prepare to hand requests to `serve`, from the engine's ready queue."""
        self._engine = engine
        self._serve = serve
        self._waiting: deque[ApiRequest] = deque()

    def put(self, request: ApiRequest) -> None:
        """Queue `request` for a later turn."""
        self._waiting.append(request)
        if len(self._waiting) < MOST_WAITING:
            self._engine.ready(self)
        else:
            self._drop()

    def _drop(self) -> None:
        """Drop every request and publish their number in the system account."""
        engine, dropped = self._engine, len(self._waiting)
        self._waiting.clear()
        system = engine.broker.system_account
        if not system.has_interest(_LIMIT_REACHED):
            return
        event = ApiLimitReached(
            id=nuid(engine.rng),
            timestamp=format_time(engine.clock.now_ns()),
            server=engine.broker.server_name,
            domain=engine.options.domain,
            dropped=dropped,
        )
        system.publish(_LIMIT_REACHED, b"", b"", encode(event))

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
