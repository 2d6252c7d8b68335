"""Routing table of one account: one cached route per subject, and one per beginning for subjects that are used once.

Theory of operation. `exact` maps a subject to its route and serves the hot path; `find` handles misses. Inbox
replies and ack subjects are new with every message, so a route that the trie decided on leading tokens only
(api/subject_index.py) is also kept under the subject without its last token (`_INBOX.x.y`) or without its last five
(`$JS.ACK.S.C.1.2.3.4.5`), and a hit there does not touch `exact`. If nothing but `>` is left, the route of every
longer subject is kept under the stem (`orders.`). A subject that no prefix decides costs the walk through the trie,
but its route is made once for each set of nodes that is reached.

A change of a literal subscription drops the entries that could cover it; a change of a wildcard drops all. Sizes are
bounded by the number of recipients kept. Patterns with many tokens, or very many patterns, can make the walk visit a
node for each of their tokens: if that may be long (`wide`), a session calls `walked` first to walk in slices. While the
subscriptions of a connection that has ended are removed slice by slice (deferred_work.py), no route includes its
remaining ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar, overload

from natsctl.api.subject_index import IndexNode, Steps, SubjectIndex
from natsctl.api.subjects import is_literal
from natsctl.broker.subscription import Subscription

if TYPE_CHECKING:
    from natsctl.broker.session import Session

Given = TypeVar("Given")
Made = TypeVar("Made")
Recipient: TypeAlias = "tuple[Session | None, Subscription, bytes]"
"""(session, subscription, `MSG subject sid ` where the route is of one subject, else empty); no session: a handler."""
Recipients: TypeAlias = "tuple[Recipient, ...] | Crowd[Subscription, Recipient]"
Groups: TypeAlias = "tuple[Recipients, ...] | Crowd[list[Subscription], Recipients]"
Route: TypeAlias = "tuple[Recipients, Groups, tuple[Subscription, ...]]"
"""(plain clients, queue groups, plain handlers)"""

NO_ROUTE: Final[Route] = ((), (), ())
MAX_CACHED_RECIPIENTS: Final = 65536
"""Recipients, plus one per route, in all cached routes of one account (about 150 bytes each)."""
MAX_ROUTE_COST: Final = MAX_CACHED_RECIPIENTS // 2
"""Most that one route counts: a longer one stays until that much else is cached, else each message would make it."""
LISTED_RECIPIENTS: Final = 4096
"""Longest list of recipients, or of groups, that a route keeps as tuples."""
DELIVERED_AT_ONCE: Final = 1024
"""Recipients that are sent a message at once, about a millisecond; there may be a million."""
HANDLER_COST: Final = 16
"""Deliveries to clients that a handler or a group counts for."""
MAX_CACHED_HEADS: Final = 8
"""Maximum clients of one route with cached message heads."""
ACK_TAIL: Final = 5
"""Tokens of an ack subject that differ per delivery."""
DOLLAR: Final = ord("$")
DOT: Final = 46
"""Separator of the tokens of a subject."""


WIDE_TOKENS: Final = 16_384
"""Min number of tokens of patterns that may make a walk long (some milliseconds)."""
MAX_WALKS: Final = 128
"""Maximum unfinished walks of an account; with more, the oldest restarts."""
MAX_WAYS: Final = 1024
"""Routes, and handlers of each, that one message is followed to: services may lead to each other in a circle."""


class Crowd(Generic[Given, Made]):
    """Recipients or groups of very many subscriptions, made as they are looked at."""

    __slots__ = ("_given", "_make")

    def __init__(self, given: list[Given], make: Callable[[Given], Made]) -> None:
        self._given = given
        self._make = make

    def __len__(self) -> int:
        return len(self._given)

    @overload
    def __getitem__(self, at: int) -> Made: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Made, ...]: ...
    def __getitem__(self, at: int | slice) -> Made | tuple[Made, ...]:
        if isinstance(at, slice):
            return tuple(map(self._make, self._given[at]))
        return self._make(self._given[at])

    def __iter__(self) -> Iterator[Made]:
        return map(self._make, self._given)

    def filtered(self, keep: Callable[[Given], bool]) -> Crowd[Given, Made]:
        return Crowd([*filter(keep, self._given)], self._make)


class LargeGroups(tuple[Recipients, ...]):
    """The groups of a route that have so many members together that a message is offered to them in parts."""

    __slots__ = ()


class Walk(NamedTuple):
    """A walk through the subscriptions that has not ended; they were in one version when it began."""

    version: tuple[int, int]
    steps: Steps[tuple[list[IndexNode[Subscription]], int, int]]
    tokens: list[bytes]
    late: dict[bytes, IndexNode[Subscription]]
    """Patterns of the subject that were added since, with their nodes."""


class Routes:
    __slots__ = (
        "_all_wide", "_by_ack_prefix", "_by_nodes", "_by_prefix", "_by_stem", "_cost", "_leaving", "_walks",
        "_wild_tokens", "exact", "subs", "walks", "wide",
    )  # fmt: skip

    def __init__(self, all_wide: set[Routes] | None = None) -> None:
        """Create an empty table; it is in `all_wide` while a walk through it may be long."""
        self._all_wide = all_wide if all_wide is not None else set()
        self.subs: SubjectIndex[Subscription] = SubjectIndex()
        self.exact: dict[bytes, Route] = {}
        self._by_prefix: dict[bytes, Route] = {}
        self._by_ack_prefix: dict[bytes, Route] = {}
        self._by_stem: dict[bytes, Route] = {}
        self._by_nodes: dict[tuple[IndexNode[Subscription], ...], Route] = {}
        self._cost = 0
        self._leaving = 0
        self._wild_tokens = 0
        """Tokens of all patterns: no walk visits more nodes, apart from one for each token of the subject."""
        self._walks: dict[bytes, Walk] = {}
        self.wide = False
        self.walks = 0
        """Number of cache misses."""

    @property
    def cached(self) -> int:
        beginnings = len(self._by_prefix) + len(self._by_ack_prefix) + len(self._by_stem)
        return len(self.exact) + beginnings + len(self._by_nodes)

    @property
    def version(self) -> tuple[int, int, int]:
        """Return what changes with each subscription that comes or goes."""
        return self.subs.inserted, self.subs.count, self._leaving

    def insert(self, sub: Subscription) -> None:
        """Add a subscription and forget the routes that it changes."""
        node = self.subs.add(sub.subject, sub)
        if self._walks:
            wanted = sub.subject.split(b".")
            for walk in self._walks.values():
                if _match(wanted, walk.tokens):
                    walk.late[sub.subject] = node
        if b"*" in sub.subject:
            self._count_tokens(sub.subject.count(b".") + 1)
        self._forget(sub.subject)

    def remove(self, sub: Subscription) -> bool:
        """Remove a subscription and the routes that it changes; return False if it was not there."""
        if not self.subs.remove(sub.subject, sub):
            return False
        for walk in self._walks.values():
            if (node := walk.late.get(sub.subject)) is not None and not node.owners:
                del walk.late[sub.subject]
        if b"*" in sub.subject:
            self._count_tokens(-sub.subject.count(b".") - 1)
        self._forget(sub.subject)
        return True

    def _count_tokens(self, change: int) -> None:
        self._wild_tokens += change
        wide = self._wild_tokens > WIDE_TOKENS
        if wide is not self.wide:
            self.wide = wide
            (self._all_wide.add if wide else self._all_wide.discard)(self)

    def begin_leaving(self) -> None:
        """Stop routing to the subscriptions of a closed session; they are removed later."""
        self._leaving += 1
        self._forget(b">")

    def end_leaving(self) -> None:
        """Count one such session less: all its subscriptions were removed."""
        self._leaving -= 1

    def _forget(self, pattern: bytes) -> None:
        if self._by_nodes:
            self._by_nodes.clear()
        if (b"*" not in pattern and b">" not in pattern) or is_literal(pattern):
            if self._by_stem:
                for stem in _stems(pattern):
                    self._by_stem.pop(stem, None)
            if self.exact:
                self.exact.pop(pattern, None)
            if self._by_prefix:
                self._by_prefix.pop(pattern.rpartition(b".")[0], None)
            if self._by_ack_prefix:
                self._by_ack_prefix.pop(pattern.rsplit(b".", ACK_TAIL)[0], None)
        else:
            self.exact.clear()
            self._by_prefix.clear()
            self._by_ack_prefix.clear()
            self._by_stem.clear()
            self._cost = 0

    def shared_size(self, subject: bytes, route: Route) -> int:
        """Return how much of `subject` decides its `route`, if any other last token would take the same one; else 0."""
        prefix = subject.rpartition(b".")[0]
        return len(prefix) + 1 if prefix and self._by_prefix.get(prefix) is route else 0

    def find_shared(self, subject: bytes) -> tuple[Route, int]:
        """Return the route of a subject that `exact` does not hold, and its `shared_size`."""
        prefix, _, last = subject.rpartition(b".")
        route = self._by_prefix.get(prefix) if last and subject[0] != DOLLAR else None
        if route is not None:
            return route, len(prefix) + 1
        route = self.find(subject)
        return route, self.shared_size(subject, route)

    def find(self, subject: bytes) -> Route:
        """Return the route of a subject that `exact` does not hold."""
        return self._by_beginning(subject) or self._match(subject)

    def _by_beginning(self, subject: bytes) -> Route | None:
        if subject[:8] == b"$JS.ACK.":
            route = self._by_ack_prefix.get(subject.rsplit(b".", ACK_TAIL)[0])
            if route is not None:
                return route
        prefix, _, last = subject.rpartition(b".")
        if last:
            route = self._by_prefix.get(prefix)
            if route is not None:
                return route
            if self._by_stem:
                stem = self.stem(subject)
                if stem:
                    route = self._by_stem[stem]
                    self._pay(1)
                    self.exact[subject] = route
                    return route
        return None

    def is_known(self, subject: bytes) -> bool:
        """Return whether the route of a subject is cached."""
        return subject in self.exact or self._by_beginning(subject) is not None

    def walked(self, subject: bytes, go_on: Callable[[], bool]) -> bool:
        """Walk to the route of a subject while `go_on`; return whether it is known now.

        A walk does not start over when subscriptions change: nodes that are reached and have no owner at its end have
        been removed, and patterns that it may have passed by are in `late`.
        """
        if self.is_known(subject):
            self._walks.pop(subject, None)
            return True
        tokens = subject.split(b".")
        if b"" in tokens:
            return True
        version = self.subs.inserted, self.subs.count
        walk = self._walks.pop(subject, None) or Walk(version, self.subs.walking(tokens), tokens, {})
        try:
            while True:
                next(walk.steps)
                if not go_on():
                    break
        except StopIteration as end:
            nodes, decided, stem = end.value
            if walk.version != version:
                reached = dict.fromkeys([*nodes, *walk.late.values()])
                nodes, decided, stem = [node for node in reached if node.owners], len(tokens), 0
            self._keep(subject, tokens, nodes, decided, stem)
            return True
        if len(self._walks) >= MAX_WALKS:
            del self._walks[next(iter(self._walks))]
        self._walks[subject] = walk
        return False

    def handlers_of(self, subject: bytes) -> tuple[Subscription, ...]:
        """Return the handlers that take `subject`, apart from members of groups."""
        return (self.exact.get(subject) or self.find(subject))[2]

    def subscriptions_of(self, subject: bytes) -> list[Subscription]:
        """Return every subscription that takes `subject`, all members of groups included."""
        clients, queues, handlers = self.exact.get(subject) or self.find(subject)
        members = (member for group in queues for member in group)
        return [*handlers, *(recipient[1] for recipient in clients), *(member[1] for member in members)]

    def stem(self, subject: bytes) -> bytes:
        """Return the prefix of `subject` that leads to the same route with any following tokens, or empty."""
        stems = self._by_stem
        end = subject.find(b".") + 1
        while end:
            if subject[:end] in stems:
                return b"" if b".." in subject or subject[-1] == DOT else subject[:end]
            end = subject.find(b".", end) + 1
        return b""

    def _match(self, subject: bytes) -> Route:
        tokens = subject.split(b".")
        if b"" in tokens:
            return NO_ROUTE
        return self._keep(subject, tokens, *self.subs.match(tokens))

    def _keep(
        self, subject: bytes, tokens: list[bytes], nodes: list[IndexNode[Subscription]], decided: int, stem: int
    ) -> Route:
        """Make the route of a subject from the nodes that it reaches, and cache it."""
        self.walks += 1
        if decided == len(tokens) and len(nodes) == 1:
            subs = nodes[0].owners
            if len(subs) == 1 and not self._leaving:
                (sub,) = subs
                if sub.subject == subject:  # nothing else comes this way: no other entry would be of use
                    alone = _route_to(sub, subject)
                    self._cost += 2
                    if self._cost > MAX_CACHED_RECIPIENTS:
                        self._forget(b">")
                    self.exact[subject] = alone
                    return alone
        reached = tuple(nodes)
        shared = route = self._by_nodes.get(reached)
        if shared is None or route is None:
            route, shared = self._make(reached, subject)
            self._by_nodes[reached] = shared
        else:
            self._pay(3)
        depth = len(tokens)
        if depth > 1 and decided < depth:
            if tokens[:2] == [b"$JS", b"ACK"] and decided <= depth - ACK_TAIL:
                self._by_ack_prefix[b".".join(tokens[:-ACK_TAIL])] = shared
                return shared
            self._by_prefix[subject.rpartition(b".")[0]] = shared
            if stem:
                self._by_stem[b".".join(tokens[:stem]) + b"."] = shared
        self.exact[subject] = route
        return route

    def _make(self, nodes: tuple[IndexNode[Subscription], ...], subject: bytes) -> tuple[Route, Route]:
        """Return the route of one subject to the owners at `nodes`, and the route of all subjects that reach them."""
        subs = [*chain.from_iterable(node.owners for node in nodes)]
        if self._leaving:
            subs = [sub for sub in subs if not sub.has_left()]
        clients, handlers, members = list[Subscription](), list[Subscription](), list[Subscription]()
        queues: dict[bytes, list[Subscription]] = {}
        before = b""
        for sub in subs:
            queue = sub.queue
            if queue:
                if queue != before:
                    members, before = queues.setdefault(queue, []), queue
                members.append(sub)
            elif sub.session is not None:
                clients.append(sub)
            else:
                handlers.append(sub)
        cost = 1 + len(subs)
        heads = cost <= MAX_CACHED_HEADS
        plain = tuple(handlers)
        route = _route(clients, queues, plain, subject if heads else b"")
        self._pay(4 * cost)
        return route, _route(clients, queues, plain, b"") if heads else route

    def _pay(self, cost: int) -> None:
        """Count a new cache entry, after clearing the cache if it is full."""
        cost = min(cost, MAX_ROUTE_COST)
        if self._cost + cost > MAX_CACHED_RECIPIENTS:
            self._forget(b">")
        self._cost += cost


def walk_ways(ways: list[tuple[Routes, bytes]], go_on: Callable[[], bool]) -> bool:
    """Walk to the routes of subjects, and on to the routes that their handlers deliver along, while `go_on`.

    Return whether all of them are known.
    """
    waiting, known = [*ways], set(ways)
    while waiting:
        routes, subject = waiting.pop()
        if not routes.walked(subject, go_on):
            return False
        if len(known) >= MAX_WAYS:
            continue
        leading = (sub for sub in routes.handlers_of(subject) if sub.leads_on)
        for sub in islice(leading, MAX_WAYS):
            further = [way for way in sub.onward(subject) if way not in known]
            known.update(further)
            waiting += further
    return True


def _match(pattern: list[bytes], subject: list[bytes]) -> bool:
    """Return whether a pattern matches a subject, both in tokens."""
    if pattern[-1] == b">":
        if len(subject) < len(pattern):
            return False
        pattern = pattern[:-1]
    elif len(subject) != len(pattern):
        return False
    return all(token in (b"*", there) for token, there in zip(pattern, subject, strict=False))


def _stems(subject: bytes) -> Iterator[bytes]:
    """Yield the beginnings of a subject that end between two tokens."""
    end = subject.find(b".") + 1
    while end:
        yield subject[:end]
        end = subject.find(b".", end) + 1


def is_large(route: Route) -> bool:
    """Return whether a message is delivered along a route in parts."""
    clients, groups, handlers = route
    return len(clients) > DELIVERED_AT_ONCE or type(groups) is not tuple or len(handlers) > DELIVERED_AT_ONCE


def parts_of(route: Route) -> Iterator[Route]:
    """Yield a route in parts: first the clients, then the groups, then the handlers. Large groups are separate."""
    clients, groups, handlers = route
    for start in range(0, len(clients), DELIVERED_AT_ONCE):
        yield clients[start : start + DELIVERED_AT_ONCE], (), ()
    some, cost = list[Recipients](), 0
    for members in groups:
        if len(members) > DELIVERED_AT_ONCE:
            yield (), (members,), ()
            continue
        some.append(members)
        cost += HANDLER_COST + len(members)
        if cost >= DELIVERED_AT_ONCE:
            yield (), tuple(some), ()
            some, cost = [], 0
    if some:
        yield (), tuple(some), ()
    count = max(1, DELIVERED_AT_ONCE // HANDLER_COST)
    for start in range(0, len(handlers), count):
        yield (), (), handlers[start : start + count]


def in_turn(members: Recipients, start: int) -> Iterator[Recipient]:
    """Yield the members of a group, the one at `start` first."""
    count = len(members)
    for place in range(start, start + count):
        yield members[place % count]


def groups_named(groups: Groups, names: Sequence[bytes]) -> Groups:
    """Return the groups with one of these names."""
    if not names:
        return ()
    known = frozenset(names)
    if isinstance(groups, Crowd):
        return groups.filtered(lambda members: members[0].queue in known)
    return type(groups)([members for members in groups if members[0][1].queue in known])


def without_ended(route: Route) -> Route:
    """Return a route without clients that have unsubscribed; handlers that have ended take nothing."""
    clients, groups, handlers = route
    left = ([member for member in members if member[0] is None or not member[1].has_left()] for members in groups)
    present = tuple([client for client in clients if not client[1].has_left()])
    return present, tuple([tuple(members) for members in left if members]), handlers


def _route(
    clients: list[Subscription],
    queues: dict[bytes, list[Subscription]],
    handlers: tuple[Subscription, ...],
    subject: bytes,
) -> Route:
    groups: Groups
    if len(queues) > LISTED_RECIPIENTS:
        groups = Crowd([*queues.values()], _recipients)
    else:
        groups = tuple([_recipients(members, subject) for members in queues.values()])
        if sum(map(len, groups)) > DELIVERED_AT_ONCE:
            groups = LargeGroups(groups)
    return _recipients(clients, subject), groups, handlers


def _route_to(sub: Subscription, subject: bytes) -> Route:
    if sub.session is None and not sub.queue:
        return (), (), (sub,)
    recipient = sub.session, sub, b"MSG " + subject + sub.sid_field
    return ((), ((recipient,),), ()) if sub.queue else ((recipient,), (), ())


def _recipient(sub: Subscription) -> Recipient:
    return sub.session, sub, b""


def _recipients(subs: list[Subscription], subject: bytes = b"") -> Recipients:
    if len(subs) > LISTED_RECIPIENTS:
        return Crowd(subs, _recipient)
    if not subject:
        return tuple([(sub.session, sub, b"") for sub in subs])
    return tuple([(sub.session, sub, b"MSG " + subject + sub.sid_field) for sub in subs])
