"""Messages of the server itself that wait: for a long walk to their routes, or for one before them to very many.

Theory of operation. A session looks for the routes of its message in slices before it publishes (`Session._is_routed`).
Messages of the server itself (answers, republished messages, advisories, deliveries of consumers) have no session that
could wait. In an account with a `wide` table, such a message waits here if its route is unknown and the walks since the
last turn have cost much; so do all later ones, so that the order stays. They wait, too, while a message is delivered to
very many recipients in parts, or after many deliveries (a commit may have thousands of messages to republish, each to
hundreds of clients). The walks and the parts go on in later turns, as part of `broker.long_work`. Sessions of
the account stop publishing while much waits. Questions whether a subject has interest (`sought`) share the cost and the
turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from natsctl.broker.routes import walk_ways

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.imports.account_imports import ImportHop

AT_ONCE_COST: Final = 64
"""Cost of the walks that are made at once, between two turns of the waiting messages: some milliseconds."""
DELIVERIES_AT_ONCE: Final = 4096
"""Deliveries of the server's messages to several recipients that are made at once: two milliseconds."""
STEP_COST: Final = 8
"""Cost of one step of a walk; one that ends before its first step costs 1."""
MUCH_BYTES: Final = 4 << 20
"""Sessions stop publishing when more bytes wait."""
MAX_BYTES: Final = 32 << 20
"""Messages are dropped when more bytes wait."""
MESSAGE_BYTES: Final = 400
"""Memory of a message in addition to its bytes."""
MAX_SOUGHT: Final = 128
"""Subjects that are walked to without a message; more are asked for again later."""


class PostponedMessages:
    """The waiting messages of one account, in their order."""

    __slots__ = (
        "_account", "_budget", "_deliveries", "_deliveries_left", "_is_running", "_sought", "_waiting", "any", "bytes",
    )  # fmt: skip

    def __init__(self, account: Account) -> None:
        self._account = account
        self._waiting: deque[tuple[ImportHop | None, bytes, bytes, bytes, bytes, bytes]] = deque()
        self._deliveries: deque[Iterator[None]] = deque()
        self._sought: dict[bytes, None] = {}
        self._budget, self._deliveries_left = AT_ONCE_COST, DELIVERIES_AT_ONCE
        self._is_running = False
        self.bytes = 0
        self.any = False

    @property
    def are_many(self) -> bool:
        """Whether sessions have to stop publishing."""
        return self.bytes > MUCH_BYTES

    @property
    def delivers_parts(self) -> bool:
        """Whether a message is being delivered to very many."""
        return bool(self._deliveries)

    def add_unless_routed(self, to: bytes, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> bool:
        """Return False if a message for `to` can be delivered now; else keep it, or drop it if too much waits."""
        if not self.any and self._knows(to) and walk_ways([(self._account.routes, to)], self._may_go_on):
            return False
        size = MESSAGE_BYTES + len(to) + len(subject) + len(reply) + len(header) + len(payload)
        broker = self._account.broker
        if self.bytes + size > MAX_BYTES:
            broker.log_warning(f"Dropped a message in account {self._account.name!r}: too many wait")
            return True
        self._waiting.append((broker.hops.of(to), to, subject, reply, header, payload))
        self.bytes += size
        self.any = True
        self._start()
        return True

    def add_deliveries(self, parts: Iterator[None]) -> None:
        """Deliver the other parts of a message in later turns, before the messages that come after it."""
        self._deliveries.append(parts)
        self.any = True
        self._start()

    def count(self, deliveries: int) -> None:
        """Count deliveries of a message of the server; after very many, the next messages wait for later turns."""
        self._deliveries_left -= deliveries
        if self._deliveries_left <= 0:
            self.any = True
            self._start()

    def finds(self, subject: bytes) -> bool:
        """Return whether the route of a subject is known; if that takes long, it is found in later turns."""
        if self._knows(subject):
            return True
        if len(self._sought) < MAX_SOUGHT:
            self._sought[subject] = None
            self._start()
        return False

    def _knows(self, subject: bytes) -> bool:
        """Return whether the route of a subject is known, after a walk if there is still some budget."""
        routes = self._account.routes
        if routes.is_known(subject):
            return True
        self._budget -= 1
        return routes.walked(subject, self._may_go_on) if self._budget >= 0 else False

    def _may_go_on(self) -> bool:
        self._budget -= STEP_COST
        return self._budget >= 0

    def _start(self) -> None:
        if not self._is_running:
            self._is_running = True
            broker = self._account.broker
            broker.long_work.add(self._working(), self._account)
            broker.jobs.wake()

    def _working(self) -> Iterator[None]:
        routes = self._account.routes
        while self._deliveries or self._waiting or self._sought:
            while self._deliveries:
                for _ in self._deliveries[0]:
                    yield
                self._deliveries.popleft()
            if self._sought:
                subject = next(iter(self._sought))
                while not routes.walked(subject, lambda: False):
                    yield
                del self._sought[subject]
            if self._waiting:
                to = self._waiting[0][1]
                while not walk_ways([(routes, to)], lambda: False):
                    yield
                self._deliver_first()
                yield
        self._is_running = self.any = False
        self._budget, self._deliveries_left = AT_ONCE_COST, DELIVERIES_AT_ONCE

    def _deliver_first(self) -> None:
        account, hops = self._account, self._account.broker.hops
        hop, to, *message = self._waiting.popleft()
        self.bytes -= MESSAGE_BYTES + len(to) + sum(map(len, message))
        if hop is not None:
            hops.enter(to, hop)
        try:
            account.deliver_now(to, *message)
        finally:
            self.any = bool(self._deliveries or self._waiting) or self._deliveries_left <= 0
            if hop is not None:
                hops.leave()
