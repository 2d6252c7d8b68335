"""Deliveries of a consumer cut into columns, a window of many frames at a time.

Theory of operation. In every frame of a consumer the same bytes are between the subject and the numbers: the
subscription, and the prefix of the reply subject. Data is split at these bytes, so that a piece holds a frame's
numbers, its headers and payload, and the verb and subject of the next frame; the numbers give their places in the
piece. A payload may contain those bytes too: then a piece is shorter than its frame announced, and nothing is cut.
Other lines of the server between frames are found before the verb of the next one.

A window is cut by Arrow as a whole if possible. Uncertain data, such as a payload that looks like a frame, is read
again frame by frame. natsctl's native module reads every window frame by frame, if it is installed.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.arrays import (
    RowPicker,
    binary_array,
    int_array,
    int_scalar,
    native,
    offsets,
    one_row,
    parsed_ints,
    repeated_int,
    sliced,
    split_on,
)
from natsctl.spark.source.link import LONGEST_REPLY, PLACES, REPLY_AT, Message, Place, place_of, read_frames
from natsctl.spark.source.rows import Rows
from natsctl.wire.server_frames import LINE_END

VERB: Final = b"MSG "
VERBS: Final = frozenset((b"", b"H"))
"""The letters that may stand before it in the verb."""


class Cut(NamedTuple):
    """Columns of frames; the numbers of a place, by row, as in the reply subjects."""

    rows: Rows
    words: pa.BinaryArray
    """After the mark, `stride` for each row: sequence, delivery, time, pending, perhaps one more; the last with the
    frame's sizes."""
    stride: int
    others: list[Message | bytes]
    """Messages and lines between the frames, and after them."""


class FrameSizes(NamedTuple):
    """Sizes of the header blocks (None if no frame has one), and of the blocks with their payloads."""

    heads: pa.Int32Array | None
    totals: pa.Int32Array


class FrameColumns:
    """A splitter of frames that have `mark` between the subject and `places` numbers with dots between them."""

    def __init__(self, mark: bytes, places: int, *, values: bool = True, headers: bool = True) -> None:
        """Prepare to split frames; columns that are not wanted stay empty."""
        self.mark = mark
        self._places = places
        self._values = values
        self._headers = headers
        self._picker = RowPicker()

    def of(self, data: memoryview) -> Cut | None:
        """Return the columns of data that ends with a frame, or None if it contradicts its frames.

        Raises pa.ArrowInvalid for invalid numbers.
        """
        every = self._picker.every
        split = split_on(one_row(data), self.mark)
        count = len(split) - 1
        halves = split_on(split[1:], LINE_END, most=1)
        if count < 1 or len(halves) != 2 * count:
            return None
        words = split_on(every(halves, 2, 0, count), b".")
        if len(words) != self._places * count:
            return None
        sizes = self._sizes(every(words, self._places, self._places - 1, count))
        found = Contents(self._picker, halves, sizes) if sizes else None
        if sizes is None or found is None or not found.fit():
            return None
        lines = self._lines(pa.concat_arrays([split[:1], found.rests]))
        if lines is None:
            return None
        rows = Rows(
            parsed_ints(every(words, self._places, 0, count)),
            parsed_ints(every(words, self._places, 2, count)),
            lines[0],
            found.headers if self._headers and sizes.heads is not None else (),
            found.payloads if self._values else (),
        )
        return Cut(rows, words, self._places, lines[1])

    def _sizes(self, texts: pa.BinaryArray) -> FrameSizes | None:
        """Return the sizes out of `<a word> [<header size>] <whole size>`, row by row; None for other texts."""
        count, found = len(texts), pc.split_pattern(texts, b" ")
        words = found.values
        if len(words) == 2 * count:
            return FrameSizes(None, parsed_ints(self._picker.every(words, 2, 1, count)).cast(pa.int32()))
        one, begins = repeated_int(1, 1)[0], found.offsets
        amounts = pc.subtract(begins[1:], begins[:-1])
        with_head = pc.equal(amounts, repeated_int(3, 1)[0])
        if not pc.all(pc.or_(with_head, pc.equal(amounts, repeated_int(2, 1)[0]))).as_py():
            return None
        totals = parsed_ints(words.take(pc.subtract(begins[1:], one))).cast(pa.int32())
        seconds = parsed_ints(words.take(pc.add(begins[:-1], one))).cast(pa.int32())
        return FrameSizes(pc.if_else(with_head, seconds, repeated_int(0, 1)[0]), totals)

    def _lines(self, lines: pa.BinaryArray) -> tuple[pa.BinaryArray, list[Message | bytes]] | None:
        """Return the subjects of `MSG <subject>`, and the text before them; the last has no next frame."""
        others: list[Message | bytes] = []
        words = split_on(lines, VERB)
        if not self._are_bare(words, len(lines)):
            longer = pc.match_substring(lines, LINE_END)
            bare = [_bare(line, others) for line in lines.filter(longer).to_pylist()]
            words = split_on(pc.replace_with_mask(lines, longer, binary_array(bare)), VERB)
            if not self._are_bare(words, len(lines)):
                return None
        return self._picker.every(words, 2, 1, len(lines) - 1), others

    def _are_bare(self, words: pa.BinaryArray, lines: int) -> bool:
        """Return whether each line but the last is a verb and a subject, and nothing else."""
        if len(words) != 2 * lines - 1:
            return False
        return set(pc.unique(self._picker.every(words, 2, 0, lines)).to_pylist()) <= VERBS


class Contents:
    """The parts of a piece after its numbers: headers, payload, its line end, and the rest."""

    def __init__(self, picker: RowPicker, halves: pa.BinaryArray, sizes: FrameSizes) -> None:
        """Select every second half: it has these parts."""
        count, places = len(sizes.totals), offsets(halves)
        begins, ends = (picker.every(places, 2, at, count).cast(pa.int64()) for at in (1, 2))
        heads = begins if sizes.heads is None else pc.add(begins, sizes.heads)
        bodies = pc.add(begins, sizes.totals)
        self._data = halves.buffers()[2]
        self._bounds = [begins, heads, bodies, pc.add(bodies, int_scalar(len(LINE_END))), ends]

    def fit(self) -> bool:
        """Return whether they are as long as the sizes say."""
        rising = (pc.all(pc.less_equal(*both)).as_py() for both in pairwise(self._bounds))
        return all(rising) and bool(pc.all(pc.equal(self._between(2), one_row(LINE_END)[0])).as_py())

    @property
    def headers(self) -> pa.BinaryArray:
        return self._between(0)

    @property
    def payloads(self) -> pa.BinaryArray:
        return self._between(1)

    @property
    def rests(self) -> pa.BinaryArray:
        return self._between(3)

    def _between(self, at: int) -> pa.BinaryArray:
        return sliced(self._data, *self._bounds[at : at + 2])


def _bare(line: bytes, others: list[Message | bytes]) -> bytes:
    """Add the line that began in earlier input to `others` and return the rest."""
    at = 0
    for end, frame in read_frames(line):
        at = end
        others.append(frame)
    return line[at:]


SMALL_BYTES: Final = 16 << 10
"""Smaller data is read frame by frame: that costs less than to learn a consumer's shape."""


@dataclass(frozen=True)
class Window:
    """A window of frames: rows, other frames between them, and the bytes of an incomplete frame."""

    rows: Rows | None
    first: Place | None
    """The place of the first row; None without rows."""
    last: Place | None
    """The place of the last row; None without rows."""
    others: Sequence[Message | bytes]
    rest: bytes


class Deliveries:
    """A splitter of one pull consumer's deliveries; the first frame shows the form of the others."""

    def __init__(self, inbox: bytes, sid: bytes, *, values: bool = True, headers: bool = True) -> None:
        """Prepare; `inbox` is the prefix of the subjects of status messages. Unrequested columns stay empty."""
        self._inbox = inbox
        self._sid = sid
        self._values = values
        self._headers = headers
        self._columns: FrameColumns | None = None

    def window(self, data: bytes) -> Window:
        """Return the frames of a window that begins with a frame."""
        read = native("deliveries")
        parts = read(data, self._sid, self._inbox, self._headers, self._values) if read else None
        if parts is not None:
            return _window_of(data, *parts)
        if len(data) < SMALL_BYTES:
            return self.exactly(data)
        return self.quickly(data) or self.exactly(data)

    def quickly(self, data: bytes) -> Window | None:
        """Return the same as `exactly`, or None if that is impossible."""
        columns = self._columns = self._columns or self._learned(data)
        at = data.rfind(columns.mark) if columns else -1
        if columns is None or at < 0:
            return None
        begin = _line_before(data, at)
        end, _ = next(read_frames(data, begin), (begin, b""))
        try:
            cut = columns.of(memoryview(data)[:end])
        except pa.ArrowInvalid:  # an invalid number
            return None
        if cut is None:
            return None
        others, rest = self._between(data, end)
        others = [*cut.others, *others]
        if any(self._is_delivery(each) for each in others):
            return None
        return Window(cut.rows, _place(cut, 0), _place(cut, len(cut.rows.seqs) - 1), others, rest)

    def exactly(self, data: bytes) -> Window:
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
        """Return the data after the frames, and the bytes of an incomplete one."""
        others: list[Message | bytes] = []
        for end, frame in read_frames(data, at):
            at = end
            others.append(frame)
        return others, data[at:]

    def _is_delivery(self, what: Message | bytes) -> bool:
        return isinstance(what, Message) and what.sid == self._sid and not what.subject.startswith(self._inbox)


def _window_of(
    data: bytes, end: int, others: bytes, first: Sequence[int] | None, last: Sequence[int] | None, columns: Any
) -> Window:
    """Return the window that the native module has read."""
    places = zip(*[iter(array("Q", others))] * 2, strict=True)
    frames = [frame for begin, stop in places for _, frame in read_frames(data[begin:stop])]
    if first is None or last is None:
        return Window(None, None, None, frames, data[end:])
    return Window(Rows.of(columns), Place(*first), Place(*last), frames, data[end:])


def _line_before(data: bytes, at: int) -> int:
    found = data.rfind(LINE_END, 0, at)
    return 0 if found < 0 else found + len(LINE_END)


def _place(cut: Cut, row: int) -> Place:
    seq, delivery, time_ns, pending = cut.words[row * cut.stride : row * cut.stride + PLACES].to_pylist()
    return Place(int(seq), int(delivery), int(time_ns), int(pending.split()[0]))
