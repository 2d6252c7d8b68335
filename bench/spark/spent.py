"""CPU seconds of the processes that a read or a write needs: the server, Spark's Java, the Python around it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Spent:
    """Seconds: of the clock, and of CPU by component; `python` is this process and Spark's workers."""

    wall_s: float = 0.0
    server_s: float = 0.0
    java_s: float = 0.0
    python_s: float = 0.0

    def __sub__(self, other: Spent) -> Spent:
        return Spent(
            self.wall_s - other.wall_s,
            self.server_s - other.server_s,
            self.java_s - other.java_s,
            self.python_s - other.python_s,
        )

    @property
    def cpu_s(self) -> float:
        """All of them together."""
        return self.server_s + self.java_s + self.python_s


def spent_by(work: Callable[[], object], server_pid: int = 0) -> Spent:
    """What some work costs."""
    before = _now(server_pid)
    work()
    return _now(server_pid) - before


def _now(server_pid: int) -> Spent:
    """What has been spent until now; the server's part is apart even where it is a child of this process."""
    java = python = 0.0
    for pid in _family(os.getpid(), server_pid):
        name, seconds = _of(pid)
        if name == "java":
            java += seconds
        else:
            python += seconds
    return Spent(time.perf_counter(), _of(server_pid)[1] if server_pid else 0.0, java, python)


def _family(pid: int, without: int) -> Iterator[int]:
    """A process and all below it that run."""
    if pid == without:
        return
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue  # the thread has ended
        for child in children:
            yield from _family(int(child), without)


def _of(pid: int) -> tuple[str, float]:
    """A process's name and its CPU seconds, with those of children that have ended."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition(" (")[2].rpartition(") ")
    except OSError:
        return "", 0.0  # it has ended, and is counted with its parent from now on
    return name, sum(map(int, rest.split()[11:15])) / _TICKS_PER_S
