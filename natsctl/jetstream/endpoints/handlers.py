"""The functions that serve the verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.jetstream.endpoints import consumer_api, message_api, stream_api, stream_blocks, template_api
from natsctl.jetstream.endpoints.requests import ApiRequest, EndpointFunction, Outcome

if TYPE_CHECKING:
    from natsctl.jetstream.account import JetStreamAccount


def _snapshot(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """Serve STREAM.SNAPSHOT; archives are a quarter of JetStream's imports, and most servers never need them."""
    from natsctl.jetstream.archive.snapshot import snapshot

    return snapshot(js, request)


def _restore(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """Serve STREAM.RESTORE."""
    from natsctl.jetstream.archive.restore import restore

    return restore(js, request)


HANDLERS: Final[dict[str, EndpointFunction]] = {
    **stream_api.HANDLERS,
    **template_api.HANDLERS,
    **message_api.HANDLERS,
    **consumer_api.HANDLERS,
    **stream_blocks.HANDLERS,
    "STREAM.SNAPSHOT": _snapshot,
    "STREAM.RESTORE": _restore,
}
"""By the names of `api.endpoints`."""
