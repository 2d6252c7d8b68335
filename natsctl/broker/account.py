"""A subject space of its own: publishing and subscribing in one account, and the hot path from one to the other.

Theory of operation. `publish` looks the subject up once; the route (routes.py) names plain clients, queue groups and
handlers. The part of the message that all clients share is built once, each client's copy is the cached head and that,
and goes into the session's output list at once. Handlers run last, inside the call; they may publish, subscribe and
unsubscribe, because a route is a tuple that changes never alter. A message to very many is delivered in parts: later
messages of its sender wait for them, or of the server itself (postponed.py). `Traffic` counts the messages and bytes of
an account's connections, and a `Watch` calls back when interest in a subject may have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import msgspec

from natsctl.api.subject_index import Steps, SubjectIndex
from natsctl.api.subjects import matches
from natsctl.broker.deferred_work import LONG_SUBJECT_BYTES, SUBS_STEP
from natsctl.broker.imports.account_config import AccountConfig, SubjectMap
from natsctl.broker.imports.mappings import Mappings
from natsctl.broker.ordered_jobs import begun
from natsctl.broker.postponed import PostponedMessages
from natsctl.broker.routes import (
    DELIVERED_AT_ONCE,
    NO_ROUTE,
    Groups,
    Recipient,
    Recipients,
    Route,
    Routes,
    groups_named,
    in_turn,
    is_large,
    parts_of,
    without_ended,
)
from natsctl.broker.subscription import (
    COPY_LIMIT,
    CRLF,
    Answer,
    Delivery,
    DeliveryBatchHandler,
    Entry,
    Handler,
    PublishBatchHandler,
    RunEntry,
    Stored,
    Subscription,
    ack_frames,
    answer_client,
    header_tail,
    not_mine,
    plain_tail,
    queue_answers,
    send_all_to,
    send_run,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from natsctl.api.subject_transform import SubjectMapping
    from natsctl.broker.broker import Broker
    from natsctl.broker.imports.account_imports import AccountImports
    from natsctl.broker.leaf.leaf_interest import LocalInterest
    from natsctl.broker.session import Session
    from natsctl.wire.publish_run import PublishRun


UNREADABLE_BYTES: Final = 1 << 62
"""More than any client may leave unread."""


class Traffic(msgspec.Struct):
    """Messages, and bytes of their headers and payloads; `in` is from clients."""

    in_msgs: int = 0
    in_bytes: int = 0
    out_msgs: int = 0
    out_bytes: int = 0

    def add(self, session: Session) -> None:
        self.in_msgs += session.in_msgs
        self.in_bytes += session.in_bytes
        self.out_msgs += session.out_msgs
        self.out_bytes += session.out_bytes

    def plus(self, sessions: Iterable[Session]) -> Traffic:
        """Return this and what `sessions` have moved so far."""
        total = Traffic(self.in_msgs, self.in_bytes, self.out_msgs, self.out_bytes)
        for session in sessions:
            total.add(session)
        return total


class Watch:
    """A standing question about the interest in one literal subject."""

    __slots__ = ("_watches", "callback", "subject")

    def __init__(self, watches: SubjectIndex[Watch], subject: bytes, callback: Callable[[], None]) -> None:
        self._watches = watches
        self.subject = subject
        self.callback = callback

    def changed(self, sub: Subscription, change: int) -> None:
        """Handle that a subscription that takes the subject was added (1) or has ended (-1)."""
        self.callback()

    def cancel(self) -> None:
        """End the watch; no-op if already ended."""
        self._watches.remove(self.subject, self)


class SubscriberWatch(Watch):
    """Counts the subscriptions to exactly one subject: plain ones, or the members of one group."""

    __slots__ = ("_queue", "subscribers")

    def __init__(
        self, watches: SubjectIndex[Watch], subject: bytes, queue: bytes, callback: Callable[[], None], subscribers: int
    ) -> None:
        super().__init__(watches, subject, callback)
        self._queue = queue
        self.subscribers = subscribers

    def changed(self, sub: Subscription, change: int) -> None:
        if sub.queue == self._queue and sub.subject == self.subject:
            self.subscribers += change
            self.callback()


class Account:
    __slots__ = (
        "_acks",
        "_exact",
        "_rng",
        "_watches",
        "broker",
        "config",
        "gone",
        "imports",
        "listeners",
        "mappings",
        "name",
        "postponed",
        "routes",
        "sessions",
        "slow_consumers",
        "sources",
    )  # fmt: skip

    def __init__(self, broker: Broker, name: str, imports: Callable[[Account], AccountImports]) -> None:
        self.name = name
        self.config = AccountConfig(name)
        self.routes = Routes(broker.wide_routes)
        self.sessions: set[Session] = set()
        self.gone = Traffic()
        """Traffic of connections that have ended."""
        self.slow_consumers = 0
        self.broker = broker
        self._rng = broker.rng
        self._exact = self.routes.exact
        self._acks: list[Stored] = []
        self.postponed = PostponedMessages(self)
        self._watches: SubjectIndex[Watch] = SubjectIndex()
        self.listeners: list[LocalInterest] = []
        self.sources: list[Callable[[], Iterable[bytes]]] = []
        """Return the subjects that a wide handler is interested in at this moment."""
        self.mappings: Mappings | None = None
        self.imports = imports(self)

    def map_subject(self, mapping: SubjectMapping) -> None:
        """Send what clients publish on a mapping's source to its destination, unless the configuration maps it."""
        before, self.mappings = self.mapping_sources(), self.mappings or Mappings(self._rng)
        self.mappings.add(mapping)
        self._follow_mappings(before)

    def prepare_mappings(self, configured: Sequence[SubjectMap]) -> Steps[Mappings]:
        """Return the configuration's mappings, then the ones of `map_subject`, for `use_mappings`."""
        return (yield from Mappings.compile(configured, self._rng, self.mappings))

    def use_mappings(self, mappings: Mappings) -> None:
        before = self.mapping_sources()
        mappings.keep(self.mappings)
        self.mappings = mappings if mappings.sources() else None
        self._follow_mappings(before)

    def _follow_mappings(self, before: list[bytes]) -> None:
        for listener in self.listeners:
            listener.reoffered(before, self.mapping_sources())

    def mapped(self, subject: bytes) -> bytes:
        """Return the destination of a client's message on `subject`."""
        return self.mappings.apply(subject) if self.mappings is not None else subject

    def mapped_next(self, subject: bytes) -> bytes:
        """Return what `mapped` will return for the next message on `subject`."""
        if self.mappings is None:
            return subject
        destination = self.mappings.apply(subject)
        self.mappings.put_back(subject, destination)
        return destination

    def mapping_sources(self) -> list[bytes]:
        """Return the subjects that are mapped: messages on them have a destination."""
        return self.mappings.sources() if self.mappings is not None else []

    @property
    def subscriptions(self) -> int:
        """Number of subscriptions, handlers included."""
        return self.routes.subs.count

    def subscribe(
        self,
        subject: bytes,
        handler: Handler,
        queue: bytes = b"",
        run: PublishBatchHandler | None = None,
        take_all: DeliveryBatchHandler | None = None,
    ) -> Subscription:
        """Add a handler inside the server and return its subscription.

        `run` may take many messages of a publisher at once, `take_all` many deliveries.
        """
        sub = Subscription(self, subject, queue, handler=handler, run=run, take_all=take_all)
        self.insert(sub)
        return sub

    def unsubscribe(self, sub: Subscription) -> None:
        """End a subscription, also for a message being delivered; no-op if already ended."""
        sub.handler, sub.run, sub.take_all = not_mine, None, None
        guard, sub.guard = sub.guard, None
        if guard is not None:
            guard.handler = not_mine
        if self.routes.remove(guard or sub):
            self._call_watches(sub, -1)
            for listener in self.listeners:
                listener.unsubscribed(sub)
            if sub.import_proxies or self.imports.awaited:
                self.imports.on_unsubscribe(sub)

    def end_subscriptions(self, subs: dict[bytes, Subscription] | dict[int, Subscription]) -> None:
        """End subscriptions that their session or stream no longer has: at once, or in later turns if they are many."""
        broker, cost = self.broker, len(subs)
        if cost <= broker.removals_left:
            cost = sum(map(_removal_cost, subs.values()))
        if cost > broker.removals_left:
            if next(iter(subs.values())).session is None:
                for sub in subs.values():
                    sub.handler, sub.run, sub.take_all = not_mine, None, None
            self.routes.begin_leaving()
            broker.long_work.add(self._removing(subs), self)
            return
        broker.removals_left -= cost
        for sub in subs.values():
            self.unsubscribe(sub)

    def _removing(self, subs: dict[bytes, Subscription] | dict[int, Subscription]) -> Iterator[None]:
        while subs:
            cost = 0
            while subs and cost < SUBS_STEP:
                sub = subs.popitem()[1]
                cost += 1 + len(sub.subject) // LONG_SUBJECT_BYTES  # its imports have steps of their own
                self.unsubscribe(sub)
            yield
        self.routes.end_leaving()

    def insert(self, sub: Subscription) -> None:
        """Add a subscription made elsewhere; its subject is a valid pattern."""
        if (rest := self.begin_insert(sub)) is not None:
            self.broker.long_work.add(rest, self)

    def begin_insert(self, sub: Subscription) -> Iterator[int] | None:
        """Add a subscription; return the remaining steps if it matches many imports."""
        self.place(sub)
        return begun(self.imports.on_subscribe(sub))

    def place(self, sub: Subscription) -> None:
        """Add a subscription without the account's imports."""
        self.routes.insert(sub.guard or sub)
        self._call_watches(sub, 1)
        for listener in self.listeners:
            listener.subscribed(sub)

    def publish(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None = None
    ) -> int:
        """Deliver one message and return the number of recipients, of a message to very many at least 1.

        A postponed message counts as received.
        """
        if (
            origin is None
            and (self.routes.wide or self.postponed.any)
            and self.postponed.add_unless_routed(subject, subject, reply, header, payload)
        ):
            return 1
        route = self._exact.get(subject) or self.routes.find(subject)
        if route[0] or route[1] or len(route[2]) > DELIVERED_AT_ONCE:
            return self._deliver(route, subject, subject, reply, header, payload, origin)
        recipients = 0
        for sub in route[2]:
            if sub.handler(subject, reply, header, payload, origin) is not False:
                recipients += 1
        if recipients > 1 and origin is None:
            self.postponed.count(recipients)
        return recipients

    def run_recipient(self, subject: bytes, origin: Session, headed: bool) -> PublishBatchHandler | None:
        """Return the handler for runs of messages that `origin` publishes on `subject`, if it is the only recipient.

        Runs with headers (`headed`) are only for handlers. If nobody receives them, it answers that.
        """
        if self.mappings is not None and self.mappings.moves(subject):
            return None
        if self.routes.wide and not self.routes.is_known(subject):
            return None
        clients, queues, handlers = self._exact.get(subject) or self.routes.find(subject)
        if not (queues or clients or handlers):
            return None if self.routes.wide else partial(_drop_unreceived, origin)
        if queues or len(clients) + len(handlers) != 1 or (clients and headed):
            return None
        if handlers:
            return handlers[0].run
        session, sub, _ = clients[0]
        if session is None or session.close_reason is not None or sub.max or (session is origin and not session.echo):
            return None
        return partial(send_run, session, sub)

    def answer_no_responders(self, session: Session, subject: bytes, reply: bytes) -> None:
        """Send a 503 to a publisher, on its own reply subscription: its request to `subject` has no responders."""
        clients, _, handlers = self._exact.get(reply) or self.routes.find(reply)
        own: Iterable[Subscription]
        if len(session.subs) < len(clients) + len(handlers):
            own = (sub for sub in session.subs.values() if matches(sub.subject, reply))
        else:
            own = chain((sub for _, sub, _ in clients), (sub.client for sub in handlers if sub.client is not None))
        for sub in own:
            if sub.session is session and not sub.queue:
                self.deliver_to(sub, reply, b"", b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % subject, b"")
                return

    def shared_size(self, subject: bytes) -> tuple[int, bool]:
        """Return how much of a published subject decides its route, and whether any number of tokens may follow.

        Else it is any one token; 0: the whole subject decides.
        """
        if self.mappings is not None:
            return 0, False
        stem = self.routes.stem(subject)
        if stem:
            return len(stem), True
        return self.routes.shared_size(subject, self._exact.get(subject) or self.routes.find(subject)), False

    def deliver(
        self,
        to: bytes,
        subject: bytes,
        reply: bytes,
        header: bytes,
        payload: bytes,
        origin: Session | None = None,
        queues: Sequence[bytes] | None = None,
    ) -> int:
        """Deliver one message to the recipients of `to` with subject `subject`; return their number as `publish` does.

        `queues` are the queue groups that another server chose, None for every group.
        """
        if (
            origin is None
            and (self.routes.wide or self.postponed.any)
            and self.postponed.add_unless_routed(to, subject, reply, header, payload)
        ):
            return 1
        route = self._exact.get(to) or self.routes.find(to)
        if queues is not None and route[1]:
            route = route[0], groups_named(route[1], queues), route[2]
        return self._deliver(route, to, subject, reply, header, payload, origin)

    def deliver_now(self, to: bytes, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """Deliver a message that was postponed."""
        self._deliver(self._exact.get(to) or self.routes.find(to), to, subject, reply, header, payload, None)

    def send_all(self, to: bytes, messages: Sequence[Delivery]) -> int:
        """Deliver messages in order to the recipients of `to`, up to the first without recipients; return the number
        before it.

        The route is looked up once if it is one client's, as in JetStream deliveries.
        """
        if self._may_postpone(to):
            for message in messages:
                self.deliver(to, *message)
            return len(messages)
        clients, queues, handlers = self._exact.get(to) or self.routes.find(to)
        if len(clients) == 1 and not (queues or handlers or clients[0][1].max):
            session, sub, _ = clients[0]
            if session is not None:
                return send_all_to(session, sub, messages)
        if len(handlers) == 1 and not (clients or queues) and handlers[0].take_all is not None:
            handlers[0].take_all(messages)
            return len(messages)
        for done, message in enumerate(messages):
            if not self.deliver(to, *message):
                return done
        return len(messages)

    def _may_postpone(self, to: bytes) -> bool:
        """Return whether a message of the server for `to` may have to wait for its route."""
        return self.postponed.any or (self.routes.wide and not self.routes.is_known(to))

    def answer_all(self, answers: Sequence[Answer]) -> None:
        """Deliver answers in order; a run of them for one client goes out together."""
        if (self.routes.wide or self.postponed.any) and any(self._may_postpone(subject) for subject, _ in answers):
            for subject, payload in answers:
                self.publish(subject, b"", b"", payload)
            return
        exact, routes = self._exact, self.routes
        start, current, shared, size, before = 0, NO_ROUTE, b"", 0, b""
        for index, (subject, _) in enumerate(answers):
            if subject == before:
                continue  # as in parts of a publisher with one answer subject
            before = subject
            if size and subject[:size] == shared and len(subject) > size and subject.find(b".", size) < 0:
                continue  # only the last token differs: the route before does not depend on it
            route = exact.get(subject) or routes.find(subject)
            if route is not current:
                self._answer_run(current, answers[start:index])
                start, current = index, route
            size = routes.shared_size(subject, route)
            shared = subject[:size]
        self._answer_run(current, answers[start:] if start else answers)

    def ack(self, stored: Sequence[Entry | RunEntry], opening: bytes) -> None:
        """Send the ack of each stored message that has a reply, in order: `opening`, the sequence and a brace.

        While the broker gathers the acks of several streams they leave together.
        """
        self._acks.append((stored, opening))
        gathering = self.broker.gathering
        if gathering is None:
            self.send_acks()
        else:
            gathering[self] = None

    def send_acks(self) -> None:
        """Send the acks of `ack`; one look-up serves all replies in a row to the same inbox."""
        waiting, self._acks = self._acks, []
        routes, shared, size = self.routes, b"", 0
        sub: Subscription | None = None
        frames, body_bytes, count = list[bytes](), 0, 0
        number = index = offset = 0
        while number < len(waiting):
            stored, opening = waiting[number]
            if index >= len(stored):
                number, index = number + 1, 0
                continue
            entry = stored[index]
            if isinstance(entry[1], bytes):
                (seq, _, reply), last = entry, True
            else:
                _, run, seq = entry
                last = not run.has_replies or offset + 1 >= len(run)
                seq, reply = seq + offset, run.reply(offset) if run.has_replies else b""
            if reply:
                if not size or reply[:size] != shared or len(reply) == size or reply.find(b".", size) >= 0:
                    if sub is not None and sub.session is not None:
                        queue_answers(sub.session, sub, frames, body_bytes, count)
                        frames, body_bytes, count = [], 0, 0
                    if (routes.wide or self.postponed.any) and self._may_postpone(reply):
                        route, size = NO_ROUTE, 0
                    elif (exact := self._exact.get(reply)) is not None:
                        route, size = exact, routes.shared_size(reply, exact)
                    else:
                        route, size = routes.find_shared(reply)
                    shared, sub = reply[:size], _only_client(route)
                if sub is not None:
                    more, size_of_more, acks, number, index, offset = ack_frames(
                        waiting, number, index, offset, shared, sub.sid_field
                    )
                    frames.append(more)
                    body_bytes += size_of_more
                    count += acks
                    continue
                size = 0  # the one before may have ended a subscription
                self.publish(reply, b"", b"", b"%b%d}" % (opening, seq))
            offset += 1
            if last:
                index, offset = index + 1, 0
        if sub is not None and sub.session is not None:
            queue_answers(sub.session, sub, frames, body_bytes, count)

    def _answer_run(self, route: Route, answers: Sequence[Answer]) -> None:
        """Deliver answers that take the same route."""
        sub = _only_client(route)
        if sub is not None and sub.session is not None:
            answer_client(sub.session, sub, answers)
            return
        for subject, payload in answers:
            self.publish(subject, b"", b"", payload)  # the one before may have ended a subscription

    def unwritten_bytes(self, subject: bytes) -> int:
        """Return the pending output of the slowest client subscribed to `subject`, in bytes.

        If messages of the account wait for their routes, or the client is not known yet, it is their size; while one is
        delivered to very many, it is more than anybody may have.
        """
        if self.postponed.delivers_parts:
            return UNREADABLE_BYTES
        if self.postponed.any or (self.routes.wide and not self.postponed.finds(subject)):
            return self.postponed.bytes
        sub = _only_client(self._exact.get(subject) or self.routes.find(subject))
        if sub is not None and sub.session is not None:
            return sub.session.pending_bytes
        sessions = [sub.behind().session for sub in self.routes.subscriptions_of(subject)]
        return max((session.pending_bytes for session in sessions if session is not None), default=0)

    def recipients(self, subject: bytes) -> int:
        """Return how many clients, queue groups and handlers take a message on `subject`; 0 before a long walk."""
        if self.routes.wide and not self.routes.is_known(subject):
            return 0
        return sum(map(len, self._exact.get(subject) or self.routes.find(subject)))

    def deliver_to(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, *, checked: bool = False
    ) -> None:
        """Deliver one message to one client's subscription, if its permissions allow it or are `checked`."""
        if sub.guard is not None and not checked:
            sub.guard.handler(subject, reply, header, payload, None)
        else:
            self._deliver((((sub.session, sub, b""),), (), ()), subject, subject, reply, header, payload, None)

    def deliver_to_all(
        self, clients: Recipients, subject: bytes, reply: bytes, header: bytes, payload: bytes,
        origin: Session,
    ) -> None:  # fmt: skip
        """Deliver one message to the clients of its route."""
        self._deliver((clients, (), ()), subject, subject, reply, header, payload, origin)

    def has_interest(self, subject: bytes, queue: bytes | None = None) -> bool:
        """Return whether a message on `subject` has a receiver; with `queue`, whether that group has a member.

        A reply that a request from another account has here has the interest that its own one has there. If it takes
        long to find out, the answer is True until later turns have done that.
        """
        if subject[:4] == b"_R_.":
            listens = self.imports.listens(subject)
            if listens is not None:
                return listens
        if self.routes.wide and not self.postponed.finds(subject):
            return True
        clients, queues, handlers = self._exact.get(subject) or self.routes.find(subject)
        return bool(clients or queues or handlers) if queue is None else bool(groups_named(queues, (queue,)))

    def watch_interest(self, subject: bytes, callback: Callable[[], None]) -> Watch:
        """Call `callback` after each subscription that takes `subject` came or went; it asks `has_interest`."""
        watch = Watch(self._watches, subject, callback)
        self._watches.add(subject, watch)
        return watch

    def watch_subscribers(self, subject: bytes, queue: bytes, callback: Callable[[], None]) -> SubscriberWatch:
        """Call `callback` after each subscription to exactly `subject` came or went: plain, or in the group `queue`."""
        count = sum([sub.queue == queue for sub in self.routes.subs.owners_of(subject)])
        watch = SubscriberWatch(self._watches, subject, queue, callback, count)
        self._watches.add(subject, watch)
        return watch

    def _call_watches(self, sub: Subscription, change: int) -> None:
        """Call the watches of subjects that a subscription takes: it was added (1) or has ended (-1).

        Thousands of consumers may deliver to one subject: most are called in later turns.
        """
        if self._watches.count:
            rest = begun(_calling(self._watches.overlapping(sub.subject), sub, change))
            if rest is not None:
                self.broker.long_work.add(rest, self)
                self.broker.jobs.wake()

    def _deliver(
        self,
        route: Route,
        to: bytes,
        subject: bytes,
        reply: bytes,
        header: bytes,
        payload: bytes,
        origin: Session | None,
    ) -> int:
        """Deliver along the route of `to` to recipients that see `subject`."""
        clients, queues, handlers = route
        if is_large(route):
            parts = self.broker.hops.along(to, self._delivering(route, to, subject, reply, header, payload, origin))
            try:
                next(parts)
            except StopIteration as end:
                return DELIVERED_AT_ONCE if end.value else 0  # it may have taken as long: the route may be new
            (self.postponed if origin is None else origin).add_deliveries(self._ending(parts, to, reply, origin))
            return 1
        recipients = 0
        heads_fit = to == subject
        if queues:
            if len(queues) == len(queues[0]) == 1 and queues[0][0][0] is not None:
                clients = (*clients, *queues[0])  # one queue group with one member
            else:
                chosen, recipients = self._choose(queues, to, subject, reply, header, payload, origin)
                clients = (*clients, *chosen)
        if clients:
            size = len(payload)
            with_header = header_tail(reply, header, payload) if header else b""
            plain = b"" if header else plain_tail(reply, payload)
            for session, sub, head in clients:
                assert session is not None
                if session is origin and not session.echo:
                    continue
                recipients += 1
                if not (head and heads_fit):
                    head = b"MSG " + subject + sub.sid_field
                if with_header and session.headers:
                    head = b"H" + head
                    tail = with_header
                    session.out_bytes += size + len(header)
                else:
                    tail = plain = plain or plain_tail(reply, payload)
                    session.out_bytes += size
                out = session.out
                if not out:
                    self.broker.dirty.append(session)
                if size <= COPY_LIMIT:
                    out.append(head + tail)
                else:
                    out += (head + tail, payload, CRLF)
                    session.pending_bytes += size + len(CRLF)
                session.pending_bytes += len(head) + len(tail)
                session.out_msgs += 1
                sub.delivered += 1
                if sub.max and sub.delivered >= sub.max:
                    session.end_subscription(sub)
                if session.pending_bytes > session.max_pending:
                    session.cut_slow_consumer()
        for sub in handlers:
            if sub.take(to, subject, reply, header, payload, origin) is not False:
                recipients += 1
        if recipients > 1 and origin is None:
            self.postponed.count(recipients)
        return recipients

    def _delivering(
        self,
        route: Route,
        to: bytes,
        subject: bytes,
        reply: bytes,
        header: bytes,
        payload: bytes,
        origin: Session | None,
    ) -> Generator[None, None, int]:
        """Deliver along a route in parts; subscriptions that have ended meanwhile are left out."""
        recipients, version = 0, self.routes.version
        for number, part in enumerate(parts_of(route)):
            if number:
                yield
            groups = part[1]
            if groups and len(groups[0]) > DELIVERED_AT_ONCE:
                recipients += yield from self._offering(groups[0], to, subject, reply, header, payload, origin)
                continue
            if self.routes.version != version:
                part = without_ended(part)
            recipients += self._deliver(part, to, subject, reply, header, payload, origin)
        return recipients

    def _offering(
        self,
        members: Recipients,
        to: bytes,
        subject: bytes,
        reply: bytes,
        header: bytes,
        payload: bytes,
        origin: Session | None,
    ) -> Generator[None, None, int]:
        """Deliver to one member of a large group, in parts if many do not take the message; return to how many."""
        waiting, refused = in_turn(members, int(self._rng.random() * len(members))), False
        for number in range(0, len(members), DELIVERED_AT_ONCE):
            if number:
                yield
            some = islice(waiting, DELIVERED_AT_ONCE)
            recipient, refused = self._offer(some, members, refused, to, subject, reply, header, payload, origin)
            if recipient is not None and recipient[0] is None:
                return 1
            if recipient is not None:
                return self._deliver(((recipient,), (), ()), to, subject, reply, header, payload, origin)
        return 0

    def _ending(
        self, parts: Generator[None, None, int], to: bytes, reply: bytes, origin: Session | None
    ) -> Iterator[None]:
        """Deliver the remaining parts of a message; answer its sender if nobody takes it."""
        recipients = yield from parts
        if not recipients and reply and origin is not None and origin.no_responders and origin.account is self:
            self.answer_no_responders(origin, to, reply)

    def _choose(
        self,
        queues: Groups,
        to: bytes,
        subject: bytes,
        reply: bytes,
        header: bytes,
        payload: bytes,
        origin: Session | None,
    ) -> tuple[tuple[Recipient, ...], int]:
        """Return one client of each group, and how many groups were served by a handler instead."""
        chosen: list[Recipient] = []
        served = 0
        recipient: Recipient | None
        for members in queues:
            start = int(self._rng.random() * len(members)) if len(members) > 1 else 0
            first = recipient = members[start]
            session = first[0]
            if session is None or (session is origin and not session.echo):
                some = in_turn(members, start)
                recipient, _ = self._offer(some, members, False, to, subject, reply, header, payload, origin)
            if recipient is not None and recipient[0] is None:
                served += 1
            elif recipient is not None:
                chosen.append(recipient)
        return tuple(chosen), served

    def _offer(
        self,
        some: Iterable[Recipient],
        members: Recipients,
        refused: bool,
        to: bytes,
        subject: bytes,
        reply: bytes,
        header: bytes,
        payload: bytes,
        origin: Session | None,
    ) -> tuple[Recipient | None, bool]:
        """Offer a message to `some` members of a group until one takes it.

        Return the client to send it to, or the handler that has taken it, or None; and whether the members on other
        servers have `refused` it.
        """
        for recipient in some:
            session, sub, _ = recipient
            if session is not None:
                if (session is not origin or session.echo) and not sub.has_left():
                    return recipient, refused
            elif not (refused and sub.is_elsewhere):
                if sub.take_for(members, to, subject, reply, header, payload, origin) is not False:
                    return recipient, refused
                refused = refused or sub.is_elsewhere
        return None, refused


def _drop_unreceived(session: Session, subject: bytes, run: PublishRun) -> int | None:
    """Take a run that nobody receives, unless its requests have to be answered one by one."""
    return 0 if session.no_responders and run.has_replies else None


def _calling(watches: Iterable[Watch], sub: Subscription, change: int) -> Iterator[int]:
    for number, watch in enumerate(watches, 1):
        watch.changed(sub, change)
        if not number % SUBS_STEP:
            yield SUBS_STEP


def _removal_cost(sub: Subscription) -> int:
    return 1 + len(sub.import_proxies) + len(sub.subject) // LONG_SUBJECT_BYTES


def _only_client(route: Route) -> Subscription | None:
    """Return the subscription of the only recipient, if that is an open client's without a maximum."""
    clients, queues, handlers = route
    if len(clients) != 1 or queues or handlers:
        return None
    session, sub, _ = clients[0]
    return sub if session is not None and session.close_reason is None and not sub.max else None
