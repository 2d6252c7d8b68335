"""Log lines in the reference server's form: `[pid] 2026/11/21 07:00:00.000001 [INF] text`."""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TextIO


class Log:
    """Writes one line per event to stderr or to a file; lines are flushed at once, so that starters can wait for them.

    A line that cannot be written is counted in `lost` and is no reason to stop serving.

    `quiet` drops everything (embedded servers: stdout and stderr belong to the command).
    """

    __slots__ = ("_file", "_path", "_prefix", "_with_time", "debugging", "lost", "quiet", "tracing")

    def __init__(
        self,
        path: Path | None = None,
        *,
        with_time: bool = True,
        debug: bool = False,
        trace: bool = False,
        quiet: bool = False,
    ) -> None:
        """Open `path` for appending, or use stderr; raises OSError when the file cannot be opened."""
        self._path = path
        self._file: TextIO | None = path.open("a", encoding="utf-8") if path else None
        self._prefix = f"[{os.getpid()}] "
        self._with_time = with_time
        self.debugging = debug
        self.tracing = trace
        self.quiet = quiet
        self.lost = 0

    def info(self, text: str) -> None:
        """Write an [INF] line."""
        self._write("INF", text)

    def warn(self, text: str) -> None:
        """Write a [WRN] line."""
        self._write("WRN", text)

    def error(self, text: str) -> None:
        """Write an [ERR] line."""
        self._write("ERR", text)

    def fatal(self, text: str) -> None:
        """Write an [FTL] line: the reason why the server does not start."""
        self._write("FTL", text)

    def debug(self, text: str) -> None:
        """Write a [DBG] line when debugging (-D)."""
        if self.debugging:
            self._write("DBG", text)

    def trace(self, text: str) -> None:
        """Write a [TRC] line when tracing (-V)."""
        if self.tracing:
            self._write("TRC", text)

    def reopen(self) -> None:
        """Open the log file anew, after a log rotation moved it away; where that fails, go on with stderr."""
        if self._path is not None:
            self.close()
            try:
                self._file = self._path.open("a", encoding="utf-8")
            except OSError as error:
                self.error(f"error opening log file: {error}")

    def close(self) -> None:
        """Close the log file; later lines go to stderr."""
        if self._file is not None:
            file, self._file = self._file, None
            with suppress(OSError):  # what it still held did not fit on the disk
                file.close()

    def _write(self, level: str, text: str) -> None:
        if self.quiet:
            return
        stamp = timestamp(time.time_ns()) + " " if self._with_time else ""
        target = self._file if self._file is not None else sys.stderr
        try:
            target.write(f"{self._prefix}{stamp}[{level}] {text}\n")
            target.flush()
        except (OSError, ValueError):  # a full disk, a pipe that nobody reads, a closed stderr: the server goes on
            self.lost += 1


def timestamp(now_ns: int) -> str:
    """Return local time as `YYYY/MM/DD hh:mm:ss.uuuuuu`."""
    seconds, nanoseconds = divmod(now_ns, 1_000_000_000)
    return time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(seconds)) + f".{nanoseconds // 1000:06d}"
