"""One API call on its way through an endpoint: the request, its client, its answer, and its audit advisory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from msgspec.structs import replace

from natsctl.api.advisories import ApiAudit, ClientInfo
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import (
    BYTES_PER_COST,
    HOLE,
    InvalidJSONError,
    decoding,
    encode,
    encoding_text,
    filling,
)
from natsctl.api.endpoints import ApiEndpoint
from natsctl.api.errors import ErrCode
from natsctl.api.model import Model
from natsctl.api.times import format_time
from natsctl.broker.info import requester_info
from natsctl.jetstream.advisories import nuid
from natsctl.jetstream.streams.pending_message import storage_fault
from natsctl.jetstream.streams.stream import Stream
from natsctl.store.errors import StoreError
from natsctl.store.stream import RecordsCallback, StreamStore

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.broker import Broker
    from natsctl.broker.imports.account_imports import ImportHop
    from natsctl.broker.session import Session
    from natsctl.jetstream.account import JetStreamAccount
    from natsctl.jetstream.consumers.consumer import Consumer
    from natsctl.jetstream.engine import Engine
    from natsctl.jetstream.engine_options import DurableChange
    from natsctl.store.steps import Steps


T = TypeVar("T", bound=Model)


class PendingAnswer:
    """The result of an endpoint that answers later, or never."""


PENDING: Final = PendingAnswer()


class Uncounted(NamedTuple):
    """An error answer that nats-server counts among the good ones."""

    error: ApiError


class EncodedAnswer(NamedTuple):
    """An answer that was encoded in steps, because it may be tens of megabytes long."""

    body: bytes


class RefusedRequestError(Exception):
    def __init__(self, refusal: ApiError) -> None:
        super().__init__(refusal.description)
        self.refusal = refusal


def require(refusal: ApiError | None) -> None:
    """Raise RefusedRequestError if a check has refused the request."""
    if refusal is not None:
        raise RefusedRequestError(refusal)


def refusal_for(fault: StoreError | RefusedRequestError) -> ApiError:
    return fault.refusal if isinstance(fault, RefusedRequestError) else storage_fault(fault)


Outcome: TypeAlias = "Model | EncodedAnswer | ApiError | Uncounted | PendingAnswer | Steps[Outcome]"
"""Steps come from an endpoint with possibly long work (`jetstream.work`)."""
EndpointFunction: TypeAlias = "Callable[[JetStreamAccount, ApiRequest], Outcome]"
Completion: TypeAlias = "Callable[[ApiRequest, Outcome], None]"


class ApiRequest:
    """One call: `tokens` follow the verb in the subject, `value` is the decoded body where the table names its type."""

    __slots__ = (
        "_complete", "answer_header", "body", "endpoint", "header", "hop", "origin", "reply", "subject", "tokens",
        "value",
    )  # fmt: skip

    def __init__(
        self,
        endpoint: ApiEndpoint,
        subject: str,
        tokens: list[str],
        body: bytes,
        reply: bytes,
        header: bytes,
        origin: Session | None,
        complete: Completion,
    ) -> None:
        self.endpoint = endpoint
        self.subject = subject
        self.tokens = tokens
        self.body = body
        self.reply = reply
        self.header = header
        self.origin = origin
        self.value: Any = None
        self.answer_header = b""
        self.hop: ImportHop | None = None
        """The import chain of a request from another account."""
        self._complete = complete

    def decoded(self, wanted: type[T]) -> T:
        assert isinstance(self.value, wanted), self.value
        return self.value

    def answer(self, outcome: Model | ApiError | Uncounted) -> None:
        self._complete(self, outcome)

    def answer_when_durable(
        self,
        store: DurableChange,
        answer: Model,
        failed: Callable[[], None] | None = None,
        done: Callable[[], None] | None = None,
    ) -> PendingAnswer:
        """Call `done` and send `answer` once everything but messages that `store` has buffered is durable.

        Else call `failed` and answer the error.
        """

        def settled(fault: StoreError | None) -> None:
            if fault is None:
                if done is not None:
                    done()
                self.answer(answer)
                return
            if failed is not None:
                failed()
            self.answer(storage_fault(fault))

        store.on_durable(RecordsCallback(settled))
        return PENDING

    def answer_when_all_durable(self, settling: Sequence[DurableChange], answer: Model) -> PendingAnswer:
        """Send `answer` once all of them have settled, else the error of the first that could not."""
        if not settling:
            self.answer(answer)
            return PENDING
        left = len(settling)
        first: StoreError | None = None

        def settled(fault: StoreError | None) -> None:
            nonlocal left, first
            left -= 1
            first = first or fault
            if not left:
                self.answer(answer if first is None else storage_fault(first))

        for one in settling:
            one.on_durable(RecordsCallback(settled))
        return PENDING

    def when_settled(self, stores: Iterable[StreamStore], look: Callable[[bool], Outcome]) -> Outcome:
        """Return the result of `look`, or send it once every message received before can be read.

        So a client that published without waiting for the ack reads its messages, and none that may be lost are read.
        `look` is given whether the stores have kept those messages. It is called once, however much arrives meanwhile.
        """
        waiting = [store for store in stores if store.unsettled]
        if not waiting:
            return look(True)
        left, kept = len(waiting), True

        def settled(fault: StoreError | None) -> None:
            nonlocal left, kept
            left -= 1
            kept = kept and fault is None
            if left:
                return
            try:
                outcome = look(kept)
            except (StoreError, RefusedRequestError) as damage:
                outcome = refusal_for(damage)
            self._complete(self, outcome)

        for store in waiting:
            store.on_settled(settled)
        return PENDING


def settled(function: EndpointFunction) -> EndpointFunction:
    """Return an endpoint that looks at a stream once every message received before the request can be read."""

    def when_settled(js: JetStreamAccount, request: ApiRequest) -> Outcome:
        stream = js.streams.get(request.tokens[0])
        if stream is None or not stream.store.unsettled:
            return function(js, request)
        return request.when_settled([stream.store], lambda kept: _in_turn(function, js, request))

    return when_settled


def find_stream(js: JetStreamAccount, name: str) -> Stream:
    """Return a stream; raises RefusedRequestError if it is missing or not served."""
    stream = js.streams.get(name)
    if stream is None:
        raise RefusedRequestError(js.no_stream(name))
    return stream


def _in_turn(function: EndpointFunction, js: JetStreamAccount, request: ApiRequest) -> Steps[Outcome]:
    """Serve a request after the long work that its stream has begun meanwhile."""
    yield 0
    return function(js, request)


def reading_plain(body: bytes, wanted: type[T]) -> Steps[T]:
    """Return the model that a body holds as one value; raises RefusedRequestError."""
    try:
        return (yield from decoding(body, wanted, plain=True))
    except InvalidJSONError as fault:
        raise _unreadable(fault) from fault


def _unreadable(fault: InvalidJSONError) -> RefusedRequestError:
    return RefusedRequestError(error(ErrCode.INVALID_JSON, err=fault.text))


def reading_request(js: JetStreamAccount, request: ApiRequest, body: bytes, wanted: type[T]) -> Steps[T]:
    """Return the model of a request's `body`; raises RefusedRequestError. Faults are logged.

    Where the server is not strict, unknown fields are ignored. Source: nats-server, unmarshalRequest.
    """
    try:
        return (yield from decoding(body, wanted))
    except InvalidJSONError as fault:
        where = f"Invalid JetStream request '{js.account.name} > {request.subject}'"
        js.engine.request_faults.log(f"{where}: {fault.text}")
        if js.engine.options.strict:
            raise _unreadable(fault) from fault
    return (yield from reading_plain(body, wanted))


INFO_COST: Final = 4


def encoding_page(answer: Model, key: str, page: Sequence[Stream | Consumer]) -> Steps[EncodedAnswer]:
    """Return an answer with the infos of a page in the list `key`, encoded one by one: each may have a megabyte."""
    infos: list[bytes] = []
    for each in page:
        raw = encode((yield from each.describing()))
        infos += (b"," if infos else b"[", raw)
        yield INFO_COST + len(raw) // BYTES_PER_COST
    if infos:
        setattr(answer, key, HOLE)
        return EncodedAnswer((yield from filling(answer, [*infos, b"]"])))
    return EncodedAnswer(encode(answer))


def is_absent(body: bytes) -> bool:
    """Return whether a request body is empty, blank, or an object without keys."""
    text = body.strip()
    return not text or text == b"{}" or (text[:1] == b"{" and not text[1:-1].strip() and text[-1:] == b"}")


def is_structured(body: bytes) -> bool:
    return body.lstrip()[:1] in (b"{", b"[")


def client_info(broker: Broker, account: Account, request: ApiRequest) -> ClientInfo:
    """Return the client that sent a request in `account`; without one, the server itself.

    For a client of another account it is what that account shares, with the requested account as the service.
    """
    hop = request.hop
    if hop is None or hop.info is None:
        return replace(requester_info(broker.server_name, account.name, request.origin, detailed=True), jwt="")
    return replace(hop.info, svc=account.name, jwt="", server=hop.info.server or broker.server_name)


_SUBJECT: Final = ApiAudit.SUBJECT.encode()


def auditing(engine: Engine, account: Account, request: ApiRequest, response: bytes) -> Steps[None]:
    """Publish the audit advisory of one request in its account, if it has a subscriber."""
    if not account.has_interest(_SUBJECT):
        return
    event = ApiAudit(
        id=nuid(engine.rng),
        timestamp=format_time(engine.clock.now_ns()),
        server=engine.broker.server_name,
        client=client_info(engine.broker, account, request),
        subject=request.subject,
        request=request.body.decode("utf-8", "replace"),
        response=HOLE,
        domain=engine.options.domain,
    )
    account.publish(_SUBJECT, b"", b"", (yield from filling(event, (yield from encoding_text(response)))))
