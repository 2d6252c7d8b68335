"""How much memory and disk JetStream may use when nobody says: three quarters of what the machine has."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_SHARE: Final = 0.75
"""Part of memory and of free disk space that streams may use; nats-server's choice."""

_BLOCK_BYTES: Final = 512
"""Unit of st_blocks."""

_DISK_FALLBACK_BYTES: Final = 1 << 40
"""Max Storage where free space cannot be asked: 1 TiB, nats-server's figure."""

_MEMORY_FALLBACK_BYTES: Final = 256 << 20
"""Max Memory where memory cannot be asked: nats-server's figure."""


def default_max_memory() -> int:
    """Return bytes that memory streams may use."""
    try:
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _SHARE)
    except (ValueError, OSError):
        return _MEMORY_FALLBACK_BYTES


def default_max_storage(folder: Path) -> int:
    """Return bytes that file streams may use in `folder` or in its nearest existing parent.

    What the store holds already counts as room: a restart must not lower the limit below what was stored under it.
    """
    own = _used_bytes(folder)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        stat = os.statvfs(folder)
    except OSError:
        return _DISK_FALLBACK_BYTES
    return int((stat.f_bavail * stat.f_frsize + own) * _SHARE)


def _used_bytes(folder: Path) -> int:
    """Return the disk space that files below `folder` take; 0 where there is none."""
    used, folders = 0, [str(folder)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    with suppress(OSError):
                        used += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
    return used
