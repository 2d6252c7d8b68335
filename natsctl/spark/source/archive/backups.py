"""The backups at a path, and the description that each has.

A backup is a folder or a tar file (gzipped or not) of `backup.json`, `stream.tar.s2` or `stream.arc.s2` and, where
natsctl made it, `manifest.json`; or a tar file of a server's own files, as backups of 2020 are. A folder of backups is
an account's.
"""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from natsctl.spark.source.archive.content import DataFile
from natsctl.spark.source.errors import BackupError

_META: Final = "backup.json"
_DATA: Final = "stream.tar.s2"
_DATA_NAMES: Final = (_DATA, "stream.arc.s2")
"""The second is what the `nats` tool calls the data of servers from 2.15 on."""
_MANIFEST: Final = "manifest.json"
_SERVER_META: Final = "meta.inf"
_FILE_ENDINGS: Final = (".tgz", ".tar.gz", ".tar")
_MAX_TEXT_BYTES: Final = 64 << 20
_SCHEME: Final = "file:"


@dataclass(frozen=True)
class Backup:
    """One stream's backup; the counts are None where they are not recorded, `sha256` is "" without a manifest."""

    stream: str
    data: DataFile
    messages: int | None
    first_seq: int | None
    last_seq: int | None
    sha256: str = ""

    @property
    def whole(self) -> bool:
        """Whether no message between the first and the last is gone."""
        told = self.messages is not None and self.first_seq is not None and self.last_seq is not None
        return told and self.messages == self.last_seq - self.first_seq + 1  # type: ignore[operator]  # told says so


def backups_at(text: str) -> list[Backup]:
    """Return the backup at a path, or those of the account whose folder it is; raises BackupError."""
    if "://" in text and not text.startswith(_SCHEME):
        raise BackupError(f"{text}: a backup is read from a folder or a file that all machines share, not from a URL")
    path = Path("/" + text.removeprefix(_SCHEME).lstrip("/") if text.startswith(_SCHEME) else text).absolute()
    if not path.exists():
        raise BackupError(f"there is no backup {path} on this machine")
    if path.is_file() or (path / _META).is_file():
        return [_read(path)]
    inside = [each for each in sorted(path.iterdir()) if not each.name.startswith(".") and _may_be(each)]
    if not inside:
        raise BackupError(f"{path} is no backup: neither {_META} is in it, nor folders or tar files of backups")
    return [_read(each) for each in inside]


def _may_be(path: Path) -> bool:
    """Return whether an account's folder may have its backup of a stream there."""
    return (path / _META).is_file() or (path.is_file() and path.name.lower().endswith(_FILE_ENDINGS))


def _read(path: Path) -> Backup:
    """Return the backup of one stream at a path."""
    try:
        return _in_folder(path) if path.is_dir() else _in_tar(path)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as failure:
        raise BackupError(f"cannot read the backup {path}: {str(failure).splitlines()[0]}") from failure


def _in_folder(path: Path) -> Backup:
    data = next((path / name for name in _DATA_NAMES if (path / name).exists()), path / _DATA)
    manifest = path / _MANIFEST
    said = manifest.read_bytes() if manifest.is_file() else b""
    return _told(path, (path / _META).read_bytes(), said, DataFile(str(data), 0, data.stat().st_size))


def _in_tar(path: Path) -> Backup:
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    with tarfile.open(path, "r:gz" if zipped else "r:") as tar:
        members: dict[str, tarfile.TarInfo] = {}
        for member in tar:
            if member.isfile():
                members[member.name.removeprefix("./")] = member
            if _SERVER_META in members or (_META in members and any(name in members for name in _DATA_NAMES)):
                break
        if _SERVER_META in members:
            return _of_server_files(path, _text(tar, members[_SERVER_META]), zipped)
        name = next((name for name in _DATA_NAMES if name in members), "")
        if _META not in members or not name:
            raise BackupError(f"{path} is no backup: {_META} or {_DATA} is not in it")
        manifest = _text(tar, members[_MANIFEST]) if _MANIFEST in members else b""
        data = DataFile(str(path), members[name].offset_data, members[name].size, zipped)
        return _told(path, _text(tar, members[_META]), manifest, data)


def _text(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """Return the content of a small file."""
    file = tar.extractfile(member)
    if file is None or member.size > _MAX_TEXT_BYTES:
        raise BackupError(f"{tar.name!s}: {member.name} is no file of a backup")
    return file.read()


def _told(path: Path, meta: bytes, manifest: bytes, data: DataFile) -> Backup:
    """Return the facts of `backup.json` and the manifest; the data has to be as long as that."""
    described = _json(path, _META, meta)
    config, state = described.get("config"), described.get("state")
    if not isinstance(config, dict) or not isinstance(state, dict) or not config.get("name"):
        raise BackupError(f"{path} is no backup: its {_META} has no stream's configuration and state")
    files = _json(path, _MANIFEST, manifest).get("files", []) if manifest else []
    summed: dict[str, Any] = next((each for each in files if each.get("name") in _DATA_NAMES), {})
    if summed and summed.get("bytes") != data.size:
        raise BackupError(f"{path} is damaged: {_DATA} has {data.size:,} bytes, its manifest says {summed['bytes']:,}")
    messages, first_seq, last_seq = (state.get(name) for name in ("messages", "first_seq", "last_seq"))
    return Backup(str(config["name"]), data, messages, first_seq, last_seq, str(summed.get("sha256", "")))


def _of_server_files(path: Path, meta: bytes, zipped: bool) -> Backup:
    """Return a tar of a server's own files: it is not compressed, and gives its stream's name alone."""
    name = _json(path, _SERVER_META, meta).get("name")
    if not name:
        raise BackupError(f"{path} is no backup: its {_SERVER_META} names no stream")
    bare = DataFile(str(path), 0, 0, zipped, raw=True)
    with bare.open() as file:
        size = _size(file)
    return Backup(str(name), DataFile(str(path), 0, size, zipped, raw=True), None, None, None)


def _size(file: IO[bytes]) -> int:
    """Return the number of bytes that can be read."""
    read: Callable[[int], bytes] = file.read
    return sum(len(piece) for piece in iter(lambda: read(1 << 20), b""))


def _json(path: Path, name: str, text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as failure:
        raise BackupError(f"{path}: {name} is damaged: {failure}") from failure
    if not isinstance(found, dict):
        raise BackupError(f"{path}: {name} is no object")
    return found
