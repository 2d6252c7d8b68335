"""Audit advisories of API requests: client, request and response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.advisories import API_AUDIT, ApiAudit
from natsctl.api.codec import encode
from natsctl.api.times import format_time
from natsctl.jetstream.consumers.consumer_events import nuid
from natsctl.jetstream.endpoints.client_info import client_info

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.jetstream.endpoints.requests import ApiRequest
    from natsctl.jetstream.engine_context import EngineContext

_SUBJECT: Final = API_AUDIT.encode()


def audit(engine: EngineContext, account: Account, request: ApiRequest, response: bytes) -> None:
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
        response=response.decode("utf-8", "replace"),
        domain=engine.options.domain,
    )
    account.publish(_SUBJECT, b"", b"", encode(event))
