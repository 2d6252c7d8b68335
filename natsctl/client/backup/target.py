"""A stream backup while it is written: a directory or a single file, under a temporary name until it is whole.

`backup.json` is `{"config": …, "state": …}` as the server gave them, and the body of the restore request;
`stream.tar.s2` (version 1) or `stream.arc.s2` (version 2) is what the server sent, unread; `manifest.json` has their
checksums. A directory is laid out as the `nats` tool does, so either tool restores what the other backed up. A path
that ends in .tgz, .tar.gz, .tar or .tar.s2, or that is a file already, gets the same members in one tar file, gzipped
for .tgz and .tar.gz.

The temporary name is beside the final one: all is synced there and then renamed, so that after a failure nothing is
left, and an older backup of that name is still there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final

from natsctl.api.errors import StorageError, UsageError
from natsctl.client.backup.layout import (
    DATA_NAME,
    GZIP_ENDINGS,
    MANIFEST_NAME,
    META_NAME,
    NAMES,
    PART_PREFIX,
    data_name_of,
    is_single_file,
)
from natsctl.client.backup.manifest import FileSum, Manifest, encode_manifest

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_GZIP_LEVEL = 1


class BackupWriter:
    """Write the data, then `finish` with what `backup.json` holds; `discard` in every case."""

    def __init__(self, target: Path, *, replace: bool = False) -> None:
        """Create the temporary folder beside the target; raises UsageError where nothing can or may be written."""
        self.target = target
        try:
            self._single = is_single_file(target)
            check_free(target, self._single, replace)
            target.parent.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix=PART_PREFIX, suffix=".part", dir=target.parent))
        except OSError as failure:
            raise UsageError(f"cannot write a backup to {target}: {failure.strerror}") from failure
        self._data = _create(self._folder / DATA_NAME)
        self._digest = hashlib.sha256()
        self.data_bytes = 0

    def write(self, chunk: bytes) -> None:
        """Append to the data; raises StorageError."""
        try:
            self._data.write(chunk)
        except OSError as failure:
            raise StorageError(f"cannot write to {self.target.parent}: {failure.strerror}") from failure
        self._digest.update(chunk)
        self.data_bytes += len(chunk)

    def written(self) -> IO[bytes]:
        """Open the data that was written so far, for reading."""
        self._data.flush()
        return (self._folder / DATA_NAME).open("rb")

    def restart(self) -> None:
        """Forget the data that was written."""
        self._data.seek(0)
        self._data.truncate()
        self._digest = hashlib.sha256()
        self.data_bytes = 0

    def finish(
        self, config: dict[str, Any], state: dict[str, Any], manifest: Manifest, more: Mapping[str, Any] = NOTHING
    ) -> None:
        """Put the whole, synced backup under its name, with `more` blocks in backup.json; raises StorageError."""
        meta = json.dumps({"config": config, "state": state, **more}, indent=2, ensure_ascii=False).encode() + b"\n"
        name_of_data = data_name_of(manifest.archive)
        manifest.files = [
            FileSum(name=META_NAME, bytes=len(meta), sha256=hashlib.sha256(meta).hexdigest()),
            FileSum(name=name_of_data, bytes=self.data_bytes, sha256=self._digest.hexdigest()),
        ]
        try:
            # What goes into a single file is synced there, once: three syncs less for each stream of an account.
            settle: Callable[[IO[bytes]], None] = _flush if self._single else _sync
            settle(self._data)
            self._data.close()
            (self._folder / DATA_NAME).rename(self._folder / name_of_data)
            for name, content in ((META_NAME, meta), (MANIFEST_NAME, encode_manifest(manifest))):
                with _create(self._folder / name) as file:
                    file.write(content)
                    settle(file)
            if self._single:
                self._rename_single(name_of_data)
            else:
                rename_folder(self._folder, self.target)
        except OSError as failure:
            raise StorageError(f"cannot write the backup {self.target}: {failure.strerror}") from failure

    def _rename_single(self, name_of_data: str) -> None:
        """Pack the files into one, the data last: what stands before it is read at once."""
        packed = self._folder / "packed"
        with _create(packed) as file:
            zipped = self.target.name.lower().endswith(GZIP_ENDINGS)
            with _tar_writer(file, zipped) as tar:
                for name in (META_NAME, MANIFEST_NAME, name_of_data):
                    tar.add(self._folder / name, arcname=name, recursive=False, filter=_owner_only)
            _sync(file)
        packed.replace(self.target)
        sync_folder(self.target.parent)
        shutil.rmtree(self._folder)

    def discard(self) -> None:
        """Remove what was written; a finished backup stays."""
        with contextlib.suppress(OSError):
            self._data.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def check_free(target: Path, single: bool, replace: bool) -> None:
    """Raise UsageError where a backup would hide what is there: an older one unless `replace`, anything else always."""
    if target.is_dir():
        if single:
            raise UsageError(f"{target} is a directory", hint="name a file, or a path that does not end in .tgz")
        names = {entry.name for entry in target.iterdir()}
        if others := names - NAMES:
            raise UsageError(f"{target} exists and is not a backup: it holds {min(others)}")
        if not names:
            return
    if target.exists() and not replace:
        raise UsageError(f"{target} exists", hint="name another path, or give --force to replace it")


def rename_folder(folder: Path, target: Path) -> None:
    """Put a whole folder under its name, durably; an older one of that name goes once the new one is there."""
    sync_folder(folder)
    old: Path | None = None
    if target.is_dir() and any(target.iterdir()):
        old = Path(tempfile.mkdtemp(prefix=PART_PREFIX, suffix=".old", dir=target.parent))
        target.rename(old)
    folder.rename(target)
    sync_folder(target.parent)
    if old is not None:
        shutil.rmtree(old)


def _create(path: Path) -> IO[bytes]:
    """A new file that only its owner may read: a backup holds messages."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _tar_writer(file: IO[bytes], zipped: bool) -> tarfile.TarFile:
    if zipped:
        return tarfile.open(fileobj=file, mode="w:gz", compresslevel=_GZIP_LEVEL, format=tarfile.PAX_FORMAT)
    return tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)


def _owner_only(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = int(member.mtime)  # a fraction would need a header of its own, which no checksum covers
    member.mode, member.uid, member.gid, member.uname, member.gname = 0o600, 0, 0, "", ""
    return member


def _flush(file: IO[bytes]) -> None:
    file.flush()


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
