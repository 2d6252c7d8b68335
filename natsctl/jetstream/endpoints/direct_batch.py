"""The answers of DIRECT.GET that are many messages: a run of them, or the last ones of many subjects.

Theory of operation. A batch is sent over as many turns of the engine's ready queue as it needs, so that a large one
neither holds the loop nor stands in memory as a whole. What is pending is counted once, before the first message, and
counted down from there, as in nats-server; a message that vanishes meanwhile is passed over. What one turn sends goes
to the requester in one call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.jetstream.endpoints import message_search as search
from natsctl.jetstream.endpoints.direct_message import NOT_FOUND, end_of_batch, with_place
from natsctl.store.errors import StoreError
from natsctl.store.steps import Steps

if TYPE_CHECKING:
    from natsctl.api.requests import DirectGetRequest
    from natsctl.broker.delivery import Delivery
    from natsctl.jetstream.stream_context import StreamContext
    from natsctl.store.message import StoredMessage

MAX_SUBJECTS: Final = 1024
"""Subjects that one multi_last may match. Source: docs/compatibility.md#direct-gets."""

RUN_MOST: Final = 256
"""Messages of a batch that one turn reads: each may lie in another place."""

NO_RESULTS: Final = headers.status_line(404, "No Results")
TOO_MANY: Final = headers.status_line(413, "Too Many Results")


class _Batch:
    """The common part of both answers: the messages sent so far, and the limits."""

    __slots__ = (
        "_last_seq", "_most_bytes", "_pending", "_ready", "_reply", "_request", "_sent", "_sent_bytes", "_stream",
    )  # fmt: skip

    def __init__(self, stream: StreamContext, reply: bytes, request: DirectGetRequest) -> None:
        self._stream = stream
        self._reply = reply
        self._request = request
        self._most_bytes = request.max_bytes or stream.engine.broker.options.max_pending
        self._pending = self._last_seq = self._sent = self._sent_bytes = 0
        self._ready: list[Delivery] = []

    def run(self, budget: int) -> int:
        """Send up to `budget` messages and return how many went."""
        if self._stream.work.defers(self):
            return 0
        before = self._sent
        try:
            done = self._send_some(budget)
        except StoreError:
            self._send(NOT_FOUND)
            done = True
        ready, self._ready = self._ready, []
        self._stream.account.send_all(self._reply, ready)
        if not done:
            self._stream.engine.ready(self)
        return max(self._sent - before, 1)

    def _send_some(self, budget: int) -> bool:
        """Send up to `budget` messages and return whether that was the end. Raises StoreError."""
        raise AssertionError("each batch says what it sends")

    def _send_message(self, message: StoredMessage) -> bool:
        """Add one message to those of this turn and return whether there is room for more."""
        bare = self._request.no_hdr and not self._request.multi_last
        block = b"" if bare else with_place(self._stream.name, message, self._pending, self._last_seq)
        self._ready.append((self._reply, b"", block, message.payload))
        self._last_seq = message.seq
        self._sent += 1
        self._sent_bytes += len(message.subject) + len(message.header) + len(message.payload)
        return self._sent_bytes < self._most_bytes

    def _send(self, block: bytes) -> None:
        self._ready.append((self._reply, b"", block, b""))


class Run(_Batch):
    """The messages of a batch get, in order of their sequences."""

    __slots__ = ("_at", "_filters", "_seen_up_to")

    def __init__(self, stream: StreamContext, reply: bytes, request: DirectGetRequest) -> None:
        super().__init__(stream, reply, request)
        self._filters = search.filters_of(request)
        self._at = search.start_of(stream.store, request)
        self._seen_up_to = stream.store.durable_seq

    def begin(self) -> None:
        """Count the pending messages and send. Raises StoreError."""
        store = self._stream.store
        self._pending = store.count(self._filters, self._at, store.durable_seq)
        self._stream.engine.ready(self)

    def _send_some(self, budget: int) -> bool:
        left = self._request.batch - self._sent
        if left <= 0:
            return self._end()
        messages = self._stream.store.read_from(self._at, self._filters, min(budget, left, RUN_MOST))
        if not messages and not self._sent:
            self._send(NOT_FOUND)
            return True
        for message in messages:
            self._at = message.seq + 1
            if not self._request.no_hdr:
                self._pending = max(self._pending - 1, 0)
            if not self._send_message(message):
                return self._end()
        return self._end() if not messages or self._sent == self._request.batch else False

    def _end(self) -> bool:
        store = self._stream.store
        if store.durable_seq > self._seen_up_to:
            self._pending = store.count(self._filters, self._at, store.durable_seq)
        self._send(end_of_batch(self._pending, self._last_seq))
        return True


class LastOfSubjects(_Batch):
    """The newest message of each subject that multi_last matches."""

    __slots__ = ("_seqs", "_up_to")

    def __init__(self, stream: StreamContext, reply: bytes, request: DirectGetRequest) -> None:
        super().__init__(stream, reply, request)
        self._seqs: list[int] = []
        self._up_to = search.ceiling_of(stream.store, request)

    def beginning(self) -> Steps[None]:
        """Find the sequences and send. Raises StoreError."""
        yield from self._stream.store.preparing(search.patterns(*self._request.multi_last))
        found = search.last_of_subjects(self._stream.store, self._request, self._up_to, MAX_SUBJECTS + 1)
        if len(found) > MAX_SUBJECTS:
            self._stream.account.publish(self._reply, b"", TOO_MANY, b"")
        elif not found:
            self._stream.account.publish(self._reply, b"", NO_RESULTS, b"")
        else:
            self._seqs = [seq for seq in reversed(found) if seq >= self._request.seq]
            self._pending = len(self._seqs)
            self._stream.engine.ready(self)

    def _send_some(self, budget: int) -> bool:
        for _ in range(budget):
            if not self._seqs:
                return self._end()
            message = self._stream.store.get(self._seqs.pop())
            self._pending = len(self._seqs)
            if message is None:
                continue
            if not self._send_message(message) or self._sent == self._request.batch:
                return self._end()
        return False

    def _end(self) -> bool:
        self._send(end_of_batch(self._pending, self._last_seq, self._up_to))
        return True
