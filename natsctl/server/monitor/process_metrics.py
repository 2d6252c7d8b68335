"""What `/metrics` tells of the process: the names that Prometheus' client libraries use, and the disk's commits."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from natsctl.server.monitor.ages import SECOND_NS
from natsctl.server.monitor.exposition import Kind, family
from natsctl.server.monitor.process_usage import resident_bytes

if TYPE_CHECKING:
    from natsctl.server.view import ServerView

_DESCRIPTORS: Final = Path("/proc/self/fd")


def process_families(server: ServerView) -> Iterator[bytes]:
    """Yield the families of the process."""
    yield _one("process_cpu_seconds_total", "counter", "CPU time used, seconds", time.process_time())
    yield _one("process_resident_memory_bytes", "gauge", "Resident memory, bytes", resident_bytes())
    started = server.broker.start_ns / SECOND_NS
    yield _one("process_start_time_seconds", "gauge", "When the server started, seconds since the epoch", started)
    yield _one("process_max_fds", "gauge", "Most open files", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if _DESCRIPTORS.is_dir():
        yield _one("process_open_fds", "gauge", "Open files", sum(1 for _ in _DESCRIPTORS.iterdir()))
    committer = server.committer
    if committer is not None:
        yield _one("natsctl_commits_total", "counter", "Commits that went to the disk", committer.syncs)
        yield _one("natsctl_commits_in_flight", "gauge", "Commits that wait for the disk", len(committer.in_flight))


def _one(name: str, kind: Kind, about: str, value: float) -> bytes:
    return family(name, kind, about, [("", value)])
