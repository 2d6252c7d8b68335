"""Consumers: configuration and information."""

from msgspec import field

from natsctl.api.model import Duration, Int, Model, SizeInt, Time, Uint64, WireEnum, blank, zero, zero_time
from natsctl.api.stream import ClusterInfo


class DeliverPolicy(WireEnum):
    """Start of a consumer in the stream."""

    ALL = "all"
    LAST = "last"
    NEW = "new"
    BY_START_SEQUENCE = "by_start_sequence"
    BY_START_TIME = "by_start_time"
    LAST_PER_SUBJECT = "last_per_subject"
    UNDEFINED = "undefined"


class AckPolicy(WireEnum):
    """Acknowledgements that a consumer asks for."""

    NONE = "none"
    ALL = "all"
    EXPLICIT = "explicit"
    FLOW_CONTROL = "flow_control"


class ReplayPolicy(WireEnum):
    """Speed of delivery: as fast as possible, or at the pace of the original messages."""

    INSTANT = "instant"
    ORIGINAL = "original"


class PriorityPolicy(WireEnum):
    """Policy among the pull requests of a priority group."""

    NONE = "none"
    OVERFLOW = "overflow"
    PINNED_CLIENT = "pinned_client"
    PRIORITIZED = "prioritized"


class ConsumerConfig(Model):
    """The configuration of a consumer; with `deliver_subject` it is a push consumer, else a pull consumer."""

    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: DeliverPolicy = field(default_factory=lambda: DeliverPolicy.ALL)
    opt_start_seq: Uint64 = 0
    opt_start_time: Time | None = None
    ack_policy: AckPolicy = field(default_factory=lambda: AckPolicy.NONE)
    ack_wait: Duration = 0
    max_deliver: Int = 0
    backoff: list[Duration] = field(default_factory=list)
    filter_subject: str = ""
    filter_subjects: list[str] = field(default_factory=list)
    replay_policy: ReplayPolicy = field(default_factory=lambda: ReplayPolicy.INSTANT)
    rate_limit_bps: Uint64 = 0
    sample_freq: str = ""
    max_waiting: Int = 0
    max_ack_pending: Int = 0
    flow_control: bool = False
    headers_only: bool = False
    max_batch: Int = 0
    max_expires: Duration = 0
    max_bytes: SizeInt = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat: Duration = 0
    inactive_threshold: Duration = 0
    num_replicas: Int = field(default_factory=zero)
    mem_storage: bool = False
    direct: bool = False
    sourcing: bool = False
    metadata: dict[str, str] = field(default_factory=dict)
    pause_until: Time | None = None
    priority_groups: list[str] = field(default_factory=list)
    priority_policy: PriorityPolicy | None = None
    priority_timeout: Duration = 0


class SequenceInfo(Model):
    """A pair of consumer and stream sequence, and when it last moved."""

    consumer_seq: Uint64 = field(default_factory=zero)
    stream_seq: Uint64 = field(default_factory=zero)
    last_active: Time | None = None


class PriorityGroupState(Model):
    """Client that is pinned in a priority group."""

    group: str = field(default_factory=blank)
    pinned_client_id: str = ""
    pinned_ts: Time = field(default_factory=zero_time)


class ConsumerInfo(Model):
    """A consumer's configuration and progress at `ts`, the server's time of the answer."""

    stream_name: str = field(default_factory=blank)
    name: str = field(default_factory=blank)
    created: Time = field(default_factory=zero_time)
    config: ConsumerConfig = field(default_factory=lambda: ConsumerConfig())
    delivered: SequenceInfo = field(default_factory=lambda: SequenceInfo())
    ack_floor: SequenceInfo = field(default_factory=lambda: SequenceInfo())
    num_ack_pending: Int = field(default_factory=zero)
    num_redelivered: Int = field(default_factory=zero)
    num_waiting: Int = field(default_factory=zero)
    num_pending: Uint64 = field(default_factory=zero)
    cluster: ClusterInfo | None = None
    push_bound: bool = False
    paused: bool = False
    pause_remaining: Duration = 0
    ts: Time = field(default_factory=zero_time)
    priority_groups: list[PriorityGroupState] = field(default_factory=list)
