"""Key-value buckets: keys are subjects of a stream, revisions its sequences.

The protocol (messages, headers, stream requests) is used directly and not through nats-py's KeyValue: that class
answers with exceptions of its own that leave out the server's error, reads every refusal of a publish as a conflict,
has no dry run and no trace, and fails on fields that it does not model. nats-py and nats.go read its entries, and the
reverse; tests check both. Source: ADR-8, ADR-48.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from natsctl.api import endpoints
from natsctl.api.errors import ApiResponseError, ErrCode, ExitCode, NatsctlError
from natsctl.api.times import format_time, parse_time
from natsctl.client.buckets import (
    ALL_KEYS,
    DEL,
    KV,
    PURGE,
    PUT,
    SIZE,
    WRONG_LAST_SEQUENCE,
    Entry,
    WatchOptions,
    bucket_info,
    check_key,
    check_pattern,
    operation_of,
    ttl_of,
    watch_bucket,
    write_headers,
)
from natsctl.client.message import DryRunError, Planned
from natsctl.client.messaging import messages
from natsctl.client.requests import Answer, together
from natsctl.hints import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from natsctl.api.answers import StreamInfoAnswer, StreamPurgeAnswer
    from natsctl.api.requests import PubAck
    from natsctl.client.manager import Manager
    from natsctl.client.messaging.consumers import DeliveredMessage, OrderedReader
    from natsctl.client.messaging.messages import StoredResult


_API_PREFIX = "$JS.API"


class KeyNotFoundError(NatsctlError):
    """The key has no value, or never had that revision; `last` is its deletion marker, if any."""

    exit_code = ExitCode.NOT_FOUND

    def __init__(self, bucket: KeyValueBucket, key: str, text: str, last: Entry | None = None) -> None:
        super().__init__(text)
        self.subject = bucket.reads + key
        self.bucket = bucket
        self.key = key
        self.last = last


class KeyRevisionError(ApiResponseError):
    """The key is at another revision than was expected; `current` is its present one."""

    def __init__(self, failure: ApiResponseError, text: str, current: Entry | None) -> None:
        super().__init__(failure.error, failure.subject)
        self.args = (text,)
        self.current = current


class KeyValueBucket:
    """A bucket that exists: `info` is its stream as it was when it was opened.

    `reads` and `writes` begin the subjects of its keys. They differ in mirrors, where messages keep the subjects of
    their origin and writes go there, and with an API prefix: writes need it too.
    """

    def __init__(self, manager: Manager, name: str, info: Answer[StreamInfoAnswer]) -> None:
        self.manager = manager
        self.name = name
        self.info = info
        self.stream = KV.stream_of(name)
        config: Any = info.raw.get("config", {})
        plain = isinstance(config, dict) and not (config.get("mirror") or config.get("mirror_direct"))
        if not plain or not isinstance(config.get("allow_direct", False), bool):
            _ = info.value  # typed configurations take longer to import than a value to be read
        prefix = manager.connection.target.api_prefix
        mirror = config.get("mirror") or {}
        api = (mirror.get("external") or {}).get("api") or ("" if prefix == _API_PREFIX else prefix)
        origin = f"$KV.{KV.bucket_of(mirror['name']) if mirror else name}."
        self.direct = bool(config.get("allow_direct") or config.get("mirror_direct"))
        self.reads = f"$KV.{name}." if mirror.get("subject_transforms") else origin
        self.writes = f"{api}.{origin}" if api else origin

    @classmethod
    async def open(cls, manager: Manager, name: str) -> KeyValueBucket:
        """Return the bucket of that name. Raises BucketNotFoundError, UsageError for a bad name."""
        return cls(manager, name, await bucket_info(manager, KV, name))

    def at(self, manager: Manager) -> KeyValueBucket:
        return KeyValueBucket(manager, self.name, self.info)

    @property
    def shortest_ttl_ns(self) -> int:
        """Minimum time to live of a key; markers of keys that expire before their own limit would be lost."""
        config = self.info.value.config
        return 0 if config.max_msgs_per_subject == 1 else config.subject_delete_marker_ttl

    # -- reading

    async def get(self, key: str, revision: int = 0, *, fresh: bool = False) -> Entry:
        """Return the value of a key or a revision; `fresh` asks the leader.

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
        """Return the last entry of a key, or the one at a revision, deletions included, or None."""
        check_key(key)
        subject, direct = self.reads + key, self.direct and not fresh
        if not revision:
            found = await messages.last_on(self.manager, self.stream, subject, direct=direct)
        else:
            found = await messages.at(self.manager, self.stream, revision, direct=direct)
        return self._entry(found) if found is not None and found.subject == subject else None

    def _entry(self, found: StoredResult) -> Entry:
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
        return await self._write(key, value, {})

    async def create(self, key: str, value: bytes, ttl_ns: int = 0) -> Answer[PubAck]:
        """Set a key that has no value. Raises KeyRevisionError if it has one."""
        try:
            return await self._write(key, value, write_headers(expected=0, ttl_ns=ttl_ns))
        except ApiResponseError as failure:
            if failure.err_code not in WRONG_LAST_SEQUENCE:
                raise
            current = await self.last(key, fresh=True)
            if current is None or not current.deleted:
                raise self._changed(failure, f"key {key} exists in bucket {self.name}", current) from failure
        # A deletion marker counts as a message: after it the key is free.
        return await self.update(key, value, current.revision, ttl_ns)

    async def update(self, key: str, value: bytes, revision: int, ttl_ns: int = 0) -> Answer[PubAck]:
        """Set a key that is at `revision` (0: that was never set). Raises KeyRevisionError if it is not."""
        return await self._guarded(key, value, write_headers(expected=revision, ttl_ns=ttl_ns), revision)

    async def delete(self, key: str, revision: int | None = None) -> Answer[PubAck]:
        """Mark a key as deleted, or only if it is at `revision`; its values stay in its history."""
        return await self._guarded(key, b"", write_headers(DEL, expected=revision), revision)

    async def purge(self, key: str, revision: int | None = None, ttl_ns: int = 0) -> Answer[PubAck]:
        """Mark a key as deleted and remove its history; the marker expires after `ttl_ns`, if given."""
        return await self._guarded(key, b"", write_headers(PURGE, expected=revision, ttl_ns=ttl_ns), revision)

    async def forget(self, pattern: str = ALL_KEYS, below: int = 0) -> Answer[StreamPurgeAnswer]:
        """Remove all messages of the matching keys, or those below a revision; watchers get no notice."""
        check_pattern(pattern)
        filter = "" if pattern == ALL_KEYS else self.reads + pattern
        return await self.manager.stream_purge(self.stream, filter=filter, seq=below)

    async def kept(self, pattern: str = ALL_KEYS) -> dict[str, int]:
        """Return the keys that match, deleted ones too, and how many messages each has."""
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
            name = failure.subject.partition("$KV.")[2].partition(".")[2] or "the key"
            changed.hint = f"{name} was never set: its revision is 0"
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


def _reader(bucket: KeyValueBucket, pattern: str, **options: Any) -> OrderedReader:
    from natsctl.client.messaging.consumers import OrderedReader

    return OrderedReader(bucket.manager, bucket.stream, bucket.reads + pattern, **options)


async def entries(
    bucket: KeyValueBucket,
    pattern: str = ALL_KEYS,
    *,
    history: bool = False,
    deletes: bool = False,
    values: bool = True,
) -> list[Entry]:
    """Return the last entries of the keys that match, or with `history` all that are kept, in the order they were made.

    A key that is written meanwhile is there once, as it was read last. Without `values` only headers are read.
    """
    check_pattern(pattern)
    deliver = "all" if history else "last_per_subject"
    found: dict[object, Entry] = {}
    async with _reader(bucket, pattern, deliver=deliver, headers_only=not values) as reader:
        async for delivered in reader.stored():
            entry = to_entry(bucket, delivered, values=values)
            name: object = entry.revision if history else entry.key
            found.pop(name, None)
            found[name] = entry
    return [entry for entry in found.values() if deletes or not entry.deleted]


async def keys(bucket: KeyValueBucket, pattern: str = ALL_KEYS) -> list[str]:
    """Return the keys that match and have a value, sorted; the headers of their last messages show which those are."""
    check_pattern(pattern)
    found: dict[str, bool] = {}
    async with _reader(bucket, pattern, deliver="last_per_subject", headers_only=True) as reader:
        async for message, _ in reader.stored():
            found[message.subject] = operation_of(message.headers) == PUT
    begin = len(bucket.reads)
    return sorted(subject[begin:] for subject, has_value in found.items() if has_value)


def watch(bucket: KeyValueBucket, options: WatchOptions) -> AsyncIterator[Entry]:
    """Yield entries as they are made, the existing ones first.

    Raises NothingReceivedError if the wait ended without any.
    """
    check_pattern(options.pattern)
    reader = _reader(bucket, options.pattern, deliver=options.deliver, start_seq=options.revision)
    nothing = f"nothing happened to {options.pattern} in bucket {bucket.name}"
    return watch_bucket(
        KV, bucket.name, reader, lambda delivered: [to_entry(bucket, delivered)], options, nothing=nothing
    )


def to_entry(bucket: KeyValueBucket, delivered: DeliveredMessage, *, values: bool = True) -> Entry:
    message, at = delivered
    operation = operation_of(message.headers)
    size = message.headers.get(SIZE, "")
    length = int(size) if not values and size.isdigit() else len(message.body)
    return Entry(
        bucket=bucket.name,
        key=message.subject.removeprefix(bucket.reads),
        revision=at.stream_seq,
        operation=operation,
        created=format_time(at.ts_ns),
        length=length,
        value=message.body if values or operation != PUT else None,
        delta=at.pending,
        ttl_ns=ttl_of(message.headers),
    )


AT_ONCE = 32
"""Requests that are on their way at a time."""


class Removal(NamedTuple):
    """A deleted key: its messages before the marker are removed, and with `marker` that too."""

    entry: Entry
    marker: bool

    @property
    def below(self) -> int:
        """Return the first revision that stays: a key that is set meanwhile keeps its value."""
        return self.entry.revision + int(self.marker)


async def removals(bucket: KeyValueBucket, older_than_ns: int, now_ns: int) -> list[Removal]:
    """Return the deleted keys of a bucket; markers at least that old go as well."""
    found = await entries(bucket, deletes=True, values=False)
    return [Removal(entry, now_ns - parse_time(entry.created) >= older_than_ns) for entry in found if entry.deleted]


async def compact(bucket: KeyValueBucket, found: Sequence[Removal], on_progress: Callable[[int], None]) -> int:
    """Remove the messages of deleted keys, and return how many were removed.

    `on_progress` gets the number of keys done.

    In a dry run raises DryRunError with all requests.
    """
    manager = bucket.manager
    if manager.connection.dry_run:
        prefix = manager.connection.target.api_prefix
        subject = endpoints.STREAM_PURGE.subject(bucket.stream, prefix=prefix)
        bodies = [{"filter": bucket.reads + one.entry.key, "seq": one.below} for one in found]
        raise DryRunError(*(Planned(subject, body) for body in bodies))
    purged = done = 0
    for begin in range(0, len(found), AT_ONCE):
        batch = found[begin : begin + AT_ONCE]
        answers = await together(manager.connection, *(bucket.forget(one.entry.key, one.below) for one in batch))
        purged += sum(answer.value.purged for answer in answers)
        done += len(batch)
        on_progress(done)
    return purged


async def mark_purged(
    bucket: KeyValueBucket, keys: Sequence[str], ttl_ns: int, on_progress: Callable[[int], None]
) -> None:
    """Purge keys one by one, so that watchers learn of each. In a dry run raises DryRunError with the first message."""
    for begin in range(0, len(keys), AT_ONCE):
        batch = keys[begin : begin + AT_ONCE]
        await together(bucket.manager.connection, *(bucket.purge(key, ttl_ns=ttl_ns) for key in batch))
        on_progress(begin + len(batch))
