"""The interest of one account as the other side of a leaf node connection is told of it.

Theory of operation. Subscriptions are counted by subject and queue group; the other side hears of the first and of the
end of the last one, and of every change in a group's number, its weight. A spoke tells of what is subscribed here and
at the leaf nodes that it is a hub to, a hub tells of everything but what came over the same connection. One subject
that nobody else can have, `$LDS.…`, goes along: when it comes back, the connections are a loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from natsctl.broker.leaf.inward import Carrier, Member
from natsctl.wire.leaf import encode_leaf_sub, encode_leaf_unsub

if TYPE_CHECKING:
    from natsctl.broker.leaf.link import LeafLink
    from natsctl.broker.subscription import Subscription

LOOP_PREFIX: Final = b"$LDS."
OWN_BUSINESS: Final = (b"$SYS.REQ.USER.INFO", b"$JS.NEXT.", b"$JS.STREAM.", b"$JS.ACK.*.*.>")
"""Prefixes of subjects that a server answers for its own clients alone, or announces consumer by consumer."""


class Outward:
    """InterestListener that announces to one connection."""

    __slots__ = ("_counts", "_link")

    def __init__(self, link: LeafLink) -> None:
        self._link = link
        self._counts: dict[tuple[bytes, bytes], int] = {}

    def start(self, subs: Iterable[Subscription], subjects: Iterable[bytes]) -> None:
        """Announce all interest that exists, and `subjects` beside it."""
        counts = self._counts
        for sub in subs:
            if self._link.is_spoke and isinstance(sub, (Carrier, Member)) and sub.link.is_spoke:
                continue  # also what finds loops: it comes later where there is one
            if self._concerns(sub) and self._link.rules.may_ask(sub.subject):
                key = (sub.subject, sub.queue)
                counts[key] = counts.get(key, 0) + _weight(sub)
        for subject in subjects:
            if self._link.rules.may_ask(subject):
                counts[subject, b""] = counts.get((subject, b""), 0) + 1
        for (subject, queue), count in counts.items():
            self._link.write(encode_leaf_sub(subject, queue, count))

    def offered(self, subject: bytes) -> None:
        """Handle interest behind a wider handler."""
        if self._link.rules.may_ask(subject):
            self._change((subject, b""), 1)

    def withdrawn(self, subject: bytes) -> None:
        """Handle the end of such an interest."""
        if (subject, b"") in self._counts:
            self._change((subject, b""), -1)

    def reoffered(self, before: Sequence[bytes], now: Sequence[bytes]) -> None:
        """Handle several changes, of which some may be ends and others may be new."""
        for subject in now:
            if subject not in before:
                self.offered(subject)
        for subject in before:
            if subject not in now:
                self.withdrawn(subject)

    def told(self) -> list[tuple[bytes, bytes]]:
        """Return subject and queue group of all interest that the other side knows of."""
        return list(self._counts)

    def subscribed(self, sub: Subscription) -> None:
        """Handle one more subscription."""
        if self._concerns(sub) and self._link.rules.may_ask(sub.subject):
            self._change((sub.subject, sub.queue), _weight(sub))

    def unsubscribed(self, sub: Subscription) -> None:
        """Handle the end of a subscription."""
        if self._concerns(sub) and (sub.subject, sub.queue) in self._counts:
            self._change((sub.subject, sub.queue), -_weight(sub))

    def withhold(self) -> None:
        """Take back the interest that the rules, which have changed, do not allow any more."""
        for subject, queue in [key for key in self._counts if not self._link.rules.may_ask(key[0])]:
            del self._counts[subject, queue]
            self._link.write(encode_leaf_unsub(subject, queue))

    def _change(self, key: tuple[bytes, bytes], by: int) -> None:
        before = self._counts.get(key, 0)
        now = before + by
        subject, queue = key
        if now > 0:
            self._counts[key] = now
            if queue or before <= 0:
                self._link.write(encode_leaf_sub(subject, queue, now))
        elif before > 0:
            del self._counts[key]
            self._link.write(encode_leaf_unsub(subject, queue))

    def _concerns(self, sub: Subscription) -> bool:
        """Return whether a subscription is announced to the other side."""
        if not isinstance(sub, (Carrier, Member)):
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
