"""Options of a store."""

from __future__ import annotations

from typing import Literal

import msgspec

SyncPolicy = Literal["always", "never"] | int
"""`always`: an ack waits for fdatasync. An int: nanoseconds between syncs, acks wait for the write. `never`: none."""


class StoreOptions(msgspec.Struct, frozen=True):
    sync: SyncPolicy = "always"
    segment_bytes: int = 8 * 1024 * 1024
    cache_bytes: int = 128 * 1024 * 1024
    """Segment bytes kept for reads, over all streams."""
    max_open_streams: int = 256
    """Number of streams with files that stay open; files of others are reopened for a commit."""
    max_frame_bytes: int = 72 * 1024 * 1024
    """Largest frame that a scan takes for one: the largest max_payload (64 MiB) plus headers."""
    tail_index_bytes: int = 256 * 1024
    """A last segment of this length gets an index file at a clean stop; a shorter one is scanned as quickly."""
    block_bytes: int = 64 * 1024
    """Block length of compression, if a stream asks for it."""
    page_bytes: int = 4096
    """Zeros ahead of the messages end at a multiple of this length."""
    reserve_bytes: int = 1024 * 1024
    """Disk space held back so that deletes and purges still work when the disk is full."""
    high_water_interval_ns: int = 1_000_000_000
    journal_sync_ns: int = 1_000_000_000
