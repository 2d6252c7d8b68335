"""The names of a stream backup's files, and which paths mean one file."""

from __future__ import annotations

from pathlib import Path

META_NAME = "backup.json"
DATA_NAME = "stream.tar.s2"
MANIFEST_NAME = "manifest.json"
NAMES = frozenset({META_NAME, DATA_NAME, MANIFEST_NAME})
FILE_ENDINGS = (".tgz", ".tar.gz", ".tar", ".tar.s2")
GZIP_ENDINGS = (".tgz", ".tar.gz")
PART_PREFIX = ".natsctl-"
"""Begins the name of what is not whole yet; short, so that it is a file name whatever the stream is called."""


def is_single_file(path: Path) -> bool:
    """Whether a backup to that path is one file rather than a directory."""
    return path.is_file() or path.name.lower().endswith(FILE_ENDINGS)
