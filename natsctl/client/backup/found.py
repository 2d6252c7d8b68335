"""The backups below a folder, and what each is: its description and, on demand, whether its data is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.client.backup.configuration import read_saved
from natsctl.client.backup.contents import check_whole, version_of
from natsctl.client.backup.document import Document
from natsctl.client.backup.layout import DATA_NAME, FILE_ENDINGS, META_NAME
from natsctl.client.backup.opened import open_backup

CONFIGURATION = "configuration"
MAX_DEPTH = 8
"""Folders below the one that is looked through; links are not followed."""


class Found(Document):
    """One backup: `form` is "directory", "file", "server files" or "configuration" (a JSON file of 2020).

    `archive` is the format of its data, 0 where it has none. `error` says why it can not be read.
    """

    path: str
    form: str
    kind: str = "stream"
    stream: str = ""
    archive: int = 0
    messages: int = 0
    bytes: int = 0
    size: int = 0
    created: str = ""
    tool: str = ""
    error: str = ""


def find_backups(top: Path, *, read: bool = False) -> list[Found]:
    """Return what is at that path or below it, in the order of the paths; with `read` damage of data is an error too.

    Raises UsageError where there is no such path.
    """
    if not top.exists():
        raise UsageError(f"{top} does not exist")
    return [describe(path, read=read) for path in candidates(top)]


def candidates(top: Path) -> Iterator[Path]:
    """The paths that look like backups, in order."""
    if top.is_file() or (top / META_NAME).is_file():
        yield top
        return
    for folder, folders, files in os.walk(top):
        here = Path(folder)
        depth = len(here.relative_to(top).parts)
        found = sorted(name for name in folders if (here / name / META_NAME).is_file())
        folders[:] = sorted(
            name for name in folders if name not in found and not name.startswith(".") and depth < MAX_DEPTH
        )
        found += [name for name in files if _is_file_of_one(name)]
        yield from (here / name for name in sorted(found))


def _is_file_of_one(name: str) -> bool:
    """Whether a file's name is one that a backup may have."""
    if name.startswith("."):
        return False
    if name.lower().endswith(FILE_ENDINGS):
        return name != DATA_NAME
    return name.startswith("stream_") and name.endswith(".json")


def describe(path: Path, *, read: bool = False) -> Found:
    """Return what that backup says of itself, and what is wrong with it where it can not be read."""
    try:
        if path.is_file() and path.suffix == ".json":
            return _configuration(path)
        with open_backup(path) as backup:
            if read:
                check_whole(backup)
            manifest, state = backup.manifest, backup.state
            return Found(
                path=str(path),
                form=str(backup.form),
                stream=backup.stream,
                archive=version_of(backup),
                messages=int(state.get("messages") or 0),
                bytes=int(state.get("bytes") or 0),
                size=backup.size,
                created=manifest.created if manifest is not None else "",
                tool=manifest.tool if manifest is not None else "",
            )
    except NatsctlError as failure:
        return Found(path=str(path), form="", error=failure.text)


def _configuration(path: Path) -> Found:
    saved = read_saved(path)
    stream = saved.configuration.get("stream") if saved.kind == "consumer" else saved.configuration.get("name")
    return Found(
        path=str(path),
        form=CONFIGURATION,
        kind=saved.kind,
        stream=str(stream or ""),
        size=path.stat().st_size,
        created=saved.time,
    )
