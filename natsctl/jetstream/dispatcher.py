"""From `$JS.API.…` to the function that serves the verb, and back with its answer.

Theory of operation. One subscription per account takes `$JS.API.>`, so an unknown verb is met with silence, like at
the reference. Verbs that exist per object (CONSUMER.MSG.NEXT, DIRECT.GET) have subscriptions of their own; for those
this one says "not mine", and a request for an object that is missing gets the broker's 503. Everything else: find the
verb in the table of `api.endpoints`, hold the body to its rule, call the function, encode, send, count, tell the
audit. Verbs with long answers wait in a queue and are served one a turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api import endpoints
from natsctl.api.advisories import API_AUDIT, ApiAudit
from natsctl.api.answers import SystemAnswer, as_error
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import InvalidJSON, decode, encode
from natsctl.api.endpoints import BodyRule, Endpoint
from natsctl.api.headers import REQUIRED_API_LEVEL
from natsctl.api.headers import get as header_of
from natsctl.api.model import Model
from natsctl.api.subjects import API_PREFIX
from natsctl.jetstream import handlers
from natsctl.jetstream.api_queue import LONG_ANSWERS, ApiQueue
from natsctl.jetstream.client_info import client_info
from natsctl.jetstream.requests import ApiRequest, Outcome, Pending, is_absent, is_structured, storage_error
from natsctl.store.errors import StoreError

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.session import Session
    from natsctl.jetstream.account import JetStreamAccount

API_LEVEL: Final = 0
"""What requests with a required level are compared with: that of a 2.10 server, which has none."""

LEGACY_STREAM_INFO: Final = "$JS.STREAM.INFO"
"""The 2020 spelling of `$JS.API.STREAM.INFO`."""

_NOT_MINE: Final = (b"$JS.API.CONSUMER.MSG.NEXT.", b"$JS.API.DIRECT.GET.")
_AUDIT: Final = API_AUDIT.encode()


class Dispatcher:
    """The API of one account."""

    __slots__ = ("_js", "_queue", "errors", "total")

    def __init__(self, js: JetStreamAccount) -> None:
        """Subscribe to the account's API subjects."""
        self._js = js
        self._queue = ApiQueue(js.engine, self._serve)
        self.total = 0
        self.errors = 0
        js.account.subscribe(b"$JS.API.>", self._on_request)
        js.account.subscribe(LEGACY_STREAM_INFO.encode() + b".*", self._on_legacy_info)

    def _on_legacy_info(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        name = subject.rpartition(b".")[2]
        return self._on_request(b"$JS.API.STREAM.INFO." + name, reply, header, payload, origin)

    def _on_request(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        if subject.startswith(_NOT_MINE):
            return False
        text = subject.decode("utf-8", "replace")
        found = endpoints.find(text)
        if found is None:
            return True
        endpoint, tokens = found
        function = handlers.HANDLERS.get(endpoint.name)
        if function is None and not endpoint.cluster:
            return True
        self.total += 1
        request = ApiRequest(endpoint, text, tokens, payload, reply, header, origin, self.complete)
        if endpoint.name in LONG_ANSWERS:
            self._queue.put(request)
        else:
            self._serve(request)
        return True

    def _serve(self, request: ApiRequest) -> None:
        function = handlers.HANDLERS.get(request.endpoint.name)
        try:
            refused = _check(request)
            if refused is None and function is not None:
                outcome: Outcome = function(self._js, request)
            else:
                outcome = refused or error(10010)
        except StoreError as fault:
            outcome = storage_error(fault)
        if not isinstance(outcome, Pending):
            self.complete(request, outcome)

    def complete(self, request: ApiRequest, outcome: Model | ApiError) -> None:
        """Send an answer, count it, and tell whoever audits."""
        if isinstance(outcome, ApiError):
            self.errors += 1
            answer = request.endpoint.answer
            assert answer is not None
            body = encode(as_error(answer, outcome, request.endpoint.error_body))
        else:
            body = encode(outcome)
        if request.reply:
            self._js.account.publish(request.reply, b"", b"", body)
        if request.endpoint.audited:
            self._audit(request, body)

    def _audit(self, request: ApiRequest, response: bytes) -> None:
        if not self._js.account.has_interest(_AUDIT):
            return
        engine = self._js.engine
        event = ApiAudit(
            server=engine.broker.server_name,
            client=client_info(engine.broker, self._js.name, request.origin),
            subject=request.subject,
            request=request.body.decode("utf-8", "replace"),
            response=response.decode("utf-8", "replace"),
            domain=engine.options.domain,
        )
        self._js.advise(API_AUDIT, event)


def _check(request: ApiRequest) -> ApiError | None:
    """Return why the request cannot be served, or None with its body decoded."""
    endpoint = request.endpoint
    if request.header:
        level = header_of(request.header, REQUIRED_API_LEVEL)
        if level is not None and not (level.isdigit() and int(level) <= API_LEVEL):
            return error(10185)
    return None if endpoint.cluster else _decode(endpoint, request)


def _decode(endpoint: Endpoint, request: ApiRequest) -> ApiError | None:
    rule, body = endpoint.body, request.body
    if rule is BodyRule.EMPTY:
        return None if is_absent(body) else error(10038)
    if rule is BodyRule.REQUIRED and is_absent(body):
        return error(10003)
    if endpoint.request is None or rule is BodyRule.RAW:
        return None
    if not body.strip() or (rule is BodyRule.OPTIONAL and not is_structured(body)):
        body = b"{}"
    try:
        request.value = decode(body, endpoint.request, strict=True)
    except InvalidJSON as fault:
        return error(10025, err=fault.text)
    return None


def refuse_system_account(account: Account) -> None:
    """Answer every API call of the system account with "not enabled for account"."""

    def refuse(subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        if reply:
            account.publish(reply, b"", b"", encode(as_error(SystemAnswer, error(10039), {})))

    account.subscribe(f"{API_PREFIX}.>".encode(), refuse)
