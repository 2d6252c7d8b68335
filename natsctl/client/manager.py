"""The JetStream API as typed requests on one connection.

Every method raises ApiResponseError for an error answer, UnreachableError for no responders or no answer in time,
NotAuthorisedError for a subject that the server refuses. A config may be a model, or the plain JSON object with fields
that the model does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from natsctl.api import endpoints
from natsctl.client.requests import Requests

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from natsctl.api.answers import (
        AccountInfoAnswer,
        ConsumerCreateAnswer,
        ConsumerDeleteAnswer,
        ConsumerInfoAnswer,
        ConsumerLeaderStepdownAnswer,
        ConsumerPauseAnswer,
        ConsumerResetAnswer,
        ConsumerUnpinAnswer,
        StreamCreateAnswer,
        StreamDeleteAnswer,
        StreamInfoAnswer,
        StreamLeaderStepdownAnswer,
        StreamMsgDeleteAnswer,
        StreamMsgGetAnswer,
        StreamPurgeAnswer,
        StreamRemovePeerAnswer,
        StreamTemplateCreateAnswer,
        StreamTemplateDeleteAnswer,
        StreamTemplateInfoAnswer,
        StreamUpdateAnswer,
    )
    from natsctl.api.consumer import ConsumerConfig, ConsumerInfo
    from natsctl.api.endpoints import Endpoint
    from natsctl.api.stream import StreamConfig, StreamInfo
    from natsctl.client.answer import Answer, Listing
    from natsctl.client.connection import Connection


class Manager:
    """Requests of the JetStream API on one connection; `natsctl.client.messaging` reads and writes messages."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.requests = Requests(connection)

    # -- account

    async def account_info(self) -> Answer[AccountInfoAnswer]:
        """Return use and limits of the account."""
        return await self.requests.ask(endpoints.INFO)

    # -- streams

    async def stream_create(self, config: StreamConfig | dict[str, Any]) -> Answer[StreamCreateAnswer]:
        """Create the stream that `config` names; an existing stream with an equal configuration is a success too."""
        return await self._send_stream(endpoints.STREAM_CREATE, config)

    async def stream_update(self, config: StreamConfig | dict[str, Any]) -> Answer[StreamUpdateAnswer]:
        """Replace the whole configuration of the stream that `config` names."""
        return await self._send_stream(endpoints.STREAM_UPDATE, config)

    async def _send_stream(self, endpoint: Endpoint, config: StreamConfig | dict[str, Any]) -> Answer[Any]:
        """Send a configuration; raises NatsctlError where the server is too old for a field of it."""
        from natsctl.client.api_level import STREAM_LEVELS, check_level

        name = _field(config, "name")
        headers = await check_level(self, config, STREAM_LEVELS, f"Stream {name}")
        return await self.requests.ask(endpoint, name, body=config, headers=headers)

    async def stream_info(
        self, stream: str, *, subjects_filter: str = "", deleted_details: bool = False
    ) -> Answer[StreamInfoAnswer]:
        """Return configuration and state; `subjects_filter` adds the messages by subject, over all pages."""
        body: dict[str, Any] = {}
        if deleted_details:
            body["deleted_details"] = True
        if not subjects_filter:
            return await self.requests.ask(endpoints.STREAM_INFO, stream, body=body or None)
        body["subjects_filter"] = subjects_filter
        answer = await self.requests.ask(endpoints.STREAM_INFO, stream, body=body)
        raw = answer.raw
        offset = int(raw.get("limit") or 0)
        while 0 < offset < int(raw.get("total") or 0):
            page = (await self.requests.ask(endpoints.STREAM_INFO, stream, body={**body, "offset": offset})).raw
            subjects = raw.setdefault("state", {}).setdefault("subjects", {})
            subjects.update(page.get("state", {}).get("subjects") or {})
            offset += int(page.get("limit") or 0) or int(raw["total"])
        return answer

    async def stream_delete(self, stream: str) -> Answer[StreamDeleteAnswer]:
        """Delete a stream with its messages and consumers."""
        return await self.requests.ask(endpoints.STREAM_DELETE, stream)

    async def stream_purge(
        self, stream: str, *, filter: str = "", seq: int = 0, keep: int = 0
    ) -> Answer[StreamPurgeAnswer]:
        """Remove messages: those on `filter`, below `seq` (exclusive), or all but the newest `keep`."""
        said = {"filter": filter, "seq": seq, "keep": keep}
        body = {name: value for name, value in said.items() if value}
        return await self.requests.ask(endpoints.STREAM_PURGE, stream, body=body or None)

    async def stream_step_down(self, stream: str, *, preferred: str = "") -> Answer[StreamLeaderStepdownAnswer]:
        """Move the stream's leader to another server, to `preferred` if that is given."""
        body = {"placement": {"preferred": preferred}} if preferred else None
        return await self.requests.ask(endpoints.STREAM_LEADER_STEPDOWN, stream, body=body)

    async def stream_peer_remove(self, stream: str, peer: str) -> Answer[StreamRemovePeerAnswer]:
        """Remove a server from the stream's group; another one takes its place."""
        return await self.requests.ask(endpoints.STREAM_PEER_REMOVE, stream, body={"peer": peer})

    async def stream_names(self, *, subject: str = "") -> Listing[str]:
        """Return the names of all streams, or of those that store messages on `subject`."""
        body = {"subject": subject} if subject else None
        return await self.requests.names(endpoints.STREAM_NAMES, "streams", body=body)

    def stream_name_pages(self, *, subject: str = "") -> AsyncIterator[list[str]]:
        """Yield the names of each page as it arrives, without those of earlier pages."""
        body = {"subject": subject} if subject else None
        return self.requests.name_pages(endpoints.STREAM_NAMES, "streams", body=body)

    async def stream_list(self, *, subject: str = "") -> Listing[Answer[StreamInfo]]:
        """Return configuration and state of all streams, or of those that store messages on `subject`."""
        from natsctl.api.stream import StreamInfo

        body = {"subject": subject} if subject else None
        return await self.requests.entries(endpoints.STREAM_LIST, "streams", StreamInfo, body=body)

    def stream_pages(self, *, subject: str = "") -> AsyncIterator[Listing[Answer[StreamInfo]]]:
        """Yield the entries of `stream_list`, each page as it arrives."""
        from natsctl.api.stream import StreamInfo

        body = {"subject": subject} if subject else None
        return self.requests.entry_pages(endpoints.STREAM_LIST, "streams", StreamInfo, body=body)

    async def message_get(
        self, stream: str, *, seq: int = 0, last_by_subj: str = "", next_by_subj: str = ""
    ) -> Answer[StreamMsgGetAnswer]:
        """Return one stored message: by sequence, the last on a subject, or the next on a subject from `seq` on."""
        said = {"seq": seq, "last_by_subj": last_by_subj, "next_by_subj": next_by_subj}
        body = {name: value for name, value in said.items() if value}
        return await self.requests.ask(endpoints.STREAM_MSG_GET, stream, body=body)

    async def message_delete(self, stream: str, seq: int, *, no_erase: bool = False) -> Answer[StreamMsgDeleteAnswer]:
        """Remove one message; its bytes are overwritten unless `no_erase`."""
        body: dict[str, Any] = {"seq": seq, **({"no_erase": True} if no_erase else {})}
        return await self.requests.ask(endpoints.STREAM_MSG_DELETE, stream, body=body)

    # -- stream templates

    async def template_create(self, config: dict[str, Any]) -> Answer[StreamTemplateCreateAnswer]:
        """Create the stream template that `config` names."""
        return await self.requests.ask(endpoints.STREAM_TEMPLATE_CREATE, str(config["name"]), body=config)

    async def template_names(self) -> Listing[str]:
        """Return the names of all stream templates."""
        return await self.requests.names(endpoints.STREAM_TEMPLATE_NAMES, "streams")

    def template_name_pages(self) -> AsyncIterator[list[str]]:
        """Yield the names of each page as it arrives, without those of earlier pages."""
        return self.requests.name_pages(endpoints.STREAM_TEMPLATE_NAMES, "streams")

    async def template_info(self, template: str) -> Answer[StreamTemplateInfoAnswer]:
        """Return a template's configuration and the streams it has created."""
        return await self.requests.ask(endpoints.STREAM_TEMPLATE_INFO, template)

    async def template_delete(self, template: str) -> Answer[StreamTemplateDeleteAnswer]:
        """Delete a template and every stream that it created."""
        return await self.requests.ask(endpoints.STREAM_TEMPLATE_DELETE, template)

    # -- consumers

    async def consumer_create(
        self, stream: str, config: ConsumerConfig | dict[str, Any], *, action: str = ""
    ) -> Answer[ConsumerCreateAnswer]:
        """Create or update a consumer.

        `action` "create" refuses one that exists otherwise, "update" one that does not exist. The name is
        `durable_name` or `name` of the config; without either the server names an ephemeral one.
        """
        from natsctl.client.api_level import CONSUMER_LEVELS, check_level

        name = _field(config, "name") or _field(config, "durable_name")
        body: dict[str, Any] = {"stream_name": stream, "config": config}
        if action:
            body["action"] = action
        tokens = [stream]
        if name:
            tokens.append(name)
            if (filtered := _field(config, "filter_subject")) and " " not in filtered:
                tokens.append(filtered)
        headers = await check_level(self, config, CONSUMER_LEVELS, f"Consumer {stream} > {name}")
        return await self.requests.ask(endpoints.CONSUMER_CREATE, *tokens, body=body, headers=headers)

    async def consumer_info(self, stream: str, consumer: str) -> Answer[ConsumerInfoAnswer]:
        """Return configuration and state of a consumer."""
        return await self.requests.ask(endpoints.CONSUMER_INFO, stream, consumer)

    async def consumer_delete(self, stream: str, consumer: str) -> Answer[ConsumerDeleteAnswer]:
        """Delete a consumer."""
        return await self.requests.ask(endpoints.CONSUMER_DELETE, stream, consumer)

    async def consumer_names(self, stream: str) -> Listing[str]:
        """Return the names of a stream's consumers."""
        return await self.requests.names(endpoints.CONSUMER_NAMES, "consumers", stream)

    def consumer_name_pages(self, stream: str) -> AsyncIterator[list[str]]:
        """Yield the names of each page as it arrives, without those of earlier pages."""
        return self.requests.name_pages(endpoints.CONSUMER_NAMES, "consumers", stream)

    async def consumer_list(self, stream: str) -> Listing[Answer[ConsumerInfo]]:
        """Return configuration and state of a stream's consumers."""
        from natsctl.api.consumer import ConsumerInfo

        return await self.requests.entries(endpoints.CONSUMER_LIST, "consumers", ConsumerInfo, stream)

    def consumer_pages(self, stream: str) -> AsyncIterator[Listing[Answer[ConsumerInfo]]]:
        """Yield the entries of `consumer_list`, each page as it arrives."""
        from natsctl.api.consumer import ConsumerInfo

        return self.requests.entry_pages(endpoints.CONSUMER_LIST, "consumers", ConsumerInfo, stream)

    async def consumer_pause(self, stream: str, consumer: str, until: str = "") -> Answer[ConsumerPauseAnswer]:
        """Pause deliveries until that time (RFC 3339), or resume them."""
        body = {"pause_until": until} if until else None
        return await self.requests.ask(endpoints.CONSUMER_PAUSE, stream, consumer, body=body)

    async def consumer_unpin(self, stream: str, consumer: str, group: str) -> Answer[ConsumerUnpinAnswer]:
        """Unpin the client of a priority group, so that another one is pinned."""
        return await self.requests.ask(endpoints.CONSUMER_UNPIN, stream, consumer, body={"group": group})

    async def consumer_reset(self, stream: str, consumer: str, seq: int = 0) -> Answer[ConsumerResetAnswer]:
        """Deliver again from a stream sequence on; without one, every message that is not acknowledged."""
        body = {"seq": seq} if seq else None
        return await self.requests.ask(endpoints.CONSUMER_RESET, stream, consumer, body=body)

    async def consumer_step_down(
        self, stream: str, consumer: str, preferred: str = ""
    ) -> Answer[ConsumerLeaderStepdownAnswer]:
        """Move the consumer's leader to another server, to `preferred` if possible."""
        body = {"placement": {"preferred": preferred}} if preferred else None
        return await self.requests.ask(endpoints.CONSUMER_LEADER_STEPDOWN, stream, consumer, body=body)


def _field(config: Any, name: str) -> str:
    """Return a text field of a model or of a plain object, "" if it has none."""
    value = config.get(name) if isinstance(config, dict) else getattr(config, name, None)
    return value or ""
