"""What deleted keys still take up: their history, and markers that everybody has seen by now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from natsctl.api import endpoints
from natsctl.api.times import parse_time
from natsctl.client.kv.bucket import Bucket
from natsctl.client.kv.entry import Entry
from natsctl.client.kv.watch import entries
from natsctl.client.preview import DryRunError, Planned

AT_ONCE = 32
"""Requests that are on their way at a time."""


class Removal(NamedTuple):
    """A deleted key: what comes before its marker goes, and with `marker` that too."""

    entry: Entry
    marker: bool

    @property
    def below(self) -> int:
        """The first revision that stays: a key that is set meanwhile keeps its value."""
        return self.entry.revision + int(self.marker)


async def removals(bucket: Bucket, older_than_ns: int, now_ns: int) -> list[Removal]:
    """The deleted keys of a bucket; markers at least that old go as well."""
    found = await entries(bucket, deletes=True, values=False)
    return [Removal(entry, now_ns - parse_time(entry.created) >= older_than_ns) for entry in found if entry.deleted]


async def compact(bucket: Bucket, found: Sequence[Removal], on_progress: Callable[[int], None]) -> int:
    """Remove what deleted keys take up, and return how many messages went; tells how many keys are done.

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
        answers = await asyncio.gather(*(bucket.forget(one.entry.key, one.below) for one in batch))
        purged += sum(answer.value.purged for answer in answers)
        done += len(batch)
        on_progress(done)
    return purged


async def mark_purged(bucket: Bucket, keys: Sequence[str], ttl_ns: int, on_progress: Callable[[int], None]) -> None:
    """Purge keys one by one, so that watchers learn of each. In a dry run raises DryRunError with the first message."""
    for begin in range(0, len(keys), AT_ONCE):
        batch = keys[begin : begin + AT_ONCE]
        await asyncio.gather(*(bucket.purge(key, ttl_ns=ttl_ns) for key in batch))
        on_progress(begin + len(batch))
