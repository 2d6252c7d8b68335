"""Which function serves which verb."""

from __future__ import annotations

from typing import Final

from natsctl.jetstream.archive import restore, snapshot
from natsctl.jetstream.endpoints import consumer_api, message_api, stream_api, template_api
from natsctl.jetstream.endpoints.requests import EndpointFunction

HANDLERS: Final[dict[str, EndpointFunction]] = {
    **stream_api.HANDLERS,
    **template_api.HANDLERS,
    **message_api.HANDLERS,
    **consumer_api.HANDLERS,
    **snapshot.HANDLERS,
    **restore.HANDLERS,
}
"""By the names of `api.endpoints`."""
