"""Files that the server reads as a whole, without waiting, and replaces as a whole: readers see the old or the new."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path


_HANDED_OVER: Final = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""Prefix of the path of a file descriptor that the process was started with."""
MAX_BYTES: Final = 64 << 20
"""Maximum size of one file."""


def read_file(path: Path, most: int = MAX_BYTES) -> bytes:
    """Return a file that a configuration is or names, at most a byte more than `most` of it; raises OSError.

    A pipe is refused: it would block the whole server until something is written, and a reload would find it empty.
    The exception is one that the shell hands over (`-c <(command)`), as long as it has something to say.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode, handed_over = os.fstat(handle).st_mode, str(path).startswith(_HANDED_OVER)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if stat.S_ISFIFO(mode):
            os.set_blocking(handle, handed_over)
        with os.fdopen(handle, "rb", closefd=False) as file:
            content = file.read(most + 1) or b""
        if stat.S_ISFIFO(mode) and not (handed_over and content):
            raise OSError(errno.ESPIPE, "a pipe is no file to be read again", str(path))
        return content
    finally:
        os.close(handle)


def replace_file(path: Path, content: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Write a file, replacing an old one; raises OSError.

    An existing link or pipe with that name is replaced, never written through. The name that the file has
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
