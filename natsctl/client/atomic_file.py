"""Files that are written completely or not at all, also for concurrent readers, and locks of files."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from natsctl.hints import IO, TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

PRIVATE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
"""Modes of files and folders that only their owner may read."""


def is_special(path: Path) -> bool:
    """Return whether a path is a device, a pipe or a socket: these are written directly, never replaced."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def hold_lock(descriptor: int) -> None:
    """Lock an open file until its descriptor is closed; raises OSError if another process has locked it."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class FileChange(NamedTuple):
    """A private file to be written, or to be removed without a text."""

    path: Path
    text: str | None

    def apply(self) -> None:
        """Replace the file, following links, with private folders above it; or remove it. Raises OSError."""
        if self.text is None:
            self.path.unlink(missing_ok=True)
            return
        make_private_folder(self.path.resolve().parent)
        with atomic_write(self.path, PRIVATE, durable=True) as file:
            file.write(self.text.encode())


def make_private_folder(folder: Path) -> None:
    """Make a folder, and the missing ones above it, that only their owner may read."""
    for missing in reversed([place for place in (folder, *folder.parents) if not place.exists()]):
        missing.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def sync_file(file: IO[bytes]) -> None:
    """Make what was written to a file durable."""
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def atomic_write(path: Path, mode: int | None = None, *, durable: bool = False) -> Iterator[IO[bytes]]:
    """Yield a file to write. It becomes `path` on success; a failure removes it. Raises OSError.

    A symbolic link stays, and its target is replaced. Special files are written to directly. `mode` None is the
    system's default for new files; a `durable` file is synced before it gets its name.
    """
    if is_special(path):
        with path.open("wb") as special:
            yield special
        return
    target = type(path)(os.path.realpath(path))
    temporary = target.with_name(f".natsctl-{os.urandom(8).hex()}.part")
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
