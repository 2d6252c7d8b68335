"""The JetStream API as typed requests on one connection.

Every method raises ApiResponseError for an error answer, UnreachableError for no responders or no answer in time,
NotAuthorisedError for a subject that the server refuses. A config may be a model, or the plain JSON object with fields
that the model does not know.

The JetStream API level that a configuration needs is checked before the request. Servers below a level ignore the
fields that came with it, so such a request names the level in a header; a server that knows the header
refuses; one that does not is asked for its level first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping

from natsctl.api import endpoints
from natsctl.api.errors import ApiResponseError, ErrCode, NatsctlError, NotAuthorisedError
from natsctl.api.versions import RequiredLevel
from natsctl.client.message import AckedMessages
from natsctl.client.requests import Answer, ListedFields, Listing, Requests, number_in
from natsctl.hints import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from natsctl.api.answers import (
        AccountInfoAnswer,
        ConsumerCreateAnswer,
        ConsumerDeleteAnswer,
        ConsumerEvacuatePeerAnswer,
        ConsumerInfoAnswer,
        ConsumerLeaderStepdownAnswer,
        ConsumerPauseAnswer,
        ConsumerResetAnswer,
        ConsumerUnpinAnswer,
        StreamCancelMoveAnswer,
        StreamCreateAnswer,
        StreamDeleteAnswer,
        StreamEvacuatePeerAnswer,
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
    from natsctl.api.endpoints import ApiEndpoint
    from natsctl.api.stream import StreamConfig, StreamInfo
    from natsctl.client.connection import Connection


T = TypeVar("T")

STREAM: Final = "stream.StreamInfo"
CONSUMER: Final = "consumer.ConsumerInfo"
"""Models of the entries of lists, by their paths below natsctl.api: not every list needs them."""


class Manager:
    """Requests of the JetStream API on one connection; `natsctl.client.messaging` reads and writes messages."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.requests = Requests(connection)
        self.acked = AckedMessages()

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

    async def _send_stream(self, endpoint: ApiEndpoint, config: StreamConfig | dict[str, Any]) -> Answer[Any]:
        """Send a configuration; raises NatsctlError if the server is too old for a field of it."""

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
        offset, total = (number_in(raw, key, answer.subject) for key in ("limit", "total"))
        subjects = raw.setdefault("state", {}).setdefault("subjects", {}) if 0 < offset < total else {}
        while 0 < offset < total:
            page = (await self.requests.ask(endpoints.STREAM_INFO, stream, body={**body, "offset": offset})).raw
            known = len(subjects)
            subjects.update(page.get("state", {}).get("subjects") or {})
            if len(subjects) == known:
                break
            offset += number_in(page, "limit", answer.subject) or total
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
        """Move the stream's leader to another server, to `preferred` if given."""
        body = {"placement": {"preferred": preferred}} if preferred else None
        return await self.requests.ask(endpoints.STREAM_LEADER_STEPDOWN, stream, body=body)

    async def stream_peer_remove(self, stream: str, peer: str) -> Answer[StreamRemovePeerAnswer]:
        """Remove a server from the stream's group; another one takes its place."""
        return await self.requests.ask(endpoints.STREAM_PEER_REMOVE, stream, body={"peer": peer})

    async def stream_evacuate(self, stream: str, peer: str) -> Answer[StreamEvacuatePeerAnswer]:
        """Move the copies of the stream and its consumers from a server to another one of the cluster."""
        return await self.requests.ask(endpoints.STREAM_PEER_EVACUATE, stream, body={"peer": peer})

    async def stream_cancel_move(self, stream: str) -> Answer[StreamCancelMoveAnswer]:
        """Cancel the running move of a stream; it stays or returns to its place."""
        return await self.requests.ask(endpoints.STREAM_CANCEL_MOVE, stream)

    async def stream_names(self, *, subject: str = "") -> Listing[str]:
        """Return the names of all streams, or of streams that store messages on `subject`."""
        body = {"subject": subject} if subject else None
        return await self.requests.names(endpoints.STREAM_NAMES, "streams", body=body)

    def stream_name_pages(self, *, subject: str = "") -> AsyncIterator[list[str]]:
        """Yield the names of each page as it arrives, without repeated ones."""
        body = {"subject": subject} if subject else None
        return self.requests.name_pages(endpoints.STREAM_NAMES, "streams", body=body)

    async def stream_list(
        self, *, subject: str = "", fields: ListedFields | None = None
    ) -> Listing[Answer[StreamInfo]]:
        """Return configuration and state of all streams, or of streams that store messages on `subject`.

        With `fields` only these are checked, and the values may have only these.
        """
        body = {"subject": subject} if subject else None
        return await self.requests.entries(endpoints.STREAM_LIST, "streams", STREAM, body=body, fields=fields)

    def stream_pages(self, *, subject: str = "") -> AsyncIterator[Listing[Answer[StreamInfo]]]:
        """Yield the entries of `stream_list`, each page as it arrives."""
        body = {"subject": subject} if subject else None
        return self.requests.entry_pages(endpoints.STREAM_LIST, "streams", STREAM, body=body)

    async def message_get(
        self, stream: str, *, seq: int = 0, last_by_subj: str = "", next_by_subj: str = ""
    ) -> Answer[StreamMsgGetAnswer]:
        """Return one stored message: by sequence, the last on a subject, or the next on a subject from `seq` on."""
        which = {"seq": seq, "last_by_subj": last_by_subj, "next_by_subj": next_by_subj}
        body = {name: value for name, value in which.items() if value}
        return await self.requests.ask(endpoints.STREAM_MSG_GET, stream, body=body)

    async def find_message(self, stream: str, **which: Any) -> Answer[StreamMsgGetAnswer] | None:
        """Return what `message_get` does, None if there is no such message."""
        return await _found(ErrCode.NO_MESSAGE_FOUND, self.message_get(stream, **which))

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
        """Yield the names of each page as it arrives, without repeated ones."""
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

    async def find_stream(self, stream: str) -> Answer[StreamInfoAnswer] | None:
        """Return configuration and state of a stream, None if it does not exist."""
        return await _found(ErrCode.STREAM_NOT_FOUND, self.stream_info(stream))

    async def consumer_info(self, stream: str, consumer: str) -> Answer[ConsumerInfoAnswer]:
        """Return configuration and state of a consumer."""
        return await self.requests.ask(endpoints.CONSUMER_INFO, stream, consumer)

    async def find_consumer(self, stream: str, consumer: str) -> Answer[ConsumerInfoAnswer] | None:
        """Return configuration and state of a consumer, None if the stream has no such consumer."""
        return await _found(ErrCode.CONSUMER_NOT_FOUND, self.consumer_info(stream, consumer))

    async def consumer_delete(self, stream: str, consumer: str) -> Answer[ConsumerDeleteAnswer]:
        """Delete a consumer."""
        return await self.requests.ask(endpoints.CONSUMER_DELETE, stream, consumer)

    async def consumer_names(self, stream: str) -> Listing[str]:
        """Return the names of a stream's consumers."""
        return await self.requests.names(endpoints.CONSUMER_NAMES, "consumers", stream)

    def consumer_name_pages(self, stream: str) -> AsyncIterator[list[str]]:
        """Yield the names of each page as it arrives, without repeated ones."""
        return self.requests.name_pages(endpoints.CONSUMER_NAMES, "consumers", stream)

    async def consumer_list(self, stream: str, *, fields: ListedFields | None = None) -> Listing[Answer[ConsumerInfo]]:
        """Return configuration and state of a stream's consumers; `fields` as in `stream_list`."""
        return await self.requests.entries(endpoints.CONSUMER_LIST, "consumers", CONSUMER, stream, fields=fields)

    def consumer_pages(self, stream: str) -> AsyncIterator[Listing[Answer[ConsumerInfo]]]:
        """Yield the entries of `consumer_list`, each page as it arrives."""
        return self.requests.entry_pages(endpoints.CONSUMER_LIST, "consumers", CONSUMER, stream)

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

    async def consumer_evacuate(self, stream: str, consumer: str, peer: str) -> Answer[ConsumerEvacuatePeerAnswer]:
        """Move the consumer's copy from a server to another one that has the stream."""
        return await self.requests.ask(endpoints.CONSUMER_PEER_EVACUATE, stream, consumer, body={"peer": peer})


def _field(config: Any, name: str) -> str:
    value = config.get(name) if isinstance(config, dict) else getattr(config, name, None)
    return value or ""


REQUIRED_LEVEL: Final = "Nats-Required-Api-Level"

STREAM_LEVELS: Final[dict[str, int]] = {
    "allow_msg_ttl": 1,
    "subject_delete_marker_ttl": 1,
    "allow_atomic": 2,
    "allow_msg_counter": 2,
    "allow_msg_schedules": 2,
    "persist_mode": 2,
    "allow_batched": 3,
    "mirror.consumer": 4,
    "sources.consumer": 4,
}
"""JetStream API levels that fields of streams require; fields of level 0 are left out.

Source: docs/compatibility.md#flags-and-fields.
"""

CONSUMER_LEVELS: Final[dict[str, int]] = {
    "pause_until": 1,
    "priority_policy": 1,
    "priority_groups": 1,
    "priority_timeout": 1,
}
"""JetStream API levels that fields of consumers require."""


_UNSET: Final[tuple[Any, ...]] = (None, False, 0, "", "default", [], {})
"""Values of a field that need no support of the server."""


def required_level_of(config: Any, levels: Mapping[str, int]) -> RequiredLevel:
    """Return the highest level needed by a set field; level 0 and no field if none needs one."""
    import msgspec  # a list of names does without it

    plain = config if isinstance(config, Mapping) else msgspec.to_builtins(config)
    needs = [RequiredLevel(level, path) for path, level in levels.items() if _is_set(plain, path)]
    return max(needs, default=RequiredLevel(0, ""), key=lambda one: one.level)


async def check_level(manager: Manager, config: Any, levels: Mapping[str, int], what: str) -> dict[str, str] | None:
    """Return the headers that the request has to carry; raises NatsctlError if the server is too old for a field."""
    needed = required_level_of(config, levels)
    if not needed.level:
        return None
    try:
        has = (await manager.account_info()).value.api.level
    except NotAuthorisedError:
        has = needed.level  # a login without that permission relies on the header
    if has < needed.level:
        version = manager.connection.info.get("version", "")
        raise NatsctlError(
            f"{what}: {needed.field} needs JetStream API level {needed.level}, the server {version} has {has}",
            hint="leave the field out, or use a newer server",
        )
    return {REQUIRED_LEVEL: str(needed.level)}


def _is_set(value: Any, path: str) -> bool:
    head, _, rest = path.partition(".")
    if not rest:
        return isinstance(value, Mapping) and value.get(head) not in _UNSET
    below = value.get(head) if isinstance(value, Mapping) else None
    return any(_is_set(one, rest) for one in (below if isinstance(below, list) else [below]))


async def _found(missing: int, answer: Awaitable[T]) -> T | None:
    """Return the answer, None if it is the error `missing`."""
    try:
        return await answer
    except ApiResponseError as failure:
        if failure.err_code != missing:
            raise
        return None
