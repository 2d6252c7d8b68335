"""The store: every stream of one server, on one disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from natsctl.store.commit import Committable
from natsctl.store.disk import Disk
from natsctl.store.errors import StreamExists
from natsctl.store.memory_stream import MemoryStreamStore
from natsctl.store.options import StoreOptions
from natsctl.store.stream import StreamStore


@dataclass(slots=True)
class RecoveryReport:
    """What `Store.open` found."""

    streams: int = 0
    notes: list[str] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)


class Store:
    """All streams of one folder."""

    def __init__(self, disk: Disk, options: StoreOptions, rng_salt: Callable[[], int],
                 monotonic_ns: Callable[[], int], log: Callable[[str], None]) -> None:
        self.options = options
        self.streams: dict[str, StreamStore] = {}
        self.dirty: dict[Committable, None] = {}
        self.faults: list[str] = []
        self._disk = disk
        self._rng_salt = rng_salt
        self._monotonic_ns = monotonic_ns
        self._log = log

    @property
    def healthy(self) -> bool:
        """Return whether no stream is fenced off."""
        return not self.faults

    def open(self) -> RecoveryReport:
        """Lock the folder and recover every stream."""
        return RecoveryReport()

    def close(self) -> None:
        """Commit and sync everything, release the folder."""

    def create(self, key: str, meta: bytes, storage: Literal["file", "memory"], first_seq: int = 1) -> StreamStore:
        """Make a stream; it is durable when its first commit ends."""
        if key in self.streams:
            raise StreamExists(key)
        stream = self.streams[key] = MemoryStreamStore(self, key, meta, first_seq)
        stream.request_sync()
        return stream

    def delete(self, key: str) -> StreamStore:
        """Take a stream out of `streams` and return it: its on_durable tells when it is gone for good."""
        stream = self.streams.pop(key)
        stream.request_sync()
        return stream

    def next_deadline_ns(self) -> int | None:
        """Return the monotonic time of the next `run_timers`, None when nothing waits."""
        return None

    def run_timers(self) -> None:
        """Queue what is due (witness, interval syncs, journal syncs) in `dirty`."""

    def committed(self, stream: Committable) -> None:
        """Note that a commit of `stream` succeeded."""

    def report_fault(self, text: str) -> None:
        """Make the store unhealthy for the reason given."""
        self.faults.append(text)
        self._log(text)
