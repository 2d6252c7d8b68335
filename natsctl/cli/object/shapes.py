"""What `natsctl object … -j` prints where it is natsctl's own document. Times are RFC 3339."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType, field, to_builtins

from natsctl.api.model import Model
from natsctl.cli.kv.shapes import either
from natsctl.client.buckets import OBJECTS

if TYPE_CHECKING:
    from natsctl.client.answer import Answer


class Link(Model):
    """Where a link points: an object, or without a name a whole bucket."""

    bucket: str
    name: str = ""


class Options(Model):
    """How an object is stored."""

    link: Link | UnsetType = UNSET
    max_chunk_size: int | UnsetType = UNSET


class Object(Model):
    """An object's metadata as it is stored, with the time of storing as `mtime`; `digest` is SHA-256 in base64."""

    name: str
    bucket: str
    nuid: str
    mtime: str
    size: int = 0
    chunks: int = 0
    digest: str = ""
    deleted: bool = False
    description: str = ""
    headers: dict[str, list[str] | str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    options: Options | UnsetType = UNSET


class Fetched(Object):
    """What was fetched, and the file that it was written to."""

    output: str = ""


class Removed(Model):
    """What was deleted: an object, with how many chunks went, or a bucket; nothing where it was not there."""

    bucket: str
    success: bool
    name: str | UnsetType = UNSET
    purged: int | UnsetType = UNSET
    missing: bool = False


class Bucket(Model, omit_defaults=False):
    """A bucket in its own words, and in `stream_info` everything that the server says of its stream.

    Sizes are bytes, the time to live nanoseconds; 0 and -1 mean no limit.
    """

    bucket: str
    description: str
    stream: str
    created: str
    last_update: str
    sealed: bool
    bytes: int
    ttl: int
    max_bucket_size: int
    storage: str
    replicas: int
    compressed: bool
    metadata: dict[str, str] = field(default_factory=dict)
    stream_info: dict[str, Any] = field(default_factory=dict)


Listed = either("Listed", "A bucket, or an object of one.", Bucket, Object)


def bucket_document(answer: Answer[Any]) -> dict[str, Any]:
    """A bucket's stream as `Bucket`."""
    info = answer.value
    config, state = info.config, info.state
    document: dict[str, Any] = to_builtins(
        Bucket(
            bucket=OBJECTS.bucket_of(config.name),
            description=config.description,
            stream=config.name,
            created=info.created,
            last_update=state.last_ts,
            sealed=config.sealed,
            bytes=state.bytes,
            ttl=config.max_age,
            max_bucket_size=config.max_bytes or -1,
            storage=config.storage.value,
            replicas=config.num_replicas,
            compressed=config.compression.value != "none",
            metadata={key: text for key, text in config.metadata.items() if not key.startswith("_nats.")},
            stream_info=answer.raw,
        )
    )
    return document
