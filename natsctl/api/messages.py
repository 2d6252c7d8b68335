"""Message-shaped JSON: publish acks, stored messages and pull requests."""

from msgspec import field

from natsctl.api.catalogue import ApiError
from natsctl.api.model import Duration, Int, Int64, Model, Time, Uint64, blank, zero, zero_time


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
