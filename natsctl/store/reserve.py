"""The space that a store holds back for a full disk: the file RESERVE.

Records (acks, deletes, purges, answers) may use it, messages never do. A record that finds no room takes it piece by
piece, so that messages of other streams which are being written at that moment cannot use all of it up. From then on
messages are refused before they are written, until the file has its whole length again; `intact` is a plain attribute,
because every commit reads it. The file is restored by the first commit with messages after space has returned, or by
`Store.run_timers`, and that also retries streams without room even for a record or an erasure.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Final, TypeVar

from natsctl.store.disk import Disk
from natsctl.store.errors import StoreError
from natsctl.store.file_commit import NO_SPACE, Commit, Committable, write_all

T = TypeVar("T")

PATH: Final = "RESERVE"
PIECES: Final = 8
"""The reserve is given up in so many steps."""


class Reserve:
    """The file of one store; committed like a stream to restore it."""

    def __init__(
        self, disk: Disk, size: int, dirty: dict[Committable, None], lock: AbstractContextManager[object]
    ) -> None:
        self._disk = disk
        self._dirty = dirty
        self._lock = lock
        self._in_flight = False
        self.size = size
        """Bytes that are held back; 0: none, and nothing is refused for it."""
        self.intact = True
        """Whether all of it is held back, so that messages may be written."""

    def _held_bytes(self) -> int:
        if not self._disk.exists(PATH):
            return 0
        file = self._disk.open_read(PATH)
        try:
            return file.size()
        finally:
            file.close()

    def restore(self) -> bool:
        """Make the file whole again if there is room for twice as much; return whether it is whole. Any thread."""
        with self._lock:
            if not self.intact:
                with suppress(OSError):
                    self.intact = self._fill()
            return self.intact

    def open(self) -> None:
        """Create the file, or its missing part, at a start. Raises OSError for reasons other than a full disk."""
        with self._lock:
            self.intact = not self.size or self._fill()

    def _fill(self) -> bool:
        held = self._held_bytes()
        missing = self.size - held
        if missing <= 0:
            return True
        if self._disk.free_bytes() < self.size + missing:
            return False
        file = self._disk.open(PATH, create=not self._disk.exists(PATH))
        try:
            write_all(file, bytes(missing), held)
        except OSError as error:
            with suppress(OSError):
                file.truncate(held) if held else self._disk.unlink(PATH)
            if error.errno == errno.EFBIG:  # files must not be so long: there is nothing to wait for
                return True
            if error.errno not in NO_SPACE:
                raise
            return False
        finally:
            file.close()
        return True

    def release(self) -> bool:
        """Give up a piece; return whether there was any. Any thread."""
        with self._lock:
            if not self.size:
                return False
            self.intact = False
            try:
                held = self._held_bytes()
                left = held - -(-self.size // PIECES)
                if left <= 0:
                    self._disk.unlink(PATH)
                    return held > 0
                file = self._disk.open(PATH)
                try:
                    file.truncate(left)
                finally:
                    file.close()
            except OSError:
                return False
            return True

    def spend(self, work: Callable[[], T]) -> T:
        """Do `work`, with pieces of the reserve if it finds no room; it has to start from the beginning each time.

        Raises OSError.
        """
        while True:
            try:
                return work()
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self.release():
                    raise

    def has_room_for(self, size: int) -> bool:
        """Return whether a file of that length fits next to the reserve, or to its rest for records."""
        return self._disk.free_bytes() >= size + (0 if self.intact else self.size)

    # -- commits

    def begin_commit(self) -> RestoreCommit | None:
        """Return the commit that restores the file, None if nothing is missing or it is being restored."""
        self._dirty.pop(self, None)
        if self._in_flight or self.intact:
            return None
        self._in_flight = True
        return RestoreCommit(self)

    def finish_commit(self, commit: Commit, error: OSError | StoreError | None = None) -> None:
        """Note that it has ended; a failure leaves messages refused."""
        self._in_flight = False


class RestoreCommit(Commit):
    __slots__ = ("_reserve",)

    io = True

    def __init__(self, reserve: Reserve) -> None:
        super().__init__(0, [])
        self._reserve = reserve

    def run(self) -> None:
        self._reserve.restore()
