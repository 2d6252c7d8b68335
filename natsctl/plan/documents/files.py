"""Which files a set of documents is, and what stands in them."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from natsctl.api.errors import UsageError
from natsctl.plan.documents.faults import MAX_FILE_BYTES, MAX_FILES, TextError

STDIN: Final = "-"
SUFFIXES: Final = (".yaml", ".yml", ".json")
"""The suffixes that are read in a folder; a named file is read with any name."""


FileId = tuple[int, int]
"""Device and number of a file."""


def files_at(path: str) -> list[str]:
    """Return the files of a path: itself, those of a folder and of its folders, or the matches of a glob; sorted.

    Raises UsageError for a path that does not exist.
    """
    if path == STDIN or Path(path).is_file():
        return [path]
    if Path(path).is_dir():
        return list(_files_below(path))
    if glob.has_magic(path):
        there = glob.glob(path, recursive=True)  # noqa: PTH207  # Path.glob takes no absolute patterns
        matching = [found for found in sorted(there) if Path(found).is_file()]
        if matching:
            return matching
        raise UsageError(f"{path}: no file matches")
    if Path(path).exists():
        return [path]
    reason = "a link to what is not there" if Path(path).is_symlink() else "no such file or folder"
    raise UsageError(f"{path}: {reason}")


def _files_below(folder: str) -> Iterator[str]:
    """Yield the documents of a folder, sorted, then those of its folders; each folder once, despite links."""
    seen: set[tuple[int, int]] = set()
    count = 0

    def told(failure: OSError) -> None:
        raise UsageError(f"{failure.filename}: {failure.strerror}") from failure

    for here, folders, files in os.walk(folder, followlinks=True, onerror=told):
        status = os.stat(here)  # noqa: PTH116  # the pair names the folder, whatever led there
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if name.endswith(SUFFIXES) and not name.startswith("."):
                count += 1
                if count > MAX_FILES:
                    raise UsageError(f"{folder}: more than {MAX_FILES:,} documents")
                yield f"{here}/{name}" if here != "." else name


def read_text(path: str) -> str:
    """Return the text of a file or of stdin. Raises TextError if it is binary, too long or unreadable."""
    try:
        if path == STDIN:
            raw = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with open(path, "rb") as opened:  # noqa: PTH123  # thousands of files: a Path for each costs as much as it
                # A pipe has no length; a read of the maximum would allocate that much for a file.
                length = os.fstat(opened.fileno()).st_size
                raw = opened.read(min(length or MAX_FILE_BYTES, MAX_FILE_BYTES) + 1)
    except OSError as failure:
        raise TextError(0, failure.strerror or str(failure)) from failure
    if len(raw) > MAX_FILE_BYTES:
        raise TextError(0, f"larger than {MAX_FILE_BYTES // 2**20} MiB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        raise TextError(raw.count(b"\n", 0, failure.start) + 1, f"not UTF-8 text (byte {failure.start})") from failure


def identity(path: str) -> FileId:
    """Return an identity that paths to the same file share; a missing file has one of its own."""
    if path == STDIN:
        return (-1, -1)
    try:
        status = os.stat(path)  # noqa: PTH116  # the quickest, for thousands of files
    except OSError:
        return (-1, hash(path))
    return (status.st_dev, status.st_ino)
