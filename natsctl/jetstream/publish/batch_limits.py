"""Limits on the number, age and size of batches, and the count of open ones on the whole server."""

from __future__ import annotations

import msgspec


class BatchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of atomic and fast batches. Source: nats-server, stream.go, for all but the bytes."""

    timeout_ns: int = 10_000_000_000
    """Time that a batch stays open without a message."""
    atomic_size: int = 1000
    """Messages of one atomic batch."""
    atomic_of_stream: int = 50
    atomic_of_server: int = 1000
    fast_of_stream: int = 1000
    fast_of_server: int = 50_000
    staged_bytes_of_stream: int = 128 * 1024 * 1024
    """Memory for messages of atomic batches that are not committed; nats-server keeps them on disk."""
    staged_bytes_of_server: int = 512 * 1024 * 1024


class OpenBatches:
    """The open batches of the whole server."""

    __slots__ = ("atomic", "fast", "limits", "staged_bytes")

    def __init__(self, limits: BatchLimits) -> None:
        self.limits = limits
        self.atomic = 0
        self.fast = 0
        self.staged_bytes = 0
