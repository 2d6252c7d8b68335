"""The interest of the other side of a leaf node connection, as handler subscriptions of the account.

Theory of operation. A message goes over a connection once, however many of its subscriptions match, and it names the
queue groups that were chosen for it. So each interest has a plain handler (`Carrier`), and of those that match a
subject only the first carries; it knows the groups because an account chooses queue members before it calls plain
handlers. A queue interest has a member in its group besides, which stands back where the group has a member on this
server or, by weight, on another connection; its carrier (`helper`) has nothing to carry unless it was chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from natsctl.broker.routes import Routes
from natsctl.broker.subscription import Subscription

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.leaf.link import LeafLink
    from natsctl.broker.session import Session

MAX_CHOSEN: Final = 1024
"""Subjects for which queue groups were chosen and nothing was carried yet; more are left over by faults."""


class Carrier(Subscription):
    """A plain handler for one interest of the other side."""

    __slots__ = ("helper", "link")

    def __init__(self, link: LeafLink, subject: bytes, *, helper: bool) -> None:
        super().__init__(link.account, subject, handler=self._carry)
        self.link = link
        self.helper = helper
        """It stands for a queue group alone."""

    def _carry(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        return self.link.inward.carry(self, subject, reply, header, payload, origin)


class Member(Subscription):
    """The other side's members of one queue group."""

    __slots__ = ("link", "weight")

    def __init__(self, link: LeafLink, subject: bytes, queue: bytes, weight: int) -> None:
        super().__init__(link.account, subject, queue, handler=self._offer)
        self.link = link
        self.weight = weight

    def _offer(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        to = self.account.destination(subject)
        members = self._group(to)
        if any(_is_here(session, sub, origin) for session, sub in members):
            return False
        others = [sub for _, sub in members if isinstance(sub, Member) and sub.link.takes_from(origin, to)]
        if not others:
            return False
        others[0].pick(others).link.inward.choose(to, self.queue)
        return None

    def _group(self, to: bytes) -> list[tuple[Session | None, Subscription]]:
        routes = self.account.routes
        for members in (routes.exact.get(to) or routes.find(to))[1]:
            if members[0][1].queue == self.queue:
                return [(session, sub) for session, sub, _ in members]
        return []

    def pick(self, members: list[Member]) -> Member:
        """Return one of several members of the group by weight."""
        at = self.link.broker.rng.random() * sum(member.weight for member in members)
        for member in members:
            at -= member.weight
            if at < 0:
                return member
        return members[-1]


def _is_here(session: Session | None, sub: Subscription, origin: Session | None) -> bool:
    """Return whether a member is on this server and receives messages of `origin`: it is preferred."""
    if session is None:
        return not isinstance(sub, Member)
    return session is not origin or session.echo


class Inward:
    """All interest of the other side of one connection."""

    __slots__ = ("_chosen", "_link", "_routes", "_subs")

    def __init__(self, link: LeafLink) -> None:
        self._link = link
        self._subs: dict[tuple[bytes, bytes], tuple[Carrier, Member | None]] = {}
        self._routes = Routes()
        self._chosen: dict[bytes, list[bytes]] = {}

    def __len__(self) -> int:
        return len(self._subs)

    def subjects(self) -> Iterator[bytes]:
        """Yield the subjects of the interest, one for each group too."""
        for subject, _ in self._subs:
            yield subject

    def add(self, subject: bytes, queue: bytes, weight: int) -> None:
        """Add interest; of a group that is known, its new weight."""
        known = self._subs.get((subject, queue))
        if known is not None:
            if known[1] is not None and known[1].weight != weight:
                self._weigh(known[1], weight)
            return
        link = self._link
        carrier = Carrier(link, subject, helper=bool(queue))
        member = Member(link, subject, queue, weight) if queue else None
        self._subs[subject, queue] = (carrier, member)
        self._routes.insert(carrier)
        link.account.insert(carrier)
        if member is not None:
            link.account.insert(member)

    def _weigh(self, member: Member, weight: int) -> None:
        """Announce the difference to other connections without a moment in which the group is missing."""
        gone = Member(self._link, member.subject, member.queue, member.weight)
        member.weight = weight
        for listener in self._link.account.listeners:
            listener.subscribed(member)
            listener.unsubscribed(gone)

    def remove(self, subject: bytes, queue: bytes) -> None:
        """Remove interest."""
        known = self._subs.pop((subject, queue), None)
        if known is not None:
            self._drop(known)

    def clear(self) -> None:
        """Forget all interest: the connection has ended."""
        subs, self._subs = self._subs, {}
        for known in subs.values():
            self._drop(known)

    def _drop(self, known: tuple[Carrier, Member | None]) -> None:
        carrier, member = known
        self._routes.remove(carrier)
        account: Account = self._link.account
        account.unsubscribe(carrier)
        if member is not None:
            account.unsubscribe(member)

    def choose(self, to: bytes, queue: bytes) -> None:
        """Add a queue group to the message to `to` that is being delivered."""
        if len(self._chosen) >= MAX_CHOSEN:
            self._chosen.clear()
        self._chosen.setdefault(to, []).append(queue)

    def carry(
        self, carrier: Carrier, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        """Send a message unless another carrier of this connection does, or the other side has no interest."""
        link = self._link
        to = link.account.destination(subject)
        carriers = (self._routes.exact.get(to) or self._routes.find(to))[2]
        if not carriers or carriers[0] is not carrier:
            return False
        queues = self._chosen.pop(to, []) if self._chosen else []
        if not queues and all(isinstance(other, Carrier) and other.helper for other in carriers):
            return False
        if not link.takes_from(origin, to):
            return False
        link.send_message(to, subject, reply, queues, header, payload)
        return None
