"""Imports of an account, its outstanding service responses, and messages on their way through imported services.

Theory of operation. A plan (import_plan.py) says which imports are in effect; an `ImportChange` makes the difference to
the state before, so that running requests and subscriptions are not disturbed. Its proxies are placed in
steps and handle nothing until `apply` (a short call); proxies of ended imports are removed in steps. Responses that are
pending outlive a change of the imports that asked for them. Services need modules of their own, loaded if there are
any.

An import of a stream places nothing in the exporting account until the importing account has a subscription for it.
Then each subscription gets an `ImportProxy` there, on the part of the exported subjects that it matches, in its own
queue group, so that members in both accounts are one group. A proxy hands messages over under their local subject.
If many imports match, the proxies are placed and removed in steps. A subscription lists its proxies; they end together
when it gets another list. Proxies have no proxies: imports cannot be exported again, as in nats-server.

A service import publishes a request in another account while it is being called, so the messages under way form a
stack (`ImportChain`). Messages are identified by the subject object: a handler that calls `of` with its subject
gets the hop that brought the message; messages it publishes meanwhile itself have no hop.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from natsctl.api.subject_index import PatternSet, Steps, SubjectIndex, finish
from natsctl.api.subject_transform import SubjectMapping
from natsctl.api.subjects import is_literal
from natsctl.broker.imports.mappings import carried_back, common
from natsctl.broker.ordered_jobs import begun
from natsctl.broker.subscription import NO_PROXIES, RoutedSubscription, Subscription

if TYPE_CHECKING:
    from natsctl.api.advisories import ClientInfo
    from natsctl.broker.account import Account
    from natsctl.broker.imports.import_plan import ServiceLink, StreamLink
    from natsctl.broker.imports.service_imports import PendingRequest, Responses, ServiceProxy
    from natsctl.broker.message_trace import MessageTrace
    from natsctl.broker.session import Session


S = TypeVar("S")
T = TypeVar("T")

PROXIES_STEP: Final = 64
"""Proxies that one step places or removes: less than a millisecond."""
_OWN: Final = (b"$JS.API.", b"$SYS.", b"_R_.")
"""Subjects that the server answers in each account by itself: its handlers there take nothing of another account's."""


class ImportProxy(RoutedSubscription):
    """Handler in an exporting account for one subscription of the importing account."""

    __slots__ = ("_for", "_line", "_listed")

    def __init__(self, line: StreamLine, subject: bytes, sub: Subscription) -> None:
        super().__init__(line.exporter, subject, sub.queue)
        self._line = line
        self._for = sub
        self._listed = sub.import_proxies

    @property
    def imports(self) -> StreamImports:
        return self._line.imports

    def behind(self) -> Subscription:
        return self._for.behind()

    def _is_active(self) -> bool:
        return self._line.imports.active and self._for.import_proxies is self._listed

    def take_traced(self, trace: MessageTrace, message: tuple[bytes, bytes, bytes, bytes]) -> bool:
        sub, line = self._for, self._line
        if not self._is_active() or line.hops.of(message[0]) is not None or sub.has_left():
            return False
        local = (line.local(message[0]), *message[1:])
        return trace.through_stream_import(self, sub, line.link.allow_trace, local)

    def receive(
        self, to: bytes, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        sub = self._for
        if not self._is_active():
            return False
        if self._line.hops.of(to) is not None:
            return False  # a request to a service belongs to no stream
        local = subject if to != subject else self._line.local(subject)
        session = sub.session
        if session is None:
            return sub.handler(local, reply, header, payload, origin)
        if sub.has_left() or (session is origin and not session.echo):
            return False
        sub.account.deliver_to(sub, local, reply, header, payload)
        return None


class StreamLine:
    __slots__ = ("_mapping", "_same", "_to", "exporter", "hops", "imports", "link")

    def __init__(self, imports: StreamImports, link: StreamLink, exporter: AccountImports) -> None:
        self.imports = imports
        self.link = link
        self.exporter, self.hops = exporter.account, exporter.hops
        self._same = not link.destination and link.local == link.subject
        self._to = link.local.encode()
        self._mapping: SubjectMapping | None = None
        if link.destination:
            self._mapping = SubjectMapping.compile(link.subject, link.destination, literal=False)

    def local(self, subject: bytes) -> bytes:
        """Return the subject in this account of a message of the exporter."""
        if self._mapping is not None:
            return subject if (to := self._mapping.apply(subject)) is None else to
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
    __slots__ = ("_account", "_followed", "_index", "_lines", "_withdrawn", "active", "links")

    def __init__(self, account: Account, links: list[StreamLink]) -> None:
        self._account = account
        self.links = links
        self.active = False
        """Whether the imports are in effect: they are not before all of them are prepared, nor after their end."""
        self._withdrawn = False
        self._lines: list[StreamLine] = []
        self._index: SubjectIndex[int] = SubjectIndex()
        self._followed: dict[Subscription, list[ImportProxy]] = {}
        """Subscriptions that some of the matching imports have been routed to, with their lists."""

    def prepare(self, peers: Mapping[str, AccountImports]) -> Steps[None]:
        """Route the imports to every subscription of the account; new ones meanwhile go to `follow`."""
        for link in self.links:
            self._index.add(link.local.encode(), len(self._lines))
            self._lines.append(StreamLine(self, link, peers[link.account]))
            yield 1
        for sub in _own_subscriptions(self._account):
            yield 1
            if not sub.has_left():
                yield from self.follow(sub)

    def follow(self, sub: Subscription) -> Steps[None]:
        """Route matching imports to the subscription as long as it lasts; `prepare` does it for those before it."""
        if (sub.session is None and sub.subject.startswith(_OWN)) or len(self._lines) < len(self.links):
            return
        places = sorted(self._index.overlapping(sub.subject))
        if not places or any(proxy.imports is self for proxy in sub.import_proxies):
            return
        if sub.import_proxies is NO_PROXIES:
            sub.import_proxies = []
        proxies, subject = sub.import_proxies, sub.subject.decode("utf-8", "surrogateescape")
        if self._followed.get(sub) is proxies:
            return
        self._followed[sub] = proxies
        try:
            for count, place in enumerate(places):
                if count and not count % PROXIES_STEP:
                    yield PROXIES_STEP
                    if sub.import_proxies is not proxies or self._withdrawn:
                        return
                line = self._lines[place]
                asked = line.asked(subject)
                if asked:
                    proxy = ImportProxy(line, asked.encode("utf-8", "surrogateescape"), sub)
                    proxies.append(proxy)
                    line.exporter.place(proxy)
        finally:
            if self._followed.get(sub) is proxies:
                del self._followed[sub]

    def withdraw(self) -> Steps[None]:
        """Remove the routes to the subscriptions of the account; none of them is in effect."""
        self._withdrawn = True
        for sub in _own_subscriptions(self._account):
            proxies = sub.import_proxies
            ended = [proxy for proxy in proxies if proxy.imports is self]
            if ended:
                proxies[:] = [proxy for proxy in proxies if proxy.imports is not self]
                yield from ending(ended)
            yield 1


def _own_subscriptions(account: Account) -> Iterator[Subscription]:
    """Yield the subscriptions that streams may be imported for; they may change meanwhile."""
    for placed in account.routes.subs:
        sub = placed.client or placed
        if not sub.foreign:
            yield sub


def ending(proxies: Collection[Subscription]) -> Steps[None]:
    for count, proxy in enumerate(proxies):
        if count and not count % PROXIES_STEP:
            yield PROXIES_STEP
        proxy.account.unsubscribe(proxy)


class ImportChange:
    """A change of the imports of one account: prepared in steps, applied in a moment, and cleaned up in steps."""

    def __init__(self, imports: AccountImports) -> None:
        self._imports = imports
        self._services: dict[ServiceLink, ServiceProxy] = {}
        self._ended: dict[ServiceLink, ServiceProxy] = {}
        self._streams: StreamImports | None = None

    def prepare(self, streams: list[StreamLink], services: list[ServiceLink]) -> Steps[bool]:
        """Place what these imports need and the present ones do not have; return whether anything differs."""
        imports, account = self._imports, self._imports.account
        ended = dict(imports.proxies)
        for link in services:
            yield 1
            if ended.pop(link, None) is None and link not in imports.proxies:
                from natsctl.broker.imports.service_imports import ServiceProxy

                proxy = self._services[link] = ServiceProxy(imports, link, imports.peers[link.account])
                account.place(proxy)
        self._ended = ended
        if streams != (imports.streams.links if imports.streams is not None else []):
            self._streams = imports.coming = StreamImports(account, streams)
            yield from self._streams.prepare(imports.peers)
        return bool(self._services or ended or self._streams is not None)

    def apply(self) -> bool:
        """Put the change in effect; return whether the services are others than before."""
        imports = self._imports
        for link, proxy in self._ended.items():
            proxy.active = False
            del imports.proxies[link]
        for link, proxy in self._services.items():
            proxy.active = True
            imports.proxies[link] = proxy
        if self._streams is not None:
            before, imports.coming = imports.streams, None
            imports.streams = self._streams if self._streams.links else None
            self._streams.active = True
            self._streams = before
            if before is not None:
                before.active = False
        return bool(self._services or self._ended)

    def clean_up(self) -> Steps[None]:
        for proxy in self._ended.values():
            proxy.account.unsubscribe(proxy)
            yield 1
        if self._streams is not None:
            yield from self._streams.withdraw()

    def abandon(self) -> None:
        """Remove the prepared imports: the change cannot be made."""
        account = self._imports.account
        account.broker.long_work.add(ending(self._services.values()), account)
        if self._streams is not None:
            self._imports.coming = None
            account.broker.long_work.add(self._streams.withdraw(), account)


class AccountImports:
    """The imports of one account, and the responses that its exports owe."""

    def __init__(self, account: Account, peers: Mapping[str, AccountImports], hops: ImportChain) -> None:
        """`peers` has all accounts' imports by name; `hops` are the messages on their way between them."""
        self.account = account
        self.peers = peers
        self.hops = hops
        self.streams: StreamImports | None = None
        self.coming: StreamImports | None = None
        """The imports in preparation."""
        self.proxies: dict[ServiceLink, ServiceProxy] = {}
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

    def take_responses(self) -> None:
        """Place the handler of responses now: later, it would make the account forget the routes of its requests."""
        _ = self.responses

    @property
    def owed(self) -> int:
        """Number of requests that wait for a response of this account."""
        return len(self._responses) if self._responses is not None else 0

    @property
    def services(self) -> Sequence[ServiceLink]:
        """The imports of services that are in effect."""
        return tuple(self.proxies)

    def listens(self, reply: bytes) -> bool | None:
        """Return whether the original reply of `reply` has a subscriber in the requester's account.

        None if it is not a reply to a request from another account.
        """
        responses = self._responses
        if responses is None or not responses.made(reply):
            return None
        waiting = responses.get(reply)
        return waiting is not None and waiting.requester.account.has_interest(waiting.reply)

    def on_subscribe(self, sub: Subscription) -> Steps[None]:
        for imports in (self.streams, self.coming):
            if imports is not None:
                yield from imports.follow(sub)

    def on_unsubscribe(self, sub: Subscription) -> None:
        """End the proxies of a subscription that has ended, and remove them in later turns if they are many."""
        proxies, sub.import_proxies = sub.import_proxies, NO_PROXIES
        if (rest := begun(ending(proxies))) is not None:
            self.account.broker.long_work.add(rest, self.account)
        if self.awaited:
            self.awaited.interest_lost(sub.subject)


REPLIES_STEP: Final = 64
"""Replies that one step checks, or requests that it gives up: half a millisecond if their latency is measured."""


class AwaitedReplies:
    """The replies of one account that services of others are to answer; it ends waiting that is in vain."""

    __slots__ = ("_account", "_by_reply", "_is_looking", "_lost", "_lost_patterns")

    def __init__(self, account: Account) -> None:
        self._account = account
        self._by_reply: dict[bytes, dict[PendingRequest, Responses]] = {}
        self._lost: dict[bytes, None] = {}
        self._lost_patterns: dict[bytes, None] = {}
        """Subjects and patterns of ended subscriptions, with replies that are still to be checked."""
        self._is_looking = False

    def __bool__(self) -> bool:
        return bool(self._by_reply)

    def add(self, waiting: PendingRequest, responses: Responses) -> None:
        self._by_reply.setdefault(waiting.reply, {})[waiting] = responses

    def discard(self, waiting: PendingRequest) -> None:
        known = self._by_reply.get(waiting.reply)
        if known is not None:
            known.pop(waiting, None)
            if not known:
                del self._by_reply[waiting.reply]

    def interest_lost(self, pattern: bytes) -> None:
        """Check that the replies of an ended subscription still have a subscriber, in later turns if they are many."""
        if not is_literal(pattern):
            self._lost_patterns[pattern] = None
        elif pattern not in self._by_reply:
            return
        elif len(self._by_reply[pattern]) == 1:
            finish(self._checking(pattern))
            return
        else:
            self._lost[pattern] = None
        if not self._is_looking:
            self._is_looking = True
            self._account.broker.long_work.add(self._looking(), self._account)
            self._account.broker.jobs.wake()

    def _looking(self) -> Steps[None]:
        """Check all replies once for all the subscriptions that have ended since the last time."""
        while self._lost or self._lost_patterns:
            lost, ended, patterns = self._lost, self._lost_patterns, PatternSet()
            self._lost, self._lost_patterns = {}, {}
            yield from patterns.fill(ended)
            for place, reply in enumerate(tuple(self._by_reply) if patterns.patterns else lost, 1):
                if reply in lost or patterns.match(reply):
                    yield from self._checking(reply)
                if not place % REPLIES_STEP:
                    yield REPLIES_STEP
        self._is_looking = False

    def _checking(self, reply: bytes) -> Steps[None]:
        """Give up the requests with a reply that has no subscriber."""
        pending = self._by_reply.get(reply, {})
        if not pending or self._account.has_interest(reply):
            return
        for place, waiting in enumerate([*pending], 1):
            if (responses := pending.get(waiting)) is not None:
                responses.unheard(waiting)
            if not place % REPLIES_STEP:
                yield REPLIES_STEP


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
        """Return whether the message has come through a service before, or through too many."""
        hop: ImportHop | None = self
        while hop is not None:
            if hop.service == service:
                return True
            hop = hop.before
        return self.depth >= MAX_HOPS


class ImportChain:
    """The messages that service imports are delivering now."""

    def __init__(self) -> None:
        self._stack: list[tuple[bytes, ImportHop]] = []

    def of(self, subject: bytes) -> ImportHop | None:
        """Return the hop of the message with exactly this subject object."""
        return next((hop for to, hop in reversed(self._stack) if to is subject), None) if self._stack else None

    def enter(self, subject: bytes, hop: ImportHop) -> None:
        """Record the hop of a message that is about to be delivered on `subject`."""
        self._stack.append((subject, hop))

    def leave(self) -> None:
        """Remove the hop of the last message: it has been delivered."""
        self._stack.pop()

    def along(self, subject: bytes, steps: Generator[S, None, T]) -> Generator[S, None, T]:
        """Return steps that deliver a message with the hop that it has now, whenever they are taken."""
        hop = self.of(subject)
        return steps if hop is None else self._along(subject, hop, steps)

    def _along(self, subject: bytes, hop: ImportHop, steps: Generator[S, None, T]) -> Generator[S, None, T]:
        while True:
            self.enter(subject, hop)
            try:
                step = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self.leave()
            yield step
