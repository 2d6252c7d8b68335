"""Files of the server that are written as a whole: readers see the old one or the new one."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def replace_file(path: Path, content: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Write a file in place of an old one; raises OSError.

    What has the name is replaced, be it a link or a pipe, and nothing is written through it. The name that the file has
    at first cannot be guessed, so that nobody who may write to the folder can put a link or a pipe there.
    """
    beside = path.with_name(f".{os.urandom(8).hex()}.tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        beside.replace(path)
        if durable:
            _sync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
