"""What this process uses of the machine."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

WINDOW_S: Final = 1.0
"""Least time over which the use of the CPU is measured."""

_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class ProcessUsage(NamedTuple):
    """Resident memory in bytes, and CPU in percent of one core."""

    mem: int
    cpu: float


class _Meter:
    """The use of the CPU since it was last asked for."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Measure from now on, as a process that was just forked does."""
        self._at, self._used = time.monotonic(), time.process_time()
        self._percent = 0.0

    def percent(self) -> float:
        now = time.monotonic()
        if now - self._at >= WINDOW_S:
            used = time.process_time()
            self._percent = round(100 * (used - self._used) / (now - self._at), 1)
            self._at, self._used = now, used
        return self._percent


_METER: Final = _Meter()


def process_usage() -> ProcessUsage:
    """Return what the process uses now: the CPU since the last time that somebody asked, a second ago or more."""
    return ProcessUsage(resident_bytes(), _METER.percent())


def resident_bytes() -> int:
    """Return the memory that the process has; where the system does not tell, the most that it ever had."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
