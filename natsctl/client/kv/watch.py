"""Many entries of a bucket: what its keys hold, their history, and what happens to them from now on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from natsctl.api.errors import NothingReceivedError
from natsctl.api.times import format_time
from natsctl.client.kv.bucket import Bucket
from natsctl.client.kv.entry import ALL_KEYS, PUT, SIZE, Entry, check_pattern, operation_of, ttl_of
from natsctl.client.messaging.ordered import OrderedReader

if TYPE_CHECKING:
    from natsctl.client.messaging.ordered import Delivered


@dataclass(frozen=True, slots=True)
class Watching:
    """What to watch: keys, from where on, and when to end (`count` entries, or `wait_s` without one)."""

    pattern: str = ALL_KEYS
    history: bool = False
    updates: bool = False
    revision: int = 0
    deletes: bool = True
    count: int = 0
    wait_s: float | None = None

    @property
    def deliver(self) -> str:
        """The deliver policy that it means."""
        if self.revision:
            return "by_start_sequence"
        return "new" if self.updates else "all" if self.history else "last_per_subject"


async def entries(
    bucket: Bucket,
    pattern: str = ALL_KEYS,
    *,
    history: bool = False,
    deletes: bool = False,
    values: bool = True,
) -> list[Entry]:
    """The last entries of the keys that match, or with `history` all that are kept, in the order they were made.

    A key that is written meanwhile is there once, as it was read last. Without `values` only headers are read.
    """
    check_pattern(pattern)
    deliver = "all" if history else "last_per_subject"
    found: dict[object, Entry] = {}
    async with OrderedReader(
        bucket.manager, bucket.stream, bucket.reads + pattern, deliver=deliver, headers_only=not values
    ) as reader:
        async for delivered in reader.stored():
            entry = to_entry(bucket, delivered, values=values)
            name: object = entry.revision if history else entry.key
            found.pop(name, None)
            found[name] = entry
    return [entry for entry in found.values() if deletes or not entry.deleted]


async def keys(bucket: Bucket, pattern: str = ALL_KEYS) -> list[str]:
    """The keys that match and have a value, sorted: headers of their last messages tell which those are."""
    check_pattern(pattern)
    found: dict[str, bool] = {}
    async with OrderedReader(
        bucket.manager, bucket.stream, bucket.reads + pattern, deliver="last_per_subject", headers_only=True
    ) as reader:
        async for message, _ in reader.stored():
            found[message.subject] = operation_of(message.headers) == PUT
    begin = len(bucket.reads)
    return sorted(subject[begin:] for subject, has_value in found.items() if has_value)


async def watch(bucket: Bucket, watching: Watching) -> AsyncIterator[Entry]:
    """Entries as they are made, those that there are first.

    Raises NothingReceivedError when the wait ended without any.
    """
    check_pattern(watching.pattern)
    number = 0
    async with OrderedReader(
        bucket.manager,
        bucket.stream,
        bucket.reads + watching.pattern,
        deliver=watching.deliver,
        start_seq=watching.revision,
    ) as reader:
        while not watching.count or number < watching.count:
            delivered = await reader.next(watching.wait_s)
            if delivered is None:
                break
            entry = to_entry(bucket, delivered)
            if watching.deletes or not entry.deleted:
                number += 1
                yield entry
    if not number:
        raise NothingReceivedError(f"nothing happened to {watching.pattern} in bucket {bucket.name}")


def to_entry(bucket: Bucket, delivered: Delivered, *, values: bool = True) -> Entry:
    """A delivered message as what it did to its key."""
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
