"""A simulated disk: the `Disk` protocol of the store over two images, the process's view and the durable content.

Theory of operation. Every file has a *cache* (what reads return) and a *durable* image; `pwrite` changes the cache and
marks 512-byte sectors dirty, `sync` copies the dirty sectors. Every folder has cached names, and name changes stand in
one ordered list until `fsync_dir` makes them durable. Three things can happen to the process and the machine:

* * `kill`: the process ends with its open files and locks; the cache stays (kill -9).
* `power_loss`: the cache is lost; each unsynced dirty sector draws a fate (old, new, zero, garbage, or an
  old block of another file) and the waiting name changes survive as the `journalling` says.
* a fault that the `plan` draws for one call: an error, a short write, or the end of the machine in the middle of it. A
  sync that fails marks its sectors clean without writing them, as Linux does: they stay readable, and are lost with the
  power.

The same seed and the same calls give the same images.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from natsctl.store.errors import StoreLockedError
from tests.support.disk_image import (
    FileImage,
    FolderImage,
    NameChange,
    durable_copy,
    durable_files,
    file_paths,
    sectors_of,
    used_bytes,
)

STALE_SECTORS = 64
"""Old blocks that a power loss may expose in unwritten places."""
LEFTOVERS = (".torn", "RESERVE", "LOCK")
"""Files that are never synced or hold cut-off data: a power loss may leave old blocks in them for good."""


class Crash(BaseException):
    """The simulated machine stopped inside a call; no code of the process under test may catch this."""


class Journalling(Enum):
    """Rules for pending name changes after a power loss."""

    ORDERED = "ordered"
    """A prefix of them, as on a journalling file system; a folder's sync carries everything before it."""
    WEAK = "weak"
    """Each independently; a folder's sync covers only its own changes."""


class DiskFault(NamedTuple):
    """The fault of one call: `error` is raised, `short` writes a part, `crash` stops the machine."""

    error: int = 0
    short: bool = False
    crash: bool = False


Plan = Callable[[str, str], DiskFault | None]
"""Given a call's name and path, the fault that it meets, or None."""


def no_faults(call: str, path: str) -> DiskFault | None:
    return None


def crash_at(call_number: int) -> Plan:
    seen = 0

    def plan(call: str, path: str) -> DiskFault | None:
        nonlocal seen
        seen += 1
        return DiskFault(crash=True) if seen == call_number else None

    return plan


class SimFile:
    def __init__(self, disk: SimDisk, path: str, node: FileImage, writable: bool) -> None:
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
        self._check()
        self._disk.meet("pread", self._path)
        return bytes(self._node.cache[offset : offset + size])

    def pwrite(self, data: bytes | memoryview, offset: int) -> int:
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
        self._check()
        self._disk.meet("truncate", self._path)
        self._node.truncate(size)

    def sync(self) -> None:
        self._check()
        try:
            self._disk.meet("sync", self._path)
        except OSError:
            self._node.dirty.clear()
            raise
        self._node.sync()

    def start_writeback(self) -> None:
        self._check()

    def size(self) -> int:
        self._check()
        return len(self._node.cache)

    def fileno(self) -> int:
        return -1

    def placed(self, data: bytes, offset: int) -> tuple[int, bytes, int]:
        return self.fileno(), data, offset

    def close(self) -> None:
        if self._open and self._life == self._disk.life:
            self._disk.release(self._path, self)
        self._open = False


class SimDisk:
    """A folder on a simulated file system; implements the store's `Disk`."""

    encrypted = False

    def __init__(
        self,
        rng: random.Random,
        journalling: Journalling = Journalling.ORDERED,
        plan: Plan = no_faults,
        capacity_bytes: int = 1 << 40,
    ) -> None:
        self.rng = rng
        self.journalling = journalling
        self.plan = plan
        self.capacity_bytes = capacity_bytes
        self.life = 0
        self.faults = 0
        self._root = FolderImage()
        self._waiting: list[NameChange] = []
        self._freed: list[bytes] = []
        self._locks: dict[str, SimFile] = {}

    # -- faults

    def kill(self) -> None:
        """End the process: open files and locks are lost, the cache stays."""
        self.life += 1
        self._locks.clear()

    def power_loss(self) -> None:
        """End the machine: synced data stays, and of the rest what seed and journalling let survive."""
        self.kill()
        if self.journalling is Journalling.ORDERED:
            survivors = self._waiting[: self.rng.randint(0, len(self._waiting))]
        else:
            survivors = [change for change in self._waiting if self.rng.random() < 0.5]
        for change in survivors:
            change.make_durable()
        self._waiting.clear()
        stale = self._draw_stale()
        self._restart(self._root, stale)

    def _draw_stale(self) -> list[bytes]:
        """Return old blocks of files that are there, were removed, or were replaced."""
        now = [sector for file in durable_files(self._root) for sector in sectors_of(file)]
        pool = self._freed + now
        self._freed = pool if len(pool) <= STALE_SECTORS else self.rng.sample(pool, STALE_SECTORS)
        return self._freed

    def _free(self, node: FileImage | FolderImage | None) -> None:
        """Keep some blocks of a file that loses its name."""
        if isinstance(node, FileImage):
            self._freed = (self._freed + sectors_of(node)[:4])[-STALE_SECTORS:]

    def _restart(self, folder: FolderImage, stale: list[bytes]) -> None:
        folder.cache = dict(folder.durable)
        for name in sorted(folder.cache):
            node = folder.cache[name]
            if isinstance(node, FileImage):
                node.lose_power(self.rng, stale)
            else:
                self._restart(node, stale)

    def synced_image(self, seed: int) -> SimDisk:
        """Return a new disk with only the durable content, as if nothing else survived a power loss."""
        copy = SimDisk(random.Random(seed), self.journalling)
        copy._root = durable_copy(self._root)
        return copy

    def alter(self, path: str, offset: int, data: bytes) -> None:
        node = self._file(path)
        for image in (node.durable, node.cache):
            image[offset : offset + len(data)] = data

    def cut(self, path: str, size: int) -> None:
        node = self._file(path)
        del node.durable[size:]
        del node.cache[size:]

    def lose(self, path: str) -> None:
        folder, name = self._parent(path)
        folder.cache.pop(name)
        folder.durable.pop(name, None)

    def put(self, path: str, data: bytes) -> None:
        file = self.open(path, create=True)
        file.pwrite(data, 0)
        file.sync()
        file.close()
        self.fsync_dir(path.rpartition("/")[0])

    def content(self, path: str) -> bytes:
        return bytes(self._file(path).cache)

    def files(self) -> list[str]:
        return sorted(file_paths(self._root, ""))

    def size_of(self, path: str) -> int:
        return len(self._file(path).cache)

    def byte_at(self, path: str, offset: int) -> int:
        return self._file(path).cache[offset]

    def forget(self, data: bytes) -> None:
        """Take these bytes out of freed blocks and of files that a crash filled with them: no erasure reaches those."""
        self._freed = [sector for sector in self._freed if data not in sector]
        for path in self.files():
            if path.endswith(LEFTOVERS):
                file = self._file(path)
                file.cache, file.durable = (
                    image.replace(data, bytes(len(data))) for image in (file.cache, file.durable)
                )

    def contents(self) -> list[bytes]:
        files = [*durable_files(self._root)]
        return [*(bytes(file.cache) for file in files), *(bytes(f.durable) for f in files if f.durable != f.cache)]

    def holds(self, data: bytes) -> bool:
        return any(data in content for content in self.contents())

    def meet(self, call: str, path: str, writes: bool = False) -> DiskFault | None:
        """Raise the plan's fault, and count it; a fault in the middle of a write is returned to the caller."""
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
        self.meet("create" if create else "open", path)
        folder, name = self._parent(path)
        if create:
            if name in folder.cache:
                raise FileExistsError(errno.EEXIST, "exists", path)
            self._change((folder, name, FileImage()))
        return SimFile(self, path, self._file(path), writable=True)

    def open_read(self, path: str) -> SimFile:
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
        self.meet("unlink", path)
        folder, name = self._parent(path)
        self._file(path)
        self._change((folder, name, None))

    def mkdir(self, path: str) -> None:
        self.meet("mkdir", path)
        folder, name = self._parent(path)
        if name in folder.cache:
            raise FileExistsError(errno.EEXIST, "exists", path)
        self._change((folder, name, FolderImage()))

    def rmdir(self, path: str) -> None:
        self.meet("rmdir", path)
        folder, name = self._parent(path)
        if self._folder(path).cache:
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        self._change((folder, name, None))

    def listdir(self, path: str) -> list[str]:
        self.meet("listdir", path)
        return sorted(self._folder(path).cache)

    def exists(self, path: str) -> bool:
        try:
            self._node(path)
        except FileNotFoundError:
            return False
        return True

    def is_dir(self, path: str) -> bool:
        return self.exists(path) and isinstance(self._node(path), FolderImage)

    def fsync_dir(self, path: str) -> None:
        self.meet("fsync_dir", path)
        folder = self._folder(path)
        touching = [index for index, change in enumerate(self._waiting) if change.touches(folder)]
        if self.journalling is Journalling.ORDERED:
            carried = list(range(touching[-1] + 1)) if touching else []
        else:
            carried = touching
        for index in carried:
            self._waiting[index].make_durable()
        self._waiting = [change for index, change in enumerate(self._waiting) if index not in set(carried)]

    def fsync_dirs(self, paths: Sequence[str]) -> dict[str, OSError]:
        faults: dict[str, OSError] = {}
        for path in paths:
            try:
                self.fsync_dir(path)
            except OSError as error:
                faults[path] = error
        return faults

    def lock(self, path: str) -> SimFile:
        """Create if missing and hold the lock until the file is closed or the process is killed.

        Raises StoreLockedError.
        """
        self.meet("lock", path)
        if path in self._locks:
            raise StoreLockedError(f"{path} is held by another process")
        folder, name = self._parent(path)
        if name not in folder.cache:
            self._change((folder, name, FileImage()))
        file = self._locks[path] = SimFile(self, path, self._file(path), writable=True)
        return file

    def release(self, path: str, file: SimFile) -> None:
        if self._locks.get(path) is file:
            del self._locks[path]

    def free_bytes(self) -> int:
        return max(self.capacity_bytes - used_bytes(self._root), 0)

    # -- names

    def _change(self, *entries: tuple[FolderImage, str, FileImage | FolderImage | None]) -> None:
        for folder, name, node in entries:
            if node is not folder.cache.get(name):
                self._free(folder.cache.get(name))
            if node is None:
                folder.cache.pop(name)
            else:
                folder.cache[name] = node
        self._waiting.append(NameChange(entries))

    def _node(self, path: str) -> FileImage | FolderImage:
        node: FileImage | FolderImage = self._root
        for part in path.split("/") if path else ():
            if not isinstance(node, FolderImage) or part not in node.cache:
                raise FileNotFoundError(errno.ENOENT, "no such file or folder", path)
            node = node.cache[part]
        return node

    def _folder(self, path: str) -> FolderImage:
        node = self._node(path)
        if not isinstance(node, FolderImage):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
        return node

    def _file(self, path: str) -> FileImage:
        node = self._node(path)
        if not isinstance(node, FileImage):
            raise IsADirectoryError(errno.EISDIR, "a folder", path)
        return node

    def _parent(self, path: str) -> tuple[FolderImage, str]:
        folder, _, name = path.rpartition("/")
        return self._folder(folder), name
