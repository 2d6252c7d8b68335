"""A small disk in memory that can lose what was not synced; for tests of the store alone."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence

from natsctl.store.errors import StoreLockedError

SECTOR = 512


class Dead(Exception):
    """The process was killed at a disk call."""


class _Inode:
    def __init__(self) -> None:
        self.cache = bytearray()
        self.durable = b""
        self.dirty: set[int] = set()


class CrashFile:
    """An open file of a CrashDisk."""

    def __init__(self, disk: CrashDisk, inode: _Inode, locked: str = "") -> None:
        self._disk, self._inode, self._locked = disk, inode, locked
        self.closed = False

    def pread(self, size: int, offset: int) -> bytes:
        """Return cached bytes."""
        assert not self.closed
        return bytes(self._inode.cache[offset : offset + size])

    def pwrite(self, data: bytes | memoryview, offset: int) -> int:
        """Write into the cache, sometimes less than asked."""
        assert not self.closed
        self._disk.step("write")
        data = bytes(data)
        if self._disk.short and len(data) > 1:
            data = data[: self._disk.rng.randint(1, len(data))]
        if self._disk.room is not None:
            grown = max(offset + len(data) - len(self._inode.cache), 0)
            if grown > self._disk.room:
                fits = len(data) - (grown - self._disk.room)
                if fits <= 0:
                    raise OSError(errno.ENOSPC, "no space")
                data, grown = data[:fits], self._disk.room
            self._disk.room -= grown
        cache = self._inode.cache
        if len(cache) < offset:
            cache.extend(bytes(offset - len(cache)))
        cache[offset : offset + len(data)] = data
        self._inode.dirty.update(range(offset // SECTOR, (offset + len(data) - 1) // SECTOR + 1))
        return len(data)

    def fileno(self) -> int:
        """There is no descriptor."""
        return -1

    def placed(self, data: bytes, offset: int) -> tuple[int, bytes, int]:
        """There is no descriptor."""
        return -1, data, offset

    def truncate(self, size: int) -> None:
        """Shorten the cache."""
        self._disk.step("truncate")
        if self._disk.room is not None:
            self._disk.room += len(self._inode.cache) - size
        del self._inode.cache[size:]
        self._inode.dirty.add(size // SECTOR)

    def sync(self) -> None:
        """Make the cache durable."""
        self._disk.step("sync")
        if self._disk.fail_sync:
            self._disk.fail_sync -= 1
            self._inode.dirty.clear()
            raise OSError(errno.EIO, "sync failed")
        self._inode.durable = bytes(self._inode.cache)
        self._inode.dirty.clear()

    def size(self) -> int:
        """Return the cached length."""
        return len(self._inode.cache)

    def close(self) -> None:
        """Close."""
        self.closed = True
        if self._locked:
            self._disk.locks.discard(self._locked)


class CrashDisk:
    """Files and folders with a cached and a durable state."""

    encrypted = False

    def __init__(self, rng: random.Random | None = None) -> None:
        self.rng = rng or random.Random(0)
        self.names: dict[str, _Inode | None] = {"": None}
        self.durable_names: dict[str, _Inode | None] = {"": None}
        self.locks: set[str] = set()
        self.steps_left = -1
        self.short = False
        self.fail_sync = 0
        self.room: int | None = None
        self.calls: list[str] = []

    def arm(self, rng: random.Random) -> None:
        """Die after a drawn number of calls."""
        self.steps_left = rng.randint(1, 150)
        self.short = rng.random() < 0.3

    def disarm(self) -> None:
        """Do not die."""
        self.steps_left, self.short = -1, False

    def step(self, what: str) -> None:
        """Count one call."""
        self.calls.append(what)
        if self.steps_left >= 0:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise Dead

    def contains(self, needle: bytes) -> bool:
        """Return whether a reachable file holds `needle`, in the cache or durably."""
        return any(i is not None and (needle in i.cache or needle in i.durable) for i in self.names.values())

    def kill(self) -> None:
        """The process dies; the cache stays."""
        self.locks.clear()
        self.disarm()

    def power(self, rng: random.Random) -> None:
        """Power is lost: what was not synced survives by sector as drawn; names go back or stay per folder."""
        self.kill()
        kept = dict(self.names.items())
        for folder in sorted({p.rpartition("/")[0] for p in {*self.names, *self.durable_names} if p}):
            if folder not in self.names or rng.random() < 0.5:
                for path in [p for p in kept if p and p.rpartition("/")[0] == folder]:
                    del kept[path]
                kept.update({p: i for p, i in self.durable_names.items() if p and p.rpartition("/")[0] == folder})
        alive: dict[str, _Inode | None] = {"": None}
        for path in sorted(kept):
            if path and path.rpartition("/")[0] in alive:
                alive[path] = kept[path]
        self.names = alive
        seen: set[int] = set()
        for inode in [*self.names.values(), *self.durable_names.values()]:
            if inode is not None and id(inode) not in seen:
                seen.add(id(inode))
                self._lose(inode, rng)
        self.durable_names = dict(self.names)

    def _lose(self, inode: _Inode, rng: random.Random) -> None:
        old, new = inode.durable, bytes(inode.cache)
        if inode.dirty:
            size = rng.choice([len(old), len(new), rng.randint(min(len(old), len(new)), max(len(old), len(new)))])
            image = bytearray(old[:size].ljust(size, b"\0"))
            mode = rng.choice(["none", "all", "some", "some"])
            for sector in sorted(inode.dirty):
                at = sector * SECTOR
                if mode == "all" or (mode == "some" and rng.random() < 0.5):
                    image[at : at + SECTOR] = new[at : at + SECTOR][: max(size - at, 0)]
            old = bytes(image)
        inode.durable = old
        inode.cache = bytearray(old)
        inode.dirty.clear()

    def _inode(self, path: str) -> _Inode:
        inode = self.names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, path)
        return inode

    def open(self, path: str, create: bool = False) -> CrashFile:
        """Open or create."""
        if create:
            self.step("create")
            if path in self.names:
                raise FileExistsError(errno.EEXIST, path)
            if path.rpartition("/")[0] not in self.names:
                raise FileNotFoundError(errno.ENOENT, path)
            self.names[path] = _Inode()
        return CrashFile(self, self._inode(path))

    def open_read(self, path: str) -> CrashFile:
        """Open for reading."""
        return CrashFile(self, self._inode(path))

    def rename(self, source: str, target: str) -> None:
        """Move names in the cache; a folder takes its content, durable names too."""
        self.step("rename")
        if source not in self.names:
            raise FileNotFoundError(errno.ENOENT, source)
        for names in (self.names, self.durable_names):
            for path in [p for p in names if p.startswith(source + "/")]:
                if names is self.names:
                    names[target + path[len(source) :]] = names.pop(path)
                else:
                    names[target + path[len(source) :]] = names[path]
        self.names[target] = self.names.pop(source)

    def unlink(self, path: str) -> None:
        """Remove a name from the cache."""
        self.step("unlink")
        inode = self._inode(path)
        if self.room is not None:
            self.room += len(inode.cache)
        del self.names[path]

    def mkdir(self, path: str) -> None:
        """Make a folder."""
        self.step("mkdir")
        if path in self.names:
            raise FileExistsError(errno.EEXIST, path)
        self.names[path] = None

    def rmdir(self, path: str) -> None:
        """Remove a folder."""
        self.step("rmdir")
        del self.names[path]

    def listdir(self, path: str) -> list[str]:
        """List names."""
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, path)
        prefix = path + "/" if path else ""
        return sorted(
            p[len(prefix) :] for p in self.names if p and p.startswith(prefix) and "/" not in p[len(prefix) :]
        )

    def exists(self, path: str) -> bool:
        """Return whether the name is there."""
        return path in self.names

    def is_dir(self, path: str) -> bool:
        """Return whether it is a folder."""
        return path in self.names and self.names[path] is None

    def fsync_dir(self, path: str) -> None:
        """Make a folder's names durable."""
        self.step("fsync_dir")

        def inside(p: str) -> bool:
            return bool(p) and p.rpartition("/")[0] == path

        for name in [p for p in self.durable_names if inside(p)]:
            del self.durable_names[name]
        self.durable_names.update({p: i for p, i in self.names.items() if inside(p)})
        for name in [p for p in self.durable_names if p.rpartition("/")[0] not in self.durable_names]:
            if name.rpartition("/")[0] not in self.names:
                del self.durable_names[name]

    def fsync_dirs(self, paths: Sequence[str]) -> dict[str, OSError]:
        """Make the names in some folders durable."""
        for path in paths:
            self.fsync_dir(path)
        return {}

    def lock(self, path: str) -> CrashFile:
        """Hold a name."""
        if path in self.locks:
            raise StoreLockedError(path)
        if path not in self.names:
            self.names[path] = _Inode()
        self.locks.add(path)
        return CrashFile(self, self._inode(path), path)

    def free_bytes(self) -> int:
        """Return the room left."""
        return 1 << 40 if self.room is None else self.room
