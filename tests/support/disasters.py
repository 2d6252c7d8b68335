"""What may go wrong in one life of the simulated store, and the count of what did in a session."""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass
from typing import Final

from natsctl.testing.simdisk import Fault, Plan

ERRORS: Final = (errno.EIO, errno.ENOSPC)
"""What a disk answers in a disaster; every other error of a commit is the store's own fault."""


@dataclass(slots=True)
class Report:
    """What one session did, so that a run can tell that it was not idle."""

    seed: int
    lives: int = 0
    operations: int = 0
    acks: int = 0
    kills: int = 0
    power_losses: int = 0
    disk_faults: int = 0
    platter_checks: int = 0
    damaged_at_rest: int = 0
    misplaced_at_rest: int = 0
    repaired: int = 0
    packed_files: int = 0
    erasures: int = 0


def draw_plan(rng: random.Random) -> Plan:
    """One disaster for a life, at one call, or none.

    A crash anywhere or in a write (torn), a failing sync, write or folder sync, a full disk.
    """
    kind = rng.choice(
        (
            "none",
            "none",
            "crash",
            "crash",
            "torn",
            "torn",
            "torn",
            "sync",
            "sync",
            "pwrite",
            "full",
            "full",
            "full",
            "full",
            "short",
            "fsync_dir",
            "unlink",
            "rename",
            "create",
        )
    )
    at = rng.randint(1, 150 if kind == "crash" else 40)
    until = at + (rng.randint(0, 20) if kind == "full" else 5)
    seen = 0

    def plan(call: str, path: str) -> Fault | None:
        nonlocal seen
        seen += kind in ("crash", call) or (kind in ("full", "short", "torn") and call == "pwrite")
        if seen < at or kind == "none" or (seen > at and kind != "full") or seen > until:
            return None
        if kind == "crash" or (kind == "torn" and call == "pwrite"):
            return Fault(crash=True)
        if kind in ("full", "short"):
            return None if call != "pwrite" else Fault(short=True) if kind == "short" else Fault(error=errno.ENOSPC)
        if call != kind:
            return None
        return Fault(error=errno.EIO)

    return plan
