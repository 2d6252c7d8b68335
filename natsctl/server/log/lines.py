"""Log lines in nats-server's form, `[pid] 2026/11/21 07:00:00.000001 [INF] text`, or as JSON documents.

They go to stderr, to a file, or to syslog. Where stderr is the journal of systemd, a line has its priority in front in
instead of pid and time; the journal adds both.

A file that has grown to its limit is put aside under its name and the time, and the next one begins; of those files
only the newest are kept if a number is given. `reopen` is for programs that move the file themselves.
"""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from natsctl.server.log.syslog import Syslog
    from natsctl.server.options import ServerOptions

_UNSAFE: Final = "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
"""Control characters except tab and newline, direction marks, and characters without UTF-8.

Compiled with the first line that has such, as it takes a while: a start writes none.
"""


FILE_MODE: Final = 0o640
"""The mode of a new log file, before the umask. Source: nats-server, logger/log.go."""


class Level(NamedTuple):
    """A level of a line: as in JSON, and its priority in syslog and the journal."""

    name: str
    priority: int


LEVELS: Final = {
    "FTL": Level("fatal", 2),
    "ERR": Level("error", 3),
    "WRN": Level("warning", 4),
    "INF": Level("info", 5),
    "TRC": Level("trace", 5),
    "DBG": Level("debug", 7),
}
"""Source of the priorities: nats-server, logger/syslog.go, where information is a notice."""


class Log:
    """A log on stderr, in a file or in syslog, one line per event.

    Lines are flushed at once, so that starters can wait for them.

    A line that cannot be written is counted in `lost` and is no reason to stop serving.

    `quiet` drops everything (embedded servers: stdout and stderr belong to the command).
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        with_time: bool = True,
        debug: bool = False,
        trace: bool = False,
        quiet: bool = False,
        size_limit: int = 0,
        max_files: int = 0,
    ) -> None:
        """Open `path` for appending, or use stderr; raises OSError when the file cannot be opened.

        A file of `size_limit` bytes is put aside; `max_files` are kept, with the one in use. 0: no limit.
        """
        self._path = path
        self._file: TextIO | None = _opened(path) if path else None
        self._prefix = f"[{os.getpid()}] "
        self._with_time = with_time
        self._utc = False
        self._size_limit = size_limit
        self._max_files = max_files
        self._syslog: Syslog | None = None
        self._dumps: Callable[[object], str] | None = None
        self.debugging = debug
        self.tracing = trace
        self.traced_bytes = 0
        """Bytes of a payload that a trace line shows; 0: all."""
        self.quiet = quiet
        self.lost = 0

    @classmethod
    def of(cls, options: ServerOptions) -> Log:
        log = cls(options.log_file, size_limit=options.log_size_limit, max_files=options.log_max_files)
        log._configure(options)
        return log

    def _configure(self, options: ServerOptions) -> None:
        """Apply options without files; raises OSError if there is no syslog at the address."""
        self.debugging, self.tracing = options.debug, options.trace
        self.traced_bytes = options.max_traced_bytes
        self._with_time, self._utc = options.log_time, options.log_utc
        self._dumps = None
        if options.log_format == "json":
            from json import dumps

            self._dumps = dumps
        syslog = None
        if options.log_file is None and (options.remote_syslog or options.syslog):
            from natsctl.server.log.syslog import Syslog

            syslog = Syslog(options.remote_syslog)
        if self._syslog is not None:
            self._syslog.close()
        self._syslog = syslog

    def configure(self, options: ServerOptions) -> None:
        """Apply other options; a file or a syslog that cannot be opened is logged, and the old one stays in use."""
        try:
            self._configure(options)
        except OSError as error:
            self.error(f"error connecting to syslog: {error}")
        if options.log_file != self._path:
            try:
                file = _opened(options.log_file) if options.log_file else None
            except OSError as error:
                self.error(f"error opening log file: {error}")
                return
            self.close()
            self._path, self._file = options.log_file, file

    def info(self, text: str) -> None:
        self._write("INF", text)

    def warn(self, text: str) -> None:
        self._write("WRN", text)

    def error(self, text: str) -> None:
        self._write("ERR", text)

    def fatal(self, text: str) -> None:
        """Write an [FTL] line: the reason why the server does not start."""
        self._write("FTL", text)

    def debug(self, text: str) -> None:
        if self.debugging:
            self._write("DBG", text)

    def trace(self, text: str) -> None:
        if self.tracing:
            self._write("TRC", text)

    def reopen(self) -> None:
        """Reopen the log file after a log rotation moved it away; if that fails, continue with stderr."""
        if self._path is None:
            self.info("File log re-open ignored, not a file logger")
        elif self._open_anew(self._path):
            self.info("File log re-opened")

    def _open_anew(self, path: Path, *, is_new: bool = False) -> bool:
        self.close()
        try:
            self._file = _opened(path, is_new=is_new)
        except OSError as error:
            self.error(f"error opening log file: {error}")
        return self._file is not None

    def _rotate(self, path: Path) -> None:
        """Rename the full file, begin the next one, and delete the oldest beyond the limit."""
        aside = path.with_name(f"{path.name}.{aside_name(time.time_ns())}")
        try:
            path.rename(aside)
        except OSError as error:
            self._size_limit = 0  # or every line would try again
            self.error(f"Unable to rotate the log file: {error}")
            return
        if self._open_anew(path, is_new=True):
            self.info(f'Rotated log, backup saved as "{aside}"')
        if self._max_files > 0:
            from glob import escape

            kept = sorted(path.parent.glob(f"{escape(path.name)}.[0-9]*"))
            for old in kept[: max(len(kept) - (self._max_files - 1), 0)]:
                with suppress(OSError):
                    old.unlink()

    def close(self) -> None:
        """Close the log file; later lines go to stderr."""
        if self._file is not None:
            file, self._file = self._file, None
            with suppress(OSError):  # its buffer did not fit on the disk
                file.close()

    def _write(self, level: str, text: str) -> None:
        if self.quiet:
            return
        try:
            if self._syslog is not None:
                line = safe(text, "\\n") if self._dumps is None else self._document(level, text)
                self._syslog.send(LEVELS[level].priority, line)
                return
            target = self._file if self._file is not None else sys.stderr
            target.write(self._line(level, text, is_journal(target)) + "\n")
            target.flush()
        except (OSError, ValueError):  # a full disk, a pipe without a reader, a closed stderr: the server goes on
            self.lost += 1
            return
        if self._size_limit > 0 and self._file is not None and self._path is not None and self._full():
            self._rotate(self._path)

    def _line(self, level: str, text: str, in_journal: bool) -> str:
        if self._dumps is not None:
            line = self._document(level, text)
        elif in_journal:
            line = f"[{level}] {safe(text)}"
        else:
            stamp = timestamp(time.time_ns(), utc=self._utc) + " " if self._with_time else ""
            return f"{self._prefix}{stamp}[{level}] {safe(text)}"
        return f"<{LEVELS[level].priority}>{line}" if in_journal else line

    def _document(self, level: str, text: str) -> str:
        """Return a line as a JSON document in ASCII: time, level, pid, message."""
        assert self._dumps is not None
        seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{nanoseconds // 1000:06d}Z"
        return self._dumps({"time": stamp, "level": LEVELS[level].name, "pid": os.getpid(), "message": text})

    def _full(self) -> bool:
        assert self._file is not None
        with suppress(OSError):
            return os.fstat(self._file.fileno()).st_size > self._size_limit
        return False


def is_journal(target: TextIO) -> bool:
    said = os.environ.get("JOURNAL_STREAM")
    if not said:
        return False
    with suppress(OSError, ValueError):
        found = os.fstat(target.fileno())
        return said == f"{found.st_dev}:{found.st_ino}"
    return False


def _opened(path: Path, *, is_new: bool = False) -> TextIO:
    """Open a log file for appending, as a new file one that others cannot read; raises OSError.

    A pipe without a reader is an error, and one with a slow reader loses lines: neither is waited for. A file that
    `is_new` must not be there, also not as a link that somebody else has put into the folder.
    """
    more = getattr(os, "O_NONBLOCK", 0) | (os.O_EXCL if is_new else 0)
    return open(path, "a", encoding="utf-8", opener=lambda name, flags: os.open(name, flags | more, FILE_MODE))


def safe(text: str, end_of_line: str = "\n\t") -> str:
    """Return a text fit for one line of the log: nothing moves a terminal's cursor, or looks like the next line.

    Clients and other servers choose a part of many texts. `end_of_line` takes the place of each newline.
    """
    if text.isprintable():
        return text
    shown = re.sub(_UNSAFE, lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
    return shown.replace("\n", end_of_line)


def timestamp(now_ns: int, *, utc: bool = False) -> str:
    """Return the time as `YYYY/MM/DD hh:mm:ss.uuuuuu`, that of the place unless `utc`."""
    seconds, nanoseconds = divmod(now_ns, 1_000_000_000)
    parts = time.gmtime(seconds) if utc else time.localtime(seconds)
    return time.strftime("%Y/%m/%d %H:%M:%S", parts) + f".{nanoseconds // 1000:06d}"


def aside_name(now_ns: int) -> str:
    """Return how a file that is put aside is called after its name: by the time, so that names sort by age."""
    seconds, nanoseconds = divmod(now_ns, 1_000_000_000)
    return time.strftime("%Y.%m.%d.%H.%M.%S", time.localtime(seconds)) + f".{nanoseconds:09d}"
