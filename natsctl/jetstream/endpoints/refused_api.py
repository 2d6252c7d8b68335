"""The API of accounts that have no JetStream, and of the system account.

An account without JetStream gets error 10039 for every verb. The system account has no streams of its own; from there
an operator removes those of another account (ACCOUNT.PURGE). Verbs about clusters are not answered.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from natsctl.api import endpoints
from natsctl.api.answers import AccountPurgeAnswer, SystemAnswer, as_error
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import encode
from natsctl.api.err_codes import ErrCode
from natsctl.api.subjects import API_PREFIX
from natsctl.jetstream.api_level import is_refused
from natsctl.jetstream.endpoints.audit import audit
from natsctl.jetstream.endpoints.requests import ApiRequest, Outcome, Pending, Uncounted, storage_error
from natsctl.store.errors import StoreError

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.session import Session
    from natsctl.jetstream.engine_context import EngineContext

_EVERYTHING: Final = f"{API_PREFIX}.>".encode()
PER_OBJECT: Final = (b"$JS.API.CONSUMER.MSG.NEXT.", b"$JS.API.DIRECT.GET.")
"""Verbs that have a subscription for each object: who asks a missing one has no responder."""
_SILENT: Final = ("META.LEADER.STEPDOWN", "META.RESCUE", "SERVER.REMOVE", "SERVER.EVACUATE", "ACCOUNT.")
"""Verbs that only a cluster answers."""
_PURGE: Final = endpoints.ACCOUNT_PURGE


class RefusedApi:
    """Answers every request of an account that has no JetStream."""

    def __init__(self, engine: EngineContext, account: Account) -> None:
        """Subscribe to the account's API subjects."""
        self._engine = engine
        self._account = account
        self._sub = account.subscribe(_EVERYTHING, self._on_request)

    def stop(self) -> None:
        """Answer nothing any more."""
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
        audit(self._engine, self._account, request, body)
        return True


class SystemApi:
    """Answers the requests of the system account."""

    def __init__(self, engine: EngineContext, account: Account) -> None:
        """Subscribe to the API subjects."""
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
        elif verb == "INFO":
            answer = as_error(endpoints.INFO.answer or SystemAnswer, error(ErrCode.NOT_ENABLED_FOR_ACCOUNT), {})
            self._account.publish(reply, b"", b"", encode(answer))
        elif not verb.startswith(_SILENT):
            self._account.publish(
                reply, b"", b"", encode(as_error(SystemAnswer, error(ErrCode.NOT_ENABLED_FOR_ACCOUNT), {}))
            )

    def _purge(self, request: ApiRequest) -> None:
        """Remove every stream of an account; the answer follows once they are deleted."""
        name = request.tokens[0]
        if "/" in name or "\\" in name:
            request.answer(error(ErrCode.STREAM_GENERAL_ERROR, err="account name can not contain path separators"))
            return
        try:
            leaving = self._engine.remove_streams(name)
        except StoreError as fault:
            request.answer(storage_error(fault))
            return
        request.answer_when_all_durable(leaving, AccountPurgeAnswer(initiated=True))

    def _complete(self, request: ApiRequest, outcome: Outcome) -> None:
        assert not isinstance(outcome, Uncounted | Pending | Generator)
        if isinstance(outcome, ApiError):
            body = encode(as_error(AccountPurgeAnswer, outcome, _PURGE.error_body))
        else:
            body = encode(outcome)
        if request.reply:
            self._account.publish(request.reply, b"", b"", body)
        audit(self._engine, self._account, request, body)
