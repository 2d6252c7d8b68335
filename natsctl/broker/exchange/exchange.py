"""What one account takes from other accounts, and what it owes them.

Theory of operation. A plan (import_plan.py) says which imports are in effect; `apply` makes the difference to what
was in effect before, so that requests and subscriptions that go on are not disturbed. Responses that are owed outlive
a change of the imports that asked for them. Services need modules of their own, loaded where there are any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from natsctl.api.subjects import is_literal, matches
from natsctl.broker.exchange.stream_imports import StreamImports

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.exchange.import_plan import ServiceLink, StreamLink
    from natsctl.broker.exchange.service_imports import ServiceDoor
    from natsctl.broker.exchange.service_responses import Responses, Waiting
    from natsctl.broker.subscription import Subscription


class Exchange:
    """The imports of one account, and the responses that its exports owe."""

    __slots__ = ("_account", "_doors", "_responses", "awaited", "streams")

    def __init__(self, account: Account) -> None:
        self._account = account
        self.streams: StreamImports | None = None
        self._doors: dict[ServiceLink, ServiceDoor] = {}
        self._responses: Responses | None = None
        self.awaited = Awaited(account)

    @property
    def responses(self) -> Responses:
        """The responses that the account's services owe; it begins to take them when first asked for."""
        if self._responses is None:
            from natsctl.broker.exchange.service_responses import Responses

            self._responses = Responses(self._account)
            self._account.broker.on_tick.append(self._responses.tick)
        return self._responses

    @property
    def owed(self) -> int:
        """Number of requests that wait for a response of this account."""
        return len(self._responses) if self._responses is not None else 0

    @property
    def services(self) -> Sequence[ServiceLink]:
        """The imports of services that are in effect."""
        return tuple(self._doors)

    def listens(self, reply: bytes) -> bool | None:
        """Return whether the reply that stands behind `reply` has a subscriber in the requester's account.

        None where it is no reply of a request from another account.
        """
        responses = self._responses
        if responses is None or not responses.made(reply):
            return None
        waiting = responses.get(reply)
        return waiting is not None and waiting.requester.has_interest(waiting.reply)

    def apply(self, streams: list[StreamLink], services: list[ServiceLink]) -> bool:
        """Import these, and nothing else; return whether the services are others than before."""
        before = set(self._doors)
        for link in set(self._doors).difference(services):
            self._account.unsubscribe(self._doors.pop(link))
        accounts = self._account.broker.accounts
        for link in services:
            if link not in self._doors:
                from natsctl.broker.exchange.service_imports import ServiceDoor

                door = self._doors[link] = ServiceDoor(self._account, link, accounts[link.account])
                self._account.place(door)
        if streams != (self.streams.links if self.streams is not None else []):
            imports = StreamImports(self._account, streams)
            imports.follow_all()
            self.streams = imports if streams else None
        return before != set(self._doors)

    def came(self, sub: Subscription) -> None:
        """Route matching imports to the subscription."""
        if self.streams is not None:
            self.streams.follow(sub)

    def went(self, sub: Subscription) -> None:
        """Remove the stand-ins of a subscription that has ended."""
        for stand_in in sub.stand_ins:
            stand_in.account.unsubscribe(stand_in)
        sub.stand_ins = ()
        if self.awaited:
            self.awaited.interest_lost(sub.subject)


class Awaited:
    """The replies of one account that services of others are to answer; it ends waiting that is in vain."""

    __slots__ = ("_account", "_by_reply")

    def __init__(self, account: Account) -> None:
        self._account = account
        self._by_reply: dict[bytes, dict[Waiting, Responses]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_reply)

    def add(self, waiting: Waiting, responses: Responses) -> None:
        """Add a reply."""
        self._by_reply.setdefault(waiting.reply, {})[waiting] = responses

    def discard(self, waiting: Waiting) -> None:
        """Forget a reply."""
        known = self._by_reply.get(waiting.reply)
        if known is not None:
            known.pop(waiting, None)
            if not known:
                del self._by_reply[waiting.reply]

    def interest_lost(self, pattern: bytes) -> None:
        """Check that the replies of an ended subscription still have a subscriber."""
        if is_literal(pattern):
            replies = [pattern] if pattern in self._by_reply else []
        else:
            replies = [reply for reply in self._by_reply if matches(pattern, reply)]
        for reply in replies:
            if not self._account.has_interest(reply):
                for waiting, responses in tuple(self._by_reply.get(reply, {}).items()):
                    responses.unheard(waiting)
