"""Folders of deleted streams (`.gone`), removed after the witness has forgotten the stream.

Deleting renames within one folder, which is one step even where renames across folders are two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from natsctl.store.commit import Commit, Committable
from natsctl.store.disk import Disk
from natsctl.store.errors import StoreError


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a folder and the files in it."""
    for name in disk.listdir(path):
        disk.unlink(f"{path}/{name}")
    disk.rmdir(path)


class TrashCommit(Commit):
    """Folders below streams/ to remove."""

    __slots__ = ("_disk", "_names")

    io = True

    def __init__(self, disk: Disk, names: list[str]) -> None:
        super().__init__(0, [])
        self._disk = disk
        self._names = names

    def run(self) -> None:
        """Remove the folders; raises OSError, which only leaves them for the next start."""
        for name in self._names:
            if self._disk.exists(f"streams/{name}"):
                remove_tree(self._disk, f"streams/{name}")


class Trash:
    """Folders that wait to be removed; committed like a stream."""

    def __init__(self, disk: Disk, dirty: dict[Committable, None], log: Callable[[str], None]) -> None:
        self._disk = disk
        self._dirty = dirty
        self._log = log
        self._names: list[str] = []
        self._in_flight = False

    def add(self, names: Iterable[str]) -> None:
        """Queue these folders for removal by the next commit."""
        self._names.extend(names)
        if self._names:
            self._dirty[self] = None

    def begin_commit(self) -> TrashCommit | None:
        """Take the names; None when a commit is in flight or nothing is to do."""
        if self._in_flight:
            return None
        self._dirty.pop(self, None)
        if not self._names:
            return None
        self._in_flight = True
        names, self._names = self._names, []
        return TrashCommit(self._disk, names)

    def finish_commit(self, commit: Commit, error: OSError | StoreError | None = None) -> None:
        """Log a failure; what is left goes at the next start."""
        self._in_flight = False
        if error is not None:
            self._log(f"deleted streams could not be removed: {error}")
        if self._names:
            self._dirty[self] = None
