"""The dispatch of `$JS.API.…` requests to the functions that serve them, and of their answers.

Theory of operation. One subscription per account takes `$JS.API.>`, so an unknown verb is met with silence, like at
nats-server. Verbs that exist per object (CONSUMER.MSG.NEXT, DIRECT.GET) have subscriptions of their own; for those this
one declines, and a request for a missing object gets the broker's 503. Everything else: find the verb in the table of
`api.endpoints`, check the body by its rule, call the function, encode, send, count, publish the audit. Verbs with long
answers wait in a queue and are served one a turn.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Final

from natsctl.api import endpoints
from natsctl.api.answers import as_error
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import encode
from natsctl.api.endpoints import AdvisoryPolicy, BodyRule, Endpoint
from natsctl.api.err_codes import ErrCode
from natsctl.jetstream.api_level import is_refused
from natsctl.jetstream.endpoints import handlers
from natsctl.jetstream.endpoints.api_queue import LONG_ANSWERS, ApiQueue
from natsctl.jetstream.endpoints.audit import audit
from natsctl.jetstream.endpoints.refused_api import PER_OBJECT
from natsctl.jetstream.endpoints.requests import (
    ApiRequest,
    Outcome,
    Pending,
    Uncounted,
    is_absent,
    is_structured,
    read_body,
    storage_error,
)
from natsctl.store.errors import StoreError
from natsctl.store.steps import Steps, finish

if TYPE_CHECKING:
    from natsctl.broker.session import Session
    from natsctl.jetstream.account import JetStreamAccount
    from natsctl.jetstream.stream import Stream

READS: Final = frozenset(
    {
        "STREAM.INFO",
        "STREAM.MSG.GET",
        "STREAM.BLOCKS",
        "STREAM.SNAPSHOT",
        "CONSUMER.INFO",
        "CONSUMER.NAMES",
        "CONSUMER.LIST",
    }
)
"""Verbs about one stream that change nothing."""

LEGACY_STREAM_INFO: Final = "$JS.STREAM.INFO"
"""The 2020 spelling of `$JS.API.STREAM.INFO`."""


class Dispatcher:
    """The API of one account; `total` and `errors` count its answers."""

    __slots__ = ("_js", "_queue", "_subs", "errors", "total")

    def __init__(self, js: JetStreamAccount) -> None:
        """Subscribe to the account's API subjects."""
        self._js = js
        self._queue = ApiQueue(js.engine, self._serve)
        self.total = 0
        self.errors = 0
        self._subs = [
            js.account.subscribe(b"$JS.API.>", self._on_request),
            js.account.subscribe(LEGACY_STREAM_INFO.encode() + b".*", self._on_legacy_info),
        ]

    def stop(self) -> None:
        """Stop taking requests."""
        for sub in self._subs:
            self._js.account.unsubscribe(sub)

    def _on_legacy_info(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        name = subject.rpartition(b".")[2]
        return self._on_request(b"$JS.API.STREAM.INFO." + name, reply, header, payload, origin)

    def _on_request(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        if subject.startswith(PER_OBJECT):
            return False
        text = subject.decode("utf-8", "replace")
        found = endpoints.find(text)
        if found is None:
            return True
        endpoint, tokens = found
        function = handlers.HANDLERS.get(endpoint.name)
        if function is None and not endpoint.cluster:
            return True
        request = ApiRequest(endpoint, text, tokens, payload, reply, header, origin, self.complete)
        request.hop = self._js.engine.broker.hops.of(subject)
        if endpoint.name in LONG_ANSWERS:
            self._queue.put(request)
        else:
            self._serve(request)
        return True

    def _serve(self, request: ApiRequest) -> None:
        """Serve a request now, or after the long work of the stream that it names."""
        stream = self._stream_of(request)
        if stream is not None and stream.work.busy:
            stream.work.hold_request(partial(self._serve_now, request), request.endpoint.name in READS)
        else:
            self._serve_now(request)

    def _stream_of(self, request: ApiRequest) -> Stream | None:
        """Return the stream that a request names, None where it names none that is there."""
        named = request.tokens and request.endpoint.name.startswith(("STREAM.", "CONSUMER."))
        return self._js.streams.get(request.tokens[0]) if named else None

    def _serve_now(self, request: ApiRequest) -> None:
        function = handlers.HANDLERS.get(request.endpoint.name)
        self._js.engine.settle_acks()
        try:
            refused = _check(request)
            if refused is None and function is not None:
                outcome: Outcome = function(self._js, request)
            else:
                outcome = refused or error(ErrCode.CLUSTER_REQUIRED)
        except StoreError as fault:
            outcome = storage_error(fault)
        self.complete(request, outcome)

    def _work(self, request: ApiRequest, steps: Steps[Outcome]) -> None:
        """Serve a request in steps."""

        def guarded() -> Steps[Outcome]:
            try:
                return (yield from steps)
            except StoreError as fault:
                return storage_error(fault)

        stream = self._stream_of(request)
        if stream is None:
            self.complete(request, finish(guarded()))
        else:
            stream.work.begin(guarded(), partial(self.complete, request))

    def complete(self, request: ApiRequest, outcome: Outcome) -> None:
        """Send an answer, count it, and publish the audit advisory; nothing while the answer is pending."""
        if isinstance(outcome, Generator):
            self._work(request, outcome)
            return
        if isinstance(outcome, Pending):
            return
        endpoint = request.endpoint
        refusal = outcome.error if isinstance(outcome, Uncounted) else outcome
        if isinstance(refusal, ApiError):
            assert endpoint.answer is not None
            body = encode(as_error(endpoint.answer, refusal, endpoint.error_body))
        else:
            body = encode(refusal)
        if request.reply:
            header = b"" if isinstance(refusal, ApiError) else request.answer_header
            self._js.account.publish(request.reply, b"", header, body)
        failed = isinstance(outcome, ApiError)
        if endpoint.advisory is AdvisoryPolicy.ALWAYS or (endpoint.advisory is AdvisoryPolicy.FAILED and failed):
            self.total += 1
            self.errors += failed
            audit(self._js.engine, self._js.account, request, body)


def _check(request: ApiRequest) -> ApiError | None:
    """Return why the request cannot be served, or None with its body decoded."""
    endpoint = request.endpoint
    if endpoint.cluster:
        return error(ErrCode.CLUSTER_REQUIRED)
    if endpoint.body is BodyRule.RAW:
        return None
    if request.header and is_refused(request.header):
        return error(ErrCode.REQUIRED_API_LEVEL)
    return _decode(endpoint, request)


def _decode(endpoint: Endpoint, request: ApiRequest) -> ApiError | None:
    rule, body = endpoint.body, request.body
    if rule is BodyRule.EMPTY:
        return None if is_absent(body) else error(ErrCode.NOT_EMPTY_REQUEST)
    if rule in (BodyRule.REQUIRED, BodyRule.LATE) and is_absent(body):
        return error(ErrCode.BAD_REQUEST)
    if endpoint.request is None or rule is BodyRule.LATE:
        return None
    plain = rule is BodyRule.PLAIN
    if not plain and (not body.strip() or (rule is BodyRule.OPTIONAL and not is_structured(body))):
        body = b"{}"
    request.value = read_body(body, endpoint.request, plain=plain)
    return request.value if isinstance(request.value, ApiError) else None
