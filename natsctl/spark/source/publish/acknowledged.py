"""The messages that stand for the rows of a task, for the driver to see that each row has one of its own.

Rows that are alike have the same id in different tasks, and the stream keeps one message for all of them. Both tasks
are acknowledged then, with the same sequence. So each task reports by which sequences its rows were acknowledged, apart
from rows with ids of their own, which are meant to be stored once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.publish.acks import Place
from natsctl.spark.source.publish.messages import Messages
from natsctl.spark.source.publish.parts import CountedPart, NumberedPart
from natsctl.spark.source.publish.sequences import Packed, pack, parse_lines
from natsctl.spark.source.publish.suspects import Suspect, Suspects


@dataclass
class Stands:
    """The sequences of one stream that stand for rows of one task."""

    stored: Packed = field(default_factory=dict)
    """The task's own messages."""
    duplicates: Packed = field(default_factory=dict)
    """Messages that were there already, by an earlier attempt or by another task."""


@dataclass
class Acknowledgement:
    """What a task reports of how its rows were acknowledged, in plain values that pickle small."""

    streams: dict[str, Stands] = field(default_factory=dict)
    repeated: tuple[bytes, bytes] = (b"", b"")
    """As `RowIds.repeated` has them."""
    suspects: dict[bytes, Suspect] = field(default_factory=dict)


class Acknowledged:
    """Gathers the sequences while a task writes."""

    def __init__(self, suspects: Suspects) -> None:
        self._suspects = suspects
        self._stored: dict[str, bytearray] = {}
        self._duplicates: dict[str, bytearray] = {}

    def take(self, part: CountedPart | NumberedPart) -> None:
        """Note how the messages of a part were acknowledged that is done, or is about to be sent otherwise."""
        if not part.messages.any_made:
            return
        if isinstance(part, CountedPart):
            self._add(self._stored, part.stream, part.stored_seqs)
            self._add(self._duplicates, part.stream, part.duplicate_seqs)
            if part.duplicate_seqs and not part.pending:
                self._suspects.look_up(part.messages, set(part.duplicate_seqs.split()))
        else:
            self._take_numbered(part)

    def found(self, messages: Messages, places: Mapping[int, Place]) -> None:
        """Note where messages are that need not be sent, by their rows."""
        made = messages.made
        again = {row: place for row, place in places.items() if made is not None and made[row].as_py()}
        for place in again.values():
            self._add(self._duplicates, place.stream, place.seq + b"\n")
        self._suspects.add(messages, again)

    def sequences(self, stream: str) -> set[bytes]:
        """Return the sequences of a stream that were noted."""
        lines = (*self._stored.get(stream, b"").split(), *self._duplicates.get(stream, b"").split())
        return set(map(bytes, lines))

    def report(self, repeated: tuple[bytes, bytes]) -> Acknowledgement:
        """Return all that was noted."""
        streams = {}
        for name in {*self._stored, *self._duplicates}:
            stored = parse_lines(bytes(self._stored.get(name, b"")))
            duplicates = parse_lines(bytes(self._duplicates.get(name, b"")))
            if len(duplicates):
                duplicates = _without(duplicates, stored)
            streams[name] = Stands(pack(stored), pack(duplicates))
        return Acknowledgement(streams, repeated, self._suspects.found)

    def _take_numbered(self, part: NumberedPart) -> None:
        made = part.messages.made
        rows = {row: place for row, place in part.places.items() if made is not None and made[row].as_py()}
        for row, place in rows.items():
            self._add(self._duplicates if row in part.again else self._stored, place.stream, place.seq + b"\n")
        self._suspects.add(part.messages, {row: place for row, place in rows.items() if row in part.again})

    def _add(self, lines: dict[str, bytearray], stream: str, seqs: bytes) -> None:
        if seqs:
            lines.setdefault(stream, bytearray()).extend(seqs)


def _without(seqs: pa.Int64Array, others: pa.Int64Array) -> pa.Int64Array:
    return seqs.filter(pc.invert(pc.is_in(seqs, value_set=others)))
