"""HighwayHash-64 of many records at once: one lane of array arithmetic per record.

Theory of operation. The hash of one record is a chain that cannot be cut, so records stand side by side: the state
is four arrays with a row per record, and a round takes the next packet of every record. Longest records come first,
so that those which still have packets are always the first rows. A round costs 7 µs, and 65 ns for each row, so the
speed grows with the number of records (docs/adr/0005). Records that have no company, one or two that are much longer
than the others, are left to `highwayhash` (3.4 µs per round). This module is not needed if the native module
is installed. natsctl does not depend on numpy; because its import takes 0.1 s, the first hash imports it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from natsctl.api.archive.highwayhash import FINAL_ROUNDS, LAST_PACKETS, MIX, MUL0, MUL1, HighwayHash64

PACKET: Final = 32
FEWEST: Final = 3
"""Minimum number of records for which lanes are faster than single records."""
_STEP_NS: Final = 2_000_000
"""Work between two pauses, by the costs that follow."""
_ROUND_NS: Final = 8_000
_ROW_NS: Final = 75

_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFFFFFF)
_ORDER: Final = np.array(list(MIX))
_SWAPPED: Final = np.array([5, 4, 7, 6, 1, 0, 3, 2])
"""The packet of the final rounds, as places of half lanes in v0."""
_LAST: Final = np.array([list(order) for order in LAST_PACKETS])

Words: TypeAlias = npt.NDArray[np.uint64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[np.int64]


def digests(hasher: HighwayHash64, records: Sequence[bytes]) -> Generator[None, None, bytes]:
    """Return the hashes of records, 8 bytes each, as `hasher` would give them; yields after every 2 ms of work."""
    found: dict[int, bytes] = {}
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    order = np.argsort(-(lengths // PACKET), kind="stable")
    alone = _without_company(lengths[order])
    for at in order[:alone].tolist():
        found[at] = yield from hasher.steps(records[at])
    order = order[alone:]
    if len(order):
        chosen = records if not alone else [records[at] for at in np.sort(order).tolist()]
        hashes = yield from _Lanes(hasher, chosen).run()
        if not alone:
            return hashes
        found.update((int(at), hashes[n * 8 : n * 8 + 8]) for n, at in enumerate(np.sort(order)))
    return b"".join(found[at] for at in range(len(records)))


def _without_company(lengths: Numbers) -> int:
    """Return how many of the longest records are better hashed by themselves; `lengths` descend."""
    if len(lengths) < FEWEST:
        return len(lengths)
    third = int(lengths[FEWEST - 1])
    return int(np.count_nonzero(lengths[: FEWEST - 1] > 2 * third + PACKET * FINAL_ROUNDS))


class _Lanes:
    """The state of records that are hashed together."""

    def __init__(self, hasher: HighwayHash64, records: Sequence[bytes]) -> None:
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        packets = lengths // PACKET
        self._order = np.argsort(-packets, kind="stable")
        self._packets = packets[self._order]
        self._rests = (lengths % PACKET)[self._order]
        starts = np.cumsum(lengths) - lengths
        data = b"".join((*records, bytes(PACKET)))
        # Each element is a possible start of a packet: selecting rows copies 32 bytes each.
        self._places = np.ndarray((len(data) - PACKET + 1,), "V32", data, strides=(1,))
        self._at = starts[self._order]
        v0, v1, _, _ = hasher.start
        self._state = [np.tile(np.array(four, "<u8"), (len(records), 1)) for four in (v0, v1, MUL0, MUL1)]
        self._spent_ns = 0

    def run(self) -> Generator[None, None, bytes]:
        """Return the hashes in the order the records were given in."""
        yield from self._whole_packets()
        self._last_packets()
        last = _Round(self._state, len(self._order))
        for _ in range(FINAL_ROUNDS):
            last.take(self._state[0].view("<u4").take(_SWAPPED, 1).view("<u8"))
        v0, v1, mul0, mul1 = (lanes[:, 0] for lanes in self._state)
        hashes = np.empty(len(self._order), "<u8")
        hashes[self._order] = v0 + v1 + mul0 + mul1
        return hashes.tobytes()

    def _whole_packets(self) -> Generator[None]:
        """Hash the complete packets of all records together."""
        done = 0
        for count in sorted(set(self._packets.tolist())):
            rows = int(np.searchsorted(-self._packets, -count, "right"))
            at = self._at[:rows] + done * PACKET
            yield from self._rounds(rows, at, count - done)
            done = count

    def _rounds(self, rows: int, at: Numbers, rounds: int) -> Generator[None]:
        """Hash `rounds` packets of each of the first `rows` records; `at` has their offsets."""
        places, cost_ns = self._places, _ROUND_NS + _ROW_NS * rows
        step = _Round(self._state, rows)
        for _ in range(rounds):
            step.take(places[at].view("<u8").reshape(-1, 4))
            at += PACKET
            self._spent_ns += cost_ns
            if self._spent_ns > _STEP_NS:
                self._spent_ns = 0
                yield

    def _last_packets(self) -> None:
        """Add the rest of records with a partial last packet."""
        rows = np.flatnonzero(self._rests)
        if not len(rows):
            return
        rests = self._rests[rows]
        rest = self._places[self._at[rows] + self._packets[rows] * PACKET].view(np.uint8).reshape(-1, PACKET)
        rest = np.concatenate((rest, np.zeros((len(rows), 1), np.uint8)), axis=1)
        same = int(rests[0]) if (rests == rests[0]).all() else 0
        packet = (rest.take(_LAST[same], 1) if same else np.take_along_axis(rest, _LAST[rests], 1)).view("<u8")
        parts = [lanes[rows] for lanes in self._state]
        _mix_sizes(parts, rests.astype("<u4")[:, None])
        _Round(parts, len(rows)).take(packet)
        for lanes, part in zip(self._state, parts, strict=True):
            lanes[rows] = part


def _mix_sizes(state: Sequence[Words], sizes: npt.NDArray[np.uint32]) -> None:
    """Mix the length of the last packet in: added to v0 in both halves, while v1's halves are turned by it."""
    wide = sizes.astype("<u8")
    np.add(state[0], (wide << _HALF) + wide, state[0])
    halves = state[1].view("<u4")
    halves[:] = halves << sizes | halves >> (np.uint32(32) - sizes)


class _Round:
    """One step of the hash on the first rows of a state, with buffers for intermediate results."""

    def __init__(self, state: Sequence[Words], rows: int) -> None:
        self._v0, self._v1, self._mul0, self._mul1 = (each[:rows] for each in state)
        self._left, self._right = np.empty_like(self._v0), np.empty_like(self._v0)
        self._bytes = tuple(each.view(np.uint8) for each in (self._v0, self._v1, self._left))

    def take(self, packet: Words) -> None:
        """Hash one packet of each row; every array is written in place, because making them costs as much."""
        v0, v1, left, right = self._v0, self._v1, self._left, self._right
        bytes0, bytes1, mixed = self._bytes
        np.add(v1, self._mul0, v1)
        np.add(v1, packet, v1)
        np.multiply(np.bitwise_and(v1, _LOW, left), np.right_shift(v0, _HALF, right), left)
        np.bitwise_xor(self._mul0, left, self._mul0)
        np.add(v0, self._mul1, v0)
        np.multiply(np.bitwise_and(v0, _LOW, left), np.right_shift(v1, _HALF, right), left)
        np.bitwise_xor(self._mul1, left, self._mul1)
        bytes1.take(_ORDER, 1, mixed, "clip")
        np.add(v0, left, v0)
        bytes0.take(_ORDER, 1, mixed, "clip")
        np.add(v1, left, v1)
