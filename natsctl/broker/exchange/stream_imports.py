"""Streams of other accounts, seen in this one.

Theory of operation. Nothing stands in an exporting account until somebody here subscribes to what is imported. Then
each subscription gets a stand-in there, on what of the exported subjects it asks for, in its own queue group, so that
members in both accounts are one group. A stand-in hands messages over under their local subject and ends with its
subscription. Stand-ins have none themselves: what is imported can not be exported again, as in nats-server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.broker.exchange.import_subjects import PatternMapping, carried_back, common
from natsctl.broker.subscription import Subscription

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.exchange.import_plan import StreamLink
    from natsctl.broker.session import Session

_OWN: Final = (b"$JS.API.", b"$SYS.", b"_R_.")
"""Subjects that the server answers in each account by itself: its handlers there take nothing of another account's."""


class StandIn(Subscription):
    """Handler in an exporting account for one subscription of the importing account."""

    __slots__ = ("_for", "_line")

    def __init__(self, line: StreamLine, subject: bytes, sub: Subscription) -> None:
        super().__init__(line.exporter, subject, sub.queue, handler=self._take)
        self._line = line
        self._for = sub

    def behind(self) -> Subscription:
        """Return the subscription here that it stands for."""
        return self._for.behind()

    def _take(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> bool | None:
        sub, exporter = self._for, self._line.exporter
        to = exporter.destination(subject)
        if exporter.broker.hops.of(to) is not None:
            return False  # a request to a service belongs to no stream
        local = subject if to is not subject else self._line.local(subject)
        session = sub.session
        if session is None:
            return sub.handler(local, reply, header, payload, origin)
        if session.close_reason is not None or (session is origin and not session.echo):
            return False
        sub.account.deliver_to(sub, local, reply, header, payload)
        return None


class StreamLine:
    """One import of a stream."""

    __slots__ = ("_mapping", "_same", "_to", "exporter", "link")

    def __init__(self, link: StreamLink, exporter: Account) -> None:
        self.link = link
        self.exporter = exporter
        self._same = not link.destination and link.local == link.subject
        self._to = link.local.encode()
        self._mapping = PatternMapping(link.subject, link.destination) if link.destination else None

    def local(self, subject: bytes) -> bytes:
        """Return what a message of the exporter is called here."""
        if self._mapping is not None:
            return self._mapping.apply(subject) or subject
        return subject if self._same else self._to

    def asked(self, subject: str) -> str:
        """Return what a subscription to `subject` here is to take there, empty for nothing."""
        link = self.link
        found = common(subject, link.local)
        if found is None:
            return ""
        part, narrowed = found
        if not narrowed:
            return link.subject
        if link.destination:
            return carried_back(part, link.subject, link.destination)
        return part if self._same else link.subject


class StreamImports:
    """All imports of streams of one account."""

    __slots__ = ("_account", "_lines", "links")

    def __init__(self, account: Account, links: list[StreamLink]) -> None:
        """Prepare; subscriptions that are there already are followed by `follow_all`."""
        self._account = account
        self.links = links
        accounts = account.broker.accounts
        self._lines = [StreamLine(link, accounts[link.account]) for link in links]

    def follow(self, sub: Subscription) -> None:
        """Route matching imports to the subscription."""
        if sub.session is None and sub.subject.startswith(_OWN):
            return
        subject = sub.subject.decode("utf-8", "surrogateescape")
        for line in self._lines:
            wanted = line.asked(subject)
            if wanted:
                stand_in = StandIn(line, wanted.encode("utf-8", "surrogateescape"), sub)
                sub.stand_ins += (stand_in,)
                line.exporter.place(stand_in)

    def follow_all(self) -> None:
        """Route the current imports to every subscription of the account, and nothing else."""
        for placed in tuple(self._account.routes.subs):
            sub = placed.client or placed
            if not sub.foreign:
                end_stand_ins(sub)
                self.follow(sub)


def end_stand_ins(sub: Subscription) -> None:
    """Take nothing of other accounts for a subscription any more."""
    stand_ins, sub.stand_ins = sub.stand_ins, ()
    for stand_in in stand_ins:
        stand_in.account.unsubscribe(stand_in)
