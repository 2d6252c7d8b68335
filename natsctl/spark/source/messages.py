"""Messages as columns: headers as they go over the wire, message ids, and protocol lines.

Rows without a message id get one, so that a message that is sent again is stored once. A retried write or micro-batch
has the same rows, but not always in the same order, or in the same tasks: rows after a shuffle come in the order of
other machines' answers, and a driver with another number of cores makes other parts. So by default the id is made from
the row's content, from the stream and sequence it was read from if the frame has them, and from a count for equal rows:
`<digest>`, `<digest>.1`, and so on. The ids of a write are then the same for any partitioning of its rows. Two tasks
with an equal row give it the same id; `alike.py` handles that. Numbers of rows are cheaper, but correct only if the
same task has the same rows in the same order.

Ids are short, since a server searches the headers of each message a score of times and keeps the id in memory for as
long as the stream's duplicate window. An id of content is one digest of the writer (query and batch) and the content:
16 characters, 96 bits. Among a billion messages within one window two have equal ids (and one message is lost) in one
of 10^11 such windows. Source: docs/adr/0023.
"""

from __future__ import annotations

import re
from array import array
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.acks import AckPlace
from natsctl.spark.source.arrays import binary_array, int_array
from natsctl.spark.source.errors import PublishError

MSG_ID_HEADER = "Nats-Msg-Id"
_LEFT_OUT = f"^(?:{MSG_ID_HEADER}|Nats-Expected-.*)$"
_ENTRIES = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class HeaderBlocks(NamedTuple):
    """Lines of headers per row, without the first and the last; and the message ids that were among them."""

    blocks: pa.BinaryArray
    ids: pa.BinaryArray | None
    """Null for a row without an id; None if no row has an id."""


def binary(array: pa.Array) -> pa.BinaryArray:
    """Return a text or binary column as binary with 32-bit offsets."""
    if pa.types.is_large_string(array.type):
        array = array.cast(pa.string())
    return array if pa.types.is_binary(array.type) else array.cast(pa.binary())


def constant(data: bytes) -> pa.BinaryScalar:
    """Return bytes as a constant of Arrow; not cached, because unpickling one imports pandas."""
    return binary_array([data])[0]


def joined(*parts: Any) -> pa.BinaryArray:
    """Return columns and constants concatenated row by row; constants are bytes."""
    columns = [constant(part) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*columns, constant(b""))


def header_blocks(column: pa.Array) -> HeaderBlocks:
    """Return the blocks of a column of headers: lists or maps of key and value.

    Message ids are separated from other headers. Expectations of an earlier publish (`Nats-Expected-…`) are left out:
    a server keeps them with the message, and would apply them to the copy. Servers accept both only in this spelling.
    Raises PublishError for an entry that cannot be a header.
    """
    column = column.cast(_ENTRIES)
    entries = column.flatten()
    keys, values = pc.struct_field(entries, [0]), pc.struct_field(entries, [1]).fill_null(constant(b""))
    _check(keys, values)
    lines = joined(keys.cast(pa.binary()), b": ", values, b"\r\n")
    left_out = pc.match_substring_regex(keys, _LEFT_OUT)
    ids = None
    if pc.any(left_out).as_py():
        lines = pc.if_else(left_out, constant(b""), lines)
        ids = _ids(column, keys, values)
    start = int_array([0]).cast(pa.int32())
    ends = pc.cumulative_sum(pc.list_value_length(column).fill_null(start[0]))
    lists = pa.ListArray.from_arrays(pa.concat_arrays([start, ends]), lines)
    return HeaderBlocks(pc.binary_join(lists, constant(b"")), ids)


def _ids(column: pa.Array, keys: pa.Array, values: pa.Array) -> pa.BinaryArray | None:
    """Return the message id of each row, the first one if there are several."""
    named = pc.equal(keys.cast(pa.binary()), constant(MSG_ID_HEADER.encode()))
    found: dict[int, bytes] = {}
    rows, texts = pc.list_parent_indices(column).filter(named), values.filter(named)
    for row, text in zip(rows.to_pylist(), texts.to_pylist(), strict=True):
        if text.strip():
            found.setdefault(row, text.strip())
    if not found:
        return None
    ids = binary_array([found.get(row, b"") for row in range(len(column))])
    return pc.if_else(pc.equal(ids, constant(b"")), pa.nulls(1, pa.binary())[0], ids)


def _check(keys: pa.Array, values: pa.Array) -> None:
    names = keys.cast(pa.binary()).fill_null(constant(b""))
    unfit = pc.match_substring_regex(names, r"[\r\n:]|^$")
    if pc.any(unfit).as_py():
        wrong = keys.filter(unfit)
        raise PublishError(
            f"a header cannot have the name {wrong[0].as_py()!r}: it is empty, or has a colon or line end"
        )
    broken = pc.match_substring_regex(values, r"[\r\n]")
    if pc.any(broken).as_py():
        raise PublishError(f"header {keys.filter(broken)[0].as_py()} has a line end in its value")


MessageIds = Literal["content", "row"]

_DIGEST_BYTES = 12
"""A multiple of three: base64 needs no padding."""
_ID_BYTES: Final = _DIGEST_BYTES // 3 * 4
_OF_CONTENT: Final = re.compile(rb"[\w-]{%d}(?:\.\d+)?" % _ID_BYTES)
_WRITER_BYTES = 9
"""Bytes before the row's number that identify the writer: 72 bits for millions of tasks within a window."""


class RowIds:
    """Message ids for the rows of one partition; `key` is unique to this batch of this query."""

    def __init__(self, key: str, made_from: MessageIds, partition: int = 0) -> None:
        """Prepare the ids; `partition` is part of numbered ids only: ids made from content are the same in each."""
        self.of_content = made_from == "content"
        """Whether another task may give a row alike the same id."""
        salt = blake2b(key.encode(), digest_size=blake2b.SALT_SIZE).digest()
        self._begun = blake2b(digest_size=_DIGEST_BYTES, salt=salt)
        """To begin with a copy takes two thirds of the time."""
        self._writer = _writer(f"{key}.{partition}") + b":"
        self._rows = 0
        self._seen = set[bytes]()
        self._again = Counter[bytes]()

    def of(self, rows: int, contents: Callable[[], pa.BinaryArray]) -> pa.BinaryArray:
        """Return the ids of the next rows; `contents` is called only where ids are made from content."""
        if self.of_content:
            return self._of_contents(contents().to_pylist())
        numbers = int_array(range(self._rows, self._rows + rows))
        self._rows += rows
        return joined(self._writer, numbers.cast(pa.string()).cast(pa.binary()))

    def repeated(self) -> tuple[bytes, bytes]:
        """Return the contents that came several times: their digests as text, and their counts as 64-bit numbers."""
        times = (count + 1 for count in self._again.values())
        return urlsafe_b64encode(b"".join(self._again)), array("q", times).tobytes()

    def _of_contents(self, contents: list[bytes]) -> pa.BinaryArray:
        """Return one digest per row; a repeated content is followed by its count."""
        digests = list[bytes]()
        for content in contents:
            digest = self._begun.copy()
            digest.update(content)
            digests.append(digest.digest())
        spelled = pa.py_buffer(urlsafe_b64encode(b"".join(digests)))
        ids = pa.Array.from_buffers(pa.binary(_ID_BYTES), len(digests), [None, spelled]).cast(pa.binary())
        times = self._times(digests)
        if times is None:
            return ids
        texts = joined(b".", int_array(times).cast(pa.string()).cast(pa.binary()))
        return joined(ids, pc.if_else(pc.equal(int_array(times), int_array([0])[0]), constant(b""), texts))

    def _times(self, digests: list[bytes]) -> list[int] | None:
        """Return how often each occurred before, or None if all are new."""
        fresh = set(digests)
        if len(fresh) == len(digests) and self._seen.isdisjoint(fresh):
            self._seen |= fresh
            return None
        return [self._time(digest) for digest in digests]

    def _time(self, digest: bytes) -> int:
        if digest not in self._seen:
            self._seen.add(digest)
            return 0
        self._again[digest] += 1
        return self._again[digest]


def digest_of(message_id: bytes) -> bytes:
    """Return the part of an id of content that rows alike have in common."""
    return message_id[:_ID_BYTES]


def digests_of(ids: pa.BinaryArray) -> pa.BinaryArray:
    return pc.binary_slice(ids, 0, _ID_BYTES)


def id_of(digest: bytes, times: int) -> bytes:
    """Return the id of a row with content that occurred so many times before."""
    return digest + b".%d" % times if times else digest


def counted_ids(ids: pa.BinaryArray) -> pa.BinaryArray:
    """Return the ids of stored messages; ids of content are renumbered in stored order.

    A server that has forgotten an id stores rows that are alike in several tasks under the same one.
    """
    digests = digests_of(ids)
    if pc.count_distinct(digests).as_py() == len(ids):
        return ids
    seen = Counter[bytes]()
    found = list[bytes]()
    for text, digest in zip(ids.to_pylist(), digests.to_pylist(), strict=True):
        if _OF_CONTENT.fullmatch(text):
            text = id_of(digest, seen[digest])
            seen[digest] += 1
        found.append(text)
    return binary_array(found)


def _writer(key: str) -> bytes:
    return urlsafe_b64encode(blake2b(key.encode(), digest_size=_WRITER_BYTES).digest())


FIRST_LINE = b"NATS/1.0\r\n"
ID = f"{MSG_ID_HEADER}: ".encode()


@dataclass(frozen=True)
class Messages:
    """Rows as messages, column by column; `ids` are null for messages without one."""

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
        """Return whether the number of stored ones is enough to know: sending again does no harm."""
        return self.repeatable and not self.ids.null_count and self.of_one_kind

    @property
    def of_one_kind(self) -> bool:
        """Return whether all ids were made of content, or none."""
        return self.made is None or self.made.true_count in (0, len(self))

    @property
    def any_made(self) -> bool:
        return self.made is not None and self.made.true_count > 0

    @property
    def size(self) -> int:
        return sum(content_bytes(column) for column in self._columns())

    def subject(self, row: int) -> str:
        return str(self.subjects[row].as_py().decode())

    def part(self, start: int, rows: int) -> Messages:
        return self._each(lambda column: column.slice(start, rows))

    def where(self, wanted: pa.BooleanArray) -> Messages:
        return self._each(lambda column: column.filter(wanted))

    def frames(self, inbox: str, first: int, rows: Sequence[int]) -> pa.BinaryArray:
        """Return the frames of some of the messages, acknowledged on `<inbox>.<first + row>`."""
        some = self if len(rows) == len(self) else self._each(lambda column: column.take(int_array(rows)))
        numbers = _text(int_array([first + row for row in rows]))
        return some._frames((f" {inbox}.".encode(), numbers, b" "), self.expected)

    def frames_of_part(self, reply: str) -> pa.BinaryArray:
        """Return the frames of all messages, acknowledged on one subject.

        If they are covered, their stream is named only by its acknowledgements: a server searches the headers of
        each message for all known names, and takes longer with more headers.
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

    def places(self, messages: Messages) -> dict[int, AckPlace]:
        if not len(self.ids):
            return {}
        found = pc.index_in(messages.ids, value_set=self.ids)
        rows, seqs = pc.indices_nonzero(pc.is_valid(found)), self.seqs.take(found.drop_null())
        pairs = zip(rows.to_pylist(), seqs.to_pylist(), strict=True)
        return {row: AckPlace(self.stream, b"%d" % seq) for row, seq in pairs}

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
    """Return the concatenated bytes of an array's values, as Arrow stores them."""
    start, end = _ends(column)
    data = column.buffers()[2]
    return bytes(memoryview(data)[start:end]) if data is not None else b""


def content_bytes(column: pa.BinaryArray) -> int:
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
