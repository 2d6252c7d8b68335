"""The bodies that a command sends: one, read before the server is spoken to, or each line of stdin as it comes.

Lines are read by a thread, so that the connection lives on while nothing comes; it reads the descriptor itself, since a
thread that waits inside a buffered reader cannot be left behind when the command ends.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator

from natsctl.api.errors import UsageError
from natsctl.cli.messaging.bodies import read_body, reads_stdin

LINES_AHEAD = 1000
"""Lines that are read and not yet sent."""
_CHUNK_BYTES = 64 * 1024


class Input:
    """The bodies that BODY, --force-stdin and --send-on ask for. Raises UsageError for an unknown --send-on."""

    def __init__(self, words: str | None, force_stdin: bool, send_on: str) -> None:
        if send_on not in ("eof", "newline"):
            raise UsageError(f"--send-on: expected eof or newline, not {send_on!r}")
        self.lines = send_on == "newline" and reads_stdin(words, force_stdin)
        self._body = b"" if self.lines else read_body(words, force_stdin)

    def all(self) -> Iterator[bytes]:
        """Every body, waiting for each."""
        if self.lines:
            yield from _lines()
        else:
            yield self._body

    async def arriving(self) -> AsyncIterator[bytes]:
        """Every body as it comes, while the loop goes on."""
        if not self.lines:
            yield self._body
            return
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        room = threading.Semaphore(LINES_AHEAD)

        def read() -> None:
            try:
                for line in _lines():
                    room.acquire()
                    loop.call_soon_threadsafe(queue.put_nowait, line)
                loop.call_soon_threadsafe(queue.put_nowait, None)
            except RuntimeError:
                return  # the loop has ended: nobody wants more

        threading.Thread(target=read, daemon=True).start()
        while (line := await queue.get()) is not None:
            room.release()
            yield line


def _lines() -> Iterator[bytes]:
    """The lines of stdin without their ends; a last one may lack its end."""
    rest = b""
    for chunk in _chunks():
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.removesuffix(b"\r") for line in whole)
    if rest:
        yield rest


def _chunks() -> Iterator[bytes]:
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, io.UnsupportedOperation):
        yield sys.stdin.buffer.read()
        return
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        yield chunk
