"""Files that are there whole or not at all, also for who reads them while they are written."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


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
    handle, name = tempfile.mkstemp(prefix=".natsctl-", suffix=".part", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask() if mode is None else mode)
        temporary.replace(target)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _umask() -> int:
    """What new files of this process do not allow; the system tells it only while it is set."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
