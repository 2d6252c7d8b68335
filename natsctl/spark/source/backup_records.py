"""Archives of version 2: their records as columns, and the places where an archive can be cut.

Runs of *ordinary* records are cut by Arrow. An ordinary record has a subject below 128 bytes, a time between 1972 and
2116, a sequence with as many bytes as the first one's, and header and payload below 16 KiB. One loop adds up the
lengths as if every record were ordinary; the columns then show up to which one that was so.

The archive is `NATSARC1`, then records up to one of zeros only. A record is: name length, time (zigzag), sequence,
header length, payload length, all as varints; then name, header and payload. The first record is `state.json`, the next
ones are as many consumers as it counts, and all others are messages, whose name is the subject.

Cuts. Nothing marks the beginning of a record. In a window somewhere in the middle, every place that looks like the head
of a record is tried: a chain of records with ascending sequences up to the end of the window begins at the first true
record, and by chance nowhere else. Chains that begin inside a payload which itself holds records break or join the true
chain where that payload ends. So where all chains end, a record begins, unless one payload fills the whole window; the
task before, which has to end exactly there, then reports it.
"""

from __future__ import annotations

import json
import re
from functools import reduce
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.arrays import any_sliced, int64_at, int_array, int_scalar, sliced
from natsctl.spark.source.backup_content import Content, Mark
from natsctl.spark.source.rows import Rows, RowShape

MAX_HEAD_BYTES: Final = 5 * 10
"""Five varints of 64 bits."""
_SEQ_AT: Final = 10
"""Place of the sequence in an ordinary record: after one byte of name length and nine of time."""
_MAX_SEQ_BYTES: Final = 6
_CONTINUES: Final = 0x80
"""The bit of a varint's byte that is set if another byte follows."""
_VALUE_BITS: Final = 0x7F


class _Columns(NamedTuple):
    """The numbers of each record, and the place of its body."""

    subject_bytes: pa.Int64Array
    times: pa.Int64Array
    seqs: pa.Int64Array
    header: pa.Int64Array
    body: pa.Int64Array
    fits: pa.BooleanArray
    """Whether the record is ordinary; the other columns are meaningless if not."""


def run_at(data: bytes, at: int, stop: int, seq: int, shape: RowShape) -> tuple[Rows, int] | None:
    """Return the ordinary records from `at` on as columns, and where their run ends; None if the first is not ordinary.

    `seq` is the sequence of the first record. The last one begins before `stop`.
    """
    seq_bytes = (seq.bit_length() + 6) // 7
    if not 0 < seq_bytes <= _MAX_SEQ_BYTES:
        return None
    found = _starts(data, at, min(stop, len(data) - MAX_HEAD_BYTES), _SEQ_AT + seq_bytes)
    if found[-1] > len(data):
        found.pop()
    if len(found) < 2:
        return None
    places = int_array(found)
    columns = _columns(data, places[:-1], seq_bytes)
    size = _leading(columns.fits)
    if not size:
        return None
    return _rows(data, _Columns(*(column[:size] for column in columns)), places[1 : size + 1], shape), found[size]


def _starts(data: bytes, at: int, safe: int, sizes_at: int) -> list[int]:
    """Return the places of ordinary records up to the first at or after `safe`; sizes are `sizes_at` bytes in."""
    starts: list[int] = []
    while at < safe:
        starts.append(at)
        place = at + sizes_at
        size = data[place]
        if size > 127:
            place += 1
            size += data[place] * 128 - 128
        payload = data[place + 1]
        if payload < 128:
            at = place + 2 + data[at] + size + payload
        else:
            more = data[place + 2]
            if more > 127:
                break
            at = place + 3 + data[at] + size + payload - 128 + more * 128
    else:
        starts.append(at)
    return starts


def _columns(data: bytes, places: pa.Int64Array, seq_bytes: int) -> _Columns:
    """Return the fields of the heads of records."""
    first, second = int64_at(data, places), int64_at(data, pc.add(places, int_scalar(8)))
    sizes_at = pc.add(places, int_scalar(_SEQ_AT + seq_bytes))
    sizes = int64_at(data, sizes_at)
    header, header_bytes, header_fits = _size(sizes)
    _, payload_bytes, payload_fits = _size(
        pc.if_else(pc.equal(header_bytes, int_scalar(1)), _tail(sizes, 1), _tail(sizes, 2))
    )
    subject_bytes = pc.bit_wise_and(first, int_scalar(0xFF))
    low = pc.bit_wise_or(
        pc.bit_wise_and(_tail(first, 1), int_scalar((1 << 56) - 1)), pc.shift_left(second, int_scalar(56))
    )
    top = pc.bit_wise_and(_tail(second, 1), int_scalar(_VALUE_BITS))
    zigzag = pc.bit_wise_or(_varint_values(low), pc.shift_left(top, int_scalar(56)))
    seqs = _varint_values(pc.bit_wise_and(_tail(second, 2), int_scalar((1 << 8 * seq_bytes) - 1)))
    fits = (
        _has_continuations(first, b"\0" + b"\x80" * 7),
        _has_continuations(second, b"\x80\0" + b"\x80" * (seq_bytes - 1) + b"\0"),
        header_fits,
        payload_fits,
        pc.greater(subject_bytes, int_scalar(0)),
        pc.greater(seqs, int_scalar(0)),
    )
    times = pc.bit_wise_xor(pc.shift_right(zigzag, int_scalar(1)), pc.negate(pc.bit_wise_and(zigzag, int_scalar(1))))
    body = pc.add(sizes_at, pc.add(header_bytes, payload_bytes))
    return _Columns(subject_bytes, times, seqs, header, body, reduce(pc.and_, fits))


def _size(varint: pa.Int64Array) -> tuple[pa.Int64Array, pa.Int64Array, pa.BooleanArray]:
    """Return the varint that begins each word, its length in bytes, and whether that is at most two."""
    low, high = pc.bit_wise_and(varint, int_scalar(0xFF)), pc.bit_wise_and(_tail(varint, 1), int_scalar(0xFF))
    long = pc.greater_equal(low, int_scalar(_CONTINUES))
    value = pc.add(pc.subtract(low, int_scalar(_CONTINUES)), pc.shift_left(high, int_scalar(7)))
    fits = pc.or_(pc.invert(long), pc.less(high, int_scalar(_CONTINUES)))
    return pc.if_else(long, value, low), pc.if_else(long, int_scalar(2), int_scalar(1)), fits


def _tail(word: pa.Int64Array, at: int) -> pa.Int64Array:
    """Return eight bytes without the first `at`; the bytes that take their place at the end are undefined."""
    return pc.shift_right(word, int_scalar(8 * at))


def _has_continuations(word: pa.Int64Array, wanted: bytes) -> pa.BooleanArray:
    """Return whether the continuation bits of the bytes are those of `wanted`."""
    mask = int.from_bytes(bytes((_CONTINUES,)) * len(wanted), "little", signed=len(wanted) == 8)
    bits = int.from_bytes(wanted, "little", signed=len(wanted) == 8)
    return pc.equal(pc.bit_wise_and(word, int_scalar(mask)), int_scalar(bits))


def _varint_values(word: pa.Int64Array) -> pa.Int64Array:
    """Return the values of varints of up to eight bytes: seven bits of each byte, packed in three steps."""
    value = pc.bit_wise_and(word, int_scalar(0x7F7F7F7F7F7F7F7F))
    for low, high, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    ):
        pushed = pc.shift_right(pc.bit_wise_and(value, int_scalar(high)), int_scalar(shift))
        value = pc.bit_wise_or(pc.bit_wise_and(value, int_scalar(low)), pushed)
    return value


def _leading(fits: pa.BooleanArray) -> int:
    """Return the number of rows before the first that does not fit."""
    if pc.all(fits).as_py():
        return len(fits)
    others: int = pc.indices_nonzero(pc.invert(fits))[0].as_py()
    return others


def _rows(data: bytes, columns: _Columns, ends: pa.Int64Array, shape: RowShape) -> Rows:
    """Return the columns of messages; headers and payloads are empty if `shape` does not want them."""
    subject_end = pc.add(columns.body, columns.subject_bytes)
    header_end = pc.add(subject_end, columns.header)
    headers = any_sliced(data, subject_end, header_end) if shape.wants_headers else []
    values = sliced(data, header_end, ends) if shape.wants_value else []
    return Rows(columns.seqs, columns.times, sliced(data, columns.body, subject_end), headers, values)


MAGIC: Final = b"NATSARC1"
MAX_RECORD_BYTES: Final = 72 << 20
"""A message with the largest payload, and room for its header."""
_STATE: Final = b"state.json"
_FIRST_BYTES: Final = 1 << 20
"""Bytes read at a time before the messages."""
_PIECE_BYTES: Final = 4 << 20
"""Bytes read at a time: so many that the fixed cost of making columns hardly counts."""
_FEW: Final = 32
"""Records for which a run hardly pays."""
_MAX_SINGLES: Final = 1024


class Head(NamedTuple):
    """The numbers of one record, and the place of its body."""

    name: int
    ts_ns: int
    seq: int
    header: int
    payload: int
    body_at: int

    @property
    def end(self) -> int:
        """The end of the record."""
        return self.body_at + self.name + self.header + self.payload


def head_at(data: bytes, at: int) -> Head | None:
    """Return the head of the record at `at`, None if the data ends within it. Raises ValueError if it is invalid."""
    numbers: list[int] = []
    for _ in range(5):
        value = shift = 0
        while True:
            if at >= len(data):
                return None
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise ValueError("a number is longer than 64 bits")
        numbers.append(value)
    name, ts, seq, header, payload = numbers
    if name + header + payload > MAX_RECORD_BYTES or seq >= 1 << 63 or ts >= 1 << 64:
        raise ValueError("a record is over the limit")
    return Head(name, ts >> 1 ^ -(ts & 1), seq, header, payload, at)


def first_message(content: Content) -> int:
    """Return the place of the first message, after the state and the consumers. Raises BackupError."""
    data, at, left = b"", len(MAGIC), -1
    while left:
        head = _head(content, data, at)
        if head is None or head.end > len(data):
            data = _longer(content, data)
            continue
        if left < 0:
            body = data[head.body_at : head.end]
            if not body.startswith(_STATE):
                raise content.fault("it does not begin with state.json")
            left = _consumers(content, body[head.name + head.header :])
        else:
            left -= 1
        at = head.end
    return at


def _longer(content: Content, data: bytes) -> bytes:
    """Return the beginning of the content, a piece longer than before."""
    more = content.read_some(len(data), _FIRST_BYTES)
    if not more:
        raise content.fault("it ends before its messages")
    return data + more


def _consumers(content: Content, text: bytes) -> int:
    """Return the number of consumers that the text of `state.json` gives. Raises BackupError."""
    try:
        count = json.loads(text).get("consumer_count", 0)
    except (ValueError, AttributeError) as fault:
        raise content.fault(f"state.json cannot be read: {fault}") from fault
    if not isinstance(count, int) or count < 0:
        raise content.fault("state.json has no number of consumers")
    return count


def _head(content: Content, data: bytes, at: int) -> Head | None:
    try:
        return head_at(data, at)
    except ValueError as fault:
        raise content.fault(str(fault)) from fault


class RecordReader:
    """A reader of messages from `at` to `stop`, where a record has to begin (None: to the end of the archive)."""

    def __init__(self, content: Content, at: int, stop: int | None, shape: RowShape) -> None:
        self._content = content
        self._data = b""
        self._at = at
        """Place of `_data` in the content."""
        self._stop = stop
        self._shape = shape
        self._next = 0
        """Place of the next record in `_data`."""
        self._ended = False
        self._singles = 0
        """Records to read one by one before the next run is tried."""
        self._next_singles = 1
        """Value of `_singles` after the next run that does not pay; doubled each time."""

    def rows(self) -> Rows | None:
        """Return the next messages, at most about `_PIECE_BYTES`, None after the last. Raises BackupError."""
        head = self._head()
        if head is None:
            return None
        return self._run(head) or self._one_by_one(head)

    def _head(self) -> Head | None:
        """Return the head of the next record and load all of the record, None after the last one."""
        while not self._ended:
            if self._stop is not None and self._at + self._next >= self._stop:
                self._end_at_stop()
                return None
            head = _head(self._content, self._data, self._next)
            if head is None or head.end > len(self._data):
                self._read_on()
            elif not any(head[:5]):
                if self._stop is not None:
                    raise self._content.fault("it ends before its last message")
                self._ended = True
            elif not head.seq:
                raise self._content.fault("a record has no sequence")
            else:
                return head
        return None

    def _end_at_stop(self) -> None:
        self._ended = True
        if self._at + self._next != self._stop:
            raise self._content.fault(
                "a payload looks like records, so that it cannot be split; option minPartitions=1 reads it whole"
            )

    def _read_on(self) -> None:
        """Load more content, from the next record on."""
        rest = self._data[self._next :]
        self._at += self._next
        self._data = self._content.read_some(self._at + len(rest), max(_PIECE_BYTES, len(rest)), rest)
        self._next = 0
        if len(self._data) == len(rest):
            raise self._content.fault("it ends before its last record")

    def _run(self, head: Head) -> Rows | None:
        """Return the run of ordinary records that begins with that of `head`, None if there is none.

        After a run that is empty or short, the next one is tried after 2, 4, 8 … `_MAX_SINGLES` single records.
        """
        if self._singles:
            return None
        stop = len(self._data) if self._stop is None else min(len(self._data), self._stop - self._at)
        found = run_at(self._data, self._next, stop, head.seq, self._shape)
        few = found is None or len(found[0].seqs) < _FEW
        self._next_singles = min(2 * self._next_singles, _MAX_SINGLES) if few else 1
        self._singles = self._next_singles if few else 0
        if found is None:
            return None
        self._next = found[1]
        return found[0]

    def _one_by_one(self, head: Head | None) -> Rows:
        """Return records from that of `head` on until the next run is due."""
        found = _Singles(self._shape)
        size = 0
        while head is not None and size < _PIECE_BYTES:
            found.add(self._data, head)
            size += head.end - self._next
            self._next = head.end
            self._singles -= 1
            if self._singles <= 0:
                break
            head = self._head()
        self._singles = max(self._singles, 0)
        return found.rows()


class _Singles:
    """Columns that are filled record by record."""

    def __init__(self, shape: RowShape) -> None:
        self._wants_value = shape.wants_value
        self._wants_headers = shape.wants_headers
        self._seqs: list[int] = []
        self._times: list[int] = []
        self._subjects: list[bytes] = []
        self._headers: list[bytes] = []
        self._values: list[bytes] = []

    def add(self, data: bytes, head: Head) -> None:
        """Append one record."""
        subject_end = head.body_at + head.name
        header_end = subject_end + head.header
        self._seqs.append(head.seq)
        self._times.append(head.ts_ns)
        self._subjects.append(data[head.body_at : subject_end])
        if self._wants_headers:
            self._headers.append(data[subject_end:header_end])
        if self._wants_value:
            self._values.append(data[header_end : head.end])

    def rows(self) -> Rows:
        """Return the columns."""
        return Rows(int_array(self._seqs), int_array(self._times), self._subjects, self._headers, self._values)


_WINDOWS_BYTES: Final = (256 << 10, 4 << 20)
"""Sizes of the windows in which a cut is searched, in turn."""
_MIN_RECORDS: Final = 8
"""Records that make a chain."""
_LIKE_A_HEAD: Final = re.compile(rb"(?=(?:[\x80-\xff][\x01-\x7f]|[\x01-\x7f])[\x80-\xff]{8}[\x01-\x7f])", re.DOTALL)
"""A name length, and a time between 1972 and 2116, which takes nine bytes."""
_NO_SUBJECT: Final = re.compile(rb"[\x00-\x20\x7f]")


class Cut(NamedTuple):
    """A place where a record begins: the frame at which reading begins, the place, and the sequence before it."""

    mark: Mark
    at: int
    seq: int


def cut_behind(content: Content, at: int) -> Cut | None:
    """Return the first place after `at` where a record certainly begins, None if none is certain."""
    content.reach(at)
    mark = content.mark
    window = b""
    for size in _WINDOWS_BYTES:
        window += content.read(at + len(window), size - len(window))
        found = _common_end(window)
        if found:
            return Cut(mark, at + found[0], found[1])
    return None


def _common_end(window: bytes) -> tuple[int, int] | None:
    """Return the place where all chains of records end, and the last sequence before it; None if they differ."""
    seen: set[int] = set()
    ends: set[tuple[int, int]] = set()
    for match in _LIKE_A_HEAD.finditer(window, 0, len(window) // 2):
        if match.start() not in seen:
            end = _followed(window, match.start(), seen)
            if end:
                ends.add(end)
    return ends.pop() if len(ends) == 1 else None


def _followed(window: bytes, at: int, seen: set[int]) -> tuple[int, int] | None:
    """Return where the chain from `at` ends and its last sequence; None if broken, short or joining a `seen` one."""
    records = last = 0
    chain: list[int] = []
    while True:
        try:
            head = head_at(window, at)
        except ValueError:
            return None
        if head is None or head.end > len(window):
            seen.update(chain)
            return (at, last) if records >= _MIN_RECORDS else None
        if at in seen:
            return None
        subject = window[head.body_at : head.body_at + head.name]
        if head.seq <= last or not subject or _NO_SUBJECT.search(subject):
            return None
        chain.append(at)
        records, last, at = records + 1, head.seq, head.end
