"""Reader of an archive that arrives in chunks; its first eight bytes say whether it is of version 1 or 2."""

from __future__ import annotations

from collections.abc import Iterator

from natsctl.api.archive.archive import PAUSE, ArchiveError, ArchiveFeed, Item
from natsctl.api.archive.archive_v1 import read_v1
from natsctl.api.archive.archive_v2 import MAGIC, read_v2
from natsctl.api.archive.s2 import FrameReader, S2FrameError
from natsctl.api.archive.tar import MAX_FILL_BYTES


class ArchiveReader:
    """A reader of items as their bytes arrive; it holds at most one frame and one record."""

    def __init__(self, count_from: int | None = None) -> None:
        """Read every message, or count those from a sequence on where the native module can and none was removed."""
        self._count_from = count_from
        self._frames = FrameReader()
        self._feed = ArchiveFeed()
        self._items = self._read_items()
        self._complete = False
        self._fill_bytes = 0
        """Zeros that may still follow the end: none in version 2, the padding of the tar in version 1."""

    def read(self, data: bytes) -> Iterator[Item]:
        """Yield every item that `data` completes, and PAUSE after each frame. Raises ArchiveError."""
        try:
            for content in self._frames.read(data):
                yield PAUSE
                if self._complete:
                    self._check_behind(content)
                    continue
                self._feed.add(content)
                yield from self._drain()
        except S2FrameError as fault:
            raise ArchiveError(str(fault)) from fault

    def _drain(self) -> Iterator[Item]:
        for item in self._items:
            if item is None:
                return
            yield item
        self._complete = self._frames.content_only = True
        self._check_behind(self._feed.take(len(self._feed)) or b"")

    def _read_items(self) -> Iterator[Item | None]:
        feed = self._feed
        while (magic := feed.peek(len(MAGIC))) is None:
            yield None
        if magic == MAGIC:
            feed.take(len(MAGIC))
            yield from read_v2(feed, self._count_from is not None)
        else:
            self._fill_bytes = MAX_FILL_BYTES
            yield from read_v1(feed, self._count_from)

    def _check_behind(self, content: bytes) -> None:
        """Raise ArchiveError if anything but padding follows the end."""
        self._fill_bytes -= len(content)
        if self._fill_bytes < 0 or any(content):
            raise ArchiveError("something follows the end of the archive")

    def finish(self) -> None:
        """Raise ArchiveError unless the archive is whole."""
        if not self._frames.started:
            raise ArchiveError("EOF")
        if not self._complete or not self._frames.between_frames:
            raise ArchiveError("the archive is incomplete")
