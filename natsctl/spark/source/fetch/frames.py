"""What a consumer delivers, cut into columns, a window of many frames at a time.

A window is cut by Arrow as a whole (`frame_columns`) where it can be. What it cannot be sure of, such as a payload that
looks like a frame, is read again frame by frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from natsctl.spark.source.columns.arrays import int_array
from natsctl.spark.source.columns.rows import Rows
from natsctl.spark.source.connection.protocol import (
    LONGEST_REPLY,
    PLACES,
    REPLY_AT,
    Message,
    Place,
    place_of,
    read_frames,
)
from natsctl.spark.source.fetch.frame_columns import Cut, FrameColumns
from natsctl.wire.server_frames import LINE_END

SMALL_BYTES: Final = 16 << 10
"""Less than that is read frame by frame: it costs less than to learn a consumer's shape."""


@dataclass(frozen=True)
class Window:
    """A window of frames: rows, whatever came between them, and the bytes of a frame that is not whole."""

    rows: Rows | None
    first: Place | None
    """Of the first row; None without rows."""
    last: Place | None
    """Of the last one."""
    others: Sequence[Message | bytes]
    rest: bytes


class Deliveries:
    """Cuts what one pull consumer delivers; it learns from the first frame how its frames look."""

    def __init__(self, inbox: bytes, sid: bytes, *, values: bool = True, headers: bool = True) -> None:
        """`inbox` begins the subjects of what is no delivery but a status; what is not wanted stays empty."""
        self._inbox = inbox
        self._sid = sid
        self._values = values
        self._headers = headers
        self._columns: FrameColumns | None = None

    def window(self, data: bytes) -> Window:
        """Return the frames of a window, which begins where a frame begins."""
        if len(data) < SMALL_BYTES:
            return self.exactly(data)
        return self.quickly(data) or self.exactly(data)

    def quickly(self, data: bytes) -> Window | None:
        """Return the same as `exactly`; None where something stands in the way."""
        columns = self._columns = self._columns or self._learned(data)
        at = data.rfind(columns.mark) if columns else -1
        if columns is None or at < 0:
            return None
        begin = _line_before(data, at)
        end, _ = next(read_frames(data, begin), (begin, b""))
        try:
            cut = columns.of(memoryview(data)[:end])
        except pa.ArrowInvalid:  # a number that is none
            return None
        if cut is None:
            return None
        others, rest = self._between(data, end)
        others = [*cut.others, *others]
        if any(self._is_delivery(each) for each in others):
            return None
        return Window(cut.rows, _place(cut, 0), _place(cut, len(cut.rows.seqs) - 1), others, rest)

    def exactly(self, data: bytes) -> Window:
        """Return the frames, one by one."""
        found: list[tuple[Message, Place]] = []
        others: list[Message | bytes] = []
        at = 0
        for end, frame in read_frames(data):
            at = end
            if isinstance(frame, Message) and self._is_delivery(frame):
                found.append((frame, place_of(frame.reply)))
            else:
                others.append(frame)
        if not found:
            return Window(None, None, None, others, data[at:])
        messages, places = zip(*found, strict=True)
        rows = Rows(
            int_array([place.seq for place in places]),
            int_array([place.time_ns for place in places]),
            [message.subject for message in messages],
            [message.headers for message in messages] if self._headers else (),
            [message.body for message in messages] if self._values else (),
        )
        return Window(rows, places[0], places[-1], others, data[at:])

    def _learned(self, data: bytes) -> FrameColumns | None:
        """Return how frames look, by the first one, if it is a delivery."""
        words = data[: data.find(LINE_END)].split(b" ")
        if len(words) < 5 or words[0] not in REPLY_AT or words[2] != self._sid or words[1].startswith(self._inbox):
            return None
        tokens = words[3].split(b".")
        places = PLACES + 1 if len(tokens) > LONGEST_REPLY else PLACES
        mark = b" %b %b." % (words[2], b".".join(tokens[:-places]))
        return FrameColumns(mark, places, values=self._values, headers=self._headers)

    def _between(self, data: bytes, at: int) -> tuple[list[Message | bytes], bytes]:
        """Return what stands behind the frames, and the bytes of what is not whole."""
        others: list[Message | bytes] = []
        for end, frame in read_frames(data, at):
            at = end
            others.append(frame)
        return others, data[at:]

    def _is_delivery(self, what: Message | bytes) -> bool:
        return isinstance(what, Message) and what.sid == self._sid and not what.subject.startswith(self._inbox)


def _line_before(data: bytes, at: int) -> int:
    """Return where the line begins in which `at` is."""
    found = data.rfind(LINE_END, 0, at)
    return 0 if found < 0 else found + len(LINE_END)


def _place(cut: Cut, row: int) -> Place:
    """Return where the message of a row is."""
    seq, delivery, time_ns, pending = cut.words[row * cut.stride : row * cut.stride + PLACES].to_pylist()
    return Place(int(seq), int(delivery), int(time_ns), int(pending.split()[0]))
