"""The JetStream API as typed requests on one connection."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from natsctl.api.account import AccountInfo
    from natsctl.api.answers import (
        ConsumerDeleteAnswer,
        ConsumerPauseAnswer,
        StreamDeleteAnswer,
        StreamMsgDeleteAnswer,
        StreamMsgGetAnswer,
        StreamPurgeAnswer,
    )
    from natsctl.api.consumer import ConsumerConfig, ConsumerInfo
    from natsctl.api.messages import PubAck
    from natsctl.api.stream import StreamConfig, StreamInfo
    from natsctl.client.connection import Connection, Message

T = TypeVar("T")


class Answer(Generic[T]):
    """A server's answer: `raw` is the JSON object exactly as sent, `value` the same as a typed model (decoded on first use)."""

    body: bytes
    subject: str

    @property
    def raw(self) -> dict[str, Any]: ...

    @property
    def value(self) -> T: ...


class Manager:
    """Typed JetStream requests.

    Every method raises ApiFailure for an error answer, Unreachable for no responders, no JetStream or a timeout, NotAuthorised for a refused
    subject. Requests wait `timeout_s` of the connection unless said otherwise.
    """

    connection: Connection

    # account
    async def account_info(self) -> Answer[AccountInfo]: ...

    # streams; `config` may be a StreamConfig or the plain JSON object, whose unknown fields are then sent too
    async def stream_create(self, config: StreamConfig | dict[str, Any]) -> Answer[StreamInfo]: ...
    async def stream_update(self, config: StreamConfig | dict[str, Any]) -> Answer[StreamInfo]: ...
    async def stream_info(
        self, stream: str, *, subjects_filter: str = "", deleted_details: bool = False
    ) -> Answer[StreamInfo]: ...
    async def stream_delete(self, stream: str) -> Answer[StreamDeleteAnswer]: ...
    async def stream_purge(
        self, stream: str, *, filter: str = "", seq: int = 0, keep: int = 0
    ) -> Answer[StreamPurgeAnswer]: ...
    async def stream_names(self, *, subject: str = "") -> list[str]: ...
    async def stream_list(self, *, subject: str = "") -> list[Answer[StreamInfo]]: ...
    async def message_get(self, stream: str, *, seq: int = 0, last_by_subj: str = "") -> Answer[StreamMsgGetAnswer]: ...
    async def message_delete(
        self, stream: str, seq: int, *, no_erase: bool = False
    ) -> Answer[StreamMsgDeleteAnswer]: ...

    # consumers
    async def consumer_create(
        self, stream: str, config: ConsumerConfig | dict[str, Any], *, action: str = ""
    ) -> Answer[ConsumerInfo]: ...
    async def consumer_info(self, stream: str, consumer: str) -> Answer[ConsumerInfo]: ...
    async def consumer_delete(self, stream: str, consumer: str) -> Answer[ConsumerDeleteAnswer]: ...
    async def consumer_names(self, stream: str) -> list[str]: ...
    async def consumer_list(self, stream: str) -> list[Answer[ConsumerInfo]]: ...
    async def consumer_pause(self, stream: str, consumer: str, until: str) -> Answer[ConsumerPauseAnswer]: ...
    def consumer_next(
        self, stream: str, consumer: str, *, batch: int = 1, expires_s: float | None = None, no_wait: bool = False
    ) -> AsyncIterator[Message]: ...

    # messages
    async def publish(self, subject: str, body: bytes, headers: dict[str, str] | None = None) -> Answer[PubAck]: ...


class Subscription:
    """A running subscription; iterate it for messages until `limit` messages came or `stop` was called."""

    def __aiter__(self) -> AsyncIterator[Message]: ...

    async def stop(self) -> None: ...


_ = json
