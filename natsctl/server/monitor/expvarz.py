"""`/debug/vars`: the command and the memory of the process, under the names that Go programs publish."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

from natsctl.server.monitor.process_usage import resident_bytes

if TYPE_CHECKING:
    from natsctl.server.view import ServerView


def expvarz(server: ServerView) -> dict[str, Any]:
    """Return what Go programs publish of their process, as far as this one has it.

    Of the command line only the program is shown: its flags may hold passwords.
    """
    resident = resident_bytes()
    collections = [generation["collections"] for generation in gc.get_stats()]
    return {
        "cmdline": sys.argv[:1],
        "memstats": {
            "Alloc": resident,
            "Sys": resident,
            "HeapAlloc": resident,
            "HeapSys": resident,
            "NumGC": sum(collections),
            "NumForcedGC": 0,
            "EnableGC": gc.isenabled(),
        },
    }
