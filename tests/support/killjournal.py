"""The outside memory of the kill loop: what was acknowledged, on disk, and what each message must hold."""

from __future__ import annotations

import asyncio
import os
import zlib
from pathlib import Path


def expected_payload(publisher: int, number: int) -> bytes:
    """Return the payload of a publisher's message: its name, and filling of a length that depends on it."""
    name = b"%d:%d:" % (publisher, number)
    mark = zlib.crc32(name)
    return name + (b"%08x" % mark) * (4 + mark % 40)


def read_name(payload: bytes) -> tuple[int, int] | None:
    """Return publisher and number of a payload, None when it is not one of ours byte for byte."""
    parts = payload.split(b":", 2)
    if len(parts) != 3 or not parts[0].isdigit() or not parts[1].isdigit():
        return None
    publisher, number = int(parts[0]), int(parts[1])
    return (publisher, number) if payload == expected_payload(publisher, number) else None


class Journal:
    """Acks and confirmations in the order of their arrival; `flush` writes and syncs what came since the last one."""

    def __init__(self, path: Path) -> None:
        """Start a new journal at `path`."""
        self.path = path
        self.acks: dict[int, tuple[int, int]] = {}
        self.confirmed: set[int] = set()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._lines: list[bytes] = []

    def acked(self, publisher: int, number: int, seq: int) -> None:
        """Note that the server acknowledged a message under `seq`."""
        self.acks[seq] = (publisher, number)
        self._line(b"A %d %d %d\n" % (publisher, number, seq))

    def confirm(self, seq: int) -> None:
        """Note that the server confirmed the double ack of stream sequence `seq`."""
        self.confirmed.add(seq)
        self._line(b"C %d\n" % seq)

    def flush(self) -> None:
        """Write and sync everything noted so far."""
        if self._lines:
            lines, self._lines = self._lines, []
            os.write(self._file, b"".join(lines))
            os.fdatasync(self._file)

    def close(self) -> None:
        """Sync and close the file."""
        self.flush()
        os.close(self._file)

    def load(self) -> tuple[dict[int, tuple[int, int]], set[int]]:
        """Return acks and confirmations as the file has them."""
        self.flush()
        acks: dict[int, tuple[int, int]] = {}
        confirmed: set[int] = set()
        for line in self.path.read_bytes().splitlines():
            kind, *numbers = line.split()
            if kind == b"A":
                publisher, number, seq = map(int, numbers)
                acks[seq] = (publisher, number)
            else:
                confirmed.add(int(numbers[0]))
        return acks, confirmed

    def _line(self, line: bytes) -> None:
        if not self._lines:
            asyncio.get_running_loop().call_soon(self.flush)
        self._lines.append(line)
