"""Many objects of a bucket: those that there are, and what happens to them from now on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from natsctl.api.errors import NothingReceivedError
from natsctl.api.times import format_time
from natsctl.client.messaging.ordered import Delivered, OrderedReader
from natsctl.client.objects.bucket import Object, ObjectBucket, to_object


@dataclass(frozen=True, slots=True)
class Watching:
    """From where on to watch, and when to end (`count` objects, or `wait_s` without one)."""

    updates: bool = False
    deletes: bool = True
    count: int = 0
    wait_s: float | None = None


async def objects(bucket: ObjectBucket, *, deletes: bool = False) -> list[Object]:
    """The objects of a bucket by name."""
    found = {}
    async with OrderedReader(bucket.manager, bucket.stream, _all(bucket), deliver="last_per_subject") as reader:
        async for delivered in reader.stored():
            one = _to_object(delivered)
            found[one.name] = one
    return [found[name] for name in sorted(found) if deletes or not found[name].deleted]


async def watch(bucket: ObjectBucket, watching: Watching) -> AsyncIterator[Object]:
    """Objects as they are put and deleted, those that there are first.

    Raises NothingReceivedError when the wait ended without any.
    """
    number = 0
    deliver = "new" if watching.updates else "last_per_subject"
    async with OrderedReader(bucket.manager, bucket.stream, _all(bucket), deliver=deliver) as reader:
        while not watching.count or number < watching.count:
            delivered = await reader.next(watching.wait_s)
            if delivered is None:
                break
            one = _to_object(delivered)
            if watching.deletes or not one.deleted:
                number += 1
                yield one
    if not number:
        raise NothingReceivedError(f"nothing happened in bucket {bucket.name}")


def _all(bucket: ObjectBucket) -> str:
    return f"$O.{bucket.name}.M.>"


def _to_object(delivered: Delivered) -> Object:
    message, at = delivered
    return to_object(message.body, format_time(at.ts_ns), at.stream_seq, message.subject)
