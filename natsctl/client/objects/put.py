"""An object on its way into a bucket: chunks first, several on their way at a time, metadata when all are stored.

Whatever ends it before that, an error, Ctrl-C or SIGTERM, removes the chunks; an object of that name that was there
before is then untouched. Its own chunks go only after the new metadata is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from natsctl.api.errors import ApiResponseError, NatsctlError, ProtocolError, UnreachableError, UsageError
from natsctl.client.answer import parse_object
from natsctl.client.connection import NO_RESPONDERS
from natsctl.client.objects.bucket import CHUNK_BYTES, ROLLUP, Object, ObjectBucket, digest_of
from natsctl.client.preview import DryRunError, Planned
from natsctl.client.requests import api_error

if TYPE_CHECKING:
    from natsctl.client.message import Message
    from natsctl.client.subscription import Subscription

WINDOW_BYTES = 4 * 1024 * 1024
"""Bytes of chunks that may be on their way without an ack."""
CLEAN_UP_S = 5.0
"""Seconds that the removal of a broken upload may take."""


@dataclass(frozen=True, slots=True)
class Meta:
    """What is said of an object besides its bytes."""

    name: str
    description: str = ""
    headers: dict[str, list[str]] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    chunk_bytes: int = CHUNK_BYTES

    def document(self, bucket: str, nuid: str) -> dict[str, Any]:
        """The metadata as far as it is known before the bytes are."""
        said = {"description": self.description, "headers": self.headers, "metadata": self.metadata}
        return {
            "name": self.name,
            **{key: value for key, value in said.items() if value},
            "options": {"max_chunk_size": self.chunk_bytes},
            "bucket": bucket,
            "nuid": nuid,
        }


async def put(bucket: ObjectBucket, meta: Meta, source: IO[bytes], on_progress: Callable[[int], None]) -> Object:
    """Store what `source` holds as an object, and return its metadata; tells how many bytes are stored.

    In a dry run the source is read for its size and digest, and DryRunError raised.
    """
    connection = bucket.manager.connection
    if not 0 < meta.chunk_bytes <= connection.max_payload:
        raise UsageError(f"--chunk-size: 1 byte to {connection.max_payload}, the server's largest message")
    before = await bucket.find(meta.name, fresh=True)
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
    return made if made is not None else Object(raw, "", revision)


async def _preview(
    bucket: ObjectBucket, raw: dict[str, Any], source: IO[bytes], chunk_bytes: int, before: Object | None
) -> None:
    """End a dry run with what would be stored."""
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
    """Remove the chunks of an upload that came to nothing; what ended it has to be told, and not that this failed."""
    with contextlib.suppress(NatsctlError, TimeoutError):
        async with asyncio.timeout(CLEAN_UP_S):
            await bucket.drop_chunks(nuid)


async def _read(source: IO[bytes], size: int) -> bytes:
    """The next `size` bytes, fewer only at the end.

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
    """The file descriptor of a pipe, socket or terminal; None for a file, whose bytes are all there."""
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
        # A chunk that is stored after the others were removed would stay for ever.
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
        """Return once no more than that many are on their way. Raises what the server answers."""
        while self._acks is not None and self._sent - self._acked > most:
            answer = await self._acks.next(self._connection.timeout_s)
            if answer is None:
                raise UnreachableError(f"no answer on {self._subject} within {self._connection.timeout_s:g}s")
            self._acked += 1
            self._check(answer)

    def _check(self, answer: Message) -> None:
        if answer.status == NO_RESPONDERS:
            raise UnreachableError(f"no responders on {self._subject}: the bucket has gone, or is in another account")
        raw = parse_object(answer.body, self._subject)
        if error := raw.get("error"):
            raise ApiResponseError(api_error(error), self._subject)
        if "stream" not in raw:
            raise ProtocolError(f"the answer on {self._subject} is not a publish ack: {answer.body[:64]!r}")
