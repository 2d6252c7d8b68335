"""`/stacksz`: where every thread of the process is."""

from __future__ import annotations

import sys
import threading
import traceback


def stacksz() -> bytes:
    """Return the stack of each thread, as text."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = []
    for ident, frame in sys._current_frames().items():
        stacks.append(f"thread {ident} [{names.get(ident, 'unknown')}]:\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(stacks).encode()
