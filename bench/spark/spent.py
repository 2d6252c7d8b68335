"""CPU seconds of the processes that a read or a write needs: the server, Spark's Java, the Python around it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_USER, _BEGAN = 11, 19
"""Places in a process's status, behind its name: CPU in user mode, with that of the kernel behind it; when it began."""
_LOOK_EVERY_S = 0.2

_Process = tuple[str, float]
"""The part of the work that a process does, and its CPU seconds."""


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
    """Return the cost of some work."""
    before, seen, done = _now(server_pid), dict[tuple[str, str], _Process](), threading.Event()
    watching = threading.Thread(target=_watch, args=(done, server_pid, seen))
    begun = time.perf_counter()
    watching.start()
    try:
        work()
    finally:
        wall_s = time.perf_counter() - begun
        done.set()
        watching.join()
    seen.update(_now(server_pid))
    parts = dict.fromkeys(("server", "java", "python"), 0.0)
    for key, (part, seconds) in seen.items():
        parts[part] += seconds - (before[key][1] if key in before else 0.0)
    return Spent(wall_s, parts["server"], parts["java"], parts["python"])


def _watch(done: threading.Event, server_pid: int, seen: dict[tuple[str, str], _Process]) -> None:
    """Note what processes have spent, again and again: Spark's workers end when they like, and take it with them."""
    while not done.wait(_LOOK_EVERY_S):
        seen.update(_now(server_pid))


def _now(server_pid: int) -> dict[tuple[str, str], _Process]:
    """Return the time that each process has spent, by its id and beginning; the server may be a child of this one."""
    found = dict[tuple[str, str], _Process]()
    for pid in [*_family(os.getpid(), server_pid), *([server_pid] if server_pid else [])]:
        try:
            name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition(" (")[2].rpartition(") ")
        except OSError:
            continue  # it has ended
        numbers = rest.split()
        part = "server" if pid == server_pid else "java" if name == "java" else "python"
        found[str(pid), numbers[_BEGAN]] = part, sum(map(int, numbers[_USER : _USER + 2])) / _TICKS_PER_S
    return found


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
