"""The mirror and the sources of one stream.

Theory of operation. `configure` follows the configuration; `start` (a new stream) or `recover` (after a restart) lets
connections begin. A mirror that may answer direct gets in its origin's place does so from the first time that it has
almost caught up. A stream whose mirror is removed from the configuration continues as an ordinary stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from natsctl.api.stream import StreamInfo
from natsctl.jetstream.upstream.mirror import Mirror
from natsctl.jetstream.upstream.source_set import SourceSet

if TYPE_CHECKING:
    from natsctl.jetstream.stream_context import StreamContext


class Upstreams:
    """The mirror and the sources of one stream."""

    __slots__ = ("_mirror", "_started", "_stream", "sources")

    def __init__(self, stream: StreamContext) -> None:
        self._stream = stream
        self._mirror: Mirror | None = None
        self._started = False
        self.sources = SourceSet(stream)

    def configure(self) -> None:
        """Read mirror and sources from the configuration."""
        source = self._stream.config.mirror
        if self._mirror is not None and source != self._mirror.source:
            self._mirror.upstream.delete_consumer()
            self._mirror.stop()
            self._mirror = None
        if source is not None and self._mirror is None:
            self._mirror = Mirror(self._stream, source)
            if self._started:
                self._mirror.upstream.start()
        elif self._mirror is not None and self._mirror.upstream.last_ns >= 0:
            self.taken(self._mirror.upstream.lag)
        self.sources.configure()

    def start(self) -> None:
        """Connect a new stream."""
        self.sources.start()
        self._start_mirror()

    def recover(self, journal: Iterable[tuple[int, bytes]]) -> None:
        """Continue after a restart or a restore."""
        self.sources.recover(journal)
        self._start_mirror()

    def _start_mirror(self) -> None:
        self._started = True
        if self._mirror is not None:
            self._mirror.upstream.start()

    def stop(self, deleted: bool) -> None:
        """End every connection; with `deleted`, nothing is kept for this stream elsewhere."""
        if deleted and self._started:
            if self._mirror is not None:
                self._mirror.upstream.delete_consumer()
            self.sources.delete_consumers()
        self._started = False
        if self._mirror is not None:
            self._mirror.stop()
        self.sources.stop()

    def refused(self) -> None:
        """Fetch again the messages that the store could not keep."""
        self.sources.refused()
        if self._mirror is not None and self._stream.store.healthy:
            mirror = self._mirror
            mirror.upstream.retry(mirror.setup_error("the store could not keep its newest messages"))

    def taken(self, lag: int) -> None:
        """Answer direct gets for the origin, once the mirror lags behind by only a few messages."""
        self._stream.direct_get.caught_up(lag)

    def describe(self, info: StreamInfo) -> StreamInfo:
        """Add to a stream's info how far mirror and sources have come, and return it."""
        if self._mirror is not None:
            info.mirror = self._mirror.info()
        info.sources = self.sources.infos()
        return info
