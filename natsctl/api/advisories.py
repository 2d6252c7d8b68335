"""Bodies and subjects of advisories and metrics. `type` is the struct's tag; then `id` (a nuid) and `timestamp`."""

from typing import ClassVar, Final

from msgspec import field

from natsctl.api.model import Duration, Int64, Model, Time, Uint64, WireEnum, blank, off, zero, zero_time
from natsctl.api.stream import StreamState
from natsctl.api.subjects import ADVISORY_PREFIX, METRIC_PREFIX

TYPE_PREFIX: Final = "io.nats.jetstream.advisory.v1."
METRIC_TYPE_PREFIX: Final = "io.nats.jetstream.metric.v1."


class ActionType(WireEnum):
    """Kind of a change of a stream or consumer."""

    CREATE = "create"
    DELETE = "delete"
    MODIFY = "modify"

    @property
    def verb(self) -> str:
        """The word in the subjects of advisories."""
        return {"create": "CREATED", "delete": "DELETED", "modify": "UPDATED"}[self]


class ClientInfo(Model):
    """Client that sent a request; `rtt` in ns."""

    start: Time | None = None
    host: str = ""
    id: Uint64 = 0
    acc: str = ""
    svc: str = ""
    user: str = ""
    name: str = ""
    lang: str = ""
    ver: str = ""
    rtt: Duration = 0
    server: str = ""
    cluster: str = ""
    alts: list[str] = field(default_factory=list)
    stop: Time | None = None
    jwt: str = ""
    issuer_key: str = ""
    name_tag: str = ""
    tags: list[str] = field(default_factory=list)
    kind: str = ""
    client_type: str = ""
    client_id: str = ""
    nonce: str = ""
    reply: str = ""


class AdvisoryEvent(Model):
    """Common beginning of every advisory."""

    SUBJECT: ClassVar[str] = ""
    """Template of the subject; `{0}` is the event."""

    id: str = field(default_factory=blank)
    timestamp: Time = field(default_factory=zero_time)

    def published_on(self) -> str:
        """Return the subject of the event."""
        return self.SUBJECT.format(self)


class StreamEvent(AdvisoryEvent):
    """Common beginning of the advisories about a stream."""

    stream: str = field(default_factory=blank)


class ConsumerEvent(StreamEvent):
    """Common beginning of the advisories about a consumer."""

    consumer: str = field(default_factory=blank)


class ApiAudit(AdvisoryEvent, tag_field="type", tag=TYPE_PREFIX + "api_audit"):
    """An API call was handled; request and response are the JSON texts."""

    SUBJECT = ADVISORY_PREFIX + ".API"
    server: str = field(default_factory=blank)
    client: ClientInfo | None = None
    subject: str = field(default_factory=blank)
    request: str = ""
    response: str = field(default_factory=blank)
    domain: str = ""


class ApiLimitReached(AdvisoryEvent, tag_field="type", tag=TYPE_PREFIX + "api_limit_reached"):
    """Requests were dropped because too many were waiting."""

    SUBJECT = ADVISORY_PREFIX + ".API.LIMIT_REACHED"
    server: str = field(default_factory=blank)
    domain: str = ""
    dropped: Int64 = field(default_factory=zero)


class StreamAction(StreamEvent, tag_field="type", tag=TYPE_PREFIX + "stream_action"):
    """A stream was created, deleted or changed."""

    SUBJECT = ADVISORY_PREFIX + ".STREAM.{0.action.verb}.{0.stream}"
    action: ActionType = field(default_factory=lambda: ActionType.CREATE)
    template: str = ""
    domain: str = ""


class ConsumerChanged(ConsumerEvent, tag_field="type", tag=TYPE_PREFIX + "consumer_action"):
    """A consumer was created or deleted."""

    SUBJECT = ADVISORY_PREFIX + ".CONSUMER.{0.action.verb}.{0.stream}.{0.consumer}"
    action: ActionType = field(default_factory=lambda: ActionType.CREATE)
    domain: str = ""


class ConsumerPause(ConsumerEvent, tag_field="type", tag=TYPE_PREFIX + "consumer_pause"):
    """A consumer was paused or resumed."""

    SUBJECT = ADVISORY_PREFIX + ".CONSUMER.PAUSE.{0.stream}.{0.consumer}"
    paused: bool = field(default_factory=off)
    pause_until: Time = field(default_factory=zero_time)
    domain: str = ""


class MaxDeliver(ConsumerEvent, tag_field="type", tag=TYPE_PREFIX + "max_deliver"):
    """A message was given up after its last delivery."""

    SUBJECT = ADVISORY_PREFIX + ".CONSUMER.MAX_DELIVERIES.{0.stream}.{0.consumer}"
    stream_seq: Uint64 = field(default_factory=zero)
    deliveries: Uint64 = field(default_factory=zero)
    domain: str = ""


class Nak(ConsumerEvent, tag_field="type", tag=TYPE_PREFIX + "nak"):
    """A message was refused for now."""

    SUBJECT = ADVISORY_PREFIX + ".CONSUMER.MSG_NAKED.{0.stream}.{0.consumer}"
    consumer_seq: Uint64 = field(default_factory=zero)
    stream_seq: Uint64 = field(default_factory=zero)
    deliveries: Uint64 = field(default_factory=zero)
    domain: str = ""


class Terminated(ConsumerEvent, tag_field="type", tag=TYPE_PREFIX + "terminated"):
    """A message will not be delivered again."""

    SUBJECT = ADVISORY_PREFIX + ".CONSUMER.MSG_TERMINATED.{0.stream}.{0.consumer}"
    consumer_seq: Uint64 = field(default_factory=zero)
    stream_seq: Uint64 = field(default_factory=zero)
    deliveries: Uint64 = field(default_factory=zero)
    reason: str = ""
    domain: str = ""


class GroupPinned(AdvisoryEvent, tag_field="type", tag=TYPE_PREFIX + "consumer_group_pinned"):
    """A client was pinned in a priority group."""

    SUBJECT = ADVISORY_PREFIX + ".CONSUMER.PINNED.{0.stream}.{0.consumer}"
    account: str = ""
    stream: str = field(default_factory=blank)
    consumer: str = field(default_factory=blank)
    domain: str = ""
    group: str = field(default_factory=blank)
    pinned_id: str = field(default_factory=blank)


class GroupUnpinned(AdvisoryEvent, tag_field="type", tag=TYPE_PREFIX + "consumer_group_unpinned"):
    """A priority group lost its pinned client; the reason is "admin" or "timeout"."""

    SUBJECT = ADVISORY_PREFIX + ".CONSUMER.UNPINNED.{0.stream}.{0.consumer}"
    account: str = ""
    stream: str = field(default_factory=blank)
    consumer: str = field(default_factory=blank)
    domain: str = ""
    group: str = field(default_factory=blank)
    reason: str = field(default_factory=blank)


class SnapshotCreate(StreamEvent, tag_field="type", tag=TYPE_PREFIX + "snapshot_create"):
    """A snapshot was started."""

    SUBJECT = ADVISORY_PREFIX + ".STREAM.SNAPSHOT_CREATE.{0.stream}"
    state: StreamState = field(default_factory=lambda: StreamState())
    client: ClientInfo | None = None
    domain: str = ""


class SnapshotComplete(StreamEvent, tag_field="type", tag=TYPE_PREFIX + "snapshot_complete"):
    """A snapshot ended; `error` says why when it failed."""

    SUBJECT = ADVISORY_PREFIX + ".STREAM.SNAPSHOT_COMPLETE.{0.stream}"
    start: Time = field(default_factory=zero_time)
    end: Time = field(default_factory=zero_time)
    client: ClientInfo | None = None
    domain: str = ""
    error: str = ""


class RestoreCreate(StreamEvent, tag_field="type", tag=TYPE_PREFIX + "restore_create"):
    """A restore was started."""

    SUBJECT = ADVISORY_PREFIX + ".STREAM.RESTORE_CREATE.{0.stream}"
    client: ClientInfo | None = None
    domain: str = ""


class RestoreComplete(StreamEvent, tag_field="type", tag=TYPE_PREFIX + "restore_complete"):
    """A restore ended, well or not."""

    SUBJECT = ADVISORY_PREFIX + ".STREAM.RESTORE_COMPLETE.{0.stream}"
    start: Time = field(default_factory=zero_time)
    end: Time = field(default_factory=zero_time)
    bytes: Int64 = field(default_factory=zero)
    client: ClientInfo | None = None
    domain: str = ""


class BatchAbandonReason(WireEnum):
    """Reason why a batch was abandoned."""

    TIMEOUT = "timeout"
    LARGE = "large"
    INCOMPLETE = "incomplete"
    UNSUPPORTED = "unsupported"


class BatchAbandoned(AdvisoryEvent, tag_field="type", tag=TYPE_PREFIX + "stream_batch_abandoned"):
    """An atomic batch was thrown away; `batch` is its id."""

    SUBJECT = ADVISORY_PREFIX + ".STREAM.BATCH_ABANDONED.{0.stream}"
    account: str = ""
    stream: str = field(default_factory=blank)
    domain: str = ""
    batch: str = field(default_factory=blank)
    reason: BatchAbandonReason = field(default_factory=lambda: BatchAbandonReason.TIMEOUT)


class ServerOutOfSpace(AdvisoryEvent, tag_field="type", tag=TYPE_PREFIX + "server_out_of_space"):
    """The server's disk is full; published to the system account."""

    SUBJECT = ADVISORY_PREFIX + ".SERVER.OUT_OF_STORAGE"
    server: str = field(default_factory=blank)
    server_id: str = field(default_factory=blank)
    stream: str = ""
    cluster: str = field(default_factory=blank)
    domain: str = ""


class ConsumerAckMetric(ConsumerEvent, tag_field="type", tag=METRIC_TYPE_PREFIX + "consumer_ack"):
    """A sampled ack: `ack_time` is ns since the latest delivery."""

    SUBJECT = METRIC_PREFIX + ".CONSUMER.ACK.{0.stream}.{0.consumer}"
    consumer_seq: Uint64 = field(default_factory=zero)
    stream_seq: Uint64 = field(default_factory=zero)
    ack_time: Int64 = field(default_factory=zero)
    deliveries: Uint64 = field(default_factory=zero)
    domain: str = ""


ConsumerAdvisory = (
    ConsumerChanged | ConsumerPause | MaxDeliver | Nak | Terminated | GroupPinned | GroupUnpinned | ConsumerAckMetric
)
Advisory = (
    ConsumerAdvisory
    | ApiAudit
    | ApiLimitReached
    | StreamAction
    | SnapshotCreate
    | SnapshotComplete
    | RestoreCreate
    | RestoreComplete
    | BatchAbandoned
    | ServerOutOfSpace
)
"""Every event with a tag, for decoding by `type`."""
