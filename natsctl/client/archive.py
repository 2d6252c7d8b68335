"""Stream backups on disk: a directory or a single file, each with `backup.json` and `stream.tar.s2`.

`backup.json` is `{"config": …, "state": …}` as the server gave them, and the body of the restore request;
`stream.tar.s2` is what the server sent, unread. A directory is laid out as the `nats` tool does, so either tool
restores what the other backed up. A path that ends in .tgz, .tar.gz, .tar or .tar.s2, or that is a file already, gets
the same two members in one tar file, gzipped for .tgz and .tar.gz.

A backup is written under a temporary name beside its own, synced, and renamed when it is whole: after a failure
nothing is left of it, and an older backup of that name is still there.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from natsctl.api.errors import StorageError, UsageError

META_NAME = "backup.json"
DATA_NAME = "stream.tar.s2"
_FILE_ENDINGS = (".tgz", ".tar.gz", ".tar", ".tar.s2")
_GZIP_ENDINGS = (".tgz", ".tar.gz")
_GZIP_LEVEL = 1
_MAX_META_BYTES = 64 * 1024 * 1024


def is_single_file(path: Path) -> bool:
    """Whether a backup to that path is one file rather than a directory."""
    return path.is_file() or path.name.lower().endswith(_FILE_ENDINGS)


class ArchiveWriter:
    """A backup while it is made: write the data, then `finish` with what `backup.json` holds; `discard` otherwise."""

    def __init__(self, target: Path) -> None:
        """Create the temporary folder beside the target; raises UsageError where nothing can or may be written."""
        self.target = target
        self._single = is_single_file(target)
        self._check_replaceable()
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
        except OSError as failure:
            raise UsageError(f"cannot write a backup to {target}: {failure.strerror}") from failure
        self._data = _create(self._folder / DATA_NAME)

    def _check_replaceable(self) -> None:
        """Refuse a target directory that holds anything but a backup."""
        if self.target.is_dir():
            if self._single:
                raise UsageError(
                    f"{self.target} is a directory", hint="name a file, or a path that does not end in .tgz"
                )
            others = {entry.name for entry in self.target.iterdir()} - {META_NAME, DATA_NAME}
            if others:
                raise UsageError(f"{self.target} exists and is not a backup: it holds {min(others)}")

    def write(self, chunk: bytes) -> None:
        """Append to the data; raises StorageError."""
        try:
            self._data.write(chunk)
        except OSError as failure:
            raise StorageError(f"cannot write to {self.target.parent}: {failure.strerror}") from failure

    def finish(self, config: dict[str, Any], state: dict[str, Any]) -> None:
        """Put the whole, synced backup under its name; raises StorageError."""
        try:
            # What goes into a single file is synced there, once: two syncs less for each stream of an account.
            settle: Callable[[IO[bytes]], None] = _flush if self._single else _sync
            settle(self._data)
            self._data.close()
            meta = json.dumps({"config": config, "state": state}, indent=2, ensure_ascii=False).encode() + b"\n"
            with _create(self._folder / META_NAME) as file:
                file.write(meta)
                settle(file)
            if self._single:
                self._rename_single()
            else:
                self._rename_directory()
            _sync_folder(self.target.parent)
        except OSError as failure:
            raise StorageError(f"cannot write the backup {self.target}: {failure.strerror}") from failure

    def _rename_single(self) -> None:
        packed = self._folder / "packed"
        with _create(packed) as file:
            zipped = self.target.name.lower().endswith(_GZIP_ENDINGS)
            with _tar_writer(file, zipped) as tar:
                for name in (META_NAME, DATA_NAME):
                    tar.add(self._folder / name, arcname=name, recursive=False, filter=_owner_only)
            _sync(file)
        packed.replace(self.target)
        shutil.rmtree(self._folder)

    def _rename_directory(self) -> None:
        _sync_folder(self._folder)
        if self.target.is_dir() and any(self.target.iterdir()):
            old = Path(tempfile.mkdtemp(prefix=f".{self.target.name}.", suffix=".old", dir=self.target.parent))
            self.target.rename(old)
            self._folder.rename(self.target)
            shutil.rmtree(old)
        else:
            self._folder.rename(self.target)

    def discard(self) -> None:
        """Remove what was written; a finished backup stays."""
        with contextlib.suppress(OSError):
            self._data.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _create(path: Path) -> IO[bytes]:
    """A new file that only its owner may read: a backup holds messages."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _tar_writer(file: IO[bytes], zipped: bool) -> tarfile.TarFile:
    if zipped:
        return tarfile.open(fileobj=file, mode="w:gz", compresslevel=_GZIP_LEVEL, format=tarfile.PAX_FORMAT)
    return tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)


def _owner_only(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mode, member.uid, member.gid, member.uname, member.gname = 0o600, 0, 0, "", ""
    return member


def _flush(file: IO[bytes]) -> None:
    file.flush()


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(slots=True)
class Archive:
    """A backup that is being read: `data` gives the `size` bytes of stream data."""

    config: dict[str, Any]
    state: dict[str, Any]
    data: IO[bytes]
    size: int

    @property
    def stream(self) -> str:
        """The name of the stream in it."""
        return str(self.config.get("name", ""))


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """The backup at that path, directory or file.

    Raises UsageError when it is none, StorageError when it is damaged.
    """
    with contextlib.ExitStack() as stack:
        try:
            if path.is_dir():
                meta, data, size = _open_directory(path, stack)
            else:
                meta, data, size = _open_file(path, stack)
            config, state = _parse_meta(meta, path)
        except FileNotFoundError as failure:
            missing = Path(failure.filename or path)
            raise UsageError(f"{path} is not a stream backup: {missing} does not exist") from failure
        except (tarfile.TarError, EOFError, OSError) as failure:
            raise StorageError(f"cannot read the backup {path}: {failure}") from failure
        yield Archive(config, state, data, size)


def _open_directory(path: Path, stack: contextlib.ExitStack) -> tuple[bytes, IO[bytes], int]:
    meta = (path / META_NAME).read_bytes()
    data: IO[bytes] = stack.enter_context((path / DATA_NAME).open("rb"))
    return meta, data, os.fstat(data.fileno()).st_size


def _open_file(path: Path, stack: contextlib.ExitStack) -> tuple[bytes, IO[bytes], int]:
    tar = stack.enter_context(tarfile.open(path, "r:*"))  # noqa: SIM115  # the stack closes it
    members: dict[str, tarfile.TarInfo] = {}
    for member in tar:
        if member.isfile():
            members[member.name.removeprefix("./")] = member
        if META_NAME in members and DATA_NAME in members:
            break
    if META_NAME not in members or DATA_NAME not in members:
        raise UsageError(
            f"{path} is not a stream backup: it lacks {META_NAME} or {DATA_NAME}",
            hint="archives of a server's data folder, as tools of 2020 made them, cannot be restored over the wire",
        )
    if members[META_NAME].size > _MAX_META_BYTES:
        raise StorageError(f"{path}: {META_NAME} has {members[META_NAME].size} bytes")
    meta, data = tar.extractfile(members[META_NAME]), tar.extractfile(members[DATA_NAME])
    if meta is None or data is None:
        raise StorageError(f"{path}: {META_NAME} and {DATA_NAME} are not plain files")
    return meta.read(), stack.enter_context(data), members[DATA_NAME].size


def _parse_meta(text: bytes, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        meta = json.loads(text)
    except ValueError as failure:
        raise StorageError(f"{path}: {META_NAME}: {failure}") from failure
    config = meta.get("config") if isinstance(meta, dict) else None
    state = meta.get("state") if isinstance(meta, dict) else None
    if not isinstance(config, dict) or not isinstance(state, dict) or not config.get("name"):
        raise UsageError(f"{path}: {META_NAME} has no stream configuration and state")
    return config, state
