"""DIRECT.GET of one stream: stored messages as messages, without JSON around them.

Present only while `allow_direct` is set, so that a stream without it is met with the broker's 503. A mirror with
`mirror_direct` answers for its origin too, once it has nearly caught up; both are members of one queue group, so that a
request is answered once. An origin that is here and answers is preferred, because its mirror may lack the message that
a client has just had acknowledged. Source: docs/compatibility.md#direct-gets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.api.requests import DirectGetRequest
from natsctl.jetstream.api_level import is_refused
from natsctl.jetstream.endpoints import message_search as search
from natsctl.jetstream.endpoints.direct_batch import LastOfSubjects, Run
from natsctl.jetstream.endpoints.direct_message import NOT_FOUND, with_origin
from natsctl.store.errors import StoreError
from natsctl.store.steps import Steps

if TYPE_CHECKING:
    from natsctl.broker.session import Session
    from natsctl.broker.subscription import Handler, Subscription
    from natsctl.jetstream.stream_context import StreamContext

GROUP: Final = b"_sys_"
"""The queue group of everyone who can answer for a stream."""

CAUGHT_UP: Final = 10
"""A mirror that has fewer messages than this to copy answers for its origin. Source: nats-server."""

EMPTY_REQUEST: Final = headers.status_line(408, "Empty Request")
MALFORMED_REQUEST: Final = headers.status_line(408, "Malformed Request")
BAD_REQUEST: Final = headers.status_line(408, "Bad Request")
API_LEVEL: Final = headers.status_line(412, "Required Api Level")

_PREFIX: Final = b"$JS.API.DIRECT.GET."


class DirectGet:
    """Answers the direct gets of one stream."""

    __slots__ = ("_own", "_stream", "_theirs")

    def __init__(self, stream: StreamContext) -> None:
        self._stream = stream
        self._own: list[Subscription] = []
        self._theirs: list[Subscription] = []

    def configure(self) -> None:
        """Serve, or stop serving, by `allow_direct` and `mirror_direct`."""
        config = self._stream.config
        answered = bool(self._theirs)
        self.stop()
        if config.allow_direct:
            self._own = self._subscribe(config.name, self._on_request, self._on_subject)
        if answered:
            self.caught_up(0)

    def caught_up(self, pending: int) -> None:
        """Answer for the origin from now on, if the mirror lacks less than `CAUGHT_UP` of its messages."""
        config = self._stream.config
        if config.mirror is not None and config.mirror_direct and not self._theirs and pending < CAUGHT_UP:
            self._theirs = self._subscribe(config.mirror.name, self._on_their_request, self._on_their_subject)

    def stop(self) -> None:
        """Serve no more."""
        for subscription in (*self._own, *self._theirs):
            self._stream.account.unsubscribe(subscription)
        self._own, self._theirs = [], []

    def _subscribe(self, name: str, on_request: Handler, on_subject: Handler) -> list[Subscription]:
        prefix, subscribe = _PREFIX + name.encode(), self._stream.account.subscribe
        return [subscribe(prefix, on_request, GROUP), subscribe(prefix + b".>", on_subject, GROUP)]

    def _on_their_request(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool:
        """Serve `DIRECT.GET.<origin>`, unless the origin does."""
        if self._stands_aside():
            return False
        self._on_request(subject, reply, header, payload, origin)
        return True

    def _on_their_subject(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool:
        """Serve `DIRECT.GET.<origin>.<subject>`, unless the origin does."""
        if self._stands_aside():
            return False
        self._on_subject(subject, reply, header, payload, origin)
        return True

    def _stands_aside(self) -> bool:
        """Return whether the origin is a stream of this account that answers itself."""
        mirror = self._stream.config.mirror
        if mirror is None or mirror.external is not None:
            return False
        origin = self._stream.js.streams.get(mirror.name)
        return origin is not None and origin.config.allow_direct

    def _on_subject(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        """Serve `DIRECT.GET.<stream>.<subject>`: the last message of that subject."""
        if not reply:
            return
        if header and is_refused(header):
            self._send(reply, API_LEVEL)
            return
        request = search.read_request(payload) if payload else DirectGetRequest()
        if request is None:
            self._send(reply, MALFORMED_REQUEST)
        elif payload and search.says_more_than_headers(request):
            self._send(reply, BAD_REQUEST)
        else:
            request.last_by_subj = subject.split(b".", 5)[5].decode("utf-8", "surrogateescape")
            self._serve(reply, request)

    def _on_request(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        """Serve `DIRECT.GET.<stream>`, whose body selects the messages."""
        if not reply:
            return
        if header and is_refused(header):
            self._send(reply, API_LEVEL)
            return
        request = search.read_request(payload) if payload else None
        if not payload or (request is not None and search.selects_nothing(request)):
            self._send(reply, EMPTY_REQUEST)
        elif request is None:
            self._send(reply, MALFORMED_REQUEST)
        elif search.contradicts(request) or search.contradicts_in_batch(request):
            self._send(reply, BAD_REQUEST)
        else:
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
        """Answer a request that may match many subjects."""
        try:
            if request.multi_last:
                yield from LastOfSubjects(self._stream, reply, request).beginning()
            else:
                yield from self._stream.store.preparing(search.filters_of(request))
                Run(self._stream, reply, request).begin()
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
        block = b"" if request.no_hdr else with_origin(self._stream.name, message)
        self._stream.account.publish(reply, b"", block, message.payload)

    def _send(self, reply: bytes, block: bytes) -> None:
        self._stream.account.publish(reply, b"", block, b"")
