"""Warnings of the data source, passed on to the user while Spark runs.

The source's processes on the driver's machine write them to Spark's output. A session of natsctl keeps it in a file.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import IO, Final

from natsctl.spark.source.outages import LOG_EVERY_S, PREFIX

LOOK_S: Final = 0.5
_MAX_READ_BYTES: Final = 1 << 20
"""Bytes of output that are read at once; a warning in the middle of more is not passed on."""


class _WarningFollower:
    """Reads the new output; tasks that wait for the same server warn with the same text."""

    def __init__(self, log: IO[bytes]) -> None:
        self._log = log
        self._position = os.fstat(log.fileno()).st_size
        self._logger = logging.getLogger("natsctl.spark.jetstream")
        self._shown: dict[str, float] = {}

    def pass_on(self) -> None:
        data = os.pread(self._log.fileno(), _MAX_READ_BYTES, self._position)
        end = data.rfind(b"\n") + 1 or (len(data) if len(data) == _MAX_READ_BYTES else 0)
        self._position += end
        now = time.monotonic()
        for line in data[:end].decode(errors="replace").splitlines():
            beginning = line.partition(";")[0]
            if line.startswith(PREFIX) and now - self._shown.get(beginning, -LOG_EVERY_S) >= LOG_EVERY_S / 2:
                self._shown[beginning] = now
                self._logger.warning("%s", line)


@contextlib.contextmanager
def warnings_passed_on(log: IO[bytes]) -> Iterator[None]:
    """Log the source's warnings that Spark writes to its output until the end of the block."""
    ended, follower = threading.Event(), _WarningFollower(log)

    def follow() -> None:
        while not ended.wait(LOOK_S):
            follower.pass_on()

    thread = threading.Thread(target=follow, name="natsctl-source-warnings", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        follower.pass_on()
