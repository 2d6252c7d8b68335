"""DIRECT.GET of one stream: stored messages as messages, without JSON around them.

Present only while `allow_direct` is set, so that a stream without it is met with the broker's 503. Source:
server_api.md part 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.api.codec import InvalidJSON, decode
from natsctl.api.requests import DirectGetRequest
from natsctl.api.times import format_time
from natsctl.jetstream import message_search as search
from natsctl.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from natsctl.broker.session import Session
    from natsctl.broker.subscription import Subscription
    from natsctl.jetstream.stream import Stream
    from natsctl.store.message import StoredMessage

MAX_SUBJECTS: Final = 1024
"""Subjects that one multi_last may match. Source: server_api.md part 5."""

NOT_FOUND: Final = headers.status_line(404, "Message Not Found")
NO_RESULTS: Final = headers.status_line(404, "No Results")
EMPTY_REQUEST: Final = headers.status_line(408, "Empty Request")
MALFORMED_REQUEST: Final = headers.status_line(408, "Malformed Request")
BAD_REQUEST: Final = headers.status_line(408, "Bad Request")
TOO_MANY: Final = headers.status_line(413, "Too Many Results")
API_LEVEL: Final = headers.status_line(412, "Required Api Level")


class DirectGet:
    """Answers the direct gets of one stream."""

    __slots__ = ("_prefix", "_stream", "_subscriptions")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._prefix = f"$JS.API.DIRECT.GET.{stream.name}".encode()
        self._subscriptions: list[Subscription] = []

    def configure(self) -> None:
        """Serve, or stop serving, as `allow_direct` says."""
        self.stop()
        if self._stream.config.allow_direct:
            subscribe = self._stream.account.subscribe
            self._subscriptions = [
                subscribe(self._prefix, self._on_request),
                subscribe(self._prefix + b".>", self._on_subject),
            ]

    def stop(self) -> None:
        """Serve no more."""
        for subscription in self._subscriptions:
            self._stream.account.unsubscribe(subscription)
        self._subscriptions = []

    def _on_subject(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        """Serve `DIRECT.GET.<stream>.<subject>`: the last message of that subject."""
        wanted = subject[len(self._prefix) + 1 :].decode("utf-8", "replace")
        self._serve(reply, header, payload or b"{}", wanted)

    def _on_request(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        """Serve `DIRECT.GET.<stream>`, whose body says what is wanted."""
        if not payload:
            self._send(reply, EMPTY_REQUEST)
            return
        self._serve(reply, header, payload, "")

    def _serve(self, reply: bytes, header: bytes, payload: bytes, subject: str) -> None:
        if not reply:
            return
        if header and headers.get(header, headers.REQUIRED_API_LEVEL) not in (None, b"0"):
            self._send(reply, API_LEVEL)
            return
        try:
            request = decode(payload, DirectGetRequest)
        except InvalidJSON:
            self._send(reply, MALFORMED_REQUEST)
            return
        if subject:
            if _selectors(request):
                self._send(reply, BAD_REQUEST)
                return
            request.last_by_subj = subject
        self._when_durable(lambda: self._answer(reply, request))

    def _when_durable(self, act: Callable[[], None]) -> None:
        """Act once what was published before can be seen."""
        store = self._stream.store
        if store.durable_seq >= store.last_seq or not store.healthy:
            act()
        else:
            store.on_durable(lambda fault: act())

    def _answer(self, reply: bytes, request: DirectGetRequest) -> None:
        try:
            if request.multi_last:
                self._answer_multi(reply, request)
            elif request.batch > 1:
                self._answer_batch(reply, request)
            else:
                self._answer_one(reply, request)
        except search.EmptyRequest:
            self._send(reply, EMPTY_REQUEST)
        except search.BadRequest:
            self._send(reply, BAD_REQUEST)
        except StoreError:
            self._send(reply, NOT_FOUND)

    def _answer_one(self, reply: bytes, request: DirectGetRequest) -> None:
        message = search.find(self._stream.store, request)
        if message is None:
            self._send(reply, NOT_FOUND)
        elif request.no_hdr:
            self._stream.account.publish(reply, b"", b"", message.payload)
        else:
            self._stream.account.publish(reply, b"", self._with_origin(message), message.payload)

    def _answer_batch(self, reply: bytes, request: DirectGetRequest) -> None:
        messages, left = search.batch(self._stream.store, request)
        if not messages:
            self._send(reply, NOT_FOUND)
            return
        last_seq = self._send_batch(reply, messages, left + len(messages), request.no_hdr)
        self._end(reply, left, last_seq, 0)

    def _answer_multi(self, reply: bytes, request: DirectGetRequest) -> None:
        seqs, up_to = search.multi_last(self._stream.store, request, MAX_SUBJECTS)
        if seqs is None:
            self._send(reply, TOO_MANY)
            return
        if not seqs:
            self._send(reply, NO_RESULTS)
            return
        messages = search.read(self._stream.store, seqs, request)
        left = len(seqs) - len(messages)
        last_seq = self._send_batch(reply, messages, len(seqs), no_hdr=False)
        self._end(reply, left, last_seq, up_to)

    def _send_batch(self, reply: bytes, messages: list[StoredMessage], total: int, no_hdr: bool) -> int:
        """Send messages with how many follow each, and return the last one's sequence."""
        last_seq = 0
        for index, message in enumerate(messages, 1):
            if no_hdr:
                block = b""
            else:
                counts = ((headers.NUM_PENDING, b"%d" % (total - index)), (headers.LAST_SEQUENCE, b"%d" % last_seq))
                block = headers.append(self._with_origin(message), counts)
            self._stream.account.publish(reply, b"", block, message.payload)
            last_seq = message.seq
        return last_seq

    def _end(self, reply: bytes, left: int, last_seq: int, up_to: int) -> None:
        pairs = [(headers.NUM_PENDING, b"%d" % left), (headers.LAST_SEQUENCE, b"%d" % last_seq)]
        if up_to:
            pairs.append((headers.UP_TO_SEQUENCE, b"%d" % up_to))
        self._send(reply, headers.status_line(204, "EOB", *pairs))

    def _with_origin(self, message: StoredMessage) -> bytes:
        """Return the message's own header lines, then where it comes from."""
        return b"%bNats-Stream: %b\r\nNats-Subject: %b\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %b\r\n\r\n" % (
            message.header[:-2] if message.header else b"NATS/1.0\r\n",
            self._stream.name.encode(),
            message.subject,
            message.seq,
            format_time(message.ts_ns).encode(),
        )

    def _send(self, reply: bytes, block: bytes) -> None:
        if reply:
            self._stream.account.publish(reply, b"", block, b"")


def _selectors(request: DirectGetRequest) -> bool:
    """Tell whether a request says more than `no_hdr`."""
    return request != DirectGetRequest(no_hdr=request.no_hdr)
