"""Version 2 of archives: `NATSARC1`, then records until one of zeros only.

A record is: name length, time (zigzag), sequence, header length, payload length, all as varints; then name, header and
payload. First come `state.json` and, as often as that says, consumers; everything after is a message, whose name is its
subject.
"""

from __future__ import annotations

import json
from struct import Struct
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.archive.content import Content
from natsctl.spark.source.columns.rows import Rows, RowShape

MAGIC: Final = b"NATSARC1"
MAX_RECORD_BYTES: Final = 72 << 20
"""A message of the largest payload, with room for its header."""
_STATE: Final = b"state.json"
_PIECE_BYTES: Final = 1 << 20
_MOST_HEAD_BYTES: Final = 5 * 10
_TIME: Final = "<Bq"
"""Name length and the first eight bytes of the time, where the name is short and the time needs nine."""
_TIME_END: Final = 10
_GOES_ON: Final = -0x7F7F7F7F7F7F7F80
"""The top bit of eight bytes, as a signed number."""


class Head(NamedTuple):
    """The numbers of one record, and where it goes on behind them."""

    name: int
    ts_ns: int
    seq: int
    header: int
    payload: int
    body_at: int

    @property
    def end(self) -> int:
        """Where the record ends."""
        return self.body_at + self.name + self.header + self.payload


def head_at(data: bytes, at: int) -> Head | None:
    """The head of the record at `at`; None where the data ends before it does. Raises ValueError."""
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
    """Where the first message is, behind the state and the consumers; raises BackupFault."""
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
    """The beginning of the content, a piece longer than before."""
    more = content.read_some(len(data), _PIECE_BYTES)
    if not more:
        raise content.fault("it ends before its messages")
    return data + more


def _consumers(content: Content, text: bytes) -> int:
    """How many consumers a state tells of."""
    try:
        count = json.loads(text).get("consumer_count", 0)
    except (ValueError, AttributeError) as fault:
        raise content.fault(f"state.json can not be read: {fault}") from fault
    if not isinstance(count, int) or count < 0:
        raise content.fault("state.json tells no number of consumers")
    return count


def _head(content: Content, data: bytes, at: int) -> Head | None:
    try:
        return head_at(data, at)
    except ValueError as fault:
        raise content.fault(str(fault)) from fault


class RecordReader:
    """Reads the messages from `at` to `stop`, where a record has to begin; None: to the end of the archive."""

    def __init__(self, content: Content, at: int, stop: int | None, shape: RowShape) -> None:
        self._content = content
        self._at = at
        self._stop = stop
        self._shape = shape
        self._rest = b""
        self._ended = False

    def rows(self) -> Rows | None:
        """The next messages, as many as a piece of the content holds; None behind the last. Raises BackupFault."""
        while not self._ended:
            piece = self._content.read_some(self._at + len(self._rest), max(_PIECE_BYTES, len(self._rest)))
            data = self._rest + piece
            found = _Parsed(self._shape)
            end, self._ended = self._parse(data, found)
            if not piece and not end:
                raise self._content.fault("it ends before its last record")
            self._rest = data[end:]
            self._at += end
            self._ended = self._ended or self._at == self._stop
            if found.seqs:
                return found.rows()
        return None

    def _parse(self, data: bytes, found: _Parsed) -> tuple[int, bool]:
        """Take in the whole records that begin in time; return where they end, and whether that is the archive's."""
        stop = len(data) if self._stop is None else min(len(data), self._stop - self._at)
        at = 0
        while True:
            at = found.take(data, at, stop)
            if at >= stop:
                break
            head = _head(self._content, data, at)
            if head is None or head.end > len(data):
                break
            if not any(head[:5]):
                if self._stop is not None:
                    raise self._content.fault("it ends before its last message")
                return head.end, True
            if not head.seq:
                raise self._content.fault("a record has no sequence")
            found.add(data, head)
            at = head.end
        if self._stop is not None and self._at + at > self._stop:
            raise self._content.fault(
                "a payload looks like records, so that it cannot be split; option minPartitions=1 reads it whole"
            )
        return at, False


class _Parsed:
    """Columns that are being filled."""

    def __init__(self, shape: RowShape) -> None:
        self._wants_value = shape.wants_value
        self._wants_headers = shape.wants_headers
        self.seqs: list[int] = []
        self._times: list[int] = []
        self._tops: list[int] = []
        """Of each time the ninth byte, or -1 where `_times` has it whole."""
        self._subjects: list[bytes] = []
        self._headers: list[bytes] = []
        self._values: list[bytes] = []

    def add(self, data: bytes, head: Head) -> None:
        """Take one record in."""
        subject_end = head.body_at + head.name
        header_end = subject_end + head.header
        self.seqs.append(head.seq)
        self._times.append(head.ts_ns)
        self._tops.append(-1)
        self._subjects.append(data[head.body_at : subject_end])
        if self._wants_headers:
            self._headers.append(data[subject_end:header_end])
        if self._wants_value:
            self._values.append(data[header_end : head.end])

    def take(self, data: bytes, at: int, stop: int) -> int:
        """Take in records that begin before `stop` as long as they look as most do, and return where others begin.

        One loop without calls, because a call per record costs a fifth of what reading it costs. Times stay as they
        are spelled until `rows` makes numbers of all of them at once. A sequence usually follows the one before, whose
        upper bits are compared as bytes.
        """
        size, unpack = len(data), Struct(_TIME).unpack_from
        seqs, times, tops, subjects = self.seqs, self._times, self._tops, self._subjects
        headers, values = self._headers, self._values
        wants_headers, wants_value = self._wants_headers, self._wants_value
        low, upper, base, uppers = 0xFF, b"", 0, 0
        safe = min(stop, size - _MOST_HEAD_BYTES)
        while at < safe:
            named, time = unpack(data, at)
            top = data[at + 9]
            if named > 0x7F or not named or top > 0x7F or time & _GOES_ON != _GOES_ON:
                return at
            place = at + _TIME_END
            low += 1
            if low < 0x100 and data[place] == low and data.startswith(upper, place + 1):
                place += uppers
            else:
                seq = shift = 0
                begin = place
                while (byte := data[place]) > 0x7F and shift < 63:
                    seq |= (byte & 0x7F) << shift
                    shift += 7
                    place += 1
                seq |= byte << shift
                if not shift or byte > 0x7F or seq >= 1 << 63:
                    return at  # a small number has no upper bits to compare
                place += 1
                low, base, upper, uppers = data[begin], seq & ~0x7F, data[begin + 1 : place], place - begin
            header = data[place]
            place += 1
            if header > 0x7F:
                byte = data[place]
                if byte > 0x7F:
                    return at
                header = header & 0x7F | byte << 7
                place += 1
            payload = data[place]
            place += 1
            if payload > 0x7F:
                byte = data[place]
                if byte > 0x7F:
                    return at
                payload = payload & 0x7F | byte << 7
                place += 1
            body = place + named
            end = body + header + payload
            if end > size:
                return at
            seqs.append(base | low & 0x7F)
            times.append(time)
            tops.append(top)
            subjects.append(data[place:body])
            if wants_headers:
                headers.append(data[body : body + header])
            if wants_value:
                values.append(data[body + header : end])
            at = end
        return at

    def rows(self) -> Rows:
        """The columns."""
        seqs, times = pa.array(self.seqs, pa.int64()), pa.array(self._times, pa.int64())
        return Rows(
            seqs, _numbers(times, pa.array(self._tops, pa.int64())), self._subjects, self._headers, self._values
        )


def _numbers(times: pa.Int64Array, tops: pa.Int64Array) -> pa.Int64Array:
    """Times out of varints: of eight bytes each seven bits, pushed together in three steps, and above them the ninth.

    Those whose ninth byte is -1 are numbers already.
    """
    value = pc.bit_wise_and(times, 0x7F7F7F7F7F7F7F7F)
    for low, high, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    ):
        value = pc.bit_wise_or(pc.bit_wise_and(value, low), pc.shift_right(pc.bit_wise_and(value, high), shift))
    value = pc.bit_wise_or(value, pc.shift_left(pc.bit_wise_and(tops, 0x7F), 56))
    signed = pc.bit_wise_xor(pc.shift_right(value, 1), pc.negate(pc.bit_wise_and(value, 1)))
    return pc.if_else(pc.equal(tops, -1), times, signed)
