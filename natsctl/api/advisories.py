"""Bodies and subjects of advisories and metrics. `type` is the struct's tag; then `id` (a nuid) and `timestamp`."""

from typing import Final, Protocol

from msgspec import field

from natsctl.api.model import Duration, Int64, Model, Time, Uint64, WireEnum, blank, off, zero, zero_time
from natsctl.api.stream import StreamState
from natsctl.api.subjects import ADVISORY_PREFIX, METRIC_PREFIX

TYPE_PREFIX: Final = "io.nats.jetstream.advisory.v1."
METRIC_TYPE_PREFIX: Final = "io.nats.jetstream.metric.v1."

API_AUDIT: Final = ADVISORY_PREFIX + ".API"
API_LIMIT_REACHED: Final = ADVISORY_PREFIX + ".API.LIMIT_REACHED"


class ActionType(WireEnum):
    """Kind of a change of a stream or consumer."""

    CREATE = "create"
    DELETE = "delete"
    MODIFY = "modify"


_STREAM_VERBS: Final = {ActionType.CREATE: "CREATED", ActionType.DELETE: "DELETED", ActionType.MODIFY: "UPDATED"}


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


class Event(Model):
    """Common beginning of every advisory."""

    id: str = field(default_factory=blank)
    timestamp: Time = field(default_factory=zero_time)


class Advised(Protocol):
    """Any event; the fields that its publisher fills in."""

    id: str
    timestamp: str
    domain: str


class ApiAudit(Event, tag_field="type", tag=TYPE_PREFIX + "api_audit"):
    """An API call was handled; request and response are the JSON texts."""

    server: str = field(default_factory=blank)
    client: ClientInfo | None = None
    subject: str = field(default_factory=blank)
    request: str = ""
    response: str = field(default_factory=blank)
    domain: str = ""


class ApiLimitReached(Event, tag_field="type", tag=TYPE_PREFIX + "api_limit_reached"):
    """Requests were dropped because too many were waiting."""

    server: str = field(default_factory=blank)
    domain: str = ""
    dropped: Int64 = field(default_factory=zero)


class StreamAction(Event, tag_field="type", tag=TYPE_PREFIX + "stream_action"):
    """A stream was created, deleted or changed."""

    stream: str = field(default_factory=blank)
    action: ActionType = field(default_factory=lambda: ActionType.CREATE)
    template: str = ""
    domain: str = ""

    def subject(self) -> str:
        """Return where it is published."""
        return f"{ADVISORY_PREFIX}.STREAM.{_STREAM_VERBS[self.action]}.{self.stream}"


class ConsumerAction(Event, tag_field="type", tag=TYPE_PREFIX + "consumer_action"):
    """A consumer was created or deleted."""

    stream: str = field(default_factory=blank)
    consumer: str = field(default_factory=blank)
    action: ActionType = field(default_factory=lambda: ActionType.CREATE)
    domain: str = ""

    def subject(self) -> str:
        """Return where it is published."""
        return f"{ADVISORY_PREFIX}.CONSUMER.{_STREAM_VERBS[self.action]}.{self.stream}.{self.consumer}"


class ConsumerPause(Event, tag_field="type", tag=TYPE_PREFIX + "consumer_pause"):
    """A consumer was paused or resumed."""

    stream: str = field(default_factory=blank)
    consumer: str = field(default_factory=blank)
    paused: bool = field(default_factory=off)
    pause_until: Time = field(default_factory=zero_time)
    domain: str = ""

    def subject(self) -> str:
        """Return where it is published."""
        return f"{ADVISORY_PREFIX}.CONSUMER.PAUSE.{self.stream}.{self.consumer}"


class MaxDeliver(Event, tag_field="type", tag=TYPE_PREFIX + "max_deliver"):
    """A message was given up after its last delivery."""

    stream: str = field(default_factory=blank)
    consumer: str = field(default_factory=blank)
    stream_seq: Uint64 = field(default_factory=zero)
    deliveries: Uint64 = field(default_factory=zero)
    domain: str = ""

    def subject(self) -> str:
        """Return where it is published."""
        return f"{ADVISORY_PREFIX}.CONSUMER.MAX_DELIVERIES.{self.stream}.{self.consumer}"


class Nak(Event, tag_field="type", tag=TYPE_PREFIX + "nak"):
    """A message was refused for now."""

    stream: str = field(default_factory=blank)
    consumer: str = field(default_factory=blank)
    consumer_seq: Uint64 = field(default_factory=zero)
    stream_seq: Uint64 = field(default_factory=zero)
    deliveries: Uint64 = field(default_factory=zero)
    domain: str = ""

    def subject(self) -> str:
        """Return where it is published."""
        return f"{ADVISORY_PREFIX}.CONSUMER.MSG_NAKED.{self.stream}.{self.consumer}"


class Terminated(Event, tag_field="type", tag=TYPE_PREFIX + "terminated"):
    """A message will not be delivered again."""

    stream: str = field(default_factory=blank)
    consumer: str = field(default_factory=blank)
    consumer_seq: Uint64 = field(default_factory=zero)
    stream_seq: Uint64 = field(default_factory=zero)
    deliveries: Uint64 = field(default_factory=zero)
    reason: str = ""
    domain: str = ""

    def subject(self) -> str:
        """Return where it is published."""
        return f"{ADVISORY_PREFIX}.CONSUMER.MSG_TERMINATED.{self.stream}.{self.consumer}"


class GroupPinned(Event, tag_field="type", tag=TYPE_PREFIX + "consumer_group_pinned"):
    """A client was pinned in a priority group."""

    account: str = ""
    stream: str = field(default_factory=blank)
    consumer: str = field(default_factory=blank)
    domain: str = ""
    group: str = field(default_factory=blank)
    pinned_id: str = field(default_factory=blank)

    def subject(self) -> str:
        """Return where it is published."""
        return f"{ADVISORY_PREFIX}.CONSUMER.PINNED.{self.stream}.{self.consumer}"


class GroupUnpinned(Event, tag_field="type", tag=TYPE_PREFIX + "consumer_group_unpinned"):
    """A priority group lost its pinned client; the reason is "admin" or "timeout"."""

    account: str = ""
    stream: str = field(default_factory=blank)
    consumer: str = field(default_factory=blank)
    domain: str = ""
    group: str = field(default_factory=blank)
    reason: str = field(default_factory=blank)

    def subject(self) -> str:
        """Return where it is published."""
        return f"{ADVISORY_PREFIX}.CONSUMER.UNPINNED.{self.stream}.{self.consumer}"


class SnapshotCreate(Event, tag_field="type", tag=TYPE_PREFIX + "snapshot_create"):
    """A snapshot was started."""

    stream: str = field(default_factory=blank)
    state: StreamState = field(default_factory=lambda: StreamState())
    client: ClientInfo | None = None
    domain: str = ""

    def subject(self) -> str:
        """Return where it is published."""
        return f"{ADVISORY_PREFIX}.STREAM.SNAPSHOT_CREATE.{self.stream}"


class SnapshotComplete(Event, tag_field="type", tag=TYPE_PREFIX + "snapshot_complete"):
    """A snapshot ended; `error` says why when it failed."""

    stream: str = field(default_factory=blank)
    start: Time = field(default_factory=zero_time)
    end: Time = field(default_factory=zero_time)
    client: ClientInfo | None = None
    domain: str = ""
    error: str = ""

    def subject(self) -> str:
        """Return where it is published."""
        return f"{ADVISORY_PREFIX}.STREAM.SNAPSHOT_COMPLETE.{self.stream}"


class RestoreCreate(Event, tag_field="type", tag=TYPE_PREFIX + "restore_create"):
    """A restore was started."""

    stream: str = field(default_factory=blank)
    client: ClientInfo | None = None
    domain: str = ""

    def subject(self) -> str:
        """Return where it is published."""
        return f"{ADVISORY_PREFIX}.STREAM.RESTORE_CREATE.{self.stream}"


class RestoreComplete(Event, tag_field="type", tag=TYPE_PREFIX + "restore_complete"):
    """A restore ended, well or not."""

    stream: str = field(default_factory=blank)
    start: Time = field(default_factory=zero_time)
    end: Time = field(default_factory=zero_time)
    bytes: Int64 = field(default_factory=zero)
    client: ClientInfo | None = None
    domain: str = ""

    def subject(self) -> str:
        """Return where it is published."""
        return f"{ADVISORY_PREFIX}.STREAM.RESTORE_COMPLETE.{self.stream}"


class BatchAbandonReason(WireEnum):
    """Reason why a batch was abandoned."""

    TIMEOUT = "timeout"
    LARGE = "large"
    INCOMPLETE = "incomplete"
    UNSUPPORTED = "unsupported"


class BatchAbandoned(Event, tag_field="type", tag=TYPE_PREFIX + "stream_batch_abandoned"):
    """An atomic batch was thrown away; `batch` is its id."""

    account: str = ""
    stream: str = field(default_factory=blank)
    domain: str = ""
    batch: str = field(default_factory=blank)
    reason: BatchAbandonReason = field(default_factory=lambda: BatchAbandonReason.TIMEOUT)

    def subject(self) -> str:
        """Return where it is published."""
        return f"{ADVISORY_PREFIX}.STREAM.BATCH_ABANDONED.{self.stream}"


class ServerOutOfSpace(Event, tag_field="type", tag=TYPE_PREFIX + "server_out_of_space"):
    """The server's disk is full; published to the system account."""

    server: str = field(default_factory=blank)
    server_id: str = field(default_factory=blank)
    stream: str = ""
    cluster: str = field(default_factory=blank)
    domain: str = ""

    def subject(self) -> str:
        """Return where it is published."""
        return f"{ADVISORY_PREFIX}.SERVER.OUT_OF_STORAGE"


class ConsumerAckMetric(Event, tag_field="type", tag=METRIC_TYPE_PREFIX + "consumer_ack"):
    """A sampled ack: `ack_time` is ns since the latest delivery."""

    stream: str = field(default_factory=blank)
    consumer: str = field(default_factory=blank)
    consumer_seq: Uint64 = field(default_factory=zero)
    stream_seq: Uint64 = field(default_factory=zero)
    ack_time: Int64 = field(default_factory=zero)
    deliveries: Uint64 = field(default_factory=zero)
    domain: str = ""

    def subject(self) -> str:
        """Return where it is published."""
        return f"{METRIC_PREFIX}.CONSUMER.ACK.{self.stream}.{self.consumer}"


Advisory = (
    ApiAudit
    | ApiLimitReached
    | StreamAction
    | ConsumerAction
    | ConsumerPause
    | MaxDeliver
    | Nak
    | Terminated
    | GroupPinned
    | GroupUnpinned
    | SnapshotCreate
    | SnapshotComplete
    | RestoreCreate
    | RestoreComplete
    | BatchAbandoned
    | ServerOutOfSpace
    | ConsumerAckMetric
)
"""Every event with a tag, for decoding by `type`."""
