"""One struct per answer of the API. `type` is the struct's tag, written first; errors are made by `as_error`.

With an error nats-server still writes the plain values of the body as zeros and leaves its objects out: those zeros
are the `error_body` of the endpoint.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import field

from natsctl.api.account import AccountInfo
from natsctl.api.catalogue import ApiError
from natsctl.api.consumer import ConsumerInfo
from natsctl.api.model import Duration, Int, Model, Time, Uint64, blank, new_list, off, zero, zero_time
from natsctl.api.requests import StoredMsg, StreamTemplateConfig
from natsctl.api.stream import ClusterInfo, StreamAlternate, StreamConfig, StreamInfo, StreamSourceInfo, StreamState

TYPE_PREFIX: Final = "io.nats.jetstream.api.v1."

NAMES_PAGE: Final = 1024
LIST_PAGE: Final = 256
SUBJECTS_PAGE: Final = 100_000


class AccountInfoAnswer(AccountInfo, tag_field="type", tag=TYPE_PREFIX + "account_info_response"):
    """INFO."""


class StreamCreateAnswer(StreamInfo, tag_field="type", tag=TYPE_PREFIX + "stream_create_response"):
    """STREAM.CREATE, and the end of a restore."""

    did_create: bool = False


class StreamUpdateAnswer(StreamInfo, tag_field="type", tag=TYPE_PREFIX + "stream_update_response"):
    """STREAM.UPDATE."""


class Paged(Model):
    """One page of a list of `total` entries."""

    total: Int = field(default_factory=zero)
    offset: Int = field(default_factory=zero)
    limit: Int = field(default_factory=zero)


class StreamInfoAnswer(Paged, tag_field="type", tag=TYPE_PREFIX + "stream_info_response"):
    """STREAM.INFO: the page refers to `state.subjects`. The other fields are StreamInfo's, in the same order."""

    config: StreamConfig = field(default_factory=lambda: StreamConfig())
    created: Time = field(default_factory=zero_time)
    state: StreamState = field(default_factory=lambda: StreamState())
    domain: str = ""
    cluster: ClusterInfo | None = None
    mirror: StreamSourceInfo | None = None
    sources: list[StreamSourceInfo] = field(default_factory=list)
    alternates: list[StreamAlternate] = field(default_factory=list)
    ts: Time = field(default_factory=zero_time)
    write_error: str = ""


class StreamNamesAnswer(Paged, tag_field="type", tag=TYPE_PREFIX + "stream_names_response"):
    """STREAM.NAMES: `streams` is null if the account has no streams."""

    streams: list[str] | None = field(default_factory=lambda: None)


class StreamListAnswer(Paged, tag_field="type", tag=TYPE_PREFIX + "stream_list_response"):
    """STREAM.LIST."""

    streams: list[StreamInfo] = field(default_factory=new_list)
    missing: list[str] = field(default_factory=list)
    offline: dict[str, str] = field(default_factory=dict)


class Success(Model):
    """An answer that only says that it was done."""

    success: bool = False


class StreamDeleteAnswer(Success, tag_field="type", tag=TYPE_PREFIX + "stream_delete_response"):
    """STREAM.DELETE."""


class StreamPurgeAnswer(Success, tag_field="type", tag=TYPE_PREFIX + "stream_purge_response"):
    """STREAM.PURGE: how many messages went."""

    purged: Uint64 = field(default_factory=zero)


class StreamMsgGetAnswer(Model, tag_field="type", tag=TYPE_PREFIX + "stream_msg_get_response"):
    """STREAM.MSG.GET."""

    message: StoredMsg = field(default_factory=lambda: StoredMsg())


class StreamMsgDeleteAnswer(Success, tag_field="type", tag=TYPE_PREFIX + "stream_msg_delete_response"):
    """STREAM.MSG.DELETE."""


class StreamBlocksAnswer(Model, tag_field="type", tag=TYPE_PREFIX + "stream_blocks_response"):
    """STREAM.BLOCKS if refused; an answer with messages is not JSON."""


class StreamSnapshotAnswer(Model, tag_field="type", tag=TYPE_PREFIX + "stream_snapshot_response"):
    """STREAM.SNAPSHOT: the contents of the chunks that follow."""

    config: StreamConfig = field(default_factory=lambda: StreamConfig())
    state: StreamState = field(default_factory=lambda: StreamState())


class StreamRestoreAnswer(Model, tag_field="type", tag=TYPE_PREFIX + "stream_restore_response"):
    """STREAM.RESTORE: where to send the chunks."""

    deliver_subject: str = field(default_factory=blank)


class StreamTemplateInfo(Model):
    """A template and the streams it has made."""

    config: StreamTemplateConfig = field(default_factory=lambda: StreamTemplateConfig())
    streams: list[str] = field(default_factory=new_list)


class StreamTemplateCreateAnswer(
    StreamTemplateInfo, tag_field="type", tag=TYPE_PREFIX + "stream_template_create_response"
):
    """STREAM.TEMPLATE.CREATE."""


class StreamTemplateInfoAnswer(StreamTemplateInfo, tag_field="type", tag=TYPE_PREFIX + "stream_template_info_response"):
    """STREAM.TEMPLATE.INFO."""


class StreamTemplateNamesAnswer(Paged, tag_field="type", tag=TYPE_PREFIX + "stream_template_names_response"):
    """STREAM.TEMPLATE.NAMES: the key of the names is `streams`."""

    streams: list[str] | None = field(default_factory=lambda: None)


class StreamTemplateDeleteAnswer(Success, tag_field="type", tag=TYPE_PREFIX + "stream_template_delete_response"):
    """STREAM.TEMPLATE.DELETE."""


class StreamLeaderStepdownAnswer(Success, tag_field="type", tag=TYPE_PREFIX + "stream_leader_stepdown_response"):
    """STREAM.LEADER.STEPDOWN."""


class StreamRemovePeerAnswer(Success, tag_field="type", tag=TYPE_PREFIX + "stream_remove_peer_response"):
    """STREAM.PEER.REMOVE."""


class StreamEvacuatePeerAnswer(Success, tag_field="type", tag=TYPE_PREFIX + "stream_evacuate_peer_response"):
    """STREAM.PEER.EVACUATE."""


class StreamCancelMoveAnswer(StreamInfo, tag_field="type", tag=TYPE_PREFIX + "stream_cancel_move_response"):
    """STREAM.CANCEL_MOVE."""


class ConsumerCreateAnswer(ConsumerInfo, tag_field="type", tag=TYPE_PREFIX + "consumer_create_response"):
    """CONSUMER.CREATE and CONSUMER.DURABLE.CREATE."""


class ConsumerInfoAnswer(ConsumerInfo, tag_field="type", tag=TYPE_PREFIX + "consumer_info_response"):
    """CONSUMER.INFO."""


class ConsumerNamesAnswer(Paged, tag_field="type", tag=TYPE_PREFIX + "consumer_names_response"):
    """CONSUMER.NAMES."""

    consumers: list[str] = field(default_factory=new_list)


class ConsumerListAnswer(Paged, tag_field="type", tag=TYPE_PREFIX + "consumer_list_response"):
    """CONSUMER.LIST."""

    consumers: list[ConsumerInfo] = field(default_factory=new_list)
    missing: list[str] = field(default_factory=list)
    offline: dict[str, str] = field(default_factory=dict)


class ConsumerDeleteAnswer(Success, tag_field="type", tag=TYPE_PREFIX + "consumer_delete_response"):
    """CONSUMER.DELETE."""


class ConsumerPauseAnswer(Model, tag_field="type", tag=TYPE_PREFIX + "consumer_pause_response"):
    """CONSUMER.PAUSE."""

    paused: bool = field(default_factory=off)
    pause_until: Time = field(default_factory=zero_time)
    pause_remaining: Duration = 0


class ConsumerUnpinAnswer(Model, tag_field="type", tag=TYPE_PREFIX + "consumer_unpin_response"):
    """CONSUMER.UNPIN."""


class ConsumerResetAnswer(ConsumerInfo, tag_field="type", tag=TYPE_PREFIX + "consumer_reset_response"):
    """CONSUMER.RESET."""

    reset_seq: Uint64 = field(default_factory=zero)


class ConsumerLeaderStepdownAnswer(Success, tag_field="type", tag=TYPE_PREFIX + "consumer_leader_stepdown_response"):
    """CONSUMER.LEADER.STEPDOWN."""


class ConsumerRemovePeerAnswer(Success, tag_field="type", tag=TYPE_PREFIX + "consumer_remove_peer_response"):
    """CONSUMER.PEER.REMOVE."""


class ConsumerEvacuatePeerAnswer(Success, tag_field="type", tag=TYPE_PREFIX + "consumer_evacuate_peer_response"):
    """CONSUMER.PEER.EVACUATE."""


class AccountPurgeAnswer(Model, tag_field="type", tag=TYPE_PREFIX + "account_purge_response"):
    """ACCOUNT.PURGE."""

    initiated: bool = False


class SystemAnswer(Model, tag_field="type", tag=TYPE_PREFIX + "system_response"):
    """Answer of the system account to other verbs."""


def type_of(answer: type[Model]) -> str:
    """Return the `type` text of an answer."""
    return str(answer.__struct_config__.tag)


def stream_info_answer(info: StreamInfo, page: Paged) -> StreamInfoAnswer:
    """Return the answer of STREAM.INFO for `info`; `page` is the page of its subjects."""
    answer = StreamInfoAnswer(total=page.total, offset=page.offset, limit=page.limit)
    for name in info.__struct_fields__:
        setattr(answer, name, getattr(info, name))
    return answer


def as_error(answer: type[Model], error: ApiError, error_body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object of an answer that failed: type, error, then the zeros nats-server still writes."""
    return {"type": type_of(answer), "error": msgspec.to_builtins(error), **error_body}
