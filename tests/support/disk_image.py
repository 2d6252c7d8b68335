"""Files and folders of a simulated disk, each as the process sees it and as the disk holds it after a power loss."""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

SECTOR_BYTES = 512


class FileImage:
    """One file's bytes, by cache and by disk."""

    __slots__ = ("cache", "dirty", "durable")

    def __init__(self) -> None:
        self.cache = bytearray()
        self.durable = bytearray()
        self.dirty: set[int] = set()

    def write(self, data: bytes, offset: int) -> None:
        """Change the cache; a hole before `offset` reads as zeros."""
        if len(self.cache) < offset:
            self._touch(len(self.cache), offset)
            self.cache.extend(bytes(offset - len(self.cache)))
        self.cache[offset : offset + len(data)] = data
        self._touch(offset, offset + len(data))

    def truncate(self, size: int) -> None:
        before = len(self.cache)
        if size < before:
            del self.cache[size:]
        else:
            self.cache.extend(bytes(size - before))
        self._touch(min(size, before), max(size, before))

    def _touch(self, start: int, end: int) -> None:
        self.dirty.update(range(start // SECTOR_BYTES, (max(end, start + 1) + SECTOR_BYTES - 1) // SECTOR_BYTES))

    def sync(self) -> None:
        size = len(self.cache)
        del self.durable[size:]
        for sector in sorted(sector for sector in self.dirty if sector * SECTOR_BYTES < size):
            start = sector * SECTOR_BYTES
            piece = self.cache[start : start + SECTOR_BYTES]
            if len(self.durable) < start:
                self.durable.extend(bytes(start - len(self.durable)))
            self.durable[start : start + len(piece)] = piece
        self.durable.extend(bytes(size - len(self.durable)))
        self.dirty.clear()

    def lose_power(self, rng: random.Random, stale: Sequence[bytes] = ()) -> None:
        """Forget the cache; keep synced data and whatever else the draw lets survive.

        Blocks that were never written may hold what `stale` has: bytes that lay on this disk before.
        """
        old, new = len(self.durable), len(self.cache)
        size = rng.choice((old, new, rng.randint(min(old, new), max(old, new))))
        if self.dirty:
            image = bytearray(self.durable.ljust(size, b"\0"))
            for sector in sorted(self.dirty):
                start = sector * SECTOR_BYTES
                image[start : start + SECTOR_BYTES] = self._fate(rng, start, stale)
            self.durable = image[:size].ljust(size, b"\0")
        self.cache = bytearray(self.durable)
        self.dirty.clear()

    def _fate(self, rng: random.Random, start: int, stale: Sequence[bytes]) -> bytes:
        """Return the content of a dirty sector afterwards: old or new, or anything if it was never written."""
        old = bytes(self.durable[start : start + SECTOR_BYTES])
        new = bytes(self.cache[start : start + SECTOR_BYTES]).ljust(SECTOR_BYTES, b"\0")
        draw = rng.random()
        if draw < 0.45:
            return new
        if draw < 0.8 or old:
            return old.ljust(SECTOR_BYTES, b"\0")
        if draw < 0.87:
            return bytes(SECTOR_BYTES)
        return rng.choice(stale) if stale and draw < 0.96 else rng.randbytes(SECTOR_BYTES)


class FolderImage:
    """One folder's names, by cache and by disk."""

    __slots__ = ("cache", "durable")

    def __init__(self) -> None:
        self.cache: dict[str, FileImage | FolderImage] = {}
        self.durable: dict[str, FileImage | FolderImage] = {}


class NameChange(NamedTuple):
    """Names that change together: (folder, name, node or None for none)."""

    entries: tuple[tuple[FolderImage, str, FileImage | FolderImage | None], ...]

    def touches(self, folder: FolderImage) -> bool:
        return any(entry[0] is folder for entry in self.entries)

    def make_durable(self) -> None:
        for folder, name, node in self.entries:
            if node is None:
                folder.durable.pop(name, None)
            else:
                folder.durable[name] = node


def durable_copy(folder: FolderImage) -> FolderImage:
    """Return a folder with the durable content, by cache and by disk."""
    copy = FolderImage()
    for name, node in folder.durable.items():
        if isinstance(node, FolderImage):
            twin: FileImage | FolderImage = durable_copy(node)
        else:
            twin = FileImage()
            twin.cache, twin.durable = bytearray(node.durable), bytearray(node.durable)
        copy.cache[name] = copy.durable[name] = twin
    return copy


def durable_files(folder: FolderImage) -> Iterator[FileImage]:
    """Yield every file that has, or may get back, a name below a folder."""
    for node in {id(node): node for node in (*folder.cache.values(), *folder.durable.values())}.values():
        if isinstance(node, FolderImage):
            yield from durable_files(node)
        else:
            yield node


def sectors_of(file: FileImage) -> list[bytes]:
    starts = range(0, len(file.durable), SECTOR_BYTES)
    return [bytes(file.durable[at : at + SECTOR_BYTES]).ljust(SECTOR_BYTES, b"\0") for at in starts]


def used_bytes(folder: FolderImage) -> int:
    return sum(len(node.cache) if isinstance(node, FileImage) else used_bytes(node) for node in folder.cache.values())


def file_paths(folder: FolderImage, prefix: str) -> list[str]:
    paths: list[str] = []
    for name, node in folder.cache.items():
        if isinstance(node, FolderImage):
            paths.extend(file_paths(node, f"{prefix}{name}/"))
        else:
            paths.append(prefix + name)
    return paths
