"""Messages that are traced: what asks for a trace, the way of the message, and the report of it.

Theory of operation. A header `Nats-Trace-Dest` names the subject of the report; without it, a sampled `traceparent`
asks for one on the destination that the account is configured with. Such a publish comes here instead of to its
account. The route is walked subscriber by subscriber, in parts if there are very many, so that each one leaves an
event: the message itself (`in`), the account's mapping (`sm`), clients and leaf nodes (`eg`), streams (`js`), and on
the way through imports the imports of streams (`se`) and of services (`si`); then the walk continues in the other
account if that is allowed. With `Nats-Trace-Only` nothing is delivered; a leaf node still gets the message, with the
number of its hop, and reports by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from heapq import merge
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from natsctl.api import codec, headers
from natsctl.api.subject_index import Steps, finish
from natsctl.api.subjects import is_literal, is_valid_subject
from natsctl.api.times import format_time
from natsctl.broker.imports.account_config import TRACE_PARENT
from natsctl.broker.refusals import quoted, refuse_publish
from natsctl.broker.routes import DELIVERED_AT_ONCE, groups_named, in_turn, is_large, parts_of, without_ended
from natsctl.broker.subscription import DeliveryFilter, Subscription

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.routes import Recipients, Route
    from natsctl.broker.session import Session


DEST: Final = b"Nats-Trace-Dest"
ONLY: Final = b"Nats-Trace-Only"
HOP: Final = b"Nats-Trace-Hop"
ORIGIN_ACCOUNT: Final = b"Nats-Trace-Origin-Account"
DISABLED: Final = b"trace disabled"
"""The destination of messages that were traced before or were not sampled, and are not to be traced again."""
NO_ECHO: Final = "Not delivered because of no echo"
DENIED: Final = "Not delivered because subscription denies this subject"
NOT_SUPPORTED: Final = (
    "Message delivered but remote does not support message tracing so no trace event generated from there"
)
ONLY_NOT_SUPPORTED: Final = "Not delivered because remote does not support message tracing"
MAX_EVENTS: Final = 10_000
"""Events of one message; further ones are left out."""
EVENTS_AT_ONCE: Final = 256
"""Events of a report that is published at once."""
SHORT_HEADER_BYTES: Final = 16 << 10
"""Longest header that is reported at once."""
LINES_STEP: Final = 1024
"""Lines of a header that one step reads or sorts: less than a millisecond."""
MAX_PARENTS: Final = 64
"""Headers `traceparent` of one message that are looked at."""
TIME_STEP_NS: Final = 100_000
"""Events within this time have the same time stamp."""
RESERVED: Final = (b"_GR_.", b"$GR.")
"""Prefixes of subjects between servers; no report goes to them."""
_VALUE: Final = rb":[ \t]*+(?!\r\n)(.*?)\r\n"
_VALUES: Final = {key: re.compile(rb"\r\n" + key + _VALUE, re.DOTALL) for key in (DEST, ONLY, HOP, ORIGIN_ACCOUNT)}
_PARENTS: Final = re.compile(rb"(?<=\r\n)" + TRACE_PARENT + _VALUE, re.DOTALL | re.IGNORECASE)
_YES: Final = frozenset({b"1", b"true", b"on"})

Values = dict[str, list[str]]
Message: TypeAlias = "tuple[bytes, bytes, bytes, bytes]"
"""Subject, reply, header and payload."""


def publish_traced(subject: bytes, to: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session) -> int:
    """Deliver one message of a client to the mapped subject `to`, publish its trace, and count the receivers."""
    begun, account = begin_trace(header, origin), origin.account
    if not isinstance(begun, MessageTrace):
        return 1 if begun is None else account.publish(to, reply, begun, payload, origin)
    begun.entered(subject)
    if to != subject:
        begun.mapped(to)
    recipients = begun.walk(account, to, (to, reply, header, payload))
    begun.report(header, payload)
    return recipients


def report_refusal(origin: Session, subject: bytes, to: bytes, header: bytes, payload: bytes, text: str) -> None:
    """Publish the trace of a message that its publisher was not allowed to send."""
    if not origin.account.config.asks_for_trace(header):
        return
    begun = begin_trace(header, origin)
    if isinstance(begun, MessageTrace):
        begun.entered(subject, text)
        if to != subject:
            begun.mapped(to)
        begun.report(header, payload)


def begin_trace(
    header: bytes, origin: Session, lets_in: Callable[[bytes], bool] | None = None
) -> MessageTrace | bytes | None:
    """Return the trace of a message, else the header to deliver it with, or None to drop it.

    A leaf node passes `lets_in`: whether it may publish on a subject here.
    """
    account = origin.account
    dest = _first_value(header, DEST)
    if dest == DISABLED:
        return header
    external = not dest
    if external:
        dest = account.config.trace_dest.encode()
        if not dest or not is_sampled_parent(header):
            return header
    only = not external and _first_value(header, ONLY).lower() in _YES
    if foreign := _first_value(header, ORIGIN_ACCOUNT):
        value = quoted(foreign)
        origin.notice(f'Message tracing disabled because of header "{ORIGIN_ACCOUNT.decode()}" with value={value}')
        return None if only else headers.replace(header, DEST, DISABLED)
    if external and lets_in is None and not _chosen(origin, account.config.trace_sampling):
        return headers.replace(header, DEST, DISABLED)
    if not (is_valid_subject(dest) and is_literal(dest)):
        origin.notice(f"Destination {quoted(dest)} is not valid, won't be able to trace events")
        return None if only else header
    if not _may_report(dest, origin, lets_in):
        refuse_publish(origin, dest)
        return None
    return MessageTrace(origin, dest, only, _first_value(header, HOP) if lets_in is not None else b"")


def _first_value(header: bytes, key: bytes) -> bytes:
    """Return the first value of a key that is not empty, b"" for none."""
    match = _VALUES[key].search(header)
    return match[1].rstrip(b" \t") if match is not None else b""


def header_values(header: bytes) -> Steps[Values]:
    """Return the values of each key in the order of the keys, those without either left out; there may be very many."""
    values: Values = {}
    for place, line in enumerate(header.split(b"\r\n")[1:], 1):
        key, _, value = line.partition(b":")
        if key and (value := value.strip(b" \t")):
            values.setdefault(_text(key), []).append(_text(value))
        if not place % LINES_STEP:
            yield LINES_STEP
    keys, runs, ordered = [*values], list[list[str]](), Values()
    for start in range(0, len(keys), LINES_STEP):
        runs.append(sorted(keys[start : start + LINES_STEP]))
        yield LINES_STEP
    for place, name in enumerate(merge(*runs), 1):
        ordered[name] = values[name]
        if not place % LINES_STEP:
            yield LINES_STEP
    return ordered


def is_sampled_parent(header: bytes) -> bool:
    """Return whether a `traceparent` says that its trace is recorded."""
    return any(_is_sampled(match[1].rstrip(b" \t")) for match in islice(_PARENTS.finditer(header), MAX_PARENTS))


def _is_sampled(value: bytes) -> bool:
    """Return whether the flags, the last of four fields, have the bit `sampled`; nats-server knows 7 bits of them."""
    fields = value.split(b"-")
    if len(fields) != 4 or len(fields[3]) != 2:
        return False
    try:
        flags = int(fields[3], 16)
    except ValueError:
        return False
    return 0 <= flags < 128 and bool(flags & 1)


def _chosen(origin: Session, sampling: int) -> bool:
    """Return whether one of `sampling` percent of messages is traced, by nats-server's comparison."""
    return not 0 < sampling < 100 or int(origin.broker.rng.random() * 100) <= sampling


def _may_report(dest: bytes, origin: Session, lets_in: Callable[[bytes], bool] | None) -> bool:
    """Return whether the publisher may publish to the destination of the report."""
    if dest.startswith(RESERVED):
        return False
    if dest.startswith(b"$NRG.") and origin.account is not origin.broker.system_account:
        return False
    if lets_in is not None:
        return lets_in(dest)
    return origin.permit is None or origin.permit.may_publish(dest)


class MessageTrace:
    def __init__(self, origin: Session, dest: bytes, only: bool, hop: bytes) -> None:
        """Begin the trace of a message of `origin`; its report goes to `dest`."""
        self.origin, self.only = origin, only
        self._account, self._dest, self._hop = origin.account, dest, hop
        self._hops = 0
        self._rest: list[Iterator[int]] = []
        """Deliveries that are still to be made."""
        self._events: list[dict[str, Any]] = []
        self._ts_ns, self._ts = 0, ""

    def entered(self, subject: bytes, error: str = "") -> None:
        """Record that the message came, or why it was refused."""
        event = {**_who(self.origin), "acc": self._account.name, "subj": _text(subject)}
        self._note("in", {**event, "error": error} if error else event)

    def mapped(self, to: bytes) -> None:
        """Record where the account's mapping sent the message."""
        self._note("sm", {"to": _text(to)})

    def walk(self, account: Account, to: bytes, message: Message, queues: Sequence[bytes] | None = None) -> int:
        """Deliver to the recipients of `to`, unless the message is only to be traced, and return how many they are.

        Of very many it is 1, and `report` delivers to the others. `queues` are the groups that another server chose,
        None for every group.
        """
        clients, groups, handlers = account.routes.exact.get(to) or account.routes.find(to)
        if queues is not None:
            groups = groups_named(groups, queues)
        staying = tuple([sub for sub in handlers if not sub.leaves])
        leaving = tuple([sub for sub in handlers if sub.leaves])  # after the groups: these choose the messages to carry
        ways: tuple[Route, ...] = (clients, (), staying), ((), groups, leaving)
        parts = account.broker.hops.along(to, self._walking(account, ways, message))
        if not is_large((clients, groups, handlers)):
            return sum(parts)
        next(parts)
        self._rest.append(parts)
        return 1

    def _walking(self, account: Account, ways: Sequence[Route], message: Message) -> Generator[int, None, None]:
        """Deliver along routes in parts, and yield the number of recipients of each."""
        version = account.routes.version
        for part in chain.from_iterable(parts_of(way) for way in ways):
            clients, groups, handlers = part if account.routes.version == version else without_ended(part)
            recipients = self._to_clients(account, clients, message) if clients else 0
            for members in groups:
                recipients += yield from self._to_group(members, message)
            yield recipients + sum([self.to_handler(sub, message) for sub in handlers])

    def _to_clients(self, account: Account, clients: Recipients, message: Message) -> int:
        """Deliver to clients of a route, all at once, and return to how many."""
        if not self.only:
            account.deliver_to_all(clients, *message, self.origin)
        deaf = self.origin if not self.origin.echo else None
        return sum([self._left_for(sub, NO_ECHO if session is deaf else "") for session, sub, _ in clients])

    def to_client(self, sub: Subscription, message: Message, shown: bytes = b"") -> int:
        """Deliver to one subscription of a client, and return whether it was; `shown` is its subject in the event."""
        session = sub.session
        if session is self.origin and not session.echo:
            return self._left_for(sub, NO_ECHO, shown)
        if not self.only:
            sub.account.deliver_to(sub, *message)
        return self._left_for(sub, shown=shown)

    def to_handler(self, sub: Subscription, message: Message) -> int:
        """Deliver to one handler, and return whether it took the message."""
        if isinstance(sub, DeliveryFilter):
            return self._to_guarded(sub, message)
        if sub.stream:
            return self._to_stream(sub, message)
        return int(sub.take_traced(self, message))

    def _to_stream(self, sub: Subscription, message: Message) -> int:
        event = self._note("js", {"stream": sub.stream, "subject": _text(message[0])})
        if self.only:
            return 1
        subject, reply, header, payload = message
        broker, header = self.origin.broker, headers.replace(header, DEST, DISABLED)  # not traced when it is delivered
        before, broker.storing = broker.storing, event
        try:
            return int(sub.handler(subject, reply, header, payload, self.origin) is not False)
        finally:
            broker.storing = before

    def _to_guarded(self, guard: DeliveryFilter, message: Message) -> int:
        client = guard.client
        if client is None or client.session is None or client.session.close_reason is not None:
            return 0
        if client.session is self.origin and not client.session.echo:
            return self._left_for(client, NO_ECHO)
        if guard.filters and not guard.permit.lets_through(message[0], guard.queue, guard.wider):
            return self._left_for(client, DENIED)
        if not self.only:
            guard.handler(*message, self.origin)
        return self._left_for(client)

    def _to_group(self, members: Recipients, message: Message) -> Generator[int, None, int]:
        """Deliver to one member of a group, in parts if many do not take the message; return to how many."""
        refused, start = False, int(self.origin.broker.rng.random() * len(members))
        for number, (session, sub, _) in enumerate(in_turn(members, start)):
            if number and not number % DELIVERED_AT_ONCE:
                yield 0
            if session is not None:
                taken = bool(self.to_client(sub, message))
            elif not sub.is_elsewhere:
                taken = bool(self.to_handler(sub, message))
            elif refused:
                continue
            else:
                taken = sub.take_for(members, message[0], *message, self.origin) is not False
                refused = True
            if taken:
                return 1
        return 0

    def _left_for(self, sub: Subscription, error: str = "", shown: bytes = b"") -> int:
        """Record that the message left for a client, or why not; return whether it did."""
        session = sub.session
        assert session is not None
        if len(self._events) < MAX_EVENTS:  # there may be as many clients
            event: dict[str, Any] = {"type": "eg", "ts": self._time(), "kind": session.event_kind, "cid": session.cid}
            if session.name:
                event["name"] = session.name
            if sub.account is not self._account:
                event["acc"] = sub.account.name
            event["sub"] = _text(shown or sub.subject)
            if sub.queue:
                event["queue"] = _text(sub.queue)
            if error:
                event["error"] = error
            self._events.append(event)
        return int(not error)

    def _elsewhere(self, account: Account) -> dict[str, str]:
        """Return the account of a recipient, if it differs from the publisher's."""
        return {"acc": account.name} if account is not self._account else {}

    def through_stream_import(self, proxy: Subscription, sub: Subscription, allowed: bool, message: Message) -> bool:
        """Deliver to another account's subscription, represented by `proxy`; traced if that is allowed."""
        self._note("se", {"acc": sub.account.name, "to": _text(message[0])})
        if self.only and not allowed:
            return True
        if sub.session is None:
            return bool(self.to_handler(sub, message) if allowed else sub.handler(*message, self.origin) is not False)
        if allowed:
            return bool(self.to_client(sub, message, proxy.subject))
        if sub.session is self.origin and not sub.session.echo:
            return False
        sub.account.deliver_to(sub, *message)
        return True

    def through_service_import(self, exporter: Account, allowed: bool, come: bytes, message: Message) -> int:
        """Deliver a request that came on the subject `come` in the exporting account, traced if allowed."""
        subject, reply, header, payload = message
        self._note("si", {"acc": exporter.name, "from": _text(come), "to": _text(subject)})
        if allowed:
            return self.walk(exporter, subject, message)
        if self.only:
            return 0
        header = headers.replace(header, DEST, DISABLED)
        return exporter.publish(subject, reply, header, payload, self.origin)

    def through_leaf(self, link: Session, traces: bool, header: bytes) -> bytes | None:
        """Return the header for forwarding the message to a leaf node, or None if it must not be forwarded.

        `traces` says whether the other side traces messages.
        """
        self._hops += 1
        hop = b"%b.%d" % (self._hop, self._hops) if self._hop else b"%d" % self._hops
        refused = self.only and not traces
        error = ONLY_NOT_SUPPORTED if refused else "" if traces else NOT_SUPPORTED
        event = {**_who(link), "hop": _text(hop), **self._elsewhere(link.account)}
        self._note("eg", {**event, "error": error} if error else event)
        return None if refused else headers.replace(header, HOP, hop)

    def report(self, header: bytes, payload: bytes) -> None:
        """Publish the record of the message, compressed as its header requests: later if it is long."""
        if self._rest:
            self.origin.add_deliveries(self._delivering(header, payload))
        else:
            self._report(header, payload)

    def _delivering(self, header: bytes, payload: bytes) -> Iterator[None]:
        """Deliver to the recipients that `walk` has left, and publish the record."""
        for parts in self._rest:  # others may be added meanwhile
            for _ in parts:
                yield
        self._report(header, payload)

    def _report(self, header: bytes, payload: bytes) -> None:
        reporting = self._reporting(header, payload)
        if len(self._events) > EVENTS_AT_ONCE or len(header) > SHORT_HEADER_BYTES:
            broker = self.origin.broker
            broker.long_work.add(reporting, self._account)
            broker.jobs.wake()
        else:
            finish(reporting)

    def _reporting(self, header: bytes, payload: bytes) -> Steps[None]:
        shown = yield from codec.encoding_items((yield from header_values(header)))
        event = {
            "server": self.origin.broker.server_info(),
            "request": {"header": codec.HOLE, "msgsize": len(header) + len(payload)},
            **({"hops": self._hops} if self._hops else {}),
            "events": codec.HOLE,
        }
        text = yield from codec.filling(event, shown, (yield from codec.encoding_items(self._events)))
        block, body = yield from headers.compressing(text, header)
        self._account.publish(self._dest, b"", block, body)

    def _note(self, kind: str, more: dict[str, Any]) -> dict[str, Any]:
        event = {"type": kind, "ts": self._time(), **more}
        if len(self._events) < MAX_EVENTS:
            self._events.append(event)
        return event

    def _time(self) -> str:
        now_ns = self.origin.broker.clock.now_ns()
        if not self._ts_ns <= now_ns < self._ts_ns + TIME_STEP_NS:
            self._ts_ns, self._ts = now_ns, format_time(now_ns)
        return self._ts


def _who(session: Session) -> dict[str, Any]:
    return {"kind": session.event_kind, "cid": session.cid, **({"name": session.name} if session.name else {})}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
