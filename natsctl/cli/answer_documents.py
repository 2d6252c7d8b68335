"""Documents that commands of messages and buckets print with -j.

They are apart from the commands: declaring them needs msgspec, and its import takes longer than to read a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, UnsetType, defstruct, field, structs

from natsctl.api.model import Duration, Model, Time
from natsctl.api.versions import SERVER_METADATA
from natsctl.client.buckets import KV, BucketKind

if TYPE_CHECKING:
    from natsctl.client.requests import Answer


class Message(Model, kw_only=True):
    """A message: `data` in base64, `text` if it is UTF-8; with its position in a stream or consumer."""

    subject: str
    data: str
    received: Time
    reply: str = ""
    headers: dict[str, list[str]] = field(default_factory=dict)
    text: str | None = None
    stream: str = ""
    stream_seq: int = 0
    consumer: str = ""
    consumer_seq: int = 0
    deliveries: int = 0
    pending: int = 0
    time: Time = ""


class Published(Model, kw_only=True):
    """Messages published to a subject, without acks of a stream."""

    subject: str
    published: int
    bytes: int


class Response(Message, kw_only=True):
    """An answer to a request, how long it took, and the status of one that has a status."""

    rtt: Duration
    status: int = 0
    description: str = ""


class Answered(Message, kw_only=True):
    """A request, and whether it was answered; `failure` is the reason if it was not."""

    answered: bool
    failure: str = ""


class Traced(Model, kw_only=True):
    """The servers' trace events of a message, as they sent them."""

    subject: str
    delivered: bool
    traces: list[dict[str, Any]]


class Counted(Model, kw_only=True):
    """The messages of a subject or subscription."""

    subject: str
    messages: int
    bytes: int


class Happened(Model, kw_only=True):
    """An advisory, a metric or another event, as the server sent it; `natsctl schema ls advisory` has their kinds."""

    type: str = ""
    id: str = ""
    timestamp: Time = ""


class CloudEvent(Model, kw_only=True):
    """An event in the envelope of CloudEvents 1.0; `id` and `time` may be null."""

    type: str
    time: str | None
    id: str | None
    source: str
    dataschema: str
    specversion: str
    subject: str
    data: dict[str, Any]


class AnyBucket(Model, kw_only=True, omit_defaults=False):
    """A bucket by its own fields; `stream_info` is the server's answer about its stream.

    Sizes are bytes, times to live nanoseconds; 0 and -1 mean no limit.
    """

    bucket: str
    description: str
    stream: str
    created: str
    last_update: str
    bytes: int
    ttl: int
    max_bucket_size: int
    storage: str
    replicas: int
    compressed: bool
    metadata: dict[str, str] = field(default_factory=dict)
    stream_info: dict[str, Any] = field(default_factory=dict)


def shared_fields(kind: BucketKind, answer: Answer[Any]) -> dict[str, Any]:
    info = answer.value
    config, state = info.config, info.state
    return {
        "bucket": kind.bucket_of(config.name),
        "description": config.description,
        "stream": config.name,
        "created": info.created,
        "last_update": state.last_ts,
        "bytes": state.bytes,
        "ttl": config.max_age,
        "max_bucket_size": config.max_bytes or -1,
        "storage": config.storage.value,
        "replicas": config.num_replicas,
        "compressed": config.compression.value != "none",
        "metadata": {key: text for key, text in config.metadata.items() if not key.startswith(SERVER_METADATA)},
        "stream_info": answer.raw,
    }


def either(name: str, doc: str, *kinds: type[Struct]) -> type[Struct]:
    fields: dict[str, Any] = {}
    for kind in kinds:
        for one in structs.fields(kind):
            fields[one.name] = fields[one.name] | one.type if one.name in fields else one.type | UnsetType
    rows = [(field_name, found, UNSET) for field_name, found in fields.items()]
    return defstruct(name, rows, bases=(Model,), module=kinds[0].__module__, namespace={"__doc__": doc})


class Entry(Model, omit_defaults=False):
    """A key at a revision; `operation` is PUT, DEL or PURGE, `delta` the number of entries still to read.

    `ttl` is its lifetime, -1 for unlimited; an entry without it has the lifetime of the bucket.
    """

    bucket: str
    key: str
    revision: int
    operation: str
    created: str
    length: int
    delta: int
    value: str | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET
    ttl: int | UnsetType = UNSET


class Written(Model):
    """Outcome of a write: the stream's ack with the key; `revision` is its sequence."""

    bucket: str
    key: str
    operation: str
    revision: int
    stream: str
    seq: int
    domain: str = ""
    duplicate: bool = False


class Removed(Model):
    """Outcome of a removal: a key, with the revision of its marker, or a bucket; nothing if it did not exist."""

    bucket: str
    success: bool
    key: str | UnsetType = UNSET
    revision: int | UnsetType = UNSET
    missing: bool = False


class Purged(Model):
    """Outcome of a purge: a key (`revision` is its marker's), the keys of a filter, or deleted keys.

    `purged` is the number of removed messages, `keys` the number of keys.
    """

    bucket: str
    success: bool
    key: str | UnsetType = UNSET
    revision: int | UnsetType = UNSET
    keys: int | UnsetType = UNSET
    markers: int | UnsetType = UNSET
    purged: int | UnsetType = UNSET
    missing: bool = False


class Bucket(AnyBucket, kw_only=True, omit_defaults=False):
    """A key-value bucket; `values` counts history and deletion markers."""

    history: int
    values: int
    keys: int
    marker_ttl: int
    max_value_size: int
    mirror: str | None = None
    sources: list[str] = field(default_factory=list)


Listed = either("Listed", "A bucket, or an entry with its value if requested.", Bucket, Entry)


def bucket_document(answer: Answer[Any]) -> Bucket:
    config, state = answer.value.config, answer.value.state
    return Bucket(
        **shared_fields(KV, answer),
        history=config.max_msgs_per_subject,
        values=state.messages,
        keys=state.num_subjects,
        marker_ttl=config.subject_delete_marker_ttl,
        max_value_size=config.max_msg_size or -1,
        mirror=KV.bucket_of(config.mirror.name) if config.mirror else None,
        sources=[KV.bucket_of(source.name) for source in config.sources],
    )
