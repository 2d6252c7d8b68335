"""Version 2 of archives: `NATSARC1`, then records until one of zeros only.

A record is: name length, time (zigzag), sequence, header length, payload length, all as varints; then name, header and
payload. First come `state.json` and, as often as that says, consumers; everything after is a message, whose name is its
subject.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from natsctl.spark.source.archive.content import Content
from natsctl.spark.source.archive.record_runs import run_at
from natsctl.spark.source.columns.arrays import int_array
from natsctl.spark.source.columns.rows import Rows, RowShape

MAGIC: Final = b"NATSARC1"
MAX_RECORD_BYTES: Final = 72 << 20
"""A message of the largest payload, with room for its header."""
_STATE: Final = b"state.json"
_FIRST_BYTES: Final = 1 << 20
"""The bytes that are read at once before the messages."""
_PIECE_BYTES: Final = 4 << 20
"""The bytes that are read at once: records enough that columns of them cost more than to begin each."""
_FEW: Final = 32
"""Records that are hardly worth a run."""
_MOST_DOUBT: Final = 1024


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
        """The end of the record."""
        return self.body_at + self.name + self.header + self.payload


def head_at(data: bytes, at: int) -> Head | None:
    """Return the head of the record at `at`; None where the data ends before it does. Raises ValueError."""
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
    """Return the place of the first message, behind the state and the consumers; raises BackupError."""
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
    """Return the number of consumers that a state gives."""
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
        self._data = b""
        self._at = at
        """The place in the content where the data begins."""
        self._stop = stop
        self._shape = shape
        self._next = 0
        """The place in the data where the next record begins."""
        self._ended = False
        self._singles = 0
        """Records that are taken one by one before the next run is tried."""
        self._doubt = 1

    def rows(self) -> Rows | None:
        """Return the next messages, as many as a piece of the content has; None behind the last. Raises BackupError."""
        head = self._head()
        if head is None:
            return None
        return self._run(head) or self._one_by_one(head)

    def _head(self) -> Head | None:
        """Return the head of the next record, which then is in the data as a whole; None behind the last one."""
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
        """Read more data, from the next record on."""
        rest = self._data[self._next :]
        self._at += self._next
        self._data = self._content.read_some(self._at + len(rest), max(_PIECE_BYTES, len(rest)), rest)
        self._next = 0
        if len(self._data) == len(rest):
            raise self._content.fault("it ends before its last record")

    def _run(self, head: Head) -> Rows | None:
        """Return the records from that one on that are cut all at once; None where there are none.

        Where that is tried in vain, or for few, it is tried again later and later.
        """
        if self._singles:
            return None
        stop = len(self._data) if self._stop is None else min(len(self._data), self._stop - self._at)
        found = run_at(self._data, self._next, stop, head.seq, self._shape)
        few = found is None or len(found[0].seqs) < _FEW
        self._doubt = min(2 * self._doubt, _MOST_DOUBT) if few else 1
        self._singles = self._doubt if few else 0
        if found is None:
            return None
        self._next = found[1]
        return found[0]

    def _one_by_one(self, head: Head | None) -> Rows:
        """Return the records from that one on."""
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
    """Columns that are being filled."""

    def __init__(self, shape: RowShape) -> None:
        self._wants_value = shape.wants_value
        self._wants_headers = shape.wants_headers
        self._seqs: list[int] = []
        self._times: list[int] = []
        self._subjects: list[bytes] = []
        self._headers: list[bytes] = []
        self._values: list[bytes] = []

    def add(self, data: bytes, head: Head) -> None:
        """Take one record in."""
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
