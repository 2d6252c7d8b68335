"""Interest in both directions of a leaf node connection.

Theory of operation of remote interest. The other side's interest stands as handler subscriptions of the account. A
message goes over a connection once, however many of its subscriptions match, and it names the queue groups that were
chosen for it. So each interest has a plain handler (`Carrier`), and of the handlers that match a subject only the first
carries; it knows the groups because an account chooses queue members before it calls plain handlers. A queue interest
also has a member in its group; it yields if the group has a member on this server or, by weight, on another
connection. All groups of a subject have one carrier (`helper`), with nothing to carry unless one was chosen.

Theory of operation of local interest. Subscriptions of the account are counted by subject and queue group; the other
side learns of the first and of the end of the last one, and of every change in a group's number, its weight. A spoke
reports the interest here and at the leaf nodes that it is a hub to, a hub reports everything except interest from the
same connection. Existing subscriptions are counted in steps, while others come and go. One subject that nothing else
can have, `$LDS.…`, goes along: when it comes back, the connections are a loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from natsctl.api.subject_index import Steps, cost_of
from natsctl.broker.deferred_work import MANY_SUBS, SUBS_STEP
from natsctl.broker.routes import Routes
from natsctl.broker.subscription import RoutedSubscription, Subscription
from natsctl.wire.leaf import encode_leaf_sub, encode_leaf_unsub

if TYPE_CHECKING:
    from natsctl.broker.leaf.link import LeafLink
    from natsctl.broker.message_trace import MessageTrace
    from natsctl.broker.routes import Recipients
    from natsctl.broker.session import Session


MAX_CHOSEN: Final = 1024
"""Maximum number of subjects with chosen queue groups and nothing carried yet; more are leftovers of faults."""


class RemoteSubscription(RoutedSubscription):
    """A handler for interest of the other side of a link."""

    __slots__ = ("link",)

    def __init__(self, link: LeafLink, subject: bytes, queue: bytes = b"") -> None:
        super().__init__(link.account, subject, queue)
        self.link = link

    def has_left(self) -> bool:
        return self.link.close_reason is not None or super().has_left()


class Carrier(RemoteSubscription):
    """A plain handler for one subject of the other side's plain interest, or of all its queue groups there."""

    __slots__ = ("groups", "helper")
    leads_on = leaves = True

    def __init__(self, link: LeafLink, subject: bytes, *, helper: bool) -> None:
        super().__init__(link, subject)
        self.helper = helper
        """Whether it is for queue groups only."""
        self.groups = 0

    def onward(self, to: bytes) -> Sequence[tuple[Routes, bytes]]:
        return ((self.link.remote_interest.routes, to),)

    def receive(
        self, to: bytes, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        return self.link.remote_interest.carry(self, to, subject, reply, header, payload, origin)

    def take_traced(self, trace: MessageTrace, message: tuple[bytes, bytes, bytes, bytes]) -> bool:
        """Forward a traced message: the other side traces it further and does not deliver trace-only messages."""
        return self.link.remote_interest.carry(self, message[0], *message, trace.origin, trace) is not False


class Member(RemoteSubscription):
    """The other side's members of one queue group."""

    __slots__ = ("weight",)
    is_elsewhere = True

    def __init__(self, link: LeafLink, subject: bytes, queue: bytes, weight: int) -> None:
        super().__init__(link, subject, queue)
        self.weight = weight

    def take_for(
        self, members: Recipients, to: bytes, subject: bytes, reply: bytes, header: bytes, payload: bytes,
        origin: Session | None,
    ) -> bool | None:  # fmt: skip
        if any(_is_here(session, sub, origin) for session, sub, _ in members):
            return False
        others = [sub for _, sub, _ in members if isinstance(sub, Member) and sub.link.takes_from(origin, to)]
        if not others:
            return False
        others[0].pick(others).link.remote_interest.choose(to, origin, self.queue)
        return None

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


class RemoteInterest:
    """All interest of the other side of one connection."""

    __slots__ = ("_chosen", "_helpers", "_link", "_subs", "routes")

    def __init__(self, link: LeafLink) -> None:
        self._link = link
        self._subs: dict[tuple[bytes, bytes], Carrier | Member] = {}
        self._helpers: dict[bytes, Carrier] = {}
        """The carriers for queue groups, by subject."""
        self.routes = Routes()
        self._chosen: dict[tuple[bytes, Session | None], list[bytes]] = {}
        """By subject and sender: each has one message that is being delivered, perhaps in parts."""

    def __len__(self) -> int:
        return len(self._subs)

    def subjects(self) -> Iterator[bytes]:
        """Yield the subjects of the interest, one for each group too."""
        for subject, _ in tuple(self._subs):  # more may come while they are listed
            yield subject

    def add(self, subject: bytes, queue: bytes, weight: int) -> None:
        """Add interest; of a group that is known, its new weight."""
        known = self._subs.get((subject, queue))
        if known is not None:
            if isinstance(known, Member) and known.weight != weight:
                change = weight - known.weight
                known.weight = weight
                for listener in self._link.account.listeners:
                    listener.weighed(known, change)
            return
        if not queue:
            self._subs[subject, queue] = self._new_carrier(subject, helper=False)
            return
        helper = self._helpers.get(subject)
        if helper is None:
            helper = self._helpers[subject] = self._new_carrier(subject, helper=True)
        helper.groups += 1
        member = self._subs[subject, queue] = Member(self._link, subject, queue, weight)
        self._link.account.insert(member)

    def _new_carrier(self, subject: bytes, *, helper: bool) -> Carrier:
        carrier = Carrier(self._link, subject, helper=helper)
        self.routes.insert(carrier)
        self._link.account.insert(carrier)
        return carrier

    def remove(self, subject: bytes, queue: bytes) -> None:
        known = self._subs.pop((subject, queue), None)
        if known is None:
            return
        carrier = known if isinstance(known, Carrier) else self._helpers[subject]
        if isinstance(known, Member):
            self._link.account.unsubscribe(known)
            carrier.groups -= 1
            if carrier.groups:
                return
            del self._helpers[subject]
        self.routes.remove(carrier)
        self._link.account.unsubscribe(carrier)

    def clear(self) -> None:
        """Forget all interest: the connection has ended."""
        account = self._link.account
        if len(self._subs) > MANY_SUBS:
            account.routes.begin_leaving()
            account.broker.long_work.add(self._clearing(), account)
            return
        for subject, queue in tuple(self._subs):
            self.remove(subject, queue)

    def _clearing(self) -> Iterator[None]:
        while self._subs:
            cost = 0
            while self._subs and cost < SUBS_STEP:
                subject, queue = next(reversed(self._subs))
                cost += cost_of(subject)
                self.remove(subject, queue)
            yield
        self._link.account.routes.end_leaving()

    def choose(self, to: bytes, origin: Session | None, queue: bytes) -> None:
        """Add a queue group to the message of `origin` to `to` that is being delivered."""
        if len(self._chosen) >= MAX_CHOSEN:
            self._chosen.clear()
        self._chosen.setdefault((to, origin), []).append(queue)

    def carry(
        self,
        carrier: Carrier,
        to: bytes,
        subject: bytes,
        reply: bytes,
        header: bytes,
        payload: bytes,
        origin: Session | None,
        trace: MessageTrace | None = None,
    ) -> bool | None:
        """Send a message unless another carrier of this connection does, or the other side has no interest."""
        link = self._link
        carriers = (self.routes.exact.get(to) or self.routes.find(to))[2]
        if not carriers or carriers[0] is not carrier:
            return False
        queues = self._chosen.pop((to, origin), []) if self._chosen else []
        if not queues and all(isinstance(other, Carrier) and other.helper for other in carriers):
            return False
        if not link.takes_from(origin, to):
            return False
        if trace is not None:
            hop = trace.through_leaf(link, link.traces, header)
            if hop is None:
                return False
            header = hop
        link.send_message(to, subject, reply, queues, header, payload)
        return None


LOOP_PREFIX: Final = b"$LDS."
OWN_BUSINESS: Final = (b"$SYS.REQ.USER.INFO", b"$JS.NEXT.", b"$JS.STREAM.", b"$JS.ACK.*.*.>")
"""Prefixes of subjects that a server answers only for its own clients, or announces per consumer."""


class LocalInterest:
    """InterestListener that announces to one connection."""

    __slots__ = ("_counted", "_counts", "_ended", "_link", "_unannounced")

    def __init__(self, link: LeafLink) -> None:
        self._link = link
        self._counts: dict[tuple[bytes, bytes], int] = {}
        self._unannounced: dict[tuple[bytes, bytes], None] = {}
        """Interest that the other side does not know of yet."""
        self._counted: set[Subscription] | None = None
        """Subscriptions that have been counted, while not all have been."""
        self._ended: set[Subscription] = set()
        """Subscriptions that ended meanwhile before they were counted."""

    def start(self, subs: Iterable[Subscription], subjects: Iterable[bytes]) -> Steps[None]:
        """Announce all existing interest and `subjects`; other methods may be called between two steps."""
        self._counted = set()
        for subject in subjects:
            self.offered(subject)
        for number, sub in enumerate((sub.behind() for sub in subs), 1):
            if sub not in self._ended and sub not in self._counted:
                if self._link.is_spoke and isinstance(sub, RemoteSubscription) and sub.link.is_spoke:
                    self._counted.add(sub)  # includes the loop detection subject: if there is a loop, it comes later
                else:
                    self.subscribed(sub)
            if not number % SUBS_STEP:
                yield SUBS_STEP
                if self._link.close_reason is not None:
                    return
        self._counted, self._ended = None, set()
        while self._unannounced and self._link.close_reason is None:
            for key in [*islice(self._unannounced, SUBS_STEP)]:
                del self._unannounced[key]
                self._link.write(encode_leaf_sub(*key, self._counts[key]))
            yield SUBS_STEP

    def offered(self, subject: bytes) -> None:
        """Handle interest covered by a wider handler."""
        if self._link.rules.may_ask(subject):
            self._change((subject, b""), 1)

    def withdrawn(self, subject: bytes) -> None:
        """Handle the end of such an interest."""
        if (subject, b"") in self._counts:
            self._change((subject, b""), -1)

    def reoffered(self, before: Sequence[bytes], now: Sequence[bytes]) -> None:
        """Handle several changes, ends and new interest mixed."""
        old, new = set(before), set(now)
        for subject in now:
            if subject not in old:
                self.offered(subject)
        for subject in before:
            if subject not in new:
                self.withdrawn(subject)

    def announced(self) -> list[tuple[bytes, bytes]]:
        """Return subject and queue group of all interest that the other side knows of."""
        return list(self._counts)

    def subscribed(self, sub: Subscription) -> None:
        if self._counted is not None:
            self._counted.add(sub)
            self._ended.discard(sub)
        if self._concerns(sub) and self._link.rules.may_ask(sub.subject):
            self._change((sub.subject, sub.queue), _weight(sub))

    def unsubscribed(self, sub: Subscription) -> None:
        if self._counted is not None:
            if sub not in self._counted:
                self._ended.add(sub)
                return
            self._counted.discard(sub)
        if self._concerns(sub) and (sub.subject, sub.queue) in self._counts:
            self._change((sub.subject, sub.queue), -_weight(sub))

    def weighed(self, member: Member, change: int) -> None:
        """Handle a change in the weight of a queue group's members."""
        key = (member.subject, member.queue)
        if self._concerns(member) and key in self._counts and (self._counted is None or member in self._counted):
            self._change(key, change)

    def withhold(self) -> Steps[None]:
        """Withdraw the interest that changed rules no longer allow."""
        for number, key in enumerate([*self._counts], 1):
            if key in self._counts and not self._link.rules.may_ask(key[0]):
                self._forget(key)
            if not number % SUBS_STEP:
                yield SUBS_STEP

    def _change(self, key: tuple[bytes, bytes], by: int) -> None:
        before = self._counts.get(key, 0)
        now = before + by
        if now > 0:
            self._counts[key] = now
            if self._counted is not None and not before:
                self._unannounced[key] = None
            elif key not in self._unannounced and (key[1] or before <= 0):
                self._link.write(encode_leaf_sub(*key, now))
        elif before > 0:
            self._forget(key)

    def _forget(self, key: tuple[bytes, bytes]) -> None:
        del self._counts[key]
        if key in self._unannounced:
            del self._unannounced[key]
        else:
            self._link.write(encode_leaf_unsub(*key))

    def _concerns(self, sub: Subscription) -> bool:
        if not isinstance(sub, RemoteSubscription):
            return not sub.subject.startswith(OWN_BUSINESS)
        link, other = self._link, sub.link
        if other is link or (isinstance(sub, Carrier) and sub.helper):
            return False
        if link.remote_cluster and other.remote_cluster == link.remote_cluster:
            return False
        if sub.subject.startswith(LOOP_PREFIX):
            return True
        return not link.isolated and not (link.is_spoke and other.is_spoke)


def _weight(sub: Subscription) -> int:
    return sub.weight if isinstance(sub, Member) else 1
