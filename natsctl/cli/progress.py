"""How far a backup or restore is: a bar on a terminal, log lines elsewhere and with --no-progress.

All of it on stderr.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from natsctl.api.units import format_size
from natsctl.cli import output

if TYPE_CHECKING:
    from natsctl.client.backup import Progress

_BAR_EVERY_S = 0.1
_LOG_EVERY_S = 1.0
_BAR_COLUMNS = 68


class ProgressDisplay:
    """Call it with each progress and `close` it at the end.

    `verb` is what was done with the bytes, such as "Received".
    """

    def __init__(self, verb: str, *, bar: bool) -> None:
        self._verb = verb
        self._bar = bar and sys.stderr.isatty()
        self._shown_s = 0.0
        self._last: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        """Show it, unless something was shown a moment ago."""
        if self._last is None or self._last.stream != progress.stream:
            self._shown_s = 0.0
        self._last = progress
        elapsed_s = progress.elapsed_s
        if elapsed_s - self._shown_s < (_BAR_EVERY_S if self._bar else _LOG_EVERY_S):
            return
        self._shown_s = elapsed_s
        if self._bar:
            self._draw(progress, min(0.99, progress.archive_bytes / max(progress.total_bytes, 1)))
        else:
            output.log(f"{self._verb} {format_size(progress.archive_bytes)} in {progress.chunks} chunks")

    def close(self, whole: bool = True) -> None:
        """End the bar: full, or where it stood when the work failed."""
        if self._bar and self._last is not None:
            if whole:
                self._draw(self._last, 1.0)
            sys.stderr.write("\n\n")
            sys.stderr.flush()
        self._last = None

    def _draw(self, progress: Progress, share: float) -> None:
        columns = max(10, min(_BAR_COLUMNS, output.width() - 24))
        filled = int(columns * share)
        rate = format_size(int(progress.archive_bytes / max(progress.elapsed_s, 0.001)))
        sys.stderr.write(f"\r{rate}/s [{'=' * filled}{' ' * (columns - filled)}] {share:.0%} ")
        sys.stderr.flush()
