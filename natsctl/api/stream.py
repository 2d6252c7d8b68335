"""Streams: configuration, state and information."""

from msgspec import field

from natsctl.api.catalogue import ApiError
from natsctl.api.model import (
    Duration,
    Int,
    Int64,
    Model,
    Size32,
    Size64,
    Time,
    Uint64,
    WireEnum,
    blank,
    off,
    zero,
    zero_time,
)


class RetentionPolicy(WireEnum):
    """Condition under which a stored message may be removed."""

    LIMITS = "limits"
    INTEREST = "interest"
    WORKQUEUE = "workqueue"


class DiscardPolicy(WireEnum):
    """Message to discard when a limit is reached: the oldest, or the new one."""

    OLD = "old"
    NEW = "new"


class StorageType(WireEnum):
    """Storage of messages."""

    FILE = "file"
    MEMORY = "memory"


class StoreCompression(WireEnum):
    """Compression of stored blocks."""

    NONE = "none"
    S2 = "s2"


class PersistMode(WireEnum):
    """Order of acknowledging a publish and flushing it; absent means default."""

    DEFAULT = "default"
    ASYNC = "async"


class Placement(Model):
    """Placement of a stream in a cluster."""

    cluster: str = ""
    tags: list[str] = field(default_factory=list)
    preferred: str = ""


class SubjectTransform(Model):
    """A mapping from one subject pattern to another."""

    src: str = field(default_factory=blank)
    dest: str = field(default_factory=blank)


class RePublish(Model):
    """A mapping of stored subjects to subjects they are published on again."""

    src: str = ""
    dest: str = field(default_factory=blank)
    headers_only: bool = False


class ExternalStream(Model):
    """The API and delivery prefixes of a stream in another account or domain."""

    api: str = field(default_factory=blank)
    deliver: str = field(default_factory=blank)


class StreamConsumerSource(Model):
    """Existing durable consumer of a mirror or source, used instead of a created one."""

    name: str = field(default_factory=blank)
    deliver_subject: str = field(default_factory=blank)


class StreamSource(Model):
    """A stream that is mirrored or sourced from."""

    name: str = field(default_factory=blank)
    opt_start_seq: Uint64 = 0
    opt_start_time: Time | None = None
    filter_subject: str = ""
    subject_transforms: list[SubjectTransform] = field(default_factory=list)
    external: ExternalStream | None = None
    consumer: StreamConsumerSource | None = None


class StreamConsumerLimits(Model):
    """Defaults and limits for the consumers of a stream."""

    inactive_threshold: Duration = 0
    max_ack_pending: Int = 0


class StreamConfig(Model):
    """The configuration of a stream; zero means "not given", and the server applies its default."""

    name: str = field(default_factory=blank)
    description: str = ""
    subjects: list[str] = field(default_factory=list)
    retention: RetentionPolicy = field(default_factory=lambda: RetentionPolicy.LIMITS)
    max_consumers: Int = field(default_factory=zero)
    max_msgs: Int64 = field(default_factory=zero)
    max_bytes: Size64 = field(default_factory=zero)
    max_age: Duration = field(default_factory=zero)
    max_msgs_per_subject: Int64 = field(default_factory=zero)
    max_msg_size: Size32 = 0
    discard: DiscardPolicy = field(default_factory=lambda: DiscardPolicy.OLD)
    storage: StorageType = field(default_factory=lambda: StorageType.FILE)
    num_replicas: Int = field(default_factory=zero)
    no_ack: bool = False
    duplicate_window: Duration = 0
    template_owner: str = ""
    placement: Placement | None = None
    mirror: StreamSource | None = None
    sources: list[StreamSource] = field(default_factory=list)
    compression: StoreCompression = field(default_factory=lambda: StoreCompression.NONE)
    first_seq: Uint64 = 0
    subject_transform: SubjectTransform | None = None
    republish: RePublish | None = None
    allow_direct: bool = field(default_factory=off)
    mirror_direct: bool = field(default_factory=off)
    discard_new_per_subject: bool = False
    sealed: bool = field(default_factory=off)
    deny_delete: bool = field(default_factory=off)
    deny_purge: bool = field(default_factory=off)
    allow_rollup_hdrs: bool = field(default_factory=off)
    consumer_limits: StreamConsumerLimits = field(default_factory=lambda: StreamConsumerLimits())
    allow_msg_ttl: bool = field(default_factory=off)
    subject_delete_marker_ttl: Duration = 0
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    persist_mode: PersistMode | None = None
    allow_batched: bool = False
    metadata: dict[str, str] = field(default_factory=dict)


class LostStreamData(Model):
    """Messages a store found damaged."""

    msgs: list[Uint64] = field(default_factory=list)
    bytes: Uint64 = field(default_factory=zero)


class StreamState(Model):
    """State of a stream; byte counts are the sums `max_bytes` is compared with."""

    messages: Uint64 = field(default_factory=zero)
    bytes: Uint64 = field(default_factory=zero)
    first_seq: Uint64 = field(default_factory=zero)
    first_ts: Time = field(default_factory=zero_time)
    last_seq: Uint64 = field(default_factory=zero)
    last_ts: Time = field(default_factory=zero_time)
    num_subjects: Int = 0
    subjects: dict[str, Uint64] = field(default_factory=dict)
    num_deleted: Int = 0
    deleted: list[Uint64] = field(default_factory=list)
    lost: LostStreamData | None = None
    consumer_count: Int = field(default_factory=zero)


class PeerInfo(Model):
    """One replica of a stream or consumer in a cluster."""

    name: str = field(default_factory=blank)
    current: bool = field(default_factory=off)
    observer: bool = False
    offline: bool = False
    active: Duration = field(default_factory=zero)
    lag: Uint64 = 0
    peer: str = ""
    pending: bool = False
    """Whether it is being added to the group, or removed from it."""


class DesiredOrigin(Model):
    """Settings that a cancelled move goes back to."""

    replicas: Int = 0
    placement: Placement | None = None
    retention: str = ""


class DesiredStatus(Model):
    """Step of a move that is under way, or that it waits for."""

    description: str = ""
    type: str = ""
    err: str = ""


class DesiredCluster(Model):
    """Servers that a stream or consumer is on its way to."""

    created: Time = field(default_factory=zero_time)
    name: str = ""
    replicas: list[PeerInfo] = field(default_factory=list)
    origin: DesiredOrigin | None = None
    status: DesiredStatus | None = None


class ClusterInfo(Model):
    """Leader of a stream or consumer, and its replicas."""

    name: str = ""
    raft_group: str = ""
    leader: str = ""
    leader_since: Time | None = None
    system_account: bool = False
    traffic_account: str = ""
    replicas: list[PeerInfo] = field(default_factory=list)
    desired: DesiredCluster | None = None


class StreamSourceInfo(Model):
    """Progress of a mirror or source; `active` is ns since last contact, -1 without contact so far.

    `seq` is the newest sequence of the origin that a source has stored.
    """

    name: str = field(default_factory=blank)
    external: ExternalStream | None = None
    lag: Uint64 = field(default_factory=zero)
    seq: Uint64 = 0
    active: Duration = field(default_factory=zero)
    error: ApiError | None = None
    filter_subject: str = ""
    subject_transforms: list[SubjectTransform] = field(default_factory=list)


class StreamAlternate(Model):
    """A mirror that can be read instead of the stream."""

    name: str = field(default_factory=blank)
    domain: str = ""
    cluster: str = field(default_factory=blank)


class StreamInfo(Model):
    """A stream's configuration and state at `ts`, the server's time of the answer."""

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
    """Reason why writing has stopped, "" while the disk works. natsctl's own field."""
