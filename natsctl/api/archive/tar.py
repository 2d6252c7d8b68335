"""Tar files that arrive or leave in pieces: regular files with PAX headers, nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from tarfile import BLOCKSIZE, PAX_FORMAT, RECORDSIZE, REGTYPE, TarError, TarInfo
from typing import Final

from natsctl.api.archive.archive import ArchiveError, ArchiveFeed

_ZERO_BLOCK: Final = bytes(BLOCKSIZE)
_PAX_TYPES: Final = (b"x", b"g")
_FILE_TYPES: Final = (REGTYPE, b"\0")
_MAX_PAX_BYTES: Final = 64 << 10
_PIECE_BYTES: Final = 512 << 10
END: Final = bytes(2 * BLOCKSIZE)
MAX_FILL_BYTES: Final = len(END) + RECORDSIZE
"""Maximum zeros at the end of a tar: its end mark and the padding of the last record."""


def entry(name: str, content: bytes, mtime_s: int) -> bytes:
    """Return a whole file in tar format."""
    return b"".join((_head(name, len(content), mtime_s), content, _padding(len(content))))


def in_pieces(name: str, content: bytes, mtime_s: int) -> Iterator[bytes]:
    """Yield a large file in tar format, piece by piece."""
    yield _head(name, len(content), mtime_s)
    for at in range(0, len(content), _PIECE_BYTES):
        yield content[at : at + _PIECE_BYTES]
    yield _padding(len(content))


def _head(name: str, size: int, mtime_s: int) -> bytes:
    info = TarInfo(name)
    info.size, info.mtime, info.mode = size, mtime_s, 0o600
    return info.tobuf(PAX_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % BLOCKSIZE)


class TarFile:
    """The file that is being read: its name and the number of bytes left."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.left = size

    def take(self, feed: ArchiveFeed, size: int) -> bytes | None:
        """Return the next `size` bytes of the file, None until they are there. Raises ArchiveError past its end."""
        if size > self.left:
            raise ArchiveError(f"{self.name} ends too early")
        data = feed.take(size)
        if data is not None:
            self.left -= size
        return data

    def skip(self, feed: ArchiveFeed, size: int) -> None:
        """Pass over bytes that were peeked at."""
        feed.skip(size)
        self.left -= size


def read_tar(feed: ArchiveFeed) -> Iterator[TarFile | None]:
    """Yield each file of a tar, None if more bytes are needed; content that the caller does not read is skipped."""
    pax: dict[str, str] = {}
    while True:
        while (block := feed.take(BLOCKSIZE)) is None:
            yield None
        if block == _ZERO_BLOCK:
            return
        info = _header(block)
        if info.type in _PAX_TYPES:
            size = info.size
            if size > _MAX_PAX_BYTES:
                raise ArchiveError("a tar header is too long")
            while (body := feed.take(size + -size % BLOCKSIZE)) is None:
                yield None
            if info.type == b"x":
                pax = _pax(body[:size])
            continue
        if info.type not in _FILE_TYPES:
            raise ArchiveError(f"{info.name!r} is not a regular file")
        file = TarFile(pax.get("path", info.name), _size(pax, info))
        pax = {}
        padding = -file.size % BLOCKSIZE
        yield file
        rest = file.left + padding
        while (rest := feed.skip(rest)) > 0:
            yield None


def _header(block: bytes) -> TarInfo:
    try:
        return TarInfo.frombuf(block, "utf-8", "replace")
    except (TarError, ValueError) as fault:
        raise ArchiveError(f"a tar header cannot be read: {fault}") from fault


def _size(pax: dict[str, str], info: TarInfo) -> int:
    text = pax.get("size", str(info.size))
    if not text.isdecimal() or len(text) > 18:
        raise ArchiveError("a tar header has no size")
    return int(text)


def _pax(body: bytes) -> dict[str, str]:
    """Return the records of a PAX header: length, blank, key=value, newline."""
    records, at = {}, 0
    while at < len(body):
        digits, _, _ = body[at : at + 8].partition(b" ")
        size = int(digits) if digits.isdigit() else 0
        record = body[at + len(digits) + 1 : at + size - 1]
        key, equals, value = record.partition(b"=")
        if not equals or at + size > len(body):
            raise ArchiveError("a tar header cannot be read")
        records[key.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
        at += size
    return records
