"""The names of a stream backup's files, which names of a server become file names, and which paths mean one file."""

from __future__ import annotations

import os
import stat
from collections.abc import Container
from pathlib import Path
from typing import IO

from natsctl.api.errors import ProtocolError, StorageError
from natsctl.api.subjects import is_valid_name

META_NAME = "backup.json"
DATA_NAME = "stream.tar.s2"
NEWER_DATA_NAME = "stream.arc.s2"
"""The name that the `nats` tool gives the data of servers from 2.15 on, which is of version 2; both names are read."""
MANIFEST_NAME = "manifest.json"
NAMES = frozenset({META_NAME, DATA_NAME, NEWER_DATA_NAME, MANIFEST_NAME})
FILE_ENDINGS = (".tgz", ".tar.gz", ".tar", ".tar.s2")
GZIP_ENDINGS = (".tgz", ".tar.gz")
MAX_META_BYTES = 64 * 1024 * 1024
"""Of what describes a backup."""
PART_PREFIX = ".natsctl-"
"""Begins the name of what is not whole yet; short, so that it is a file name whatever the stream is called."""


def is_single_file(path: Path) -> bool:
    """Whether a backup to that path is one file rather than a directory."""
    return path.is_file() or path.name.lower().endswith(FILE_ENDINGS)


def checked_name(noun: str, name: str) -> str:
    """Return a name that a server gave, fit for a part of a file name; raises ProtocolError where nothing has such.

    A server chooses the names in its answers: one with a slash would lead out of the backup's folder.
    """
    if not is_valid_name(name) or any("\ud800" <= char <= "\udfff" for char in name):
        raise ProtocolError(f"the server lists a {noun} called {name!r}, a name that no {noun} can have")
    return name


def data_name_of(version: int) -> str:
    """Return the name of a file with data of that version, 0 where it is not known."""
    return NEWER_DATA_NAME if version == 2 else DATA_NAME


def data_name(names: Container[str]) -> str:
    """Return which of a backup's files has the data, "" where none has; raises StorageError where two may."""
    found = [name for name in (DATA_NAME, NEWER_DATA_NAME) if name in names]
    if len(found) > 1:
        raise StorageError(f"the backup holds both {DATA_NAME} and {NEWER_DATA_NAME}")
    return found[0] if found else ""


def plain_file(path: Path) -> IO[bytes]:
    """Open a file that somebody else may have made; raises StorageError for a pipe or a device, which have no end."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise StorageError(f"{path} is not a regular file")
    return file


def small_file(path: Path) -> bytes:
    """Return what a description holds; raises StorageError where no description is so long."""
    with plain_file(path) as file:
        content = file.read(MAX_META_BYTES + 1)
    if len(content) > MAX_META_BYTES:
        raise StorageError(f"{path} has more than {MAX_META_BYTES} bytes")
    return content
