"""Subscriptions, and messages as the bytes that their clients are sent.

A subscriber is a client's subscription, or a handler inside the server. If a client's permissions need a check on
delivery, a handler (`DeliveryFilter`) is in the routing table instead of the subscription. Only subscriptions that
need one have it: if they match more than may be delivered, and all of a session that may answer received messages.
Delivery to all others pays nothing. The delivery of one message to many subscribers is in account.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from natsctl.native import lib

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.auth.permissions import SessionPermissions
    from natsctl.broker.imports.account_imports import ImportProxy
    from natsctl.broker.message_trace import MessageTrace
    from natsctl.broker.routes import Recipients, Routes
    from natsctl.broker.session import Session
    from natsctl.wire.publish_run import PublishRun


Handler: TypeAlias = "Callable[[bytes, bytes, bytes, bytes, Session | None], bool | None]"
"""Called with (subject, reply, header, payload, origin); False means "not mine" and does not count as a recipient."""

PublishBatchHandler: TypeAlias = "Callable[[bytes, PublishRun], int | None]"
"""Called with a run and the subject of its messages, b"" if they are on several.

It takes every one of them, or returns how many it took: then each of the others is published by itself.
"""

DeliveryBatchHandler: TypeAlias = "Callable[[Sequence[Delivery]], None]"
"""Called with deliveries (subject, reply, header, payload) in order; it takes every one of them."""


def not_mine(subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> bool:
    """Refuse a message: the handler of a subscription that has ended."""
    return False


NO_PROXIES: Final[list[ImportProxy]] = []
"""The value for all subscriptions without proxies; nothing is added to it."""


class Subscription:
    """A subject pattern with its recipient: `session` for clients, `handler` inside the server."""

    __slots__ = (
        "account",
        "client",
        "delivered",
        "foreign",
        "guard",
        "handler",
        "import_proxies",
        "max",
        "queue",
        "run",
        "session",
        "sid",
        "sid_field",
        "stream",
        "subject",
        "take_all",
    )

    def __init__(
        self,
        account: Account,
        subject: bytes,
        queue: bytes = b"",
        *,
        handler: Handler = not_mine,
        run: PublishBatchHandler | None = None,
        take_all: DeliveryBatchHandler | None = None,
        session: Session | None = None,
        sid: bytes = b"",
    ) -> None:
        self.account = account
        self.subject = subject
        self.queue = queue
        self.handler = handler
        self.run = run
        self.take_all = take_all
        self.session = session
        self.sid = sid
        self.sid_field = b" " + sid + b" "
        self.delivered = 0
        self.max = 0
        """Deliveries after which the subscription ends, counted from its creation; 0: none."""
        self.client: Subscription | None = None
        """The client's subscription that this handler is the guard of."""
        self.guard: Subscription | None = None
        """The handler in the routing table instead of this one (`DeliveryFilter`)."""
        self.foreign = False
        """Whether it serves other accounts, so that it must not receive their exports."""
        self.stream = ""
        """The stream that captures the messages, if it is one."""
        self.import_proxies = NO_PROXIES
        """Handlers that take messages for this one in accounts that are imported from; they end with it."""

    def take(
        self, to: bytes, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        """Deliver a message to the handler, as that returns; it was sent to `to` and shows `subject`."""
        return self.handler(subject, reply, header, payload, origin)

    def take_for(
        self, members: Recipients, to: bytes, subject: bytes, reply: bytes, header: bytes, payload: bytes,
        origin: Session | None,
    ) -> bool | None:  # fmt: skip
        """Deliver a message as the one that was chosen of the `members` of a queue group, as `take` does."""
        return self.take(to, subject, reply, header, payload, origin)

    def has_left(self) -> bool:
        """Return whether its session has closed or let it go, or its handler has ended: it only waits for removal."""
        sub = self.behind()
        session = sub.session
        if session is None:
            return sub.handler is not_mine
        return session.close_reason is not None or session.subs.get(sub.sid) is not sub

    def behind(self) -> Subscription:
        """Return the final subscription of messages: the one that this represents, or itself."""
        return self.client or self

    def onward(self, to: bytes) -> Sequence[tuple[Routes, bytes]]:
        """Return the tables and subjects of the routes that a message to `to` needs after this handler has it."""
        return ()

    is_elsewhere: ClassVar[bool] = False
    """Whether the members that it represents are on another server."""
    leads_on: ClassVar[bool] = False
    """Whether it may deliver along other routes (`onward`)."""
    leaves: ClassVar[bool] = False
    """Whether it passes messages on to another server."""

    def take_traced(self, trace: MessageTrace, message: tuple[bytes, bytes, bytes, bytes]) -> bool:
        """Deliver a traced message (subject, reply, header, payload) to the handler; return whether it was taken."""
        return trace.only or self.handler(*message, trace.origin) is not False


class RoutedSubscription(Subscription):
    """Handler that needs the routed subject in addition to the shown one."""

    __slots__ = ()

    def __init__(self, account: Account, subject: bytes, queue: bytes = b"") -> None:
        super().__init__(account, subject, queue, handler=self._receive_plain)

    def receive(
        self, to: bytes, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        """Handle a message that was sent to `to` and shows `subject`; False means "not mine"."""
        raise NotImplementedError

    def _receive_plain(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        return self.receive(subject, subject, reply, header, payload, origin)

    def take(
        self, to: bytes, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        return False if self.handler is not_mine else self.receive(to, subject, reply, header, payload, origin)


class DeliveryFilter(Subscription):
    """Handler that replaces one subscription of a client: it checks and forwards each message."""

    __slots__ = ("filters", "permit", "wider")

    def __init__(self, client: Subscription, permit: SessionPermissions) -> None:
        super().__init__(client.account, client.subject, client.queue, handler=self._take)
        self.client = client
        self.permit = permit
        self.filters = permit.must_filter(client.subject, client.queue)
        self.wider = permit.is_wider(client.subject)

    def _take(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> bool:
        client = self.client
        session = client.session if client is not None else None
        if (
            client is None
            or session is None
            or session.close_reason is not None
            or (session is origin and not session.echo)
        ):
            return False
        if self.filters and not self.permit.lets_through(subject, self.queue, self.wider):
            return False
        client.account.deliver_to(client, subject, reply, header, payload, checked=True)
        if reply:
            self.permit.note_reply(reply)
        return True


def delivery_filter_of(sub: Subscription, permit: SessionPermissions | None) -> DeliveryFilter | None:
    """Return the filter for a client's subscription, None if it needs none."""
    if permit is None or (permit.replies is None and not permit.must_filter(sub.subject, sub.queue)):
        return None
    return DeliveryFilter(sub, permit)


Answer: TypeAlias = tuple[bytes, bytes]
"""Subject and payload of a message without reply and headers."""
Entry: TypeAlias = tuple[int, bytes, bytes]
"""(sequence, subject or b"" if no consumer takes it, reply) of a stored message."""
RunEntry: TypeAlias = "tuple[int, PublishRun, int]"
"""(last sequence, run, first sequence) of messages that were stored together."""
Stored: TypeAlias = "tuple[Sequence[Entry | RunEntry], bytes]"
"""(messages of a commit, their acks before the sequence)"""
Delivery: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""(subject, reply, header, payload)"""
COPY_LIMIT: Final = 4096
"""Bytes of payload above which it is a part of the output by itself, to save the copy."""
CRLF: Final = b"\r\n"
SIZE_LINES: Final = [b""] * (COPY_LIMIT + 1)
"""Ends of message heads, by size, that are looked up once they were formatted."""


def plain_tail(reply: bytes, payload: bytes) -> bytes:
    """Return the rest of MSG after the sid: reply, size and payload, if that is not a part by itself."""
    size = len(payload)
    if size > COPY_LIMIT:
        return b"%b %d\r\n" % (reply, size) if reply else b"%d\r\n" % size
    tail = (SIZE_LINES[size] or _size_line(size)) + payload + b"\r\n"
    return reply + b" " + tail if reply else tail


def _size_line(size: int) -> bytes:
    line = SIZE_LINES[size] = b"%d\r\n" % size
    return line


def header_tail(reply: bytes, header: bytes, payload: bytes) -> bytes:
    """Return the rest of HMSG after the sid: reply, sizes, header, and payload if that is not a part by itself."""
    size, body = len(header), len(payload)
    if body <= COPY_LIMIT:
        tail = b"%d %d\r\n%b%b\r\n" % (size, size + body, header, payload)
    else:
        tail = b"%d %d\r\n%b" % (size, size + body, header)
    return reply + b" " + tail if reply else tail


def answer_client(session: Session, sub: Subscription, answers: Sequence[Answer]) -> None:
    sid = sub.sid_field
    frames = b"".join([b"MSG %b%b%d\r\n%b\r\n" % (subject, sid, len(body), body) for subject, body in answers])
    queue_answers(session, sub, [frames], sum([len(body) for _, body in answers]), len(answers))


def queue_answers(session: Session, sub: Subscription, frames: list[bytes], body_bytes: int, count: int) -> None:
    """Queue `count` answers for one client, as the bytes that it is sent."""
    out = session.out
    if not out:
        session.broker.dirty.append(session)
    out += frames
    session.pending_bytes += sum(map(len, frames))
    session.out_bytes += body_bytes
    session.out_msgs += count
    sub.delivered += count
    if session.pending_bytes > session.max_pending:
        session.cut_slow_consumer()


def send_all_to(session: Session, sub: Subscription, messages: Sequence[Delivery]) -> int:
    """Queue deliveries for one client and return how many; one that does not read is cut off."""
    return _send(session, sub, messages, 0)


def send_run(session: Session, sub: Subscription, subject: bytes, run: PublishRun) -> None:
    """Queue a run of published messages without headers for one client."""
    if run.longest > COPY_LIMIT:
        _send(session, sub, run.ops(), 1)
    else:
        _queue(session, sub, *run.messages(sub.sid_field, session.max_pending - session.pending_bytes))


def _send(session: Session, sub: Subscription, messages: Sequence[Any], first: int) -> int:
    """Queue messages with a delivery's members from `first` on; return their number."""
    pieces = message_frames
    if lib is not None and max(map(_payload_size, messages), default=0) > COPY_LIMIT:
        pieces = _message_frames  # writes large payloads without a copy
    room = session.max_pending - session.pending_bytes
    frames, body, done = pieces(messages, first, sub.sid_field, session.headers, room)
    _queue(session, sub, frames, body, done)
    return done


def _queue(session: Session, sub: Subscription, frames: bytes | list[bytes], body: int, done: int) -> None:
    """Queue the bytes of messages for one client; one that does not read is cut off."""
    if not done:
        return  # output without a place in `dirty` would never be written
    out = session.out
    if not out:
        session.broker.dirty.append(session)
    if isinstance(frames, bytes):
        out.append(frames)
        session.pending_bytes += len(frames)
    else:
        out.extend(frames)
        session.pending_bytes += sum(map(len, frames))
    session.out_bytes += body
    session.out_msgs += done
    sub.delivered += done
    if session.pending_bytes > session.max_pending:
        session.cut_slow_consumer()


def _payload_size(message: tuple[Any, ...]) -> int:
    return len(message[-1])


def _message_frames(
    messages: Sequence[tuple[Any, ...]], first: int, sid: bytes, headers: bool, room: int
) -> tuple[list[bytes], int, int]:
    """Return the frames of messages up to the one that takes more than `room` bytes, their body bytes and number."""
    out, body, done = list[bytes](), 0, 0
    for message in messages:
        subject, reply, header, payload = message[first:] if first else message
        size = len(payload)
        if header and headers:
            frame = b"HMSG %b%b" % (subject, sid) + header_tail(reply, header, payload)
            body += len(header)
            if size > COPY_LIMIT:
                out += (frame, payload)
                room -= len(frame) + size
                frame = CRLF
        elif size <= COPY_LIMIT:
            if reply:
                frame = b"MSG %b%b%b %d\r\n%b\r\n" % (subject, sid, reply, size, payload)
            else:
                frame = b"MSG %b%b%d\r\n%b\r\n" % (subject, sid, size, payload)
        else:
            frame = b"MSG %b%b%b%d\r\n" % (subject, sid, reply and reply + b" ", size)
            out += (frame, payload)
            room -= len(frame) + size
            frame = CRLF
        out.append(frame)
        body += size
        room -= len(frame)
        done += 1
        if room < 0:
            break
    return out, body, done


def _ack_frames(
    commits: Sequence[Stored], number: int, index: int, offset: int, shared: bytes, sid_field: bytes
) -> tuple[bytes, int, int, int, int, int]:
    """Return as MSG the acks of stored messages with a reply, from message `offset` of entry `index` of a commit on.

    They end at a reply that is neither the first one nor `shared` and one more token. Returned with the bytes of their
    bodies, their count, and the place of the message with that reply.
    """
    frames, body_bytes, first, size = list[bytes](), 0, b"", len(shared)
    for at in range(number, len(commits)):
        stored, opening = commits[at]
        for place in range(index, len(stored)):
            entry = stored[place]
            messages = (entry,) if isinstance(entry[1], bytes) else entry[1].entries(entry[2])[offset:]
            for position, (seq, _, reply) in enumerate(messages, offset):
                if not reply:
                    continue
                if first and reply != first and not (size and _in_inbox(reply, shared, size)):
                    return b"".join(frames), body_bytes, len(frames), at, place, position
                first = first or reply
                body = b"%b%d}" % (opening, seq)
                frames.append(b"MSG %b%b%d\r\n%b\r\n" % (reply, sid_field, len(body), body))
                body_bytes += len(body)
            offset = 0
        index = 0
    return b"".join(frames), body_bytes, len(frames), max(number, len(commits)), 0, 0


def _in_inbox(reply: bytes, shared: bytes, size: int) -> bool:
    return reply[:size] == shared and len(reply) > size and reply.find(b".", size) < 0


ack_frames: Callable[..., tuple[bytes, int, int, int, int, int]] = _ack_frames if lib is None else lib.ack_frames
message_frames: Callable[..., tuple[bytes | list[bytes], int, int]] = (
    _message_frames if lib is None else lib.message_frames
)
