"""The stream data of a backup, checked while it is read: against its manifest, and up to the end of the file it is in.

Every error of a damaged file becomes a StorageError here: a tar or gzip file that ends too early raises EOFError, one
whose bits are wrong zlib.error, tarfile.TarError or OSError.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

from natsctl.api.errors import StorageError
from natsctl.client.backup.manifest import FileSum, mismatch

FAULTS: Final = (tarfile.TarError, zlib.error, EOFError, OSError)
"""The errors that reading a damaged file raises."""
_BLOCK_BYTES: Final = tarfile.BLOCKSIZE
_END_BYTES: Final = 2 * tarfile.BLOCKSIZE
_SIZE_BYTES: Final = 4
"""The last bytes of a gzip file, which hold the size of its content."""


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise StorageError for what goes wrong while the file at `path` is read."""
    try:
        yield
    except FAULTS as fault:
        raise StorageError(f"{path} is damaged: {fault}") from fault


class BackupData:
    """A readable stream over `raw`, always read from its start.

    At its end it is compared with `expected`, where that is known, and `at_end` looks at the rest of the file.
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
        """Return the next bytes, none at the end. Raises StorageError, at the end also for what the whole shows."""
        with reading(self._path):
            piece = self._raw.read(size)
            if self._expected is not None:
                self._digest.update(piece)
            self._size += len(piece)
            if not piece or size < 0:
                self._at_end()
        if (not piece or size < 0) and self._expected is not None and (why := mismatch(self._expected, self._sum())):
            raise StorageError(f"{self._path} is damaged: {why}")
        return piece

    def rewind(self) -> None:
        """Begin again at the start."""
        with reading(self._path):
            self._raw.seek(0)
        self._digest, self._size = hashlib.sha256(), 0

    def _sum(self) -> FileSum:
        return FileSum(name=self.name, bytes=self._size, sha256=self._digest.hexdigest())


def check_tar_end(path: Path, tar: tarfile.TarFile, *, zipped: bool, exact: bool) -> None:
    """Raise StorageError where a tar file has more than its members, its end mark and the zeros that fill it up.

    With `exact` the zeros are held to what tarfile and Go's tar write: nothing, or up to a record of 20 blocks.
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
    """Raise StorageError where zeros or another member follow the compressed content, which gzip passes over."""
    with path.open("rb") as raw:
        raw.seek(-_SIZE_BYTES, io.SEEK_END)
        if int.from_bytes(raw.read(), "little") != size & 0xFFFFFFFF:
            raise StorageError(f"{path} is damaged: something follows its end")
