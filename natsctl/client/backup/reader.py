"""Reading of stream backups in any form, checked against the manifest and up to the end of the file.

* a directory, or a tar file of the same members: `backup.json`, `stream.tar.s2` or `stream.arc.s2` and, where natsctl
  made it, `manifest.json`;
* a tar file of a server's own files (`meta.inf`, `msgs/1.blk`, …), as the `nats` tool of 2020 made them: these are the
  contents of a version 1 archive, so they are compressed again, and the state is counted.

Every error of a damaged file becomes a StorageError here: a tar or gzip file that ends too early raises EOFError, one
with wrong bits zlib.error, tarfile.TarError or OSError.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Final, Literal, Self

from natsctl.api.errors import StorageError, UsageError
from natsctl.client.backup.manifest import (
    DATA_NAME,
    MANIFEST_NAME,
    MAX_META_BYTES,
    META_NAME,
    FileSum,
    Manifest,
    data_name,
    decode_manifest,
    mismatch,
    plain_file,
    small_file,
    sum_of,
)

FAULTS: Final = (tarfile.TarError, zlib.error, EOFError, OSError)
"""The errors that reading a damaged file raises."""
_BLOCK_BYTES: Final = tarfile.BLOCKSIZE
_END_BYTES: Final = 2 * tarfile.BLOCKSIZE
_SIZE_BYTES: Final = 4
"""The last bytes of a gzip file: the size of its content."""


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise StorageError for failures while the file at `path` is read."""
    try:
        yield
    except FAULTS as fault:
        raise StorageError(f"{path} is damaged: {fault}") from fault


class BackupData:
    """A readable stream over `raw`, always read from its start.

    At its end it is compared with `expected`, if known, and `at_end` checks the rest of the file.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        raw: IO[bytes],
        *,
        expected: FileSum | None = None,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._path, self.name, self._raw = path, name, raw
        self._expected, self._at_end = expected, at_end
        self._digest, self._size = hashlib.sha256(), 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, none at the end. Raises StorageError, at the end also for faults of the whole."""
        with reading(self._path):
            piece = self._raw.read(size)
            if self._expected is not None:
                self._digest.update(piece)
            self._size += len(piece)
            if not piece or size < 0:
                self._at_end()
        if (not piece or size < 0) and self._expected is not None:
            actual = FileSum(name=self.name, bytes=self._size, sha256=self._digest.hexdigest())
            if why := mismatch(self._expected, actual):
                raise StorageError(f"{self._path} is damaged: {why}")
        return piece

    def rewind(self) -> None:
        with reading(self._path):
            self._raw.seek(0)
        self._digest, self._size = hashlib.sha256(), 0


def check_tar_end(path: Path, tar: tarfile.TarFile, *, zipped: bool, exact: bool) -> None:
    """Raise StorageError if a tar file has more than its members, its end mark and the padding.

    With `exact` the padding must be as in tarfile and Go's tar: nothing, or up to a record of 20 blocks.
    """
    members = tar.getmembers()
    file = tar.fileobj
    assert file is not None
    if exact and not zipped:
        for member in members:
            file.seek(member.offset_data + member.size)
            if any(file.read(-member.size % _BLOCK_BYTES)):
                raise StorageError(f"{path} is damaged: something stands between its members")
    at = max((each.offset_data + each.size + -each.size % _BLOCK_BYTES for each in members), default=0)
    file.seek(at)
    size = 0
    while rest := file.read(tarfile.RECORDSIZE):
        size += len(rest)
        if any(rest):
            raise StorageError(f"{path} is damaged: something follows its end")
    filled = (at + size) % tarfile.RECORDSIZE == 0 and size < _END_BYTES + tarfile.RECORDSIZE
    if size < _END_BYTES or size % _BLOCK_BYTES or (exact and size != _END_BYTES and not filled):
        raise StorageError(f"{path} is damaged: it ends too early or too late")
    if zipped:
        _check_gzip_end(path, at + size)


def _check_gzip_end(path: Path, size: int) -> None:
    """Raise StorageError if zeros or another member, skipped by gzip, follow the compressed content."""
    with path.open("rb") as raw:
        raw.seek(-_SIZE_BYTES, io.SEEK_END)
        if int.from_bytes(raw.read(), "little") != size & 0xFFFFFFFF:
            raise StorageError(f"{path} is damaged: something follows its end")


_MAX_EXTENDED_BYTES = 1 << 20
"""Maximum bytes of names and attributes before a member of a tar file."""
_EXTENDED_TYPES = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK,
)  # fmt: skip
_PIECE_BYTES = 1 << 20
_SERVER_META = "meta.inf"
_GZIP_MAGIC: Final = b"\x1f\x8b"
_COUNTS = ("messages", "bytes", "first_seq", "last_seq", "consumer_count", "num_subjects", "num_deleted")


class Form(StrEnum):
    DIRECTORY = "directory"
    FILE = "file"
    SERVER_FILES = "server files"
    """A tar file of a server's own files, of 2020."""


@dataclass(slots=True)
class OpenBackup:
    """A backup that is being read: `data` gives the `size` bytes of stream data."""

    path: Path
    form: Form
    config: dict[str, Any]
    state: dict[str, Any]
    data: BackupData
    size: int
    manifest: Manifest | None = None
    meta: bytes = b""

    @property
    def stream(self) -> str:
        return str(self.config.get("name", ""))

    def block(self, name: str) -> dict[str, Any]:
        """Return the members of backup.json other than config and state, or {}."""
        found = json.loads(self.meta).get(name) if self.meta else None
        return found if isinstance(found, dict) else {}

    def sums(self) -> list[FileSum]:
        """Return size and checksum of the files that a manifest names; reads all of the data."""
        self.data.rewind()
        return [sum_of(META_NAME, io.BytesIO(self.meta)), sum_of(self.data.name, self.data)]


@contextlib.contextmanager
def open_backup(path: Path, *, judged: bool = True) -> Iterator[OpenBackup]:
    """Open the backup at that path.

    Raises UsageError for another kind of file, with a hint if known; StorageError if it is damaged.
    With `judged` its files are compared with the manifest: backup.json now, the data at its end.
    """
    with contextlib.ExitStack() as stack:
        try:
            opened = (_open_directory if path.is_dir() else _open_file)(path, stack, judged)
        except FileNotFoundError as failure:
            missing = Path(failure.filename or path)
            raise UsageError(f"{path} is not a stream backup: {missing} does not exist", hint=_instead(path)) from None
        except FAULTS as failure:
            # tarfile reports each format that it tried on a line of its own.
            why = str(failure).partition(":\n")[0]
            raise StorageError(f"cannot read the backup {path}: {why}", hint=_instead(path)) from failure
        if judged and opened.manifest is not None:
            _check_meta(opened, opened.manifest)
        yield opened


def _check_meta(opened: OpenBackup, manifest: Manifest) -> None:
    found = sum_of(META_NAME, io.BytesIO(opened.meta))
    if (said := manifest.file(META_NAME)) is not None and (why := mismatch(said, found)):
        raise StorageError(
            f"{opened.path} is damaged: {why}",
            hint=f"remove {MANIFEST_NAME} where {META_NAME} was changed on purpose",
        )


def _instead(path: Path) -> str:
    """Return a hint at the kind of a path that is no stream backup."""
    if path.is_dir():
        if any(path.glob("stream_*.json")):
            return "this is a configuration backup: natsctl restore reads it, natsctl stream restore its .tgz files"
        if any(path.glob(f"*/{META_NAME}")):
            return "this is a backup of a whole account: natsctl account restore reads it"
    elif path.suffix == ".json" and path.is_file():
        return "this may be a file of a configuration backup: natsctl restore --file reads it"
    return "natsctl backup ls shows the backups below a folder"


def _open_directory(path: Path, stack: contextlib.ExitStack, judged: bool) -> OpenBackup:
    meta = small_file(path / META_NAME)
    name = data_name({file.name for file in path.iterdir()}) or DATA_NAME
    raw = stack.enter_context(plain_file(path / name))
    said = path / MANIFEST_NAME
    manifest = decode_manifest(small_file(said), path) if said.exists() else None
    config, state = _parse_meta(meta, path)
    size = os.fstat(raw.fileno()).st_size
    data = BackupData(path, name, raw, expected=manifest.file(name) if manifest is not None and judged else None)
    return OpenBackup(path, Form.DIRECTORY, config, state, data, size, manifest, meta)


class _Header(tarfile.TarInfo):
    """A tar header that announces no more names and attributes than a tar of ours may have.

    tarfile reads those into memory as a whole, and a few bytes of gzip can expand to gigabytes of them.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if buf[154:156] != b"\0 ":  # after the digits of the checksum, and not covered by it
            raise tarfile.ReadError("a tar header is damaged")
        if header.size > _MAX_EXTENDED_BYTES and header.type in _EXTENDED_TYPES:
            raise tarfile.ReadError("a tar header is too long")
        return header


def _open_file(path: Path, stack: contextlib.ExitStack, judged: bool) -> OpenBackup:
    with plain_file(path) as file:  # or tarfile would wait for a pipe
        zipped = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    mode: Literal["r:gz", "r:"] = "r:gz" if zipped else "r:"
    tar = stack.enter_context(tarfile.open(path, mode, tarinfo=_Header))  # noqa: SIM115  # the stack closes it
    members: dict[str, tarfile.TarInfo] = {}
    for member in tar:
        if member.isfile():
            members[member.name.removeprefix("./")] = member
        if (META_NAME in members and data_name(members)) or _SERVER_META in members:
            break
    if _SERVER_META in members:
        return _open_server_files(path, tar, members[_SERVER_META], stack, zipped)
    if META_NAME not in members or not data_name(members):
        raise UsageError(f"{path} is not a stream backup: it lacks {META_NAME} or {DATA_NAME}")
    meta = _small(path, tar, members[META_NAME])
    said = members.get(MANIFEST_NAME)
    manifest = decode_manifest(_small(path, tar, said), path) if said else None
    name = data_name(members)
    raw = tar.extractfile(members[name])
    if raw is None:
        raise StorageError(f"{path}: {name} is not a regular file")
    config, state = _parse_meta(meta, path)
    data = BackupData(
        path,
        name,
        stack.enter_context(raw),
        expected=manifest.file(name) if manifest is not None and judged else None,
        at_end=lambda: check_tar_end(path, tar, zipped=zipped, exact=manifest is not None),
    )
    return OpenBackup(path, Form.FILE, config, state, data, members[name].size, manifest, meta)


def _small(path: Path, tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if member.size > MAX_META_BYTES:
        raise StorageError(f"{path}: {member.name} has {member.size} bytes")
    content = tar.extractfile(member)
    if content is None:
        raise StorageError(f"{path}: {member.name} is not a regular file")
    return content.read()


def _open_server_files(
    path: Path, tar: tarfile.TarFile, meta: tarfile.TarInfo, stack: contextlib.ExitStack, zipped: bool
) -> OpenBackup:
    """Return the same tar as an archive: in a temporary file, compressed as servers want it."""
    from natsctl.api.archive.s2 import FrameWriter
    from natsctl.client.backup.archives import state_of

    try:
        body = json.loads(_small(path, tar, meta))
    except (ValueError, RecursionError) as failure:
        raise StorageError(f"{path}: {_SERVER_META}: {failure}") from failure
    if not isinstance(body, dict) or not body.get("name"):
        raise UsageError(f"{path} is not a stream backup: its {_SERVER_META} names no stream")
    config = {key: value for key, value in body.items() if key not in ("Created", "created")}
    check_tar_end(path, tar, zipped=zipped, exact=False)
    packed = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # the stack closes it
    frames = FrameWriter()
    with gzip.open(path, "rb") if zipped else path.open("rb") as plain:
        while piece := plain.read(_PIECE_BYTES):
            packed.write(frames.write(piece))
    packed.write(frames.finish())
    size = packed.tell()
    opened = OpenBackup(path, Form.SERVER_FILES, config, {}, BackupData(path, DATA_NAME, packed), size)
    opened.state = state_of(opened)
    return opened


def _parse_meta(text: bytes, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError) as failure:
        raise StorageError(f"{path}: {META_NAME}: {failure}") from failure
    config = meta.get("config") if isinstance(meta, dict) else None
    state = meta.get("state") if isinstance(meta, dict) else None
    if not isinstance(config, dict) or not isinstance(state, dict) or not config.get("name"):
        raise UsageError(
            f"{path} is not a NATS Server 2.15 stream backup, nor an older one:"
            f" {META_NAME} has no stream configuration and state"
        )
    if wrong := [key for key in _COUNTS if not _is_count(state.get(key, 0))]:
        raise StorageError(f"{path}: {META_NAME}: state.{wrong[0]} is not a count")
    if not isinstance(config.get("placement") or {}, dict) or not isinstance(config.get("subjects") or [], list):
        raise StorageError(f"{path}: {META_NAME} has a configuration that no stream can have")
    return config, state


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64
