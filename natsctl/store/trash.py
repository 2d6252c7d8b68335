"""Folders of deleted streams (`.gone`), removed after the high-water file has dropped the stream.

Deleting renames within one folder: that is one step even if renames across folders are two. A stream that was
refused at the start ends the same way, but only when an operator who knows of the damage asks for it; the store never
does this by itself. If its folder is missing an empty one replaces it, so that the next start knows that the
stream was deleted on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from natsctl.store.disk import Disk
from natsctl.store.errors import StoreError, StorePoisonedError
from natsctl.store.file_commit import Commit, Committable, Settled


def remove_tree(disk: Disk, path: str) -> None:
    for name in disk.listdir(path):
        disk.unlink(f"{path}/{name}")
    disk.rmdir(path)


class FolderCommit(Commit):
    io = True

    def __init__(self, work: Callable[[], None], callbacks: list[Settled]) -> None:
        super().__init__(0, callbacks)
        self._work = work

    def run(self) -> None:
        self._work()


class Trash:
    """Folders that wait to be removed; committed like a stream."""

    def __init__(self, disk: Disk, dirty: dict[Committable, None], log: Callable[[str], None]) -> None:
        self._disk = disk
        self._dirty = dirty
        self._log = log
        self._names: list[str] = []
        self._in_flight = False

    def add(self, names: Iterable[str]) -> None:
        self._names.extend(names)
        if self._names:
            self._dirty[self] = None

    def begin_commit(self) -> FolderCommit | None:
        """Take the names; None when a commit is in flight or nothing is to do."""
        if self._in_flight:
            return None
        self._dirty.pop(self, None)
        if not self._names:
            return None
        self._in_flight = True
        names, self._names = self._names, []
        return FolderCommit(partial(self._remove, names), [])

    def _remove(self, names: list[str]) -> None:
        for name in names:
            if self._disk.exists(f"streams/{name}"):
                remove_tree(self._disk, f"streams/{name}")

    def finish_commit(self, commit: Commit, error: OSError | StoreError | None = None) -> None:
        """Log a failure; the rest is removed at the next start."""
        self._in_flight = False
        if error is not None:
            self._log(f"deleted streams could not be removed: {error}")
        if self._names:
            self._dirty[self] = None


class Discard:
    """One refused stream on its way out; committed like a stream, once."""

    def __init__(
        self, disk: Disk, dirty: dict[Committable, None], folders: list[str], gone: Callable[[], None]
    ) -> None:
        self._disk = disk
        self._dirty = dirty
        self._folders = folders
        self._gone = gone
        self._callbacks: list[Settled] = []
        self._taken = False
        self._outcome: StoreError | None = None
        self._settled = False
        dirty[self] = None

    def on_durable(self, callback: Settled) -> None:
        """Call `callback(None)` once the removal is durable, or with the error that prevents it."""
        if self._settled:
            callback(self._outcome)
        else:
            self._callbacks.append(callback)

    def begin_commit(self) -> FolderCommit | None:
        """Return the one commit; None after that."""
        self._dirty.pop(self, None)
        if self._taken:
            return None
        self._taken = True
        return FolderCommit(self._rename, self._callbacks)

    def _rename(self) -> None:
        """Rename the folders; this is final once the names are synced. Raises OSError."""
        for folder in self._folders:
            gone = f"{folder}.gone"
            if self._disk.exists(folder):
                self._disk.rename(folder, gone)
            elif not self._disk.exists(gone):
                self._disk.mkdir(gone)
        self._disk.fsync_dir("streams")

    def finish_commit(self, commit: Commit, error: OSError | StoreError | None = None) -> None:
        self._settled = True
        if error is None:
            self._gone()
        else:
            self._outcome = StorePoisonedError(f"{self._folders} could not be removed: {error}")
        for callback in commit.callbacks:
            callback(self._outcome)
