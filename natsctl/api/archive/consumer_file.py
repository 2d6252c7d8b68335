"""A consumer's state as the reference keeps it in `o.dat`: varints relative to the ack floor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from natsctl.api.archive.archive import ArchiveFault, Feed, Progress, unzigzag, uvarint, zigzag

_MAGIC: Final = 22
_VERSION: Final = 2
_SECOND_NS: Final = 1_000_000_000


def write(progress: Progress) -> bytes:
    """Return the file; times of delivery keep whole seconds."""
    floor_c, floor_s = progress.floor_cseq, progress.floor_sseq
    numbers = [floor_c, floor_s, progress.delivered_cseq, progress.delivered_sseq, len(progress.pending)]
    if progress.pending:
        base_s = min(ts_ns for _, ts_ns in progress.pending.values()) // _SECOND_NS
        numbers.append(zigzag(base_s))
        for sseq, (cseq, ts_ns) in sorted(progress.pending.items()):
            numbers += [sseq - floor_s, cseq - floor_c, zigzag(base_s - ts_ns // _SECOND_NS)]
    again = {sseq: count for sseq, count in progress.redelivered.items() if sseq > floor_s}
    numbers.append(len(again))
    for sseq, count in sorted(again.items()):
        numbers += [sseq - floor_s, count]
    return bytes((_MAGIC, _VERSION)) + b"".join(map(uvarint, numbers))


def read(body: bytes) -> Progress:
    """Return the progress a file holds. Raises ArchiveFault."""
    if len(body) < 2 or body[0] != _MAGIC or body[1] != _VERSION:
        raise ArchiveFault("a consumer's state is of no known version")
    feed = Feed()
    feed.add(body[2:])

    def number() -> int:
        value = feed.uvarint()
        if value is None:
            raise ArchiveFault("a consumer's state ends too early")
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
        pending[sseq] = (cseq, (base_s - unzigzag(number())) * _SECOND_NS)
    return pending
