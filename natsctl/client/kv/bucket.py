"""Key-value buckets: keys are subjects of a stream, revisions its sequences.

Spoken here as the protocol it is (messages, headers, stream requests) and not through nats-py's KeyValue: that class
answers with exceptions of its own that leave out the server's error, reads every refusal of a publish as a conflict,
knows no dry run and no trace, and fails on what it does not model. What is written here nats-py and nats.go read, and
reverse the order; the tests hold both. Source: ADR-8, ADR-48.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsctl.api.err_codes import ErrCode
from natsctl.api.errors import ApiResponseError, NatsctlError
from natsctl.api.exit_codes import ExitCode
from natsctl.client.buckets import KV, WRONG_LAST_SEQUENCE, bucket_info
from natsctl.client.kv.entry import (
    ALL_KEYS,
    DEL,
    PURGE,
    PUT,
    Entry,
    check_key,
    check_pattern,
    operation_of,
    ttl_of,
    write_headers,
)
from natsctl.client.messaging import messages, stored

if TYPE_CHECKING:
    from natsctl.api.answers import StreamInfoAnswer, StreamPurgeAnswer
    from natsctl.api.messages import PubAck
    from natsctl.client.answer import Answer
    from natsctl.client.manager import Manager
    from natsctl.client.messaging.stored import Stored

_API_PREFIX = "$JS.API"


class KeyNotFoundError(NatsctlError):
    """The key has no value, or never had that revision; `last` is its deletion marker where there is one."""

    exit_code = ExitCode.NOT_FOUND

    def __init__(self, bucket: Bucket, key: str, text: str, last: Entry | None = None) -> None:
        super().__init__(text)
        self.subject = bucket.reads + key
        self.bucket = bucket
        self.key = key
        self.last = last


class KeyRevisionError(ApiResponseError):
    """The key is at another revision than was expected; `current` is what it is at now."""

    def __init__(self, failure: ApiResponseError, text: str, current: Entry | None) -> None:
        super().__init__(failure.error, failure.subject)
        self.args = (text,)
        self.current = current


class Bucket:
    """A bucket that exists: `info` is its stream as it was when it was opened.

    `reads` and `writes` begin the subjects of its keys. They differ in mirrors, whose messages keep the subjects of
    their origin and whose writes go there, and behind an API prefix, where writes need it too.
    """

    def __init__(self, manager: Manager, name: str, info: Answer[StreamInfoAnswer]) -> None:
        self.manager = manager
        self.name = name
        self.info = info
        self.stream = KV.stream_of(name)
        config = info.value.config
        self.direct = config.allow_direct or config.mirror_direct
        prefix = manager.connection.target.api_prefix
        api = "" if prefix == _API_PREFIX else f"{prefix}."
        self.reads = f"$KV.{name}."
        self.writes = f"{api}{self.reads}"
        if config.mirror is not None:
            origin = f"$KV.{KV.bucket_of(config.mirror.name)}."
            self.reads = self.reads if config.mirror.subject_transforms else origin
            external = config.mirror.external
            self.writes = f"{external.api}.{origin}" if external is not None and external.api else f"{api}{origin}"

    @classmethod
    async def open(cls, manager: Manager, name: str) -> Bucket:
        """The bucket of that name. Raises BucketNotFoundError, UsageError for a bad name."""
        return cls(manager, name, await bucket_info(manager, KV, name))

    @property
    def shortest_ttl_ns(self) -> int:
        """What a shorter time to live of a key is raised to: markers of keys that go before theirs would be lost."""
        config = self.info.value.config
        return 0 if config.max_msgs_per_subject == 1 else config.subject_delete_marker_ttl

    # -- reading

    async def get(self, key: str, revision: int = 0, *, fresh: bool = False) -> Entry:
        """What a key holds, or held at a revision; `fresh` asks the leader.

        Raises KeyNotFoundError, also for a deletion.
        """
        entry = await self.last(key, revision, fresh=fresh)
        if entry is None:
            what = f"key {key} has no revision {revision}" if revision else f"key {key} does not exist"
            raise KeyNotFoundError(self, key, f"{what} in bucket {self.name}")
        if entry.deleted:
            what = f"revision {entry.revision} of key {key} is its deletion" if revision else f"key {key} was deleted"
            raise KeyNotFoundError(self, key, f"{what} in bucket {self.name}", entry)
        return entry

    async def last(self, key: str, revision: int = 0, *, fresh: bool = False) -> Entry | None:
        """The last entry of a key, or the one at a revision, deletions included; None where there is none."""
        check_key(key)
        subject, direct = self.reads + key, self.direct and not fresh
        if not revision:
            found = await stored.last_on(self.manager, self.stream, subject, direct=direct)
        else:
            found = await stored.at(self.manager, self.stream, revision, direct=direct)
        return self._entry(found) if found is not None and found.subject == subject else None

    def _entry(self, found: Stored) -> Entry:
        return Entry(
            bucket=self.name,
            key=found.subject.removeprefix(self.reads),
            revision=found.seq,
            operation=operation_of(found.headers),
            created=found.time,
            length=len(found.body),
            value=found.body,
            ttl_ns=ttl_of(found.headers),
        )

    # -- writing

    async def put(self, key: str, value: bytes) -> Answer[PubAck]:
        """Set a key."""
        return await self._write(key, value, {})

    async def create(self, key: str, value: bytes, ttl_ns: int = 0) -> Answer[PubAck]:
        """Set a key that has no value. Raises KeyRevisionError where it has one."""
        try:
            return await self._write(key, value, write_headers(expected=0, ttl_ns=ttl_ns))
        except ApiResponseError as failure:
            if failure.err_code not in WRONG_LAST_SEQUENCE:
                raise
            current = await self.last(key, fresh=True)
            if current is None or not current.deleted:
                raise self._changed(failure, f"key {key} exists in bucket {self.name}", current) from failure
        # A deletion marker counts as a message: behind it the key is free.
        return await self.update(key, value, current.revision, ttl_ns)

    async def update(self, key: str, value: bytes, revision: int, ttl_ns: int = 0) -> Answer[PubAck]:
        """Set a key that is at `revision` (0: that was never set). Raises KeyRevisionError where it is not."""
        return await self._guarded(key, value, write_headers(expected=revision, ttl_ns=ttl_ns), revision)

    async def delete(self, key: str, revision: int | None = None) -> Answer[PubAck]:
        """Mark a key as deleted, if it is at `revision` where that is given; what it held stays in its history."""
        return await self._guarded(key, b"", write_headers(DEL, expected=revision), revision)

    async def purge(self, key: str, revision: int | None = None, ttl_ns: int = 0) -> Answer[PubAck]:
        """Mark a key as deleted and forget its history; the marker goes after `ttl_ns`, where that is given."""
        return await self._guarded(key, b"", write_headers(PURGE, expected=revision, ttl_ns=ttl_ns), revision)

    async def forget(self, pattern: str = ALL_KEYS, below: int = 0) -> Answer[StreamPurgeAnswer]:
        """Remove everything of the keys that match, or what is below a revision; nothing tells watchers."""
        check_pattern(pattern)
        filter = "" if pattern == ALL_KEYS else self.reads + pattern
        return await self.manager.stream_purge(self.stream, filter=filter, seq=below)

    async def kept(self, pattern: str = ALL_KEYS) -> dict[str, int]:
        """The keys that match, deleted ones too, and how many messages each has."""
        answer = await self.manager.stream_info(self.stream, subjects_filter=self.reads + pattern)
        subjects = (answer.raw.get("state") or {}).get("subjects") or {}
        return {subject.removeprefix(self.reads): number for subject, number in subjects.items()}

    async def _guarded(self, key: str, body: bytes, headers: dict[str, str], revision: int | None) -> Answer[PubAck]:
        try:
            return await self._write(key, body, headers)
        except ApiResponseError as failure:
            if failure.err_code not in WRONG_LAST_SEQUENCE or revision is None:
                raise
            current = await self.last(key, fresh=True)
            text = f"key {key} in bucket {self.name} is not at revision {revision}"
            raise self._changed(failure, text, current) from failure

    def _changed(self, failure: ApiResponseError, text: str, current: Entry | None) -> KeyRevisionError:
        changed = KeyRevisionError(failure, text, current)
        if current is None:
            changed.hint = f"{current_key(failure)} was never set: its revision is 0"
        else:
            done = {PUT: "set", DEL: "deleted", PURGE: "purged"}[current.operation]
            changed.hint = f"it is at revision {current.revision} now, {done} at {current.created}"
        return changed

    async def _write(self, key: str, body: bytes, headers: dict[str, str]) -> Answer[PubAck]:
        check_key(key)
        try:
            return await messages.publish(self.manager, self.writes + key, body, headers=headers or None)
        except ApiResponseError as failure:
            if failure.err_code == ErrCode.MESSAGE_TTL_DISABLED:
                failure.hint = f"natsctl kv edit {self.name} --marker-ttl 1h lets its keys have a time to live"
            raise


def current_key(failure: NatsctlError) -> str:
    """The key of the message that failed."""
    return failure.subject.partition("$KV.")[2].partition(".")[2] or "the key"
