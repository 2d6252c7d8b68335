"""Messages as columns, and the protocol lines that they become."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.columns.arrays import binary_array, int_array
from natsctl.spark.source.publish.acks import Place
from natsctl.spark.source.publish.header_blocks import MSG_ID_HEADER, constant, joined
from natsctl.spark.source.publish.ids import digests_of

FIRST_LINE = b"NATS/1.0\r\n"
ID = f"{MSG_ID_HEADER}: ".encode()


@dataclass(frozen=True)
class Messages:
    """Rows as messages, column by column; `ids` are null where a message has none."""

    subjects: pa.BinaryArray
    headers: pa.BinaryArray
    """Lines, without the first, the message id's, the expected stream's and the last."""
    payloads: pa.BinaryArray
    ids: pa.BinaryArray
    expected: bytes = b""
    """The header line that names the only stream that may take them."""
    covered: bool = False
    """Whether that stream is known to take all of their subjects, so that no other one does."""
    repeatable: bool = True
    """Whether a message that is stored and has an id may be sent again, and is acknowledged then."""
    made: pa.BooleanArray | None = None
    """Whether a message's id was made of its content, so that a row alike in another task has it too; None: of none."""

    def __len__(self) -> int:
        return len(self.subjects)

    @property
    def countable(self) -> bool:
        """Whether it is enough to know how many of them are stored: what is sent again then does no harm."""
        return self.repeatable and not self.ids.null_count and self.of_one_kind

    @property
    def of_one_kind(self) -> bool:
        """Whether all ids were made of content, or none."""
        return self.made is None or self.made.true_count in (0, len(self))

    @property
    def any_made(self) -> bool:
        """Whether any id was made of content."""
        return self.made is not None and self.made.true_count > 0

    @property
    def size(self) -> int:
        """The bytes of all subjects, headers, ids and payloads."""
        return sum(content_bytes(column) for column in self._columns())

    def subject(self, row: int) -> str:
        """Return the subject of a message."""
        return str(self.subjects[row].as_py().decode())

    def part(self, start: int, rows: int) -> Messages:
        """So many messages from one on."""
        return self._each(lambda column: column.slice(start, rows))

    def where(self, wanted: pa.BooleanArray) -> Messages:
        """Return the messages that are wanted."""
        return self._each(lambda column: column.filter(wanted))

    def frames(self, inbox: str, first: int, rows: Sequence[int]) -> pa.BinaryArray:
        """Return the frames of some of the messages, whose acknowledgements come to `<inbox>.<first + row>`."""
        some = self if len(rows) == len(self) else self._each(lambda column: column.take(int_array(rows)))
        numbers = _text(int_array([first + row for row in rows]))
        return some._frames((f" {inbox}.".encode(), numbers, b" "), self.expected)

    def frames_of_part(self, reply: str) -> pa.BinaryArray:
        """Return the frames of all of them, whose acknowledgements come to one subject.

        Where they are covered, their stream is named by its acknowledgements only: a server searches the headers of
        each message for all that it knows, and for longer the more there is.
        """
        return self._frames((f" {reply} ".encode(),), b"" if self.covered else self.expected)

    def _frames(self, reply: tuple[Any, ...], expected: bytes) -> pa.BinaryArray:
        if self.ids.null_count:
            ids = [joined(ID, self.ids, b"\r\n").fill_null(constant(b""))]
            header_bytes = pc.add(pc.binary_length(ids[0]), _number(len(FIRST_LINE) + len(expected) + 2))
        else:
            ids = [ID, self.ids, b"\r\n"]
            header_bytes = pc.add(pc.binary_length(self.ids), _number(len(FIRST_LINE) + len(expected) + len(ID) + 4))
        header_bytes = pc.add(header_bytes, pc.binary_length(self.headers))
        payload_bytes = pc.binary_length(self.payloads)
        sizes = [_text(header_bytes), b" ", _text(pc.add(header_bytes, payload_bytes)), b"\r\n" + FIRST_LINE + expected]
        target = [self.subjects, *reply]
        framed = joined(b"HPUB ", *target, *sizes, self.headers, *ids, b"\r\n", self.payloads, b"\r\n")
        bare = pc.equal(header_bytes, _number(len(FIRST_LINE) + 2))
        if not self.ids.null_count or not pc.any(bare).as_py():
            return framed
        plain = joined(b"PUB ", *target, _text(payload_bytes), b"\r\n", self.payloads, b"\r\n")
        return pc.if_else(bare, plain, framed)

    def _columns(self) -> tuple[pa.BinaryArray, ...]:
        return self.subjects, self.headers, self.payloads, self.ids

    def _each(self, change: Callable[[pa.Array], pa.Array]) -> Messages:
        """Return the same with all columns changed alike."""
        subjects, headers, payloads, ids = map(change, self._columns())
        made = None if self.made is None else change(self.made)
        return replace(self, subjects=subjects, headers=headers, payloads=payloads, ids=ids, made=made)


@dataclass(frozen=True)
class Stored:
    """Message ids that are in the target from an earlier attempt."""

    ids: pa.BinaryArray = field(default_factory=lambda: binary_array([]))
    seqs: pa.Int64Array = field(default_factory=lambda: int_array([]))
    """Their sequences."""
    stream: str = ""
    """The target, as its acknowledgements name it."""
    warnings: tuple[str, ...] = ()

    def places(self, messages: Messages) -> dict[int, Place]:
        """Return the places of messages that are stored, by their rows."""
        if not len(self.ids):
            return {}
        found = pc.index_in(messages.ids, value_set=self.ids)
        rows, seqs = pc.indices_nonzero(pc.is_valid(found)), self.seqs.take(found.drop_null())
        pairs = zip(rows.to_pylist(), seqs.to_pylist(), strict=True)
        return {row: Place(self.stream, b"%d" % seq) for row, seq in pairs}

    def alike(self, digests: set[bytes]) -> dict[bytes, list[bytes]]:
        """Return the sequences of the messages with these contents, oldest first."""
        found: dict[bytes, list[bytes]] = {}
        if digests and len(self.ids):
            contents = digests_of(self.ids)
            rows = pc.is_in(contents, value_set=binary_array(sorted(digests)))
            for digest, seq in zip(contents.filter(rows).to_pylist(), self.seqs.filter(rows).to_pylist(), strict=True):
                found.setdefault(digest, []).append(b"%d" % seq)
        return found


def content(column: pa.BinaryArray) -> bytes:
    """Return the bytes of an array's values behind each other, which is how Arrow keeps them."""
    start, end = _ends(column)
    data = column.buffers()[2]
    return bytes(memoryview(data)[start:end]) if data is not None else b""


def content_bytes(column: pa.BinaryArray) -> int:
    """Return the number of those bytes."""
    start, end = _ends(column)
    return end - start


def _ends(column: pa.BinaryArray) -> tuple[int, int]:
    offsets = column.buffers()[1]
    if offsets is None or not len(column):
        return 0, 0
    ends = memoryview(offsets).cast("i")
    return ends[column.offset], ends[column.offset + len(column)]


def _text(numbers: pa.Array) -> pa.BinaryArray:
    return numbers.cast(pa.string()).cast(pa.binary())


def _number(number: int) -> pa.Int32Scalar:
    return int_array([number]).cast(pa.int32())[0]
