"""Messages of the server itself that wait for their routes, because the walk to them may be long.

Theory of operation. A session looks for the routes of its message in slices before it publishes (`Session._is_routed`).
Messages of the server itself (answers, republished messages, advisories, deliveries of consumers) have no session
that could wait. In an account with a `wide` table, such a message waits here if its route is unknown and the walks
since the last turn have cost much; so do all later ones, so that the order stays. The walks go on in later turns, as
part of `broker.long_work`. Sessions of the account stop publishing while much waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.imports.account_imports import ImportHop

AT_ONCE_COST: Final = 64
"""Cost of the walks that are made at once, between two turns of the waiting messages: some milliseconds."""
STEP_COST: Final = 8
"""Cost of one step of a walk; one that ends before its first step costs 1."""
MUCH_BYTES: Final = 4 << 20
"""Sessions stop publishing when more bytes wait."""
MAX_BYTES: Final = 32 << 20
"""Messages are dropped when more bytes wait."""
MESSAGE_BYTES: Final = 400
"""Memory of a message in addition to its bytes."""


class PostponedMessages:
    """The waiting messages of one account, in their order."""

    __slots__ = ("_account", "_budget", "_bytes", "_waiting", "any")

    def __init__(self, account: Account) -> None:
        self._account = account
        self._waiting: deque[tuple[ImportHop | None, bytes, bytes, bytes, bytes, bytes]] = deque()
        self._bytes = 0
        self._budget = AT_ONCE_COST
        self.any = False

    @property
    def are_many(self) -> bool:
        """Whether sessions have to stop publishing."""
        return self._bytes > MUCH_BYTES

    def add_unless_routed(self, to: bytes, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> bool:
        """Return False if a message for `to` can be delivered now; else keep it, or drop it if too much waits."""
        if not self.any and self._finds(to):
            return False
        size = MESSAGE_BYTES + len(to) + len(subject) + len(reply) + len(header) + len(payload)
        broker = self._account.broker
        if self._bytes + size > MAX_BYTES:
            broker.log_warning(f"Dropped a message in account {self._account.name!r}: too many wait for their routes")
            return True
        self._waiting.append((broker.hops.of(to), to, subject, reply, header, payload))
        self._bytes += size
        if not self.any:
            self.any = True
            broker.long_work.append(self._delivering())
            broker.jobs.wake()
        return True

    def _finds(self, to: bytes) -> bool:
        """Return whether the route to a subject is known, after a walk if there is still some budget."""
        routes = self._account.routes
        if routes.is_known(to):
            return True
        self._budget -= 1
        return routes.walked(to, self._may_go_on) if self._budget >= 0 else False

    def _may_go_on(self) -> bool:
        self._budget -= STEP_COST
        return self._budget >= 0

    def _delivering(self) -> Iterator[None]:
        account, hops, waiting = self._account, self._account.broker.hops, self._waiting
        while waiting:
            hop, to, *message = waiting[0]
            while not account.routes.walked(to, lambda: False):
                yield
            waiting.popleft()
            self._bytes -= MESSAGE_BYTES + len(to) + sum(map(len, message))
            if hop is not None:
                hops.enter(to, hop)
            try:
                account.deliver_now(to, *message)
            finally:
                if hop is not None:
                    hops.leave()
            yield
        self.any, self._budget = False, AT_ONCE_COST
