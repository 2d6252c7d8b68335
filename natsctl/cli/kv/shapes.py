"""What `natsctl kv … -j` prints where it is natsctl's own document.

A value is text where it is UTF-8 (`value`), else base64 (`value_base64`): never both, and none of them where the value
was not read or the entry is a deletion; `length` is its bytes in every case. Times are RFC 3339, times to live
nanoseconds.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType, field, to_builtins

from natsctl.api.model import Model
from natsctl.cli.bucket_documents import AnyBucket, either, shared_fields
from natsctl.client.buckets import KV
from natsctl.client.kv.entry import Entry as Read

if TYPE_CHECKING:
    from natsctl.client.answer import Answer


class Entry(Model, omit_defaults=False):
    """A key at a revision; `operation` is PUT, DEL or PURGE, `delta` how many entries the reader had still to read.

    `ttl` is how long it lives, -1 for ever; an entry without lives as long as the bucket says.
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
    """What a write left: the stream's ack with the key; `revision` is its sequence."""

    bucket: str
    key: str
    operation: str
    revision: int
    stream: str
    seq: int
    domain: str = ""
    duplicate: bool = False


class Removed(Model):
    """What was deleted: a key, with the revision of its marker, or a bucket; nothing where it was not there."""

    bucket: str
    success: bool
    key: str | UnsetType = UNSET
    revision: int | UnsetType = UNSET
    missing: bool = False


class Purged(Model):
    """What was purged: a key (`revision` is that of its marker), the keys of a filter, or what deleted keys took up.

    `purged` counts the messages that are gone, `keys` the keys.
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


Listed = either("Listed", "A bucket, or an entry of one, whose value is there where it was asked for.", Bucket, Entry)


def entry_document(entry: Read) -> dict[str, Any]:
    """An entry as `Entry`."""
    document = {
        "bucket": entry.bucket,
        "key": entry.key,
        "revision": entry.revision,
        "operation": entry.operation,
        "created": entry.created,
        "length": entry.length,
        "delta": entry.delta,
    }
    if entry.value is not None and not entry.deleted:
        document |= value_fields(entry.value)
    if entry.ttl_ns:
        document["ttl"] = entry.ttl_ns
    return document


def value_fields(value: bytes) -> dict[str, str]:
    """The value as text where it is text, else as base64."""
    try:
        return {"value": value.decode()}
    except UnicodeDecodeError:
        return {"value_base64": base64.b64encode(value).decode()}


def written_document(bucket: str, key: str, operation: str, ack: dict[str, Any]) -> dict[str, Any]:
    """A publish ack as `Written`."""
    return {"bucket": bucket, "key": key, "operation": operation, "revision": ack.get("seq"), **ack}


def bucket_document(answer: Answer[Any]) -> dict[str, Any]:
    """A bucket's stream as `Bucket`."""
    config, state = answer.value.config, answer.value.state
    document: dict[str, Any] = to_builtins(
        Bucket(
            **shared_fields(KV, answer),
            history=config.max_msgs_per_subject,
            values=state.messages,
            keys=state.num_subjects,
            marker_ttl=config.subject_delete_marker_ttl,
            max_value_size=config.max_msg_size or -1,
            mirror=KV.bucket_of(config.mirror.name) if config.mirror else None,
            sources=[KV.bucket_of(one.name) for one in config.sources],
        )
    )
    return document
