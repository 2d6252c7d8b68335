"""A simulated disk: the `Disk` protocol of the store over two images, what the process sees and what the platter holds.

Theory of operation. Every file has a *cache* (what reads return) and a *durable* image; `pwrite` changes the cache and
marks 512-byte sectors dirty, `sync` copies the dirty sectors. Every folder has cached names, and name changes stand in
one ordered list until `fsync_dir` makes them durable. Three things can happen to the process and the machine:

* `kill`: the process is gone, open files and locks with it; the cache stays (kill -9).
* `power_loss`: the cache is gone; of what was not synced each dirty sector draws a fate (old, new, zero, garbage) and
  the waiting name changes survive as the `personality` says.
* a fault that the `plan` draws for one call: an error, a short write, or the end of the machine in the middle of it. A
  sync that fails marks its sectors clean without writing them, as Linux does: they stay readable, and are lost with the
  power.

The same seed and the same calls give the same images.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from natsctl.store.errors import StoreLocked

SECTOR_BYTES = 512


class Crash(BaseException):
    """The simulated machine stopped inside a call; no code of the process under test may catch this."""


class Personality(Enum):
    """How waiting name changes survive a power loss."""

    ORDERED = "ordered"
    """A prefix of them, as on a journalling file system; a folder's sync carries everything before it."""
    WEAK = "weak"
    """Each by itself; a folder's sync carries the changes of that folder alone."""


class Fault(NamedTuple):
    """What happens to one call: `errno` raises it, `short` lets part of a write in, `crash` stops the machine."""

    error: int = 0
    short: bool = False
    crash: bool = False


Plan = Callable[[str, str], Fault | None]
"""Given a call's name and path, the fault that it meets, or None."""


def no_faults(call: str, path: str) -> Fault | None:
    """The plan of a disk on which nothing goes wrong."""
    return None


class _FileNode:
    """One file's bytes, by cache and by platter."""

    __slots__ = ("cache", "dirty", "durable")

    def __init__(self) -> None:
        self.cache = bytearray()
        self.durable = bytearray()
        self.dirty: set[int] = set()

    def write(self, data: bytes, offset: int) -> None:
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

    def lose_power(self, rng: random.Random) -> None:
        old, new = len(self.durable), len(self.cache)
        size = rng.choice((old, new, rng.randint(min(old, new), max(old, new))))
        if self.dirty:
            image = bytearray(self.durable.ljust(size, b"\0"))
            for sector in sorted(self.dirty):
                start = sector * SECTOR_BYTES
                image[start : start + SECTOR_BYTES] = self._fate(rng, start)
            self.durable = image[:size].ljust(size, b"\0")
        self.cache = bytearray(self.durable)
        self.dirty.clear()

    def _fate(self, rng: random.Random, start: int) -> bytes:
        """What a dirty sector holds afterwards: written whole or not at all; one that never was may hold anything."""
        old = bytes(self.durable[start : start + SECTOR_BYTES])
        new = bytes(self.cache[start : start + SECTOR_BYTES]).ljust(SECTOR_BYTES, b"\0")
        draw = rng.random()
        if draw < 0.45:
            return new
        if draw < 0.8 or old:
            return old.ljust(SECTOR_BYTES, b"\0")
        return bytes(SECTOR_BYTES) if draw < 0.9 else rng.randbytes(SECTOR_BYTES)


class _FolderNode:
    """One folder's names, by cache and by platter."""

    __slots__ = ("cache", "durable")

    def __init__(self) -> None:
        self.cache: dict[str, _FileNode | _FolderNode] = {}
        self.durable: dict[str, _FileNode | _FolderNode] = {}


class _NameChange(NamedTuple):
    """Names that change together: (folder, name, node or None for none)."""

    entries: tuple[tuple[_FolderNode, str, _FileNode | _FolderNode | None], ...]

    def touches(self, folder: _FolderNode) -> bool:
        return any(entry[0] is folder for entry in self.entries)

    def make_durable(self) -> None:
        for folder, name, node in self.entries:
            if node is None:
                folder.durable.pop(name, None)
            else:
                folder.durable[name] = node


class SimFile:
    """An open file of a SimDisk."""

    def __init__(self, disk: SimDisk, path: str, node: _FileNode, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._node = node
        self._life = disk.life
        self._writable = writable
        self._open = True

    def _check(self) -> None:
        if not self._open or self._life != self._disk.life:
            raise OSError(errno.EBADF, "closed", self._path)

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes at `offset`; fewer only at the end of the file."""
        self._check()
        self._disk.meet("pread", self._path)
        return bytes(self._node.cache[offset : offset + size])

    def pwrite(self, data: bytes | memoryview, offset: int) -> int:
        """Write at `offset` and return how many bytes went in, which may be fewer than given."""
        self._check()
        if not self._writable:
            raise OSError(errno.EBADF, "opened for reading", self._path)
        fault = self._disk.meet("pwrite", self._path, writes=True)
        raw = bytes(data)
        if fault is not None:
            raw = raw[: self._disk.rng.randint(0, max(len(raw) - 1, 0))]
        self._node.write(raw, offset)
        if fault is not None and fault.crash:
            raise Crash(f"pwrite {self._path}")
        return len(raw)

    def truncate(self, size: int) -> None:
        """Set the file's length."""
        self._check()
        self._disk.meet("truncate", self._path)
        self._node.truncate(size)

    def sync(self) -> None:
        """Make data and length durable; after a failure what was dirty counts as clean and is not on the platter."""
        self._check()
        try:
            self._disk.meet("sync", self._path)
        except OSError:
            self._node.dirty.clear()
            raise
        self._node.sync()

    def size(self) -> int:
        """Return the file's length in bytes."""
        self._check()
        return len(self._node.cache)

    def close(self) -> None:
        """Give the descriptor back, and the lock if it held one."""
        if self._open and self._life == self._disk.life:
            self._disk.release(self._path, self)
        self._open = False


class SimDisk:
    """A folder on a simulated file system; implements the store's `Disk`."""

    def __init__(
        self,
        rng: random.Random,
        personality: Personality = Personality.ORDERED,
        plan: Plan = no_faults,
        capacity_bytes: int = 1 << 40,
    ) -> None:
        self.rng = rng
        self.personality = personality
        self.plan = plan
        self.capacity_bytes = capacity_bytes
        self.life = 0
        self.faults = 0
        self._root = _FolderNode()
        self._waiting: list[_NameChange] = []
        self._locks: dict[str, SimFile] = {}

    # -- what can happen to it

    def kill(self) -> None:
        """End the process: open files and locks are gone, the cache stays."""
        self.life += 1
        self._locks.clear()

    def power_loss(self) -> None:
        """End the machine: keep what was synced, and of the rest what the seed and the personality let survive."""
        self.kill()
        if self.personality is Personality.ORDERED:
            survivors = self._waiting[: self.rng.randint(0, len(self._waiting))]
        else:
            survivors = [change for change in self._waiting if self.rng.random() < 0.5]
        for change in survivors:
            change.make_durable()
        self._waiting.clear()
        self._restart(self._root)

    def _restart(self, folder: _FolderNode) -> None:
        folder.cache = dict(folder.durable)
        for name in sorted(folder.cache):
            node = folder.cache[name]
            if isinstance(node, _FileNode):
                node.lose_power(self.rng)
            else:
                self._restart(node)

    def platter(self, seed: int) -> SimDisk:
        """Return a new disk that holds only what is durable now, as if nothing else survived a power loss."""
        twin = SimDisk(random.Random(seed), self.personality)
        twin._root = _durable_copy(self._root)
        return twin

    def alter(self, path: str, offset: int, data: bytes) -> None:
        """Damage a file at rest: overwrite durable and cached bytes, no sync needed."""
        node = self._file(path)
        for image in (node.durable, node.cache):
            image[offset : offset + len(data)] = data

    def cut(self, path: str, size: int) -> None:
        """Damage a file at rest: shorten it."""
        node = self._file(path)
        del node.durable[size:]
        del node.cache[size:]

    def lose(self, path: str) -> None:
        """Damage a folder at rest: a name is gone."""
        folder, name = self._parent(path)
        folder.cache.pop(name)
        folder.durable.pop(name, None)

    def files(self) -> list[str]:
        """The paths of all files, sorted."""
        return sorted(_paths(self._root, ""))

    def size_of(self, path: str) -> int:
        """The cached length of a file in bytes."""
        return len(self._file(path).cache)

    def byte_at(self, path: str, offset: int) -> int:
        """One cached byte of a file."""
        return self._file(path).cache[offset]

    def holds(self, data: bytes) -> bool:
        """Whether any file holds these bytes, in its cache or on the platter."""
        nodes = [self._file(path) for path in self.files()]
        return any(data in node.cache or data in node.durable for node in nodes)

    def meet(self, call: str, path: str, writes: bool = False) -> Fault | None:
        """Let the plan's fault happen, and count it; a fault in the middle of a write is returned to the caller."""
        fault = self.plan(call, path)
        if fault is None:
            return None
        self.faults += 1
        if fault.error:
            raise OSError(fault.error, errno.errorcode.get(fault.error, "error"), path)
        if writes and (fault.short or fault.crash):
            return fault
        if fault.crash:
            raise Crash(f"{call} {path}")
        return None

    # -- the Disk protocol

    def open(self, path: str, create: bool = False) -> SimFile:
        """Open for reading and writing; with `create` the file must not exist yet."""
        self.meet("create" if create else "open", path)
        folder, name = self._parent(path)
        if create:
            if name in folder.cache:
                raise FileExistsError(errno.EEXIST, "exists", path)
            self._change((folder, name, _FileNode()))
        return SimFile(self, path, self._file(path), writable=True)

    def open_read(self, path: str) -> SimFile:
        """Open for reading only."""
        self.meet("open_read", path)
        return SimFile(self, path, self._file(path), writable=False)

    def rename(self, source: str, target: str) -> None:
        """Move a file or folder; an existing file at `target` is replaced in one step."""
        self.meet("rename", source)
        old_folder, old_name = self._parent(source)
        new_folder, new_name = self._parent(target)
        node = self._node(source)
        self._change((old_folder, old_name, None), (new_folder, new_name, node))

    def unlink(self, path: str) -> None:
        """Remove a file name."""
        self.meet("unlink", path)
        folder, name = self._parent(path)
        self._file(path)
        self._change((folder, name, None))

    def mkdir(self, path: str) -> None:
        """Make one folder; it must not exist."""
        self.meet("mkdir", path)
        folder, name = self._parent(path)
        if name in folder.cache:
            raise FileExistsError(errno.EEXIST, "exists", path)
        self._change((folder, name, _FolderNode()))

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        self.meet("rmdir", path)
        folder, name = self._parent(path)
        if self._folder(path).cache:
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        self._change((folder, name, None))

    def listdir(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        self.meet("listdir", path)
        return sorted(self._folder(path).cache)

    def exists(self, path: str) -> bool:
        """Return whether the name is there."""
        try:
            self._node(path)
        except FileNotFoundError:
            return False
        return True

    def is_dir(self, path: str) -> bool:
        """Return whether the name is a folder."""
        return self.exists(path) and isinstance(self._node(path), _FolderNode)

    def fsync_dir(self, path: str) -> None:
        """Make the folder's names durable."""
        self.meet("fsync_dir", path)
        folder = self._folder(path)
        touching = [index for index, change in enumerate(self._waiting) if change.touches(folder)]
        if self.personality is Personality.ORDERED:
            carried = list(range(touching[-1] + 1)) if touching else []
        else:
            carried = touching
        for index in carried:
            self._waiting[index].make_durable()
        self._waiting = [change for index, change in enumerate(self._waiting) if index not in set(carried)]

    def lock(self, path: str) -> SimFile:
        """Create if missing and hold the lock until the file is closed or the process is killed; raises StoreLocked."""
        self.meet("lock", path)
        if path in self._locks:
            raise StoreLocked(f"{path} is held by another process")
        folder, name = self._parent(path)
        if name not in folder.cache:
            self._change((folder, name, _FileNode()))
        file = self._locks[path] = SimFile(self, path, self._file(path), writable=True)
        return file

    def release(self, path: str, file: SimFile) -> None:
        """Give a lock back if this file holds it."""
        if self._locks.get(path) is file:
            del self._locks[path]

    def free_bytes(self) -> int:
        """Return the room left."""
        return max(self.capacity_bytes - _used(self._root), 0)

    # -- names

    def _change(self, *entries: tuple[_FolderNode, str, _FileNode | _FolderNode | None]) -> None:
        for folder, name, node in entries:
            if node is None:
                folder.cache.pop(name)
            else:
                folder.cache[name] = node
        self._waiting.append(_NameChange(entries))

    def _node(self, path: str) -> _FileNode | _FolderNode:
        node: _FileNode | _FolderNode = self._root
        for part in path.split("/") if path else ():
            if not isinstance(node, _FolderNode) or part not in node.cache:
                raise FileNotFoundError(errno.ENOENT, "no such file or folder", path)
            node = node.cache[part]
        return node

    def _folder(self, path: str) -> _FolderNode:
        node = self._node(path)
        if not isinstance(node, _FolderNode):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
        return node

    def _file(self, path: str) -> _FileNode:
        node = self._node(path)
        if not isinstance(node, _FileNode):
            raise IsADirectoryError(errno.EISDIR, "a folder", path)
        return node

    def _parent(self, path: str) -> tuple[_FolderNode, str]:
        folder, _, name = path.rpartition("/")
        return self._folder(folder), name


def _durable_copy(folder: _FolderNode) -> _FolderNode:
    copy = _FolderNode()
    for name, node in folder.durable.items():
        if isinstance(node, _FolderNode):
            twin: _FileNode | _FolderNode = _durable_copy(node)
        else:
            twin = _FileNode()
            twin.cache, twin.durable = bytearray(node.durable), bytearray(node.durable)
        copy.cache[name] = copy.durable[name] = twin
    return copy


def _used(folder: _FolderNode) -> int:
    return sum(len(node.cache) if isinstance(node, _FileNode) else _used(node) for node in folder.cache.values())


def _paths(folder: _FolderNode, prefix: str) -> list[str]:
    paths: list[str] = []
    for name, node in folder.cache.items():
        if isinstance(node, _FolderNode):
            paths.extend(_paths(node, f"{prefix}{name}/"))
        else:
            paths.append(prefix + name)
    return paths
