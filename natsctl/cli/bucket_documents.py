"""What both kinds of buckets are as documents: the fields they share, and types of what is one thing or another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, UnsetType, defstruct, field, structs

from natsctl.api.model import Model

if TYPE_CHECKING:
    from natsctl.client.answer import Answer
    from natsctl.client.buckets import Kind


class AnyBucket(Model, kw_only=True, omit_defaults=False):
    """A bucket in its own words, and in `stream_info` everything that the server says of its stream.

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


def shared_fields(kind: Kind, answer: Answer[Any]) -> dict[str, Any]:
    """The fields of `AnyBucket` from a bucket's stream."""
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
        "metadata": {key: text for key, text in config.metadata.items() if not key.startswith("_nats.")},
        "stream_info": answer.raw,
    }


def either(name: str, doc: str, *kinds: type[Struct]) -> type[Struct]:
    """A type of what is one or another: it has the fields of all, and none has to be there."""
    fields: dict[str, Any] = {}
    for kind in kinds:
        for one in structs.fields(kind):
            fields[one.name] = fields[one.name] | one.type if one.name in fields else one.type | UnsetType
    rows = [(field_name, found, UNSET) for field_name, found in fields.items()]
    return defstruct(name, rows, bases=(Model,), module=kinds[0].__module__, namespace={"__doc__": doc})
