"""The dispatch of `$JS.API.…` requests to the functions that serve them, and of their answers.

Theory of operation. One subscription per account takes `$JS.API.>`, so an unknown verb is met with silence, as in
nats-server. Verbs that exist per object (CONSUMER.MSG.NEXT, DIRECT.GET) have subscriptions of their own; for those this
one declines, and a request for a missing object gets the broker's 503. Everything else: find the verb in the table of
`api.endpoints`, check the body by its rule, call the function, encode, send, count, publish the audit.

Verbs with long answers wait in a queue and are served one a turn, so that other clients do not wait for many of them. A
page of infos takes milliseconds to make and is hundreds of kilobytes long; hundreds of such requests in one chunk would
hold the loop for seconds, and their answers would gather unsent until their reader counts as slow.

An account without JetStream gets error 10039 for every verb. The system account has no streams of its own; from there
an operator removes the streams of another account (ACCOUNT.PURGE). Verbs about clusters are not answered.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from natsctl.api import endpoints
from natsctl.api.advisories import ApiLimitReached
from natsctl.api.answers import AccountPurgeAnswer, SystemAnswer, as_error
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import encode
from natsctl.api.endpoints import AdvisoryPolicy, BodyRule
from natsctl.api.errors import ErrCode
from natsctl.api.json_steps import SMALL_TEXT
from natsctl.api.subjects import API_PREFIX
from natsctl.api.times import format_time
from natsctl.jetstream.advisories import nuid
from natsctl.jetstream.api_level import is_refused
from natsctl.jetstream.endpoints import consumer_api, stream_api, templates
from natsctl.jetstream.endpoints.requests import (
    ApiRequest,
    EncodedAnswer,
    EndpointFunction,
    Outcome,
    PendingAnswer,
    RefusedRequestError,
    Uncounted,
    auditing,
    is_absent,
    is_structured,
    reading_plain,
    reading_request,
    refusal_for,
    require,
)
from natsctl.jetstream.streams.pending_message import storage_fault
from natsctl.store.errors import StoreError
from natsctl.store.steps import STEP, Steps, finish

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.session import Session
    from natsctl.jetstream.account import JetStreamAccount
    from natsctl.jetstream.engine import Engine
    from natsctl.jetstream.streams.stream import Stream


LONG_ANSWERS: Final = frozenset({"STREAM.LIST", "CONSUMER.LIST", "STREAM.BLOCKS"})
"""Verbs that answer with a page of infos, or a block of messages."""

MAX_WAITING: Final = 10_000
"""Requests of one account that may wait; with one more all are dropped, as by nats-server's queue."""

COST: Final = 256
"""Share of one request in a turn's budget of messages: the infos of a page."""

ARCHIVE_PARTS: Final = ("tarfile", "hashlib", "cramjam", "natsctl.api.archive.archive_v1")
"""The slow part of the imports of archives."""

_LIMIT_REACHED: Final = ApiLimitReached.SUBJECT.encode()


class ApiQueue:
    def __init__(self, engine: Engine, serve: Callable[[ApiRequest], None]) -> None:
        self._engine = engine
        self._serve = serve
        self._waiting: deque[ApiRequest] = deque()

    def put(self, request: ApiRequest) -> None:
        self._waiting.append(request)
        if len(self._waiting) < MAX_WAITING:
            self._engine.ready(self)
        else:
            self._drop()

    def _drop(self) -> None:
        engine, dropped = self._engine, len(self._waiting)
        self._waiting.clear()
        system = engine.broker.system_account
        if not system.has_interest(_LIMIT_REACHED):
            return
        event = ApiLimitReached(
            id=nuid(engine.rng),
            timestamp=format_time(engine.clock.now_ns()),
            server=engine.broker.server_name,
            domain=engine.options.domain,
            dropped=dropped,
        )
        system.publish(_LIMIT_REACHED, b"", b"", encode(event))

    def run(self, budget: int) -> int:
        """Serve the oldest request of a client that is still connected."""
        waiting = self._waiting
        while waiting:
            request = waiting.popleft()
            if request.origin is not None and request.origin.close_reason is not None:
                continue
            if waiting:
                self._engine.ready(self)
            self._serve(request)
            return COST
        return 0


def _with_archives(function: EndpointFunction) -> EndpointFunction:
    """Return an endpoint that imports archives in steps at the first request: all of them take 12 ms.

    They are a quarter of JetStream's imports and 4 MB, and most servers never need them.
    """

    def importing(js: JetStreamAccount, request: ApiRequest) -> Steps[Outcome]:
        for part in ARCHIVE_PARTS:
            import_module(part)
            yield STEP
        return function(js, request)

    def serve(js: JetStreamAccount, request: ApiRequest) -> Outcome:
        is_imported = ARCHIVE_PARTS[-1] in sys.modules
        return function(js, request) if is_imported else importing(js, request)

    return serve


@_with_archives
def _snapshot(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    from natsctl.jetstream.endpoints.snapshot import snapshot

    return snapshot(js, request)


@_with_archives
def _restore(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    from natsctl.jetstream.endpoints.restore import restore

    return restore(js, request)


HANDLERS: Final[dict[str, EndpointFunction]] = {
    **stream_api.HANDLERS,
    **templates.HANDLERS,
    **consumer_api.HANDLERS,
    "STREAM.SNAPSHOT": _snapshot,
    "STREAM.RESTORE": _restore,
}
"""Handlers by the names of `api.endpoints`."""


_EVERYTHING: Final = f"{API_PREFIX}.>".encode()
PER_OBJECT: Final = (b"$JS.API.CONSUMER.MSG.NEXT.", b"$JS.API.DIRECT.GET.")
"""Verbs that have a subscription for each object: a request for a missing one has no responder."""
_SILENT: Final = ("META.LEADER.STEPDOWN", "META.RESCUE", "SERVER.REMOVE", "SERVER.EVACUATE", "ACCOUNT.")
"""Verbs that only a cluster answers."""
_PURGE: Final = endpoints.ACCOUNT_PURGE


class RefusedApi:
    """The API of an account that has no JetStream: an error for every request."""

    def __init__(self, engine: Engine, account: Account) -> None:
        self._engine = engine
        self._account = account
        self._sub = account.subscribe(_EVERYTHING, self._on_request)

    def stop(self) -> None:
        self._account.unsubscribe(self._sub)

    def _on_request(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        if subject.startswith(PER_OBJECT):
            return False
        text = subject.decode("utf-8", "replace")
        found = endpoints.find(text)
        if found is None or found[0].answer is None or found[0] in (endpoints.CONSUMER_RESET, _PURGE):
            return True
        endpoint, tokens = found
        refusal = error(
            ErrCode.CLUSTER_REQUIRED
            if endpoint.cluster
            else ErrCode.REQUIRED_API_LEVEL
            if is_refused(header)
            else ErrCode.NOT_ENABLED_FOR_ACCOUNT
        )
        assert endpoint.answer is not None
        body = encode(as_error(endpoint.answer, refusal, endpoint.error_body))
        request = ApiRequest(endpoint, text, tokens, payload, reply, header, origin, lambda asked, answer: None)
        request.hop = self._engine.broker.hops.of(subject)
        if reply:
            self._account.publish(reply, b"", b"", body)
        finish(auditing(self._engine, self._account, request, body))
        return True


class SystemApi:
    def __init__(self, engine: Engine, account: Account) -> None:
        self._engine = engine
        self._account = account
        account.subscribe(_EVERYTHING, self._on_request)

    def _on_request(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        text = subject.decode("utf-8", "replace")
        verb = text.removeprefix(f"{API_PREFIX}.")
        found = endpoints.find(text)
        if found is not None and found[0] is _PURGE:
            request = ApiRequest(_PURGE, text, found[1], payload, reply, header, origin, self._complete)
            self._purge(request)
        elif not verb.startswith(_SILENT):
            kind = (endpoints.INFO.answer if verb == "INFO" else None) or SystemAnswer
            answer = as_error(kind, error(ErrCode.NOT_ENABLED_FOR_ACCOUNT), {})
            self._account.publish(reply, b"", b"", encode(answer))

    def _purge(self, request: ApiRequest) -> None:
        """Remove every stream of an account; the answer follows once they are deleted."""
        name = request.tokens[0]
        if "/" in name or "\\" in name:
            request.answer(error(ErrCode.STREAM_GENERAL_ERROR, err="account name can not contain path separators"))
            return
        try:
            leaving = self._engine.remove_streams(name)
        except StoreError as fault:
            request.answer(storage_fault(fault))
            return
        request.answer_when_all_durable(leaving, AccountPurgeAnswer(initiated=True))

    def _complete(self, request: ApiRequest, outcome: Outcome) -> None:
        assert not isinstance(outcome, EncodedAnswer | Uncounted | PendingAnswer | Generator)
        if isinstance(outcome, ApiError):
            body = encode(as_error(AccountPurgeAnswer, outcome, _PURGE.error_body))
        else:
            body = encode(outcome)
        if request.reply:
            self._account.publish(request.reply, b"", b"", body)
        finish(auditing(self._engine, self._account, request, body))


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

CONFIGURES: Final = frozenset({"STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.RESTORE"})
"""Verbs about one stream that change which subjects the account's streams have."""

LEGACY_STREAM_INFO: Final = "$JS.STREAM.INFO"
"""The 2020 spelling of `$JS.API.STREAM.INFO`."""


class Dispatcher:
    """The API of one account; `total` and `errors` count its answers."""

    def __init__(self, js: JetStreamAccount) -> None:
        self._js = js
        self._queue = ApiQueue(js.engine, self._serve)
        self.total = 0
        self.errors = 0
        self._subs = [
            js.account.subscribe(b"$JS.API.>", self._on_request),
            js.account.subscribe(LEGACY_STREAM_INFO.encode() + b".*", self._on_legacy_info),
        ]

    def stop(self) -> None:
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
        function = HANDLERS.get(endpoint.name)
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
        """Serve a request now, or after the account's long work, if its answer may depend on that."""
        if self._js.work.busy and (request.endpoint.name in CONFIGURES or self._stream_of(request) is None):
            self._js.work.hold_request(partial(self._serve_in_turn, request), True)
        else:
            self._serve_in_turn(request)

    def _serve_in_turn(self, request: ApiRequest) -> None:
        """Serve a request now, or after the long work of the stream that it names."""
        stream = self._stream_of(request)
        if stream is not None and stream.work.busy:
            stream.work.hold_request(partial(self._serve_now, request), request.endpoint.name in READS)
        else:
            self._serve_now(request)

    def _stream_of(self, request: ApiRequest) -> Stream | None:
        named = request.tokens and request.endpoint.name.startswith(("STREAM.", "CONSUMER."))
        return self._js.streams.get(request.tokens[0]) if named else None

    def _serve_now(self, request: ApiRequest) -> None:
        steps = self._serving(request)
        self.complete(request, steps if len(request.body) > SMALL_TEXT else finish(steps))

    def _serving(self, request: ApiRequest) -> Steps[Outcome]:
        function = HANDLERS.get(request.endpoint.name)
        try:
            yield from _checking(self._js, request)
            self._js.engine.settle_acks()
            return function(self._js, request) if function is not None else error(ErrCode.CLUSTER_REQUIRED)
        except (StoreError, RefusedRequestError) as fault:
            return refusal_for(fault)

    def _work(self, request: ApiRequest, steps: Steps[Outcome]) -> None:
        def guarded() -> Steps[Outcome]:
            try:
                return (yield from steps)
            except (StoreError, RefusedRequestError) as fault:
                return refusal_for(fault)

        stream = self._stream_of(request)
        work = stream.work if stream is not None else self._js.work
        work.begin(guarded(), partial(self.complete, request))

    def complete(self, request: ApiRequest, outcome: Outcome) -> None:
        """Send an answer, count it, and publish the audit advisory; nothing while the answer is pending."""
        if isinstance(outcome, Generator):
            self._work(request, outcome)
            return
        if isinstance(outcome, PendingAnswer):
            return
        endpoint = request.endpoint
        refusal = outcome.error if isinstance(outcome, Uncounted) else outcome
        if isinstance(refusal, ApiError):
            assert endpoint.answer is not None
            body = encode(as_error(endpoint.answer, refusal, endpoint.error_body))
        else:
            body = refusal.body if isinstance(refusal, EncodedAnswer) else encode(refusal)
        if request.reply:
            header = b"" if isinstance(refusal, ApiError) else request.answer_header
            self._js.account.publish(request.reply, b"", header, body)
        failed = isinstance(outcome, ApiError)
        if endpoint.advisory is AdvisoryPolicy.ALWAYS or (endpoint.advisory is AdvisoryPolicy.FAILED and failed):
            self.total += 1
            self.errors += failed
            advising = auditing(self._js.engine, self._js.account, request, body)
            if len(body) > SMALL_TEXT:
                self._js.work.begin(advising)
            else:
                finish(advising)


def _checking(js: JetStreamAccount, request: ApiRequest) -> Steps[None]:
    """Decode the body; raises RefusedRequestError if the request cannot be served."""
    endpoint = request.endpoint
    rule, body = endpoint.body, request.body
    if endpoint.cluster:
        require(error(ErrCode.CLUSTER_REQUIRED))
    if rule is BodyRule.RAW:
        return
    if request.header and is_refused(request.header):
        require(error(ErrCode.REQUIRED_API_LEVEL))
    if rule is BodyRule.EMPTY and not is_absent(body):
        require(error(ErrCode.NOT_EMPTY_REQUEST))
    if rule in (BodyRule.REQUIRED, BodyRule.LATE) and is_absent(body):
        require(error(ErrCode.BAD_REQUEST))
    if endpoint.request is None or rule in (BodyRule.EMPTY, BodyRule.LATE):
        return
    if rule is BodyRule.PLAIN:
        request.value = yield from reading_plain(body, endpoint.request)
    else:
        if not body.strip() or (rule is BodyRule.OPTIONAL and not is_structured(body)):
            body = b"{}"
        request.value = yield from reading_request(js, request, body, endpoint.request)
