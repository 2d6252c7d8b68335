"""DIRECT.GET of one stream: stored messages sent as messages, without JSON around them.

The endpoint is subscribed only while `allow_direct` is set; otherwise the broker answers with 503. A mirror with
`mirror_direct` answers for its origin too, once it has nearly caught up; both are members of one queue group, so that a
request is answered once. An origin in the same account that answers is preferred, because its mirror may lack a message
that was just acknowledged to the client. Source: docs/compatibility.md#direct-gets.

Theory of operation of answers with several messages (a range, or the last one of many subjects): they are sent in as
many turns of the engine's ready queue as needed, so that a large answer neither blocks the event loop nor is in memory
as a whole. Pending messages are counted once, before the first message, and counted down from there, as in
nats-server; a message that is removed meanwhile is skipped. The messages of one turn go to the requester in one call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.api.requests import DirectGetRequest
from natsctl.api.times import format_time
from natsctl.jetstream.api_level import is_refused
from natsctl.jetstream.endpoints import message_search as search
from natsctl.store.errors import StoreError
from natsctl.store.filters import Filters
from natsctl.store.steps import Steps

if TYPE_CHECKING:
    from natsctl.broker.session import Session
    from natsctl.broker.subscription import Delivery, Handler, Subscription
    from natsctl.jetstream.streams.stream import Stream
    from natsctl.store.message import StoredMessage


NOT_FOUND: Final = headers.status_line(404, "Message Not Found")


def single_header(stream: str, message: StoredMessage) -> bytes:
    return b"%b%b\r\n" % (message.header[:-2] or b"NATS/1.0\r\n", _origin(stream, message))


def batch_header(stream: str, message: StoredMessage, pending: int, last_seq: int) -> bytes:
    """Return the header block of a message in a batch, with `pending` after it; `last_seq` went before (0: none)."""
    batch = b"Nats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n" % (pending, last_seq)
    return b"%b%b%b\r\n" % (message.header[:-2] or b"NATS/1.0\r\n", _origin(stream, message), batch)


def end_of_batch(pending: int, last_seq: int, up_to: int | None = None) -> bytes:
    """Return the status that ends a batch: the pending messages, the last sequence sent, and the last one searched."""
    pairs = [(headers.NUM_PENDING, b"%d" % pending), (headers.LAST_SEQUENCE, b"%d" % last_seq)]
    if up_to is not None:
        pairs.append((headers.UP_TO_SEQUENCE, b"%d" % up_to))
    return headers.status_line(204, "EOB", *pairs)


def _origin(stream: str, message: StoredMessage) -> bytes:
    return b"Nats-Stream: %b\r\nNats-Subject: %b\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %b\r\n" % (
        stream.encode(),
        message.subject,
        message.seq,
        format_time(message.ts_ns).encode(),
    )


MAX_SUBJECTS: Final = 1024
"""Subjects that one multi_last may match. Source: docs/compatibility.md#direct-gets."""

MAX_TURN_MESSAGES: Final = 256
"""Messages of a batch that one turn reads; each may take a read of the disk."""

NO_RESULTS: Final = headers.status_line(404, "No Results")
TOO_MANY: Final = headers.status_line(413, "Too Many Results")


class _Batch:
    def __init__(self, stream: Stream, reply: bytes, request: DirectGetRequest) -> None:
        self._stream = stream
        self._reply = reply
        self._request = request
        self._max_bytes = request.max_bytes or stream.engine.broker.options.max_pending
        self._pending = self._last_seq = self._sent = self._sent_bytes = 0
        self._ready: list[Delivery] = []

    def run(self, budget: int) -> int:
        """Send up to `budget` messages and return the work done: their number, at least 1."""
        if self._stream.work.defers(self):
            return 0
        before = self._sent
        try:
            done = self._add_some(budget)
        except StoreError:
            self._send(NOT_FOUND)
            done = True
        ready, self._ready = self._ready, []
        self._stream.account.send_all(self._reply, ready)
        if not done:
            self._stream.engine.ready(self)
        return max(self._sent - before, 1)

    def _add_some(self, budget: int) -> bool:
        """Add up to `budget` messages to this turn and return whether the batch is complete. Raises StoreError."""
        raise NotImplementedError

    def _add_message(self, message: StoredMessage) -> bool:
        """Add one message to this turn and return whether `max_bytes` leaves room for more."""
        bare = self._request.no_hdr and not self._request.multi_last
        block = b"" if bare else batch_header(self._stream.name, message, self._pending, self._last_seq)
        self._ready.append((self._reply, b"", block, message.payload))
        self._last_seq = message.seq
        self._sent += 1
        self._sent_bytes += len(message.subject) + len(message.header) + len(message.payload)
        return self._sent_bytes < self._max_bytes

    def _send(self, block: bytes) -> None:
        self._ready.append((self._reply, b"", block, b""))


class RangeBatch(_Batch):
    """Messages from a sequence on, in order (`batch`)."""

    def __init__(self, stream: Stream, reply: bytes, request: DirectGetRequest) -> None:
        super().__init__(stream, reply, request)
        self._filters = search.filters_of(request)
        self._at = search.start_of(stream.store, request)
        self._seen_up_to = stream.store.durable_seq

    def begin(self) -> None:
        """Count the pending messages and start to send. Raises StoreError."""
        store = self._stream.store
        self._pending = store.count(self._filters, self._at, store.durable_seq)
        self._stream.engine.ready(self)

    def _add_some(self, budget: int) -> bool:
        left = self._request.batch - self._sent
        if left <= 0:
            return self._end()
        messages = self._stream.store.read_from(self._at, self._filters, min(budget, left, MAX_TURN_MESSAGES))
        if not messages and not self._sent:
            self._send(NOT_FOUND)
            return True
        for message in messages:
            self._at = message.seq + 1
            if not self._request.no_hdr:
                self._pending = max(self._pending - 1, 0)
            if not self._add_message(message):
                return self._end()
        return self._end() if not messages or self._sent == self._request.batch else False

    def _end(self) -> bool:
        store = self._stream.store
        if store.durable_seq > self._seen_up_to:
            self._pending = store.count(self._filters, self._at, store.durable_seq)
        self._send(end_of_batch(self._pending, self._last_seq))
        return True


class LastBatch(_Batch):
    """Newest message of each subject that `multi_last` matches."""

    def __init__(self, stream: Stream, reply: bytes, request: DirectGetRequest) -> None:
        super().__init__(stream, reply, request)
        self._seqs: list[int] = []
        self._up_to = search.last_searched(stream.store, request)

    def beginning(self) -> Steps[None]:
        """Find the sequences and start to send. Raises StoreError."""
        filters = yield from Filters.compiling(self._request.multi_last)
        yield from self._stream.store.preparing(filters)
        self._stream.work.shut()
        found = yield from search.finding_last_of_subjects(self._stream.store, filters, self._up_to, MAX_SUBJECTS)
        if found is None:
            self._stream.account.publish(self._reply, b"", TOO_MANY, b"")
        elif not found:
            self._stream.account.publish(self._reply, b"", NO_RESULTS, b"")
        else:
            self._seqs = [seq for seq in reversed(found) if seq >= self._request.seq]
            self._pending = len(self._seqs)
            self._stream.engine.ready(self)

    def _add_some(self, budget: int) -> bool:
        for _ in range(budget):
            if not self._seqs:
                return self._end()
            message = self._stream.store.get(self._seqs.pop())
            self._pending = len(self._seqs)
            if message is None:
                continue
            if not self._add_message(message) or self._sent == self._request.batch:
                return self._end()
        return False

    def _end(self) -> bool:
        self._send(end_of_batch(self._pending, self._last_seq, self._up_to))
        return True


GROUP: Final = b"_sys_"
"""Queue group of a stream and its mirrors; one member answers. Source: nats-server."""

CAUGHT_UP: Final = 10
"""A mirror that has fewer messages than this to copy answers for its origin. Source: nats-server."""

EMPTY_REQUEST: Final = headers.status_line(408, "Empty Request")
MALFORMED_REQUEST: Final = headers.status_line(408, "Malformed Request")
BAD_REQUEST: Final = headers.status_line(408, "Bad Request")
API_LEVEL: Final = headers.status_line(412, "Required Api Level")

_PREFIX: Final = b"$JS.API.DIRECT.GET."


class DirectGet:
    """Direct gets of one stream, for itself and for the origin that it mirrors."""

    __slots__ = ("_for_origin", "_own", "_stream")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._own: list[Subscription] = []
        self._for_origin: list[Subscription] = []

    def configure(self) -> None:
        """Start or stop to answer, as `allow_direct` and `mirror_direct` require."""
        config = self._stream.config
        answered = bool(self._for_origin)
        self.stop()
        if config.allow_direct:
            self._own = self._subscribe(config.name, self._on_request)
        if answered:
            self.caught_up(0)

    def caught_up(self, pending: int) -> None:
        """Answer for the origin from now on, if the mirror lacks less than `CAUGHT_UP` of its messages."""
        config = self._stream.config
        if config.mirror is not None and config.mirror_direct and not self._for_origin and pending < CAUGHT_UP:
            self._for_origin = self._subscribe(config.mirror.name, self._on_origin_request)

    def stop(self) -> None:
        for subscription in (*self._own, *self._for_origin):
            self._stream.account.unsubscribe(subscription)
        self._own, self._for_origin = [], []

    def _subscribe(self, name: str, handler: Handler) -> list[Subscription]:
        prefix, subscribe = _PREFIX + name.encode(), self._stream.account.subscribe
        return [subscribe(subject, handler, GROUP) for subject in (prefix, prefix + b".>")]

    def _on_origin_request(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool:
        """Serve a direct get of the origin, unless the origin does."""
        if self._defers_to_origin():
            return False
        self._on_request(subject, reply, header, payload, origin)
        return True

    def _defers_to_origin(self) -> bool:
        """Return whether the origin is a stream of this account that answers itself."""
        mirror = self._stream.config.mirror
        if mirror is None or mirror.external is not None:
            return False
        origin = self._stream.js.streams.get(mirror.name)
        return origin is not None and origin.config.allow_direct

    def _on_request(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        """Serve `DIRECT.GET.<stream>`, by the body, or `DIRECT.GET.<stream>.<subject>`: its last message."""
        if not reply:
            return
        if header and is_refused(header):
            self._send(reply, API_LEVEL)
            return
        request = search.read_request(payload) if payload else DirectGetRequest()
        named = subject.split(b".", 5)[5:]
        if request is None:
            self._send(reply, MALFORMED_REQUEST)
        elif not named and search.selects_nothing(request):
            self._send(reply, EMPTY_REQUEST)
        elif (
            search.has_selectors(request)
            if named
            else (search.contradicts(request) or search.contradicts_in_batch(request))
        ):
            self._send(reply, BAD_REQUEST)
        else:
            if named:
                request.last_by_subj = named[0].decode("utf-8", "surrogateescape")
            self._serve(reply, request)

    def _serve(self, reply: bytes, request: DirectGetRequest) -> None:
        """Answer once every message received before can be read."""
        stream, patterns = self._stream, search.patterns_of(request)
        if stream.work.closed:
            stream.work.hold(self._serve, reply, request)
        elif patterns and not (request.multi_last or request.batch):
            stream.work.begin(stream.store.preparing(patterns), lambda done: self._answer_when_settled(reply, request))
        else:
            self._answer_when_settled(reply, request)

    def _answer_when_settled(self, reply: bytes, request: DirectGetRequest) -> None:
        store = self._stream.store
        newest = search.newest(store, request) if request.last_by_subj else 0
        if store.unsettled:
            store.on_settled(lambda fault: self._answer(reply, request, newest))
        else:
            self._answer(reply, request, newest)

    def _answer(self, reply: bytes, request: DirectGetRequest, newest: int) -> None:
        work = self._stream.work
        if work.closed:
            work.hold(self._answer, reply, request, newest)
        elif request.multi_last or request.batch:
            work.begin(self._answering(reply, request))
        else:
            self._answer_one(reply, request, newest)

    def _answering(self, reply: bytes, request: DirectGetRequest) -> Steps[None]:
        try:
            if request.multi_last:
                yield from LastBatch(self._stream, reply, request).beginning()
            else:
                yield from self._stream.store.preparing(search.filters_of(request))
                RangeBatch(self._stream, reply, request).begin()
        except StoreError:
            self._send(reply, NOT_FOUND)

    def _answer_one(self, reply: bytes, request: DirectGetRequest, newest: int) -> None:
        try:
            message = search.find(self._stream.store, request, newest)
        except StoreError:
            message = None
        if message is None:
            self._send(reply, NOT_FOUND)
            return
        block = b"" if request.no_hdr else single_header(self._stream.name, message)
        self._stream.account.publish(reply, b"", block, message.payload)

    def _send(self, reply: bytes, block: bytes) -> None:
        self._stream.account.publish(reply, b"", block, b"")
