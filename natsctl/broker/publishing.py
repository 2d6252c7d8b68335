"""Publishing by clients beside the plain case: runs of messages on one route, and messages that ask for a trace.

A run is handed as a whole to subscribers that accept batches. A run that begins with a message with headers may have
messages with and without; only streams accept it.

Theory of operation of traces. A header `Nats-Trace-Dest` sends a client's publish here instead of to its account. The
route is walked subscriber by subscriber, so that each one leaves an event: clients (`eg`), streams (`js`), before them
the message itself (`in`) and the account's mapping (`sm`). With `Nats-Trace-Only` nothing is delivered. Messages to
other handlers, imports and leaf nodes among them, leave no event.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from natsctl.api import codec
from natsctl.api.subjects import is_literal, is_valid_subject
from natsctl.api.times import format_time
from natsctl.broker.refusals import refuse_publish
from natsctl.broker.routes import DOT
from natsctl.broker.subscription import DeliveryFilter
from natsctl.native import lib
from natsctl.wire.ops import PUB, RUN, Op

if TYPE_CHECKING:
    from natsctl.broker.routes import Recipient
    from natsctl.broker.session import Session
    from natsctl.broker.subscription import Subscription
    from natsctl.native._native import PublishRun


TRACE_DEST: Final = b"\r\nNats-Trace-Dest:"
"""Mark of a header that asks for a trace."""
DISABLED: Final = b"trace disabled"
"""The destination of messages that were traced before and are not to be traced again."""
CLIENT: Final = 0
"""Kind of connection in events."""
NO_ECHO: Final = "Not delivered because of no echo"
DENIED: Final = "Not delivered because subscription denies this subject"
MAX_EVENTS: Final = 10_000
"""Fields of the events of one message."""
_ONLY: Final = frozenset({b"1", b"true", b"on"})

Values: TypeAlias = "dict[bytes, list[bytes]]"


def publish_traced(subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> int:
    """Deliver one message of a client, publish its trace, and return the number of receivers."""
    assert origin is not None
    values = _values(header)
    dest = values.get(b"Nats-Trace-Dest", [b""])[0]
    if not dest or dest == DISABLED:
        return origin.publisher()(subject, reply, header, payload, origin)
    only = values.get(b"Nats-Trace-Only", [b""])[0].lower() in _ONLY
    if b"Nats-Trace-Origin-Account" in values or not (is_valid_subject(dest) and is_literal(dest)):
        return 1 if only else origin.publisher()(subject, reply, header, payload, origin)
    if origin.permit is not None and not origin.permit.may_publish(dest):
        refuse_publish(origin, dest)
        return 1
    trace = MessageTrace(origin, only)
    recipients = trace.deliver(subject, reply, header, payload)
    trace.report(dest, values, len(header) + len(payload))
    return recipients


class MessageTrace:
    """One message on its way."""

    __slots__ = ("_account", "_clock", "_events", "_message", "_only", "_origin")

    def __init__(self, origin: Session, only: bool) -> None:
        self._origin, self._account = origin, origin.account
        self._clock = origin.broker.clock
        self._only = only
        self._events: list[dict[str, Any]] = []
        self._message = (b"", b"", b"", b"")

    def deliver(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> int:
        """Deliver the message to its recipients, unless it is only to be traced, and return how many they are."""
        account, origin = self._account, self._origin
        self._note("in", {**_who(origin), "acc": account.name, "subj": _text(subject)})
        # Permissions were checked for this destination; weights may choose another one a second time.
        to = account.mapped(subject) if origin.permit is None else account.went_to(subject)
        if to != subject:
            self._note("sm", {"to": _text(to)})
        self._message = (to, reply, header, payload)
        clients, groups, handlers = account.routes.exact.get(to) or account.routes.find(to)
        recipients = sum([self._to_client(sub) for _, sub, _ in clients])
        recipients += sum([self._to_handler(sub) for sub in handlers])
        return recipients + sum([self._to_group(members) for members in groups])

    def report(self, dest: bytes, values: Values, size: int) -> None:
        """Publish what has been noted."""
        headers = {_text(key): [_text(value) for value in values[key]] for key in sorted(values)}
        event = {
            "server": self._origin.broker.server_info(),
            "request": {"header": headers, "msgsize": size},
            "events": self._events,
        }
        self._account.publish(dest, b"", b"", codec.encode(event))

    def _to_client(self, sub: Subscription) -> int:
        session = sub.session
        if session is self._origin and not session.echo:
            return self._leaves(sub, NO_ECHO)
        if not self._only:
            self._account.deliver_to(sub, *self._message)
        return self._leaves(sub)

    def _to_handler(self, sub: Subscription) -> int:
        if isinstance(sub, DeliveryFilter):
            return self._to_guarded(sub)
        if sub.stream:
            self._note("js", {"stream": sub.stream, "subject": _text(self._message[0])})
        subject, reply, header, payload = self._message
        if sub.stream:  # what is stored is not traced again when it is delivered
            header = header.replace(TRACE_DEST + _rest_of_line(header), TRACE_DEST + b" " + DISABLED)
        return int(self._only or sub.handler(subject, reply, header, payload, self._origin) is not False)

    def _to_guarded(self, guard: DeliveryFilter) -> int:
        client = guard.client
        if client is None or client.session is None or client.session.close_reason is not None:
            return 0
        if client.session is self._origin and not client.session.echo:
            return self._leaves(client, NO_ECHO)
        if guard.filters and not guard.permit.lets_through(self._message[0], guard.queue, guard.wider):
            return self._leaves(client, DENIED)
        if not self._only:
            guard.handler(*self._message, self._origin)
        return self._leaves(client)

    def _to_group(self, members: tuple[Recipient, ...]) -> int:
        start = int(self._origin.broker.rng.random() * len(members))
        for session, sub, _ in members[start:] + members[:start]:
            if self._to_client(sub) if session is not None else self._to_handler(sub):
                return 1
        return 0

    def _leaves(self, sub: Subscription, error: str = "") -> int:
        """Note that the message left for a client, or why not; return whether it did."""
        assert sub.session is not None
        queue = {"queue": _text(sub.queue)} if sub.queue else {}
        self._note(
            "eg", {**_who(sub.session), "sub": _text(sub.subject), **queue, **({"error": error} if error else {})}
        )
        return int(not error)

    def _note(self, kind: str, more: dict[str, Any]) -> None:
        if len(self._events) < MAX_EVENTS:
            self._events.append({"type": kind, "ts": format_time(self._clock.now_ns()), **more})


def _who(session: Session) -> dict[str, Any]:
    return {"kind": CLIENT, "cid": session.cid, **({"name": session.name} if session.name else {})}


def _values(header: bytes) -> Values:
    """Return the values of each key, those without either left out."""
    values: Values = {}
    for line in header.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key and (value := value.strip(b" \t")):
            values.setdefault(key, []).append(value)
    return values


def _rest_of_line(header: bytes) -> bytes:
    """Return the rest of the header line of the trace destination."""
    start = header.index(TRACE_DEST) + len(TRACE_DEST)
    return header[start : header.index(b"\r\n", start)]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


RESERVED_HEADS: Final = frozenset({b"_R_", b"_GR", b"$JS", b"$GR"})
"""First three bytes of reply prefixes that belong to the server: what the hot path looks at."""
RESERVED_FIRST: Final = frozenset(b"$_")
"""First byte of subjects that belong to the server, and of a few that do not."""
RUN_MIN: Final = 4
"""Publishes in a row on one route that are worth a look for a recipient of runs."""
SHORT_RUNS: Final = 4
"""Runs below that after which no more are looked for among what arrived together."""


def one_by_one(ops: list[Op]) -> list[Op]:
    """Return the same operations, each message one of its own."""
    if lib is None or RUN not in [op[0] for op in ops]:
        return ops
    found: list[Op] = []
    for op in ops:
        if op[0] == RUN:
            found += op[1].ops()
        else:
            found.append(op)
    return found


def publish_runs(session: Session, ops: list[Op]) -> list[Op]:
    """Deliver leading runs of messages on one route to recipients of runs, and return the remaining operations."""
    done = 0
    while done < len(ops) and ops[done][0] == RUN:
        rest = _publish_run(session, ops[done][1])
        done += 1
        if rest:
            return rest + one_by_one(ops[done:])
    ops = one_by_one(ops[done:] if done else ops)
    return _publish_op_runs(session, ops) if len(ops) >= RUN_MIN else ops


def _publish_run(session: Session, run: PublishRun) -> list[Op]:
    """Deliver a run part by part, each on one route; return the messages that no recipient of runs takes."""
    account, short, start, count = session.account, 0, 0, len(run)
    while start < count and short < SHORT_RUNS:
        subject = run.subject
        take = account.run_recipient(subject, session, False)
        if take is None:
            break
        size, longer = 0, False
        end = run.one_subject() if subject[:1] != b"$" else len(run)  # acks of one consumer take one route
        if end < min(RUN_MIN, count - start):
            short += 1
            size, longer = account.shared_size(subject)
            more = run.one_route(size, longer) if size else 0
            if more > end:
                subject, end = b"", more
        part = run if end == len(run) else run.part(0, end)
        session.in_msgs += end
        session.in_bytes += part.bytes
        take(subject, part)
        start += end
        if start < count:
            run = run.part(end, len(run))
    return run.ops() if start < count else []


def _publish_op_runs(session: Session, ops: list[Op]) -> list[Op]:
    """Do what `publish_runs` does with messages that are operations of their own."""
    start = short = 0
    while len(ops) - start >= RUN_MIN and ops[start][0] == PUB and short < SHORT_RUNS:
        subject = ops[start][1]
        if subject[0] in RESERVED_FIRST:
            break
        headed = ops[start][3] != b""
        take = session.account.run_recipient(subject, session, headed)
        if take is None:
            break
        end, size = _headed_run(ops, start, subject) if headed else _plain_run(ops, start, subject)
        if end - start < RUN_MIN:
            more = _one_route(session, ops, start, headed)
            if more > end:
                subject, end, size = b"", more, _bytes_of(ops[start:more])
            short += end - start < RUN_MIN
        if end == start:
            break
        session.in_msgs += end - start
        session.in_bytes += size
        take(subject, ops[start:end])
        start = end
    return ops[start:] if start else ops


def _plain_run(ops: list[Op], start: int, subject: bytes) -> tuple[int, int]:
    """Return where messages on `subject` without headers end, and their bytes."""
    end = start
    for op in islice(ops, start, None):
        if op[0] != PUB or op[1] != subject or op[3] or op[2][:3] in RESERVED_HEADS:
            break
        end += 1
    return end, _bytes_of(ops[start:end])


def _headed_run(ops: list[Op], start: int, subject: bytes) -> tuple[int, int]:
    """Return where messages on `subject` end, with headers or without, and their bytes."""
    end = start
    for op in islice(ops, start, None):
        if op[0] != PUB or op[1] != subject or not _passes(op[3], True) or op[2][:3] in RESERVED_HEADS:
            break
        end += 1
    return end, _bytes_of(ops[start:end])


def _bytes_of(ops: Sequence[Op]) -> int:
    """Return the bytes of messages, with their headers."""
    return sum([len(op[3]) + len(op[4]) for op in ops])


def _passes(header: bytes, headed: bool) -> bool:
    """Return whether a message with headers may be in a run: one that begins with such, and is not traced."""
    return headed and TRACE_DEST not in header


def _one_route(session: Session, ops: list[Op], start: int, headed: bool) -> int:
    """Return where messages end that surely take the route of the first one."""
    size, longer = session.account.shared_size(ops[start][1])
    if not size:
        return start
    shared, end = ops[start][1][:size], start
    for op in islice(ops, start, None):
        if op[0] != PUB or op[1][:size] != shared or op[2][:3] in RESERVED_HEADS:
            break
        if op[3] and not _passes(op[3], headed):
            break
        subject = op[1]
        if len(subject) == size or (
            subject.find(b".", size) >= 0 and not (longer and b".." not in subject and subject[-1] != DOT)
        ):
            break
        end += 1
    return end
