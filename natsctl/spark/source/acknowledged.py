"""The messages stored for the rows of a task, so that the driver can check that each row has its own message.

A task reports the sequences of these messages, packed. Sequences are kept by windows of 2^20, so that the driver reads
one window of all tasks at a time. A window holds the differences between neighbours, in as few bytes as the largest
needs, and deflated: some bytes in all if only one task writes, less than a byte a row if several tasks take turns.

Rows with messages that were already in the stream are reported with their contents, as long as there is room. A server
that acknowledges a duplicate returns its sequence, but the acknowledgements of a part are counted and do not identify
the row. So the ids of such a part are looked up: each is sent again, without payload and with an expected last message
id that no stream has. A server checks for duplicates first, and answers with the sequence; an id that it has forgotten
meanwhile is refused, and nothing is stored.

Equal rows have the same id in different tasks, and the stream keeps one message for all of them. Both tasks are then
acknowledged with the same sequence. So each task reports the sequences that acknowledged its rows, except for rows with
ids of their own: those should be stored once.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from natsctl.spark.source.acks import AckParser, AckPlace
from natsctl.spark.source.arrays import int_array
from natsctl.spark.source.errors import JetStreamSourceError
from natsctl.spark.source.fetch_task import rising
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.link import Link
from natsctl.spark.source.message_parts import CountedPart, NumberedPart
from natsctl.spark.source.messages import Messages, constant, content, digest_of

WINDOW: Final = 1 << 20
_FEW_BYTES: Final = 1 << 14
"""Smaller inputs are parsed without Arrow's reader: starting it costs milliseconds."""
_WIDTHS: Final = ("uint8", "uint16", "uint32")
_DEFLATED: Final = 1
"""zlib's quickest level; the next ones save a tenth."""

Packed = dict[int, bytes]
"""Packed sequences by their window."""


def parse_lines(lines: bytes) -> pa.Int64Array:
    """Return decimal numbers, one a line, as a sorted column without repeats."""
    if len(lines) < _FEW_BYTES:
        return int_array(sorted(set(map(int, lines.split()))))
    table = csv.read_csv(
        pa.BufferReader(lines),
        read_options=csv.ReadOptions(column_names=["seq"], use_threads=False),
        convert_options=csv.ConvertOptions(column_types={"seq": pa.int64()}),
    )
    found = table.column(0).combine_chunks()
    if not rising(found):
        found = found.sort()
        found = found.filter(pc.invert(_repeats(found)))
    return found


def pack(seqs: pa.Int64Array) -> Packed:
    packed: Packed = {}
    while len(seqs):
        window = seqs[0].as_py() // WINDOW
        size = _size_below(seqs, (window + 1) * WINDOW)
        packed[window] = _packed(pc.subtract(seqs[:size], int_array([window * WINDOW])[0]))
        seqs = seqs[size:]
    return packed


def unpack(window: int, data: bytes) -> pa.Int64Array:
    raw = zlib.decompress(data)
    kind = pa.type_for_alias(_WIDTHS[raw[0]])
    count = (len(raw) - 1) // kind.byte_width
    steps = pa.Array.from_buffers(kind, count, [None, pa.py_buffer(raw[1:])])
    return pc.add(pc.cumulative_sum(steps.cast(pa.int64())), int_array([window * WINDOW])[0])


def repeated(columns: list[pa.Int64Array]) -> list[int]:
    """Return the sequences that are in several columns; one that is in n of them comes n - 1 times."""
    found = pa.concat_arrays(columns).sort()
    return list(found.filter(_repeats(found)).to_pylist())


def windows(reports: list[Packed]) -> Iterator[int]:
    """Yield the windows that several reports have, from the first to the last."""
    seen, shared = set[int](), set[int]()
    for report in reports:
        shared |= seen & report.keys()
        seen |= report.keys()
    yield from sorted(shared)


def _packed(offsets: pa.Int64Array) -> bytes:
    steps = pa.concat_arrays([offsets[:1], pc.subtract(offsets[1:], offsets[:-1])])
    most = pc.max(steps).as_py()
    width = 0 if most < 1 << 8 else 1 if most < 1 << 16 else 2
    data = steps.cast(pa.type_for_alias(_WIDTHS[width])).buffers()[1]
    return zlib.compress(bytes([width]) + data.to_pybytes()[: len(steps) << width], _DEFLATED)


def _size_below(seqs: pa.Int64Array, end: int) -> int:
    if seqs[-1].as_py() < end:
        return len(seqs)
    return int(pc.sum(pc.less(seqs[:WINDOW], int_array([end])[0])).as_py())


def _repeats(ordered: pa.Int64Array) -> pa.BooleanArray:
    """Return whether a value is the same as the one before it."""
    before = pa.concat_arrays([int_array([-1]), ordered[:-1]]) if len(ordered) else ordered
    return pc.equal(ordered, before)


ROOM_BYTES: Final = 1 << 20
"""Maximum size of a task's report to the driver in bytes; if it is exceeded, the driver reads the stream."""
_ROW_BYTES: Final = 64
_SEQ_BYTES: Final = 16


@dataclass(frozen=True)
class Suspect:
    """A content and the sequences of rows with it."""

    subject: bytes
    headers: bytes
    payload: bytes
    seqs: list[tuple[str, int]] = field(default_factory=list)
    """With the stream, as acknowledgements name it."""


class Suspects:
    def __init__(self, settings: ServerSettings, stream: str) -> None:
        """`stream` is the only one that may acknowledge; empty: any."""
        self.found: dict[bytes, Suspect] = {}
        """By the digest of their content."""
        self.room = ROOM_BYTES
        self._settings = settings
        self._stream = stream
        self._link: Link | None = None
        self._asked = 0

    def close(self) -> None:
        if self._link is not None:
            self._link.close()

    def add(self, messages: Messages, places: Mapping[int, AckPlace]) -> None:
        for row, place in places.items():
            if self.room <= 0:
                return
            digest = digest_of(messages.ids[row].as_py())
            if digest not in self.found:
                columns = (messages.subjects, messages.headers, messages.payloads)
                suspect = self.found[digest] = Suspect(*(column[row].as_py() for column in columns))
                self.room -= _ROW_BYTES + sum(map(len, (suspect.subject, suspect.headers, suspect.payload)))
            self.found[digest].seqs.append((place.stream, int(place.seq)))
            self.room -= _SEQ_BYTES

    def look_up(self, messages: Messages, seqs: Collection[bytes]) -> None:
        """Keep the rows of these sequences; rows that are not found are left to the driver."""
        if self.room <= 0:
            return
        try:
            places = self._places(messages)
        except JetStreamSourceError:
            return
        self.add(messages, {row: place for row, place in places.items() if place.seq in seqs})

    def _places(self, messages: Messages) -> dict[int, AckPlace]:
        link = self._link = self._link or Link.open(self._settings)
        inbox = link.new_inbox()
        subscription = link.subscribe(f"{inbox}.*")
        rows = len(messages)
        line = f"Nats-Expected-Last-Msg-Id: {secrets.token_hex(11)}\r\n".encode()
        probes = replace(
            messages, headers=pa.repeat(constant(line), rows), payloads=pa.repeat(constant(b""), rows), made=None
        )
        link.send(content(probes.frames(inbox, 0, range(rows))))
        parser = AckParser(inbox, self._stream)
        places: dict[int, AckPlace] = {}
        refused = set[bytes]()
        while len(places) + len(refused) < rows:
            answers = parser.feed(link.read(self._settings.timeout_s))
            places |= {int(number): place for number, place in answers.places.items()}
            refused |= {number for number in answers.refused if int(number) not in places}
            for heard in answers.lines:
                link.handle_line(heard)
        link.unsubscribe(subscription)
        return places


@dataclass
class Stands:
    """The sequences of one stream stored for rows of one task."""

    stored: Packed = field(default_factory=dict)
    """The task's own messages."""
    duplicates: Packed = field(default_factory=dict)
    """Messages that were there already, by an earlier attempt or by another task."""


@dataclass
class Acknowledgement:
    """A task's report on the acknowledgements of its rows, in plain values that pickle small."""

    streams: dict[str, Stands] = field(default_factory=dict)
    repeated: tuple[bytes, bytes] = (b"", b"")
    """The value of `RowIds.repeated`."""
    suspects: dict[bytes, Suspect] = field(default_factory=dict)


class Acknowledged:
    """The sequences that a task has written, from acknowledgements."""

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

    def found(self, messages: Messages, places: Mapping[int, AckPlace]) -> None:
        """Note where messages are that need not be sent, by their rows."""
        made = messages.made
        again = {row: place for row, place in places.items() if made is not None and made[row].as_py()}
        for place in again.values():
            self._add(self._duplicates, place.stream, place.seq + b"\n")
        self._suspects.add(messages, again)

    def sequences(self, stream: str) -> set[bytes]:
        lines = (*self._stored.get(stream, b"").split(), *self._duplicates.get(stream, b"").split())
        return set(map(bytes, lines))

    def report(self, repeated: tuple[bytes, bytes]) -> Acknowledgement:
        streams = {}
        for name in {*self._stored, *self._duplicates}:
            stored = parse_lines(bytes(self._stored.get(name, b"")))
            duplicates = parse_lines(bytes(self._duplicates.get(name, b"")))
            if len(duplicates):
                duplicates = duplicates.filter(pc.invert(pc.is_in(duplicates, value_set=stored)))
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
