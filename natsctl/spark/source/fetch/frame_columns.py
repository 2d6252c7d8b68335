"""Frames of one consumer cut into columns by Arrow.

Theory of operation. Between the subject and the numbers of every frame of a consumer stand the same bytes: the
subscription, and what the reply subject begins with. Data is split there, so that a piece holds a frame's numbers, its
headers and payload, and the verb and subject of the frame behind it; where in a piece these are follows from the
numbers. A payload may hold those bytes too: then a piece is shorter than its frame announced, and nothing is cut. What
else a server sends between frames is found before the verb of the next one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.columns.arrays import binary_array
from natsctl.spark.source.columns.pieces import Ruler, numbers, offsets, pieces, same, whole
from natsctl.spark.source.columns.rows import Rows
from natsctl.spark.source.columns.slices import number, sliced
from natsctl.spark.source.connection.protocol import Message, read_frames
from natsctl.wire.server_frames import LINE_END

VERB: Final = b"MSG "
VERBS: Final = frozenset((b"", b"H"))
"""The letters that may stand before it in the verb."""


class Cut(NamedTuple):
    """Columns of frames; the numbers of a place, by row, as they stand in the reply subjects."""

    rows: Rows
    words: pa.BinaryArray
    """Behind the mark, `stride` for each row: sequence, delivery, time, pending, perhaps one more; the last with the
    frame's sizes."""
    stride: int
    others: list[Message | bytes]
    """Messages and lines between the frames, and behind them."""


class Sizes(NamedTuple):
    """Of the header blocks, None where no frame has one, and of the blocks with their payloads."""

    heads: pa.Int32Array | None
    totals: pa.Int32Array


class FrameColumns:
    """Cuts frames in which `mark` stands between subject and numbers, `places` of them divided by dots."""

    def __init__(self, mark: bytes, places: int, *, values: bool = True, headers: bool = True) -> None:
        """Columns that are not wanted stay empty."""
        self.mark = mark
        self._places = places
        self._values = values
        self._headers = headers
        self._ruler = Ruler()

    def of(self, data: memoryview) -> Cut | None:
        """Return the columns of data that ends with a frame; None where something is not as its frames announce it.

        Raises pa.ArrowInvalid for numbers that are none.
        """
        every = self._ruler.every
        split = pieces(whole(data), self.mark)
        count = len(split) - 1
        halves = pieces(split[1:], LINE_END, most=1)
        if count < 1 or len(halves) != 2 * count:
            return None
        words = pieces(every(halves, 2, 0, count), b".")
        if len(words) != self._places * count:
            return None
        sizes = self._sizes(every(words, self._places, self._places - 1, count))
        found = Contents(self._ruler, halves, sizes) if sizes else None
        if sizes is None or found is None or not found.fit():
            return None
        lines = self._lines(pa.concat_arrays([split[:1], found.rests]))
        if lines is None:
            return None
        rows = Rows(
            numbers(every(words, self._places, 0, count)),
            numbers(every(words, self._places, 2, count)),
            lines[0],
            found.headers if self._headers and sizes.heads is not None else (),
            found.payloads if self._values else (),
        )
        return Cut(rows, words, self._places, lines[1])

    def _sizes(self, texts: pa.BinaryArray) -> Sizes | None:
        """Return the sizes out of `<a word> [<header size>] <whole size>`, row by row; None for other texts."""
        count, found = len(texts), pc.split_pattern(texts, b" ")
        words = found.values
        if len(words) == 2 * count:
            return Sizes(None, numbers(self._ruler.every(words, 2, 1, count)).cast(pa.int32()))
        one, begins = same(1, 1)[0], found.offsets
        amounts = pc.subtract(begins[1:], begins[:-1])
        with_head = pc.equal(amounts, same(3, 1)[0])
        if not pc.all(pc.or_(with_head, pc.equal(amounts, same(2, 1)[0]))).as_py():
            return None
        totals = numbers(words.take(pc.subtract(begins[1:], one))).cast(pa.int32())
        seconds = numbers(words.take(pc.add(begins[:-1], one))).cast(pa.int32())
        return Sizes(pc.if_else(with_head, seconds, same(0, 1)[0]), totals)

    def _lines(self, lines: pa.BinaryArray) -> tuple[pa.BinaryArray, list[Message | bytes]] | None:
        """Return the subjects out of `MSG <subject>`, and what stood before them; behind the last is none."""
        others: list[Message | bytes] = []
        words = pieces(lines, VERB)
        if not self._are_bare(words, len(lines)):
            longer = pc.match_substring(lines, LINE_END)
            bare = [_bare(line, others) for line in lines.filter(longer).to_pylist()]
            words = pieces(pc.replace_with_mask(lines, longer, binary_array(bare)), VERB)
            if not self._are_bare(words, len(lines)):
                return None
        return self._ruler.every(words, 2, 1, len(lines) - 1), others

    def _are_bare(self, words: pa.BinaryArray, lines: int) -> bool:
        """Return whether each line but the last is a verb and a subject, and nothing else."""
        if len(words) != 2 * lines - 1:
            return False
        return set(pc.unique(self._ruler.every(words, 2, 0, lines)).to_pylist()) <= VERBS


class Contents:
    """The parts of a piece behind its numbers: headers, payload, the line end behind it, and the rest."""

    def __init__(self, ruler: Ruler, halves: pa.BinaryArray, sizes: Sizes) -> None:
        """Of the halves every second one is taken, which has all of these."""
        count, places = len(sizes.totals), offsets(halves)
        begins, ends = (ruler.every(places, 2, at, count).cast(pa.int64()) for at in (1, 2))
        heads = begins if sizes.heads is None else pc.add(begins, sizes.heads)
        bodies = pc.add(begins, sizes.totals)
        self._data = halves.buffers()[2]
        self._bounds = [begins, heads, bodies, pc.add(bodies, number(len(LINE_END))), ends]

    def fit(self) -> bool:
        """Return whether they are as long as the sizes say."""
        rising = (pc.all(pc.less_equal(*both)).as_py() for both in pairwise(self._bounds))
        return all(rising) and all_are(self._between(2), LINE_END)

    @property
    def headers(self) -> pa.BinaryArray:
        """The header blocks."""
        return self._between(0)

    @property
    def payloads(self) -> pa.BinaryArray:
        """The payloads."""
        return self._between(1)

    @property
    def rests(self) -> pa.BinaryArray:
        """The bytes behind the line ends."""
        return self._between(3)

    def _between(self, at: int) -> pa.BinaryArray:
        return sliced(self._data, *self._bounds[at : at + 2])


def _bare(line: bytes, others: list[Message | bytes]) -> bytes:
    """Return the rest of a line behind what came before it, which goes to the others."""
    at = 0
    for end, frame in read_frames(line):
        at = end
        others.append(frame)
    return line[at:]


def all_are(rows: pa.BinaryArray, text: bytes) -> bool:
    """Return whether every row is that text."""
    return bool(pc.all(pc.equal(rows, whole(text)[0])).as_py())
