"""The end of a stream that was refused at the start: its folder goes as a deleted stream's does.

Whoever was told of the damage decides; the store never does this by itself. Where the folder is missing an empty one
stands for it, so that the next start knows that the stream is gone on purpose.
"""

from __future__ import annotations

from collections.abc import Callable

from natsctl.store.commit import Commit, Committable, Settled
from natsctl.store.disk import Disk
from natsctl.store.errors import StoreError, StorePoisonedError


class DiscardCommit(Commit):
    """Folders to be named as gone."""

    __slots__ = ("_disk", "_folders")

    io = True

    def __init__(self, disk: Disk, folders: list[str], callbacks: list[Settled]) -> None:
        super().__init__(0, callbacks)
        self._disk = disk
        self._folders = folders

    def run(self) -> None:
        """Rename the folders, which is final once the names are synced; raises OSError."""
        for folder in self._folders:
            gone = f"{folder}.gone"
            if self._disk.exists(folder):
                self._disk.rename(folder, gone)
            elif not self._disk.exists(gone):
                self._disk.mkdir(gone)
        self._disk.fsync_dir("streams")


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
        """Call `callback(None)` once the stream is gone for good, or with the error that prevents it."""
        if self._settled:
            callback(self._outcome)
        else:
            self._callbacks.append(callback)

    def begin_commit(self) -> DiscardCommit | None:
        """Return the one commit; None after that."""
        self._dirty.pop(self, None)
        if self._taken:
            return None
        self._taken = True
        return DiscardCommit(self._disk, self._folders, self._callbacks)

    def finish_commit(self, commit: Commit, error: OSError | StoreError | None = None) -> None:
        """Settle what `commit.run` did."""
        self._settled = True
        if error is None:
            self._gone()
        else:
            self._outcome = StorePoisonedError(f"{self._folders} could not be removed: {error}")
        for callback in commit.callbacks:
            callback(self._outcome)
