"""A consumer's state as nats-server keeps it in `o.dat`: varints relative to the ack floor."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import islice
from typing import Final

from natsctl.api.archive.archive import ArchiveError, ArchiveFeed, Progress, unzigzag, uvarint, zigzag
from natsctl.api.units import SECOND

_MAGIC: Final = 22
_VERSION: Final = 2
STEP: Final = 1024
"""Pending messages that are written between two pauses: about a millisecond."""


def writing(progress: Progress) -> Generator[None, None, bytes]:
    """Return the file, pausing after each `STEP` pending messages; times of delivery keep whole seconds."""
    floor_c, floor_s = progress.floor_cseq, progress.floor_sseq
    parts = [bytes((_MAGIC, _VERSION))]
    numbers = [floor_c, floor_s, progress.delivered_cseq, progress.delivered_sseq, len(progress.pending)]
    if progress.pending:
        oldest_ns, entries = [], iter(progress.pending.values())
        while piece := [ts_ns for _, ts_ns in islice(entries, STEP)]:
            oldest_ns.append(min(piece))
            yield
        base_s = min(oldest_ns) // SECOND
        parts.append(_varints([*numbers, zigzag(base_s)]))
        for sseqs in _pieces(sorted(progress.pending)):
            numbers = []
            for sseq in sseqs:
                cseq, ts_ns = progress.pending[sseq]
                numbers += [sseq - floor_s, cseq - floor_c, zigzag(base_s - ts_ns // SECOND)]
            parts.append(_varints(numbers))
            yield
        numbers = []
    again = sorted([sseq for sseq in progress.redelivered if sseq > floor_s])
    parts.append(_varints([*numbers, len(again)]))
    for sseqs in _pieces(again):
        parts += [_varints((sseq - floor_s, progress.redelivered[sseq])) for sseq in sseqs]
        yield
    return b"".join(parts)


def _varints(numbers: Sequence[int]) -> bytes:
    return b"".join(map(uvarint, numbers))


def _pieces(seqs: Sequence[int]) -> list[Sequence[int]]:
    return [seqs[start : start + STEP] for start in range(0, len(seqs), STEP)]


def read(body: bytes) -> Progress:
    """Return the progress a file holds. Raises ArchiveError."""
    if len(body) < 2 or body[0] != _MAGIC or body[1] != _VERSION:
        raise ArchiveError("a consumer's state is of no known version")
    feed = ArchiveFeed()
    feed.add(body[2:])

    def number() -> int:
        value = feed.uvarint()
        if value is None:
            raise ArchiveError("a consumer's state ends too early")
        return value

    floor_c, floor_s, delivered_c, delivered_s = number(), number(), number(), number()
    pending = _read_pending(number, floor_c, floor_s)
    redelivered = {floor_s + number(): number() for _ in range(number())}
    return Progress(delivered_c, delivered_s, floor_c, floor_s, pending, redelivered)


def _read_pending(number: Callable[[], int], floor_c: int, floor_s: int) -> dict[int, tuple[int, int]]:
    pending: dict[int, tuple[int, int]] = {}
    count = number()
    base_s = unzigzag(number()) if count else 0
    for _ in range(count):
        sseq, cseq = floor_s + number(), floor_c + number()
        pending[sseq] = (cseq, (base_s - unzigzag(number())) * SECOND)
    return pending
