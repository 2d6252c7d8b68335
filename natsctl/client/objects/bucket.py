"""Object buckets: an object is a run of chunks in a stream, and one message of metadata that says which.

Spoken as the protocol it is, for the reasons that client/kv/bucket.py gives, and one more: nats-py reads an object into
memory as a whole. Metadata is kept as the JSON that it was stored as, so that what other clients put there stays.
Source: ADR-20.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from natsctl.api.errors import NatsctlError, ProtocolError, UsageError
from natsctl.api.exit_codes import ExitCode
from natsctl.api.times import ZERO_TIME
from natsctl.client.buckets import OBJECTS, bucket_info
from natsctl.client.messaging import messages, stored

if TYPE_CHECKING:
    from natsctl.api.answers import StreamInfoAnswer
    from natsctl.client.answer import Answer
    from natsctl.client.manager import Manager

DIGEST_TYPE = "SHA-256="
CHUNK_BYTES = 128 * 1024
ROLLUP = {"Nats-Rollup": "sub"}
MAX_HOPS = 8
"""Links that are followed from one object; clients make none to links, so more are a circle."""


class ObjectNotFoundError(NatsctlError):
    """There is no object of that name in the bucket, or it was deleted."""

    exit_code = ExitCode.NOT_FOUND

    def __init__(self, bucket: ObjectBucket, name: str, *, deleted: bool = False) -> None:
        done = "was deleted from" if deleted else "does not exist in"
        super().__init__(f"object {name} {done} bucket {bucket.name}")
        self.subject = bucket.meta_subject(name)
        self.bucket = bucket
        self.name = name


class BucketLinkError(NatsctlError):
    """The object stands for a whole bucket, which can not be read as one."""


@dataclass(frozen=True, slots=True)
class Object:
    """An object's metadata: `raw` is the JSON as it was stored, `time` when (RFC 3339), `revision` its sequence."""

    raw: dict[str, Any]
    time: str
    revision: int

    @property
    def name(self) -> str:
        """Its name; any text."""
        return str(self.raw.get("name") or "")

    @property
    def bucket(self) -> str:
        """The bucket that it says it is in."""
        return str(self.raw.get("bucket") or "")

    @property
    def nuid(self) -> str:
        """What its chunks are stored under."""
        return str(self.raw.get("nuid") or "")

    @property
    def size(self) -> int:
        """Its bytes."""
        return int(self.raw.get("size") or 0)

    @property
    def chunks(self) -> int:
        """The messages that they are in."""
        return int(self.raw.get("chunks") or 0)

    @property
    def deleted(self) -> bool:
        """Whether this is a marker that it was deleted."""
        return bool(self.raw.get("deleted"))

    @property
    def digest(self) -> str:
        """`SHA-256=` and the base64 of it, empty for links and deletions."""
        return str(self.raw.get("digest") or "")

    @property
    def link(self) -> dict[str, str] | None:
        """Where it points, if it is a link: a bucket, and the name of an object there or none for the whole bucket."""
        link = (self.raw.get("options") or {}).get("link")
        return link if isinstance(link, dict) and link.get("bucket") else None

    @property
    def document(self) -> dict[str, Any]:
        """The metadata with the true time; what is stored there is none."""
        return {**self.raw, "mtime": self.time}


def to_object(body: bytes, time: str, revision: int, subject: str) -> Object:
    """The metadata that a message holds. Raises ProtocolError."""
    try:
        raw = json.loads(body)
    except ValueError as failure:
        raise ProtocolError(f"the metadata on {subject} is not JSON") from failure
    if not isinstance(raw, dict) or not raw.get("name"):
        raise ProtocolError(f"the metadata on {subject} names no object")
    return Object(raw, time, revision)


def digest_of(hashed: hashlib._Hash) -> str:
    """A digest as metadata has it."""
    return DIGEST_TYPE + base64.urlsafe_b64encode(hashed.digest()).decode()


def digest_bytes(digest: str) -> bytes:
    """The digest of metadata as bytes, padded or not; empty where it is none that is known."""
    kind, _, text = digest.partition("=")
    if f"{kind.upper()}=" != DIGEST_TYPE:
        return b""
    try:
        return base64.urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))
    except ValueError:
        return b""


class ObjectBucket:
    """A bucket that exists: `info` is its stream as it was when it was opened."""

    def __init__(self, manager: Manager, name: str, info: Answer[StreamInfoAnswer]) -> None:
        self.manager = manager
        self.name = name
        self.info = info
        self.stream = OBJECTS.stream_of(name)
        self.direct = info.value.config.allow_direct or info.value.config.mirror_direct

    @classmethod
    async def open(cls, manager: Manager, name: str) -> ObjectBucket:
        """The bucket of that name. Raises BucketNotFoundError, UsageError for a bad name."""
        return cls(manager, name, await bucket_info(manager, OBJECTS, name))

    def meta_subject(self, name: str) -> str:
        """The subject of an object's metadata."""
        return f"$O.{self.name}.M.{base64.urlsafe_b64encode(name.encode('utf-8', 'surrogateescape')).decode()}"

    def chunk_subject(self, nuid: str) -> str:
        """The subject of an object's chunks."""
        return f"$O.{self.name}.C.{nuid}"

    async def find(self, name: str, *, fresh: bool = False) -> Object | None:
        """The metadata of an object, a deletion's too; None where there is none. `fresh` asks the leader."""
        if not name:
            raise UsageError("an object needs a name")
        subject = self.meta_subject(name)
        found = await stored.last_on(self.manager, self.stream, subject, direct=self.direct and not fresh)
        return to_object(found.body, found.time, found.seq, subject) if found is not None else None

    async def info_of(self, name: str, *, fresh: bool = False) -> Object:
        """The metadata of an object that is there. Raises ObjectNotFoundError."""
        found = await self.find(name, fresh=fresh)
        if found is None or found.deleted:
            raise ObjectNotFoundError(self, name, deleted=found is not None)
        return found

    async def resolve(self, name: str) -> tuple[ObjectBucket, Object]:
        """The object that a name stands for and its bucket, links followed.

        Raises BucketLinkError, ObjectNotFoundError.
        """
        bucket, found = self, await self.info_of(name)
        for _ in range(MAX_HOPS):
            link = found.link
            if link is None:
                return bucket, found
            if not link.get("name"):
                raise BucketLinkError(
                    f"object {name} is a link to the bucket {link['bucket']}",
                    hint=f"natsctl object ls {link['bucket']} shows the objects there",
                )
            if link["bucket"] != bucket.name:
                bucket = await ObjectBucket.open(self.manager, link["bucket"])
            found = await bucket.info_of(link["name"])
        raise ProtocolError(f"object {name} is a link that leads back to itself")

    async def store_meta(self, raw: dict[str, Any]) -> int:
        """Store metadata in place of what there is for that name, and return its sequence."""
        body = json.dumps({**raw, "mtime": ZERO_TIME}, separators=(",", ":"), ensure_ascii=False).encode()
        answer = await messages.publish(self.manager, self.meta_subject(raw["name"]), body, headers=ROLLUP)
        return answer.value.seq

    async def delete(self, found: Object) -> int:
        """Mark an object as deleted, remove its chunks, and return how many went."""
        gone = {key: value for key, value in found.raw.items() if key != "digest"}
        await self.store_meta({**gone, "size": 0, "chunks": 0, "digest": "", "deleted": True})
        return await self.drop_chunks(found.nuid)

    async def drop_chunks(self, nuid: str) -> int:
        """Remove what is stored under that id, and return how many messages went."""
        if not nuid:
            return 0
        answer = await self.manager.stream_purge(self.stream, filter=self.chunk_subject(nuid))
        return answer.value.purged
