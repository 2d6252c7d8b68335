"""What was taken out since the last commit, and the records that will say so.

Removals are coalesced: whatever their number, one batch ends with DELETES, ERASE and at most one FLOOR record.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from natsctl.store import frame

DELETES_PER_RECORD = 65536

Spot = tuple[int, int, int, int, int]
"""An erased message: sequence, base and generation of its segment, offset and length of its frame."""


class RemovalRecords(NamedTuple):
    """The removals of one batch, to be encoded for the segment that the batch goes to."""

    deletes: array[int]
    spots: list[Spot]
    floor: bool
    first_seq: int
    synced_seq: int

    def tombs(self) -> array[int]:
        """Return the sequence of every message that these records say was removed."""
        return self.deletes + array("Q", [spot[0] for spot in self.spots])

    def encode(self, salt: int, limit: int) -> list[bytes]:
        """Return the frames for removals of messages up to `limit`."""
        synced = self.synced_seq
        kept = array("Q", [seq for seq in self.deletes if seq <= limit])
        out = [
            frame.encode(frame.DELETES, limit, 0, synced, salt, kept[at : at + DELETES_PER_RECORD].tobytes())
            for at in range(0, len(kept), DELETES_PER_RECORD)
        ]
        out += [
            frame.encode(frame.ERASE, limit, 0, synced, salt, frame.ERASE_BODY.pack(*spot))
            for spot in self.spots
            if spot[0] <= limit
        ]
        if self.floor:
            body = frame.FLOOR_BODY.pack(min(self.first_seq, limit + 1), limit)
            out.append(frame.encode(frame.FLOOR, limit, 0, synced, salt, body))
        return out


class Removals:
    """Removals that no commit has taken yet."""

    __slots__ = ("deletes", "erases", "floor_moved")

    def __init__(self) -> None:
        self.deletes = array("Q")
        self.erases: list[int] = []
        self.floor_moved = False

    def add(self, seq: int, erase: bool) -> None:
        """Note that message `seq` was taken out, its bytes to be overwritten if `erase`."""
        if erase:
            self.erases.append(seq)
        else:
            self.deletes.append(seq)

    def take(self, spots: list[Spot], first_seq: int, synced_seq: int) -> RemovalRecords:
        """Return everything noted, `spots` standing for the erasures, and begin anew."""
        taken = RemovalRecords(self.deletes, spots, self.floor_moved, first_seq, synced_seq)
        self.deletes, self.erases, self.floor_moved = array("Q"), [], False
        return taken

    def forget_above(self, seq: int) -> None:
        """Drop what concerns messages above `seq`, which are gone themselves."""
        self.deletes = array("Q", [found for found in self.deletes if found <= seq])
        self.erases = [found for found in self.erases if found <= seq]
