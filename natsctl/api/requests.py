"""One struct per request body of the API, and messages in JSON: publish acks, stored messages and pull requests."""

from __future__ import annotations

from msgspec import field

from natsctl.api.catalogue import ApiError
from natsctl.api.consumer import ConsumerConfig
from natsctl.api.model import Duration, Int, Int64, Model, SizeInt, Time, Uint64, WireEnum, blank, zero, zero_time
from natsctl.api.stream import Placement, StreamConfig, StreamState


class PubAck(Model):
    """The answer to a publish on a captured subject."""

    error: ApiError | None = None
    stream: str = field(default_factory=blank)
    domain: str = ""
    seq: Uint64 = field(default_factory=zero)
    duplicate: bool = False
    val: str = ""
    batch: str = ""
    count: Int = 0


class BatchFlowAck(Model, tag_field="type", tag="ack"):
    """Flow control of a fast batch: the last stored message, and the number of messages until the next ack."""

    seq: Uint64 = field(default_factory=zero)
    msgs: Int = field(default_factory=zero)


class BatchFlowGap(Model, tag_field="type", tag="gap"):
    """Message `seq` of a fast batch came where `last_seq` was expected."""

    last_seq: Uint64 = field(default_factory=zero)
    seq: Uint64 = field(default_factory=zero)


class BatchFlowErr(Model, tag_field="type", tag="err"):
    """Message `seq` of a fast batch was refused."""

    seq: Uint64 = field(default_factory=zero)
    error: ApiError | None = None


class StoredMsg(Model):
    """A stored message in JSON; `hdrs` and `data` are base64 on the wire."""

    subject: str = field(default_factory=blank)
    seq: Uint64 = field(default_factory=zero)
    hdrs: bytes | None = None
    data: bytes | None = None
    time: Time = field(default_factory=zero_time)


class PullRequest(Model):
    """Request to a pull consumer; a `batch` below 1 is served one message."""

    batch: Int = 0
    expires: Duration = 0
    no_wait: bool = False
    max_bytes: Int = 0
    idle_heartbeat: Duration = 0
    group: str = ""
    min_pending: Int64 = 0
    min_ack_pending: Int64 = 0
    id: str = ""
    priority: Int = 0


class StreamCreateRequest(StreamConfig):
    """STREAM.CREATE: the configuration; `pedantic` refuses values that would be normalised."""

    pedantic: bool = False


class StreamUpdateRequest(StreamConfig):
    """STREAM.UPDATE: the whole new configuration."""

    pedantic: bool = False


class PagedRequest(Model):
    """A request for one page of a list."""

    offset: Int = 0


class StreamsRequest(PagedRequest):
    """STREAM.NAMES and STREAM.LIST: only streams with a subject that collides with `subject`."""

    subject: str = ""


class StreamNamesRequest(StreamsRequest):
    """STREAM.NAMES."""


class StreamListRequest(StreamsRequest):
    """STREAM.LIST."""


class ConsumersRequest(PagedRequest):
    """CONSUMER.NAMES and CONSUMER.LIST."""


class StreamInfoRequest(PagedRequest):
    """STREAM.INFO: whether to list deleted sequences, and which subjects to count."""

    deleted_details: bool = False
    subjects_filter: str = ""


class StreamPurgeRequest(Model):
    """STREAM.PURGE: messages of `filter`, below `seq` (exclusive), or all but the newest `keep`."""

    seq: Uint64 = 0
    keep: Uint64 = 0
    filter: str = ""


class StreamMsgGetRequest(Model):
    """STREAM.MSG.GET: exactly one selector; `batch` and the like are of direct get and refused."""

    seq: Uint64 = 0
    last_by_subj: str = ""
    next_by_subj: str = ""
    batch: Int = 0
    max_bytes: SizeInt = 0
    start_time: Time | None = None
    multi_last: list[str] = field(default_factory=list)
    up_to_seq: Uint64 = 0
    up_to_time: Time | None = None
    no_hdr: bool = False


class DirectGetRequest(StreamMsgGetRequest):
    """DIRECT.GET: the same selectors, with batches."""


class StreamBlocksRequest(Model):
    """STREAM.BLOCKS: stored messages from `seq` to `last_seq` (0: the newest), both included, on any of `filters`."""

    seq: Uint64 = 0
    last_seq: Uint64 = 0
    filters: list[str] = field(default_factory=list)
    max_bytes: SizeInt = 0


class StreamMsgDeleteRequest(Model):
    """STREAM.MSG.DELETE: `no_erase` leaves the bytes on disk."""

    seq: Uint64 = field(default_factory=zero)
    no_erase: bool = False


class StreamSnapshotRequest(Model):
    """STREAM.SNAPSHOT: where to send chunks; zero sizes mean the server's defaults."""

    deliver_subject: str = field(default_factory=blank)
    no_consumers: bool = False
    chunk_size: Int = 0
    window_size: Int = 0
    jsck: bool = False


class StreamRestoreRequest(Model):
    """STREAM.RESTORE: the contents of the archive that follows."""

    config: StreamConfig = field(default_factory=lambda: StreamConfig())
    state: StreamState = field(default_factory=lambda: StreamState())


class StreamTemplateConfig(Model):
    """A stream template (servers before 2.14): `config` without a name, and how many streams it may make."""

    name: str = field(default_factory=blank)
    config: StreamConfig = field(default_factory=lambda: StreamConfig())
    max_streams: Int = field(default_factory=zero)


class ConsumerAction(WireEnum):
    """Action of a create request: both, only create, or only update."""

    CREATE_OR_UPDATE = ""
    CREATE = "create"
    UPDATE = "update"


class ConsumerCreateRequest(Model):
    """CONSUMER.CREATE and CONSUMER.DURABLE.CREATE."""

    stream_name: str = field(default_factory=blank)
    config: ConsumerConfig = field(default_factory=lambda: ConsumerConfig())
    action: ConsumerAction = ConsumerAction.CREATE_OR_UPDATE
    pedantic: bool = False


class ConsumerPauseRequest(Model):
    """CONSUMER.PAUSE: until when; absent resumes."""

    pause_until: Time | None = None


class ConsumerUnpinRequest(Model):
    """CONSUMER.UNPIN: name of the priority group."""

    group: str = field(default_factory=blank)


class ConsumerResetRequest(Model):
    """CONSUMER.RESET: new stream sequence; 0 means the next one after the ack floor."""

    seq: Uint64 = 0


class LeaderStepdownRequest(Model):
    """The LEADER.STEPDOWN verbs: where the new leader should be."""

    placement: Placement | None = None


class StreamRemovePeerRequest(Model):
    """STREAM.PEER.REMOVE: which server leaves the stream's group."""

    peer: str = field(default_factory=blank)
