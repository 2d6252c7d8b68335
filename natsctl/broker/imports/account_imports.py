"""Imports of an account, its outstanding service responses, and messages on their way through imported services.

Theory of operation. A plan (import_plan.py) says which imports are in effect; `apply` makes the difference to what
was in effect before, so that requests and subscriptions that go on are not disturbed. Responses that are pending
outlive a change of the imports that asked for them. Services need modules of their own, loaded where there are any.

An import of a stream places nothing in the exporting account until the importing account has a subscription for it.
Then each subscription gets an `ImportProxy` there, on the part of the exported subjects that it matches, in its own
queue group, so that members in both accounts are one group. A proxy hands messages over under their local subject and
ends with its subscription. Proxies have none themselves: imports cannot be exported again, as in nats-server.

A service import publishes a request in another account while it is being called, so the messages under way form a
stack (`ImportChain`). What is published is known by the subject object itself: a handler that asks `of` for its subject
gets the hop that brought the message, and for what it publishes meanwhile on its own account there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from natsctl.api.subjects import is_literal, matches
from natsctl.broker.imports.mappings import PatternMapping, carried_back, common
from natsctl.broker.subscription import Subscription

if TYPE_CHECKING:
    from natsctl.api.advisories import ClientInfo
    from natsctl.broker.account import Account
    from natsctl.broker.imports.import_plan import ServiceLink, StreamLink
    from natsctl.broker.imports.service_imports import Responses, ServiceProxy, Waiting
    from natsctl.broker.message_trace import MessageTrace
    from natsctl.broker.session import Session


_OWN: Final = (b"$JS.API.", b"$SYS.", b"_R_.")
"""Subjects that the server answers in each account by itself: its handlers there take nothing of another account's."""


class ImportProxy(Subscription):
    """Handler in an exporting account for one subscription of the importing account."""

    __slots__ = ("_for", "_line")

    def __init__(self, line: StreamLine, subject: bytes, sub: Subscription) -> None:
        super().__init__(line.exporter, subject, sub.queue, handler=self._take)
        self._line = line
        self._for = sub

    def behind(self) -> Subscription:
        """Return the subscription here that it stands for."""
        return self._for.behind()

    def take_traced(self, trace: MessageTrace, message: tuple[bytes, bytes, bytes, bytes]) -> bool:
        """Deliver a traced message to the subscription."""
        sub, session, line = self._for, self._for.session, self._line
        if line.hops.of(message[0]) is not None or (session is not None and session.close_reason is not None):
            return False
        local = (line.local(message[0]), *message[1:])
        return trace.through_stream_import(self, sub, line.link.allow_trace, local)

    def _take(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> bool | None:
        sub, exporter = self._for, self._line.exporter
        to = exporter.destination(subject)
        if self._line.hops.of(to) is not None:
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

    __slots__ = ("_mapping", "_same", "_to", "exporter", "hops", "link")

    def __init__(self, link: StreamLink, exporter: AccountImports) -> None:
        self.link = link
        self.exporter, self.hops = exporter.account, exporter.hops
        self._same = not link.destination and link.local == link.subject
        self._to = link.local.encode()
        self._mapping = PatternMapping(link.subject, link.destination) if link.destination else None

    def local(self, subject: bytes) -> bytes:
        """Return the subject in this account of a message of the exporter."""
        if self._mapping is not None:
            return self._mapping.apply(subject) or subject
        return subject if self._same else self._to

    def asked(self, subject: str) -> str:
        """Return the exporter's subject for a subscription to `subject` here, "" if they have nothing in common."""
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

    def __init__(self, imports: AccountImports, links: list[StreamLink]) -> None:
        """Prepare; subscriptions that are there already are followed by `follow_all`."""
        self._account = imports.account
        self.links = links
        self._lines = [StreamLine(link, imports.peers[link.account]) for link in links]

    def follow(self, sub: Subscription) -> None:
        """Route matching imports to the subscription."""
        if sub.session is None and sub.subject.startswith(_OWN):
            return
        subject = sub.subject.decode("utf-8", "surrogateescape")
        for line in self._lines:
            wanted = line.asked(subject)
            if wanted:
                proxy = ImportProxy(line, wanted.encode("utf-8", "surrogateescape"), sub)
                sub.import_proxies += (proxy,)
                line.exporter.place(proxy)

    def follow_all(self) -> None:
        """Route the current imports to every subscription of the account, and nothing else."""
        for placed in tuple(self._account.routes.subs):
            sub = placed.client or placed
            if not sub.foreign:
                end_import_proxies(sub)
                self.follow(sub)


def end_import_proxies(sub: Subscription) -> None:
    """End what a subscription receives from other accounts."""
    import_proxies, sub.import_proxies = sub.import_proxies, ()
    for proxy in import_proxies:
        proxy.account.unsubscribe(proxy)


class AccountImports:
    """The imports of one account, and the responses that its exports owe."""

    __slots__ = ("_proxies", "_responses", "account", "awaited", "hops", "peers", "streams")

    def __init__(self, account: Account, peers: Mapping[str, AccountImports], hops: ImportChain) -> None:
        """`peers` are those of all accounts, by name; `hops` are the messages on their way between them."""
        self.account = account
        self.peers = peers
        self.hops = hops
        self.streams: StreamImports | None = None
        self._proxies: dict[ServiceLink, ServiceProxy] = {}
        self._responses: Responses | None = None
        self.awaited = AwaitedReplies(account)

    @property
    def responses(self) -> Responses:
        """The responses that the account's services owe; it begins to take them when first asked for."""
        if self._responses is None:
            from natsctl.broker.imports.service_imports import Responses

            self._responses = Responses(self)
            self.account.broker.on_tick.append(self._responses.tick)
        return self._responses

    @property
    def owed(self) -> int:
        """Number of requests that wait for a response of this account."""
        return len(self._responses) if self._responses is not None else 0

    @property
    def services(self) -> Sequence[ServiceLink]:
        """The imports of services that are in effect."""
        return tuple(self._proxies)

    def listens(self, reply: bytes) -> bool | None:
        """Return whether the reply that stands behind `reply` has a subscriber in the requester's account.

        None where it is no reply of a request from another account.
        """
        responses = self._responses
        if responses is None or not responses.made(reply):
            return None
        waiting = responses.get(reply)
        return waiting is not None and waiting.requester.account.has_interest(waiting.reply)

    def apply(self, streams: list[StreamLink], services: list[ServiceLink]) -> bool:
        """Import these, and nothing else; return whether the services are others than before."""
        before = set(self._proxies)
        for link in set(self._proxies).difference(services):
            self.account.unsubscribe(self._proxies.pop(link))
        for link in services:
            if link not in self._proxies:
                from natsctl.broker.imports.service_imports import ServiceProxy

                proxy = self._proxies[link] = ServiceProxy(self, link, self.peers[link.account])
                self.account.place(proxy)
        if streams != (self.streams.links if self.streams is not None else []):
            imports = StreamImports(self, streams)
            imports.follow_all()
            self.streams = imports if streams else None
        return before != set(self._proxies)

    def on_subscribe(self, sub: Subscription) -> None:
        """Route matching imports to the subscription."""
        if self.streams is not None:
            self.streams.follow(sub)

    def on_unsubscribe(self, sub: Subscription) -> None:
        """Remove the proxies of a subscription that has ended."""
        for proxy in sub.import_proxies:
            proxy.account.unsubscribe(proxy)
        sub.import_proxies = ()
        if self.awaited:
            self.awaited.interest_lost(sub.subject)


class AwaitedReplies:
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


MAX_HOPS: Final = 64
"""Service imports that one message may pass: each takes a few frames of the stack."""


class ImportHop(NamedTuple):
    """One step of a message into another account."""

    before: ImportHop | None
    service: tuple[str, str]
    """Exporting account and subject of the export: one that comes again is a circle."""
    info: ClientInfo | None
    """First requester; None for responses."""
    share: bool
    """Whether the first import shares all facts about the requester."""
    depth: int

    def passed(self, service: tuple[str, str]) -> bool:
        """Return whether the message has come through a service before, or has gone too far."""
        hop: ImportHop | None = self
        while hop is not None:
            if hop.service == service:
                return True
            hop = hop.before
        return self.depth >= MAX_HOPS


class ImportChain:
    """The messages that service imports are delivering now."""

    __slots__ = ("_stack",)

    def __init__(self) -> None:
        self._stack: list[tuple[bytes, ImportHop]] = []

    def of(self, subject: bytes) -> ImportHop | None:
        """Return how the message came whose subject is this very object."""
        return next((hop for to, hop in reversed(self._stack) if to is subject), None) if self._stack else None

    def enter(self, subject: bytes, hop: ImportHop) -> None:
        """Record the hop of a message that is about to be delivered on `subject`."""
        self._stack.append((subject, hop))

    def leave(self) -> None:
        """Remove the hop of the last message: it has been delivered."""
        self._stack.pop()
