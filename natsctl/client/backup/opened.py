"""A stream backup that is read, whatever form it has.

* a directory, or a tar file of the same members: `backup.json`, `stream.tar.s2` and, where natsctl made it,
  `manifest.json`;
* a tar file of a server's own files (`meta.inf`, `msgs/1.blk`, …), as the `nats` tool of 2020 made them: it is what a
  version 1 archive has inside, so it is compressed anew, and its state is counted.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Self

from natsctl.api.errors import StorageError, UsageError
from natsctl.client.backup.layout import (
    DATA_NAME,
    MANIFEST_NAME,
    MAX_META_BYTES,
    META_NAME,
    data_name,
    plain_file,
    small_file,
)
from natsctl.client.backup.manifest import FileSum, Manifest, decode_manifest, sum_of

_MAX_EXTENDED_BYTES = 1 << 20
"""Of the names and attributes that stand before a member of a tar file."""
_EXTENDED_TYPES = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK,
)  # fmt: skip
_PIECE_BYTES = 1 << 20
_SERVER_META = "meta.inf"
_COUNTS = ("messages", "bytes", "first_seq", "last_seq", "consumer_count", "num_subjects", "num_deleted")
"""Of a stream's state."""


class Form(StrEnum):
    """How a backup lies on disk."""

    DIRECTORY = "directory"
    FILE = "file"
    SERVER_FILES = "server files"
    """A tar file of a server's own files, of 2020."""


@dataclass(slots=True)
class OpenBackup:
    """A backup that is being read: `data` gives the `size` bytes of stream data, and can be sought."""

    path: Path
    form: Form
    config: dict[str, Any]
    state: dict[str, Any]
    data: IO[bytes]
    size: int
    manifest: Manifest | None = None
    meta: bytes = b""

    @property
    def stream(self) -> str:
        """The name of the stream in it."""
        return str(self.config.get("name", ""))

    def sums(self) -> list[FileSum]:
        """Size and checksum of the files that a manifest tells of; reads all of the data."""
        import io

        self.data.seek(0)
        data = sum_of(DATA_NAME, self.data)
        self.data.seek(0)
        return [sum_of(META_NAME, io.BytesIO(self.meta)), data]


@contextlib.contextmanager
def open_backup(path: Path) -> Iterator[OpenBackup]:
    """The backup at that path.

    Raises UsageError when it is none, with what it is instead where that is known; StorageError when it is damaged.
    """
    with contextlib.ExitStack() as stack:
        try:
            opened = _open_directory(path, stack) if path.is_dir() else _open_file(path, stack)
        except FileNotFoundError as failure:
            missing = Path(failure.filename or path)
            raise UsageError(f"{path} is not a stream backup: {missing} does not exist", hint=_instead(path)) from None
        except (tarfile.TarError, EOFError, OSError) as failure:
            # tarfile tells each way that it tried on a line of its own.
            why = str(failure).partition(":\n")[0]
            raise StorageError(f"cannot read the backup {path}: {why}", hint=_instead(path)) from failure
        yield opened


def _instead(path: Path) -> str:
    """What a path that is no stream backup may be."""
    if path.is_dir():
        if any(path.glob("stream_*.json")):
            return "this is a configuration backup: natsctl restore reads it, natsctl stream restore its .tgz files"
        if any(path.glob(f"*/{META_NAME}")):
            return "this is a backup of a whole account: natsctl account restore reads it"
    elif path.suffix == ".json" and path.is_file():
        return "this may be a file of a configuration backup: natsctl restore --file reads it"
    return "natsctl backup ls shows the backups below a folder"


def _open_directory(path: Path, stack: contextlib.ExitStack) -> OpenBackup:
    meta = small_file(path / META_NAME)
    data = stack.enter_context(plain_file(path / (data_name({file.name for file in path.iterdir()}) or DATA_NAME)))
    said = path / MANIFEST_NAME
    manifest = decode_manifest(small_file(said), path) if said.exists() else None
    config, state = _parse_meta(meta, path)
    size = os.fstat(data.fileno()).st_size
    return OpenBackup(path, Form.DIRECTORY, config, state, data, size, manifest, meta)


class _Header(tarfile.TarInfo):
    """A tar header that announces no more names and attributes than a tar of ours may have.

    tarfile reads those into memory as a whole, and a few bytes of gzip hold gigabytes of them.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Return a header; raises tarfile.ReadError."""
        header = super().frombuf(buf, encoding, errors)
        if header.size > _MAX_EXTENDED_BYTES and header.type in _EXTENDED_TYPES:
            raise tarfile.ReadError("a tar header is too long")
        return header


def _open_file(path: Path, stack: contextlib.ExitStack) -> OpenBackup:
    stack.enter_context(plain_file(path))  # or tarfile would wait for a pipe
    tar = stack.enter_context(tarfile.open(path, "r:*", tarinfo=_Header))  # noqa: SIM115  # the stack closes it
    members: dict[str, tarfile.TarInfo] = {}
    for member in tar:
        if member.isfile():
            members[member.name.removeprefix("./")] = member
        if (META_NAME in members and data_name(members)) or _SERVER_META in members:
            break
    if _SERVER_META in members:
        return _open_server_files(path, tar, members[_SERVER_META], stack)
    if META_NAME not in members or not data_name(members):
        raise UsageError(f"{path} is not a stream backup: it lacks {META_NAME} or {DATA_NAME}")
    meta = _small(path, tar, members[META_NAME])
    said = members.get(MANIFEST_NAME)
    manifest = decode_manifest(_small(path, tar, said), path) if said else None
    name = data_name(members)
    data = tar.extractfile(members[name])
    if data is None:
        raise StorageError(f"{path}: {name} is no plain file")
    config, state = _parse_meta(meta, path)
    size = members[name].size
    return OpenBackup(path, Form.FILE, config, state, stack.enter_context(data), size, manifest, meta)


def _small(path: Path, tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if member.size > MAX_META_BYTES:
        raise StorageError(f"{path}: {member.name} has {member.size} bytes")
    content = tar.extractfile(member)
    if content is None:
        raise StorageError(f"{path}: {member.name} is no plain file")
    return content.read()


def _open_server_files(
    path: Path, tar: tarfile.TarFile, meta: tarfile.TarInfo, stack: contextlib.ExitStack
) -> OpenBackup:
    """The same tar as an archive: in a temporary file, compressed as servers want it."""
    from natsctl.api.archive.s2 import FrameWriter
    from natsctl.client.backup.contents import state_of

    try:
        body = json.loads(_small(path, tar, meta))
    except (ValueError, RecursionError) as failure:
        raise StorageError(f"{path}: {_SERVER_META}: {failure}") from failure
    if not isinstance(body, dict) or not body.get("name"):
        raise UsageError(f"{path} is not a stream backup: its {_SERVER_META} names no stream")
    config = {key: value for key, value in body.items() if key not in ("Created", "created")}
    data = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # the stack closes it
    frames = FrameWriter()
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
    with gzip.open(path, "rb") if zipped else path.open("rb") as plain:
        while piece := plain.read(_PIECE_BYTES):
            data.write(frames.write(piece))
    data.write(frames.finish())
    size = data.tell()
    data.seek(0)
    opened = OpenBackup(path, Form.SERVER_FILES, config, {}, data, size)
    opened.state = state_of(opened)
    data.seek(0)
    return opened


def _parse_meta(text: bytes, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError) as failure:
        raise StorageError(f"{path}: {META_NAME}: {failure}") from failure
    config = meta.get("config") if isinstance(meta, dict) else None
    state = meta.get("state") if isinstance(meta, dict) else None
    if not isinstance(config, dict) or not isinstance(state, dict) or not config.get("name"):
        raise UsageError(f"{path}: {META_NAME} has no stream configuration and state")
    if wrong := [key for key in _COUNTS if not _is_count(state.get(key, 0))]:
        raise StorageError(f"{path}: {META_NAME}: state.{wrong[0]} is no count")
    if not isinstance(config.get("placement") or {}, dict) or not isinstance(config.get("subjects") or [], list):
        raise StorageError(f"{path}: {META_NAME} has a configuration that no stream can have")
    return config, state


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64
