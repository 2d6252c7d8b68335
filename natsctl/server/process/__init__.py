"""The server as a process: flags, signals, log lines, files, lame duck."""

from __future__ import annotations

import sys
from types import ModuleType

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


class _NoTls(ModuleType):
    """Replaces `ssl` during the import of asyncio and uvloop: they take classes, errors and numbers from it."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return 0 if name.isupper() else type(name, (OSError,), {})


def import_loop_without_tls() -> None:
    """Import asyncio and uvloop without `ssl`, where neither is there yet; for a process that has one thread.

    They import it, and with it OpenSSL: 4 MB, or an eighth of an idle server. Their loops have no TLS of their own
    then. So this is only for a server that needs none as long as it runs. Later imports of `ssl` work as usual.
    """
    if not {"ssl", "asyncio"}.isdisjoint(sys.modules):
        return
    sys.modules["ssl"] = _NoTls("ssl")
    try:
        import asyncio  # noqa: F401

        import uvloop  # noqa: F401
    except ImportError:  # the loop of asyncio will do
        pass
    finally:
        del sys.modules["ssl"]
