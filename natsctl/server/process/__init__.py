"""The server as a process: flags, signals, log lines, files, lame duck."""

from __future__ import annotations

import sys

UNNEEDED = "typing_extensions"


def import_msgspec() -> None:
    """Import msgspec without typing_extensions, where neither is there yet; for a process that has one thread.

    msgspec takes names from it that `typing` has since Python 3.11, and falls back to those; the module costs 2 ms of a
    server's start. Later imports of it work as usual.
    """
    if UNNEEDED in sys.modules or "msgspec" in sys.modules:
        return
    sys.modules[UNNEEDED] = None  # type: ignore[assignment]  # documented: an import of it fails then
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules[UNNEEDED]
