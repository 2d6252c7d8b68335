"""Files that are there whole or not at all, also for who reads them while they are written."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

PRIVATE: Final = 0o600
"""The mode of what is nobody else's."""


def is_special(path: Path) -> bool:
    """Whether a path is a device, a pipe or a socket: written to as it is, and never replaced."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def whole_file(path: Path, mode: int | None = None, *, durable: bool = False) -> Iterator[IO[bytes]]:
    """A file to write, which becomes `path` when all goes well; else nothing is left of it. Raises OSError.

    A link stays, and what it leads to is replaced. What is special gets what is written as it comes. `mode` None is
    what the system gives new files; a `durable` file is on disk when it gets its name.
    """
    if is_special(path):
        with path.open("wb") as special:
            yield special
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".natsctl-{secrets.token_hex(8)}.part")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
