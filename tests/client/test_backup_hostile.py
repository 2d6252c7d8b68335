"""Backups that somebody else has made: pipes, devices and bombs in the place of files, and descriptions that lie."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import NatsctlError, StorageError
from natsctl.client.backup import reader
from natsctl.client.backup.configuration import read_saved
from natsctl.client.backup.discovery import find_backups
from natsctl.client.backup.reader import open_backup

META = {"config": {"name": "S"}, "state": {"messages": 0}}
DEEP = b'{"config":' * 100_000


def put(folder: Path, meta: object = META) -> Path:
    """Make a backup with a description and no data."""
    folder.mkdir()
    (folder / "backup.json").write_bytes(meta if isinstance(meta, bytes) else json.dumps(meta).encode())
    (folder / "stream.tar.s2").touch()
    return folder


@pytest.mark.parametrize("name", ["backup.json", "stream.tar.s2", "manifest.json"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_only_plain_files_are_read(tmp_path: Path, name: str, kind: str) -> None:
    place = put(tmp_path / "backup") / name
    place.unlink(missing_ok=True)
    writer = -1
    if kind == "pipe":
        os.mkfifo(place)
        writer = os.open(place, os.O_RDWR)  # or a reader that is at fault would wait for ever
        os.write(writer, json.dumps(META).encode())
        os.set_blocking(writer, False)
    else:
        place.symlink_to("/dev/null")
    try:
        with pytest.raises(StorageError, match="is not a regular file"), open_backup(tmp_path / "backup"):
            pass
    finally:
        if writer >= 0:
            os.close(writer)


def test_a_description_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    for name in ("backup.json", "manifest.json"):
        folder = put(tmp_path / name)
        (folder / name).touch()
        os.truncate(folder / name, 1 << 36)
        with pytest.raises(StorageError, match="has more than"), open_backup(folder):
            pass


@pytest.mark.parametrize(
    "meta",
    [
        DEEP,
        {**META, "state": {"messages": "x"}},
        {**META, "state": {"bytes": []}},
        {**META, "state": {"last_seq": -1}},
        {**META, "state": {"first_seq": 1 << 64}},
        {**META, "config": {"name": "S", "placement": 5}},
        {**META, "config": {"name": "S", "subjects": "a"}},
    ],
    ids=lambda meta: "deep" if isinstance(meta, bytes) else str(meta),
)
def test_a_description_that_lies_is_a_damaged_backup(tmp_path: Path, meta: object) -> None:
    folder = put(tmp_path / "backup", meta)
    with pytest.raises(StorageError), open_backup(folder):
        pass
    (found,) = find_backups(tmp_path)
    assert found.error


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_header_of_a_bomb_is_not_read_into_memory(
    tmp_path: Path, kind: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 1 << 33
    path = tmp_path / "bomb.tgz"
    with gzip.open(path, "wb") as file:
        file.write(header.tobuf() + bytes(1 << 20))
    asked: list[int] = []
    read: Callable[..., bytes] = gzip.GzipFile.read

    def noted(self: gzip.GzipFile, size: int | None = -1) -> bytes:
        asked.append(size or 0)
        return read(self, min(size or 0, 1 << 20))

    monkeypatch.setattr(gzip.GzipFile, "read", noted)
    with pytest.raises(StorageError), open_backup(path):
        pass
    assert max(asked) <= reader._MAX_EXTENDED_BYTES


def test_a_file_of_a_configuration_that_is_none_is_refused(tmp_path: Path) -> None:
    deep, pipe = tmp_path / "stream_a.json", tmp_path / "stream_b.json"
    deep.write_bytes(DEEP)
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    os.write(writer, b"{")
    os.close(writer)
    faults: list[Any] = []
    for path in (deep, pipe):
        with pytest.raises(NatsctlError) as raised:
            read_saved(path)
        faults.append(str(raised.value))
    assert "is not a file of a configuration backup" in faults[0] and "is not a regular file" in faults[1]
