"""One group commit: what was buffered when it began, the disk work, and what it settles when it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from natsctl.store.errors import StoreError

if TYPE_CHECKING:
    from natsctl.store.file_stream import FileStreamStore
    from natsctl.store.options import StoreOptions

Settled = Callable[[StoreError | None], None]


class Commit:
    """Work taken from one committable. `run` may be called in any thread, once; it touches nothing but the disk."""

    __slots__ = ("callbacks", "last_seq")

    io = False
    """Whether `run` does disk I/O; False means that it may be called in line."""

    def __init__(self, last_seq: int, callbacks: list[Settled]) -> None:
        self.last_seq = last_seq
        self.callbacks = callbacks

    @property
    def kept(self) -> bool:
        """Return whether what was appended up to `last_seq` is on disk, even if something else found no room."""
        return True

    def run(self) -> None:
        """Do the disk work; raises OSError, which the caller hands to finish_commit."""


class Committable(Protocol):
    """Interface of the members of `Store.dirty` for the shell."""

    def begin_commit(self) -> Commit | None:
        """Take everything buffered; None when a commit is in flight or nothing is to do. Loop thread."""

    def finish_commit(self, commit: Commit, error: OSError | StoreError | None = None) -> None:
        """Settle what `commit.run` did. Loop thread."""


class Host(Protocol):
    """Interface of the store for a stream."""

    dirty: dict[Committable, None]
    options: StoreOptions
    identity: bytes
    """The store's, as in FORMAT."""

    def committed(self, stream: Committable) -> None:
        """Note that a commit of `stream` succeeded."""

    def stillborn(self, stream: FileStreamStore) -> None:
        """Forget a stream whose creation failed."""

    def report_fault(self, text: str) -> None:
        """Make the store unhealthy for the reason given."""
