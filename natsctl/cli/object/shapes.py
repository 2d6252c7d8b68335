"""What `natsctl object … -j` prints where it is natsctl's own document. Times are RFC 3339."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType, field, to_builtins

from natsctl.api.model import Model
from natsctl.cli.bucket_documents import AnyBucket, either, shared_fields
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


class Bucket(AnyBucket, kw_only=True, omit_defaults=False):
    """An object bucket; one that is sealed can be read and never changed."""

    sealed: bool


Listed = either("Listed", "A bucket, or an object of one.", Bucket, Object)


def bucket_document(answer: Answer[Any]) -> dict[str, Any]:
    """A bucket's stream as `Bucket`."""
    document: dict[str, Any] = to_builtins(Bucket(**shared_fields(OBJECTS, answer), sealed=answer.value.config.sealed))
    return document
