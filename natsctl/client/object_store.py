"""Object stores: an object is a run of chunks in a stream, and one message of metadata that names them.

The protocol is used directly, for the reasons in client/kv.py, and one more: nats-py reads an object into memory as a
whole. Metadata is kept as the JSON that was stored, so that fields of other clients stay. Source: ADR-20.

An object is read chunk by chunk into a file, and checked against size and digest at the end. It is written chunks
first, several at a time, and the metadata when all are stored. An error, Ctrl-C or SIGTERM before that removes the
chunks; an older object of that name is then untouched. Its chunks are removed only after the new metadata is stored.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import msgspec

from natsctl.api.errors import (
    ApiResponseError,
    ExitCode,
    NatsctlError,
    ProtocolError,
    StorageError,
    UnreachableError,
    UsageError,
    file_errors,
)
from natsctl.api.subjects import is_valid_subject
from natsctl.api.times import ZERO_TIME, format_time
from natsctl.client.atomic_file import atomic_write
from natsctl.client.buckets import OBJECTS, WatchOptions, bucket_info, watch_bucket
from natsctl.client.message import NO_RESPONDERS, DryRunError, Message, Planned, as_bytes
from natsctl.client.messaging import messages
from natsctl.client.messaging.consumers import DeliveredMessage, OrderedReader
from natsctl.client.requests import Answer, api_error, not_understood, parse_object

if TYPE_CHECKING:
    from natsctl.api.answers import StreamInfoAnswer
    from natsctl.client.connection import Subscription
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


class StoredObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object's metadata: `raw` is the JSON as it was stored, `time` when (RFC 3339), `revision` its sequence.

    `name` is any text, `chunks` the number of messages with the bytes, `digest` is empty for links and deletions.
    """

    raw: dict[str, Any]
    time: str
    revision: int
    name: str
    bucket: str = ""
    nuid: str = ""
    size: Annotated[int, msgspec.Meta(ge=0)] = 0
    chunks: Annotated[int, msgspec.Meta(ge=0)] = 0
    deleted: bool = False
    digest: str = ""
    description: str = ""
    options: dict[str, Any] = {}
    headers: dict[str, list[str] | None] = {}
    metadata: dict[str, str] = {}

    @property
    def link(self) -> dict[str, str] | None:
        """Return the target of a link: a bucket, and the name of an object there or none for the whole bucket.

        None otherwise.
        """
        link = self.options.get("link")
        return link if isinstance(link, dict) and link.get("bucket") else None

    @property
    def document(self) -> dict[str, Any]:
        """Return the metadata with the true time; the stored one is zero."""
        return {**self.raw, "mtime": self.time}


def read_object(raw: dict[str, Any], time: str, revision: int) -> StoredObject:
    """Return the metadata in a JSON object; null is an absent field. Raises msgspec.ValidationError."""
    fields = {name: value for name, value in raw.items() if value is not None}
    return msgspec.convert({**fields, "raw": raw, "time": time, "revision": revision}, StoredObject)


def to_object(body: bytes, time: str, revision: int, subject: str) -> StoredObject:
    """Return the metadata that a message holds. Raises ProtocolError."""
    try:
        stored = read_object(parse_object(body, subject), time, revision)
    except msgspec.ValidationError as failure:
        raise not_understood(subject, failure) from failure
    if not stored.name:
        raise not_understood(subject, "it names no object")
    return stored


def _remains(body: bytes, time: str, revision: int, subject: str, name: str) -> StoredObject:
    """Return the readable part of damaged metadata: enough to replace or delete the object, perhaps with its chunks."""
    with contextlib.suppress(ProtocolError):
        nuid = parse_object(body, subject).get("nuid")
        if isinstance(nuid, str) and is_valid_subject(nuid) and not set(nuid) & set(".*>"):
            return read_object({"name": name, "nuid": nuid}, time, revision)
    return read_object({"name": name}, time, revision)


def digest_of(hashed: hashlib._Hash) -> str:
    return DIGEST_TYPE + base64.urlsafe_b64encode(hashed.digest()).decode()


def digest_bytes(digest: str) -> bytes:
    """Return the digest of metadata as bytes, padded or not; empty if unknown."""
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
        """Return the bucket of that name. Raises BucketNotFoundError, UsageError for a bad name."""
        return cls(manager, name, await bucket_info(manager, OBJECTS, name))

    def meta_subject(self, name: str) -> str:
        return f"$O.{self.name}.M.{base64.urlsafe_b64encode(as_bytes(name)).decode()}"

    def chunk_subject(self, nuid: str) -> str:
        return f"$O.{self.name}.C.{nuid}"

    async def find(self, name: str, *, fresh: bool = False, damaged: bool = False) -> StoredObject | None:
        """Return the metadata of an object, a deletion's too, or None. `fresh` asks the leader.

        With `damaged`, for an object to be replaced or deleted, unreadable metadata is left out.
        """
        if not name:
            raise UsageError("an object needs a name")
        subject = self.meta_subject(name)
        found = await messages.last_on(self.manager, self.stream, subject, direct=self.direct and not fresh)
        if found is None:
            return None
        try:
            return to_object(found.body, found.time, found.seq, subject)
        except ProtocolError:
            if not damaged:
                raise
            return _remains(found.body, found.time, found.seq, subject, name)

    async def info_of(self, name: str, *, fresh: bool = False, damaged: bool = False) -> StoredObject:
        """Return the metadata of an object that is there. Raises ObjectNotFoundError; `damaged` as for `find`."""
        found = await self.find(name, fresh=fresh, damaged=damaged)
        if found is None or found.deleted:
            raise ObjectNotFoundError(self, name, deleted=found is not None)
        return found

    async def resolve(self, name: str) -> tuple[ObjectBucket, StoredObject]:
        """Return the object that a name represents and its bucket, links followed.

        Raises NatsctlError, ObjectNotFoundError.
        """
        bucket, found = self, await self.info_of(name)
        for _ in range(MAX_HOPS):
            link = found.link
            if link is None:
                return bucket, found
            if not link.get("name"):
                raise NatsctlError(
                    f"object {name} is a link to the bucket {link['bucket']}",
                    hint=f"natsctl object ls {link['bucket']} shows the objects there",
                )
            if link["bucket"] != bucket.name:
                bucket = await ObjectBucket.open(self.manager, link["bucket"])
            found = await bucket.info_of(link["name"])
        raise ProtocolError(f"object {name} is a link that leads back to itself")

    async def store_meta(self, raw: dict[str, Any]) -> int:
        """Replace the metadata of that name, and return its sequence."""
        body = json.dumps({**raw, "mtime": ZERO_TIME}, separators=(",", ":"), ensure_ascii=False).encode()
        answer = await messages.publish(self.manager, self.meta_subject(raw["name"]), body, headers=ROLLUP)
        return answer.value.seq

    async def delete(self, found: StoredObject) -> int:
        """Mark an object as deleted, remove its chunks, and return how many went."""
        gone = {key: value for key, value in found.raw.items() if key != "digest"}
        await self.store_meta({**gone, "size": 0, "chunks": 0, "deleted": True})
        return await self.drop_chunks(found.nuid)

    async def drop_chunks(self, nuid: str) -> int:
        """Remove the chunks stored under that id, and return how many messages went."""
        if not nuid:
            return 0
        answer = await self.manager.stream_purge(self.stream, filter=self.chunk_subject(nuid))
        return answer.value.purged


LAGS_S = 5.0
"""Maximum wait for the next chunk: the reading server of a cluster may lag the one that stored it."""


async def get(bucket: ObjectBucket, found: StoredObject, target: IO[bytes], on_progress: Callable[[int], None]) -> None:
    """Write an object's bytes to `target`; the callback gets the number of bytes received.

    Raises StorageError with the fault.
    """
    hashed, size = hashlib.sha256(), 0
    if found.size:
        subject = bucket.chunk_subject(found.nuid)
        async with OrderedReader(bucket.manager, bucket.stream, subject) as reader:
            while size < found.size and (delivered := await reader.next(LAGS_S)) is not None:
                chunk = delivered.message.body
                hashed.update(chunk)
                size += len(chunk)
                target.write(chunk)
                on_progress(size)
    if size != found.size:
        raise StorageError(
            f"object {found.name} has {size} bytes in bucket {bucket.name}, but should have {found.size}"
        )
    wanted = digest_bytes(found.digest)
    if wanted and wanted != hashed.digest():
        raise StorageError(f"object {found.name} in bucket {bucket.name} does not have the digest {found.digest}")


@contextmanager
def beside(target: Path) -> Iterator[IO[bytes]]:
    """Yield a file to write; it becomes `target` on success, else nothing is left of it.

    Raises UsageError if no file can be, StorageError if it cannot be written.
    """
    with contextlib.ExitStack() as stack:
        with file_errors(f"cannot write to {target.parent}", UsageError):
            file = stack.enter_context(atomic_write(target, durable=True))
        with file_errors(f"cannot write {target}"):
            yield file
            stack.close()


WINDOW_BYTES = 4 * 1024 * 1024
"""Bytes of chunks that may be on their way without an ack."""
CLEAN_UP_S = 5.0
"""Seconds that the removal of a broken upload may take."""


@dataclass(frozen=True, slots=True)
class Meta:
    """Metadata of an object besides its bytes."""

    name: str
    description: str = ""
    headers: dict[str, list[str]] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    chunk_bytes: int = CHUNK_BYTES

    def document(self, bucket: str, nuid: str) -> dict[str, Any]:
        """Return the metadata known before the bytes."""
        said = {"description": self.description, "headers": self.headers, "metadata": self.metadata}
        return {
            "name": self.name,
            **{key: value for key, value in said.items() if value},
            "options": {"max_chunk_size": self.chunk_bytes},
            "bucket": bucket,
            "nuid": nuid,
        }


async def put(bucket: ObjectBucket, meta: Meta, source: IO[bytes], on_progress: Callable[[int], None]) -> StoredObject:
    """Store the content of `source` as an object, and return its metadata.

    The callback gets the number of bytes stored.

    In a dry run the source is read for its size and digest, and DryRunError raised.
    """
    connection = bucket.manager.connection
    if not 0 < meta.chunk_bytes <= connection.max_payload:
        raise UsageError(f"--chunk-size: 1 byte to {connection.max_payload}, the server's largest message")
    before = await bucket.find(meta.name, fresh=True, damaged=True)
    nuid = connection.new_inbox().rpartition(".")[2]
    raw = meta.document(bucket.name, nuid)
    if connection.dry_run:
        await _preview(bucket, raw, source, meta.chunk_bytes, before)
    try:
        async with _Upload(bucket, nuid, meta.chunk_bytes) as upload:
            raw |= await upload.send(source, on_progress)
        revision = await bucket.store_meta(raw)
    except BaseException:
        await _clean_up(bucket, nuid)
        raise
    if before is not None and not before.deleted and before.nuid != nuid:
        await bucket.drop_chunks(before.nuid)
    made = await bucket.find(meta.name, fresh=True)
    return made if made is not None else read_object(raw, "", revision)


async def _preview(
    bucket: ObjectBucket, raw: dict[str, Any], source: IO[bytes], chunk_bytes: int, before: StoredObject | None
) -> None:
    """End a dry run with the metadata that would be stored."""
    hashed, size, chunks = hashlib.sha256(), 0, 0
    while chunk := await _read(source, chunk_bytes):
        hashed.update(chunk)
        size, chunks = size + len(chunk), chunks + 1
    raw |= {"size": size, "chunks": chunks, "digest": digest_of(hashed)}
    effect: dict[str, Any] = {"chunks": chunks, "bytes": size}
    if before is not None and not before.deleted:
        effect |= {"replaces_bytes": before.size, "removes_chunks": before.chunks}
    raise DryRunError(
        *([Planned(bucket.chunk_subject(raw["nuid"]))] if chunks else []),
        Planned(bucket.meta_subject(raw["name"]), raw, ROLLUP),
        effect=effect,
    )


async def _clean_up(bucket: ObjectBucket, nuid: str) -> None:
    """Remove the chunks of a failed upload; a failure of this must not hide the first one."""
    with contextlib.suppress(NatsctlError, TimeoutError):
        async with asyncio.timeout(CLEAN_UP_S):
            await bucket.drop_chunks(nuid)


async def _read(source: IO[bytes], size: int) -> bytes:
    """Return the next `size` bytes, fewer only at the end.

    What may keep one waiting is read as it comes, so that the connection stays alive and Ctrl-C ends the waiting.
    """
    number = _waiting_number(source)
    if number is None:
        return source.read(size)
    loop = asyncio.get_running_loop()
    parts: list[bytes] = []
    while size > 0:
        ready = asyncio.Event()
        loop.add_reader(number, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(number)
        part = os.read(number, size)
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _waiting_number(source: IO[bytes]) -> int | None:
    """Return the file descriptor of a pipe, socket or terminal; None for a file."""
    try:
        number = source.fileno()
    except OSError:
        return None
    mode = os.fstat(number).st_mode
    return number if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(number) else None


class _Upload:
    """Chunks with acks to come: publishes in order, waits for acks where too much is on its way."""

    def __init__(self, bucket: ObjectBucket, nuid: str, chunk_bytes: int) -> None:
        self._connection = bucket.manager.connection
        self._subject = bucket.chunk_subject(nuid)
        self._chunk_bytes = chunk_bytes
        self._most = max(1, WINDOW_BYTES // chunk_bytes)
        self._inbox = self._connection.new_inbox()
        self._acks: Subscription | None = None
        self._sent = self._acked = 0

    async def __aenter__(self) -> _Upload:
        self._acks = await self._connection.subscribe(self._inbox)
        self._acks.watched = self._subject
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._acks is None:
            return
        # A chunk that is stored after the others were removed would stay forever.
        with contextlib.suppress(NatsctlError, TimeoutError):
            async with asyncio.timeout(CLEAN_UP_S):
                while self._acked < self._sent:
                    await self._acks.next()
                    self._acked += 1
        await self._acks.stop()

    async def send(self, source: IO[bytes], on_progress: Callable[[int], None]) -> dict[str, Any]:
        """Store all that the source holds; returns size, chunks and digest."""
        hashed, size = hashlib.sha256(), 0
        while chunk := await _read(source, self._chunk_bytes):
            hashed.update(chunk)
            await self._connection.publish(self._subject, chunk, reply=self._inbox)
            size, self._sent = size + len(chunk), self._sent + 1
            await self._wait(self._most - 1)
            on_progress(min(size, self._acked * self._chunk_bytes))
        await self._wait(0)
        on_progress(size)
        return {"size": size, "chunks": self._sent, "digest": digest_of(hashed)}

    async def _wait(self, most: int) -> None:
        """Return once no more than that many are on their way. Raises the server's error."""
        while self._acks is not None and self._sent - self._acked > most:
            answer = await self._acks.next(self._connection.timeout_s)
            if answer is None:
                raise UnreachableError(f"no answer on {self._subject} within {self._connection.timeout_s:g}s")
            self._acked += 1
            self._check(answer)

    def _check(self, answer: Message) -> None:
        if answer.status == NO_RESPONDERS:
            raise UnreachableError(f"no responders on {self._subject}: it was deleted, or is in another account")
        raw = parse_object(answer.body, self._subject)
        if error := raw.get("error"):
            raise ApiResponseError(api_error(error), self._subject)
        if "stream" not in raw:
            raise ProtocolError(f"the answer on {self._subject} is not a publish ack: {answer.body[:64]!r}")


async def objects(bucket: ObjectBucket, *, deletes: bool = False) -> list[StoredObject]:
    """Return the objects of a bucket by name; metadata that cannot be read is left out (`connection.received`)."""
    found: dict[str, StoredObject] = {}
    async with OrderedReader(bucket.manager, bucket.stream, _all(bucket), deliver="last_per_subject") as reader:
        async for delivered in reader.stored():
            found |= {one.name: one for one in _readable(bucket, delivered)}
    return [found[name] for name in sorted(found) if deletes or not found[name].deleted]


def watch(bucket: ObjectBucket, options: WatchOptions) -> AsyncIterator[StoredObject]:
    """Yield the existing objects, then put and deleted ones.

    Raises NothingReceivedError if the wait ended without any.
    """
    reader = OrderedReader(bucket.manager, bucket.stream, _all(bucket), deliver=options.deliver)
    nothing = f"nothing happened in bucket {bucket.name}"
    return watch_bucket(
        OBJECTS, bucket.name, reader, lambda delivered: _readable(bucket, delivered), options, nothing=nothing
    )


def _all(bucket: ObjectBucket) -> str:
    return f"$O.{bucket.name}.M.>"


def _readable(bucket: ObjectBucket, delivered: DeliveredMessage) -> list[StoredObject]:
    """Return the object of a message, or nothing if its metadata cannot be read."""

    def what(delivered: DeliveredMessage) -> str:
        subject = delivered.message.subject
        try:
            name = base64.urlsafe_b64decode(subject.rpartition(".")[2]).decode()
        except ValueError:
            return f"the metadata on {subject}"
        return f"the metadata of object {name}"

    def read(delivered: DeliveredMessage) -> StoredObject:
        message, at = delivered
        return to_object(message.body, format_time(at.ts_ns), at.stream_seq, message.subject)

    return bucket.manager.connection.received.readable([delivered], read, what)
