"""Answers of direct gets, cut into columns: every message is described by headers behind its own.

The same way as with deliveries: by Arrow where all frames are as they announce it, else frame by frame.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.columns.arrays import int_array, text_array
from natsctl.spark.source.columns.pieces import Ruler, numbers, pieces, whole
from natsctl.spark.source.columns.rows import Rows
from natsctl.spark.source.connection.api import check_origin, header_of, time_ns_of
from natsctl.spark.source.connection.protocol import Message, read_frames, status_of
from natsctl.spark.source.fetch.frame_columns import Contents, Sizes, all_are
from natsctl.spark.source.fetch.frames import SMALL_BYTES
from natsctl.wire.server_frames import LINE_END

FIELDS: Final = (b"Nats-Subject", b"Nats-Sequence", b"Nats-Time-Stamp")
"""The server's headers behind the stream's name, as far as they are looked at."""
PLACE_LINES: Final = 1 + len(FIELDS) + 4
"""Of the stream's name, the fields, how many messages are to come, the sequence before, and the end of the block."""
NO_HEADERS: Final = b"NATS/1.0"
PLACE_LINE: Final = b"\r\nNats-Stream: "
"""With which the server's own headers begin."""


class DirectWindow(NamedTuple):
    """Rows, whatever came between them (the end of a batch), and the bytes of a frame that is not whole."""

    rows: Rows | None
    others: list[Message | bytes]
    rest: bytes


class DirectAnswers:
    """Cuts the answers to batched direct gets on one inbox."""

    def __init__(self, inbox: bytes, sid: bytes, stream: str) -> None:
        """`stream` is the one that was asked; both ways raise ApiRefusedError for an answer of a mirror of it."""
        self._sid = sid
        self._stream = stream.encode()
        self._mark = b"HMSG %b %b " % (inbox, sid)
        self._ruler = Ruler()

    def window(self, data: bytes) -> DirectWindow:
        """Return the frames of a window, which begins where a frame begins."""
        if len(data) < SMALL_BYTES:
            return self.exactly(data)
        return self.quickly(data) or self.exactly(data)

    def quickly(self, data: bytes) -> DirectWindow | None:
        """Return the same as `exactly`; None where something stands in the way."""
        end = data.rfind(self._mark)
        if end < 0:
            return None
        behind, last = next(read_frames(data, end), (end, b""))
        if _is_message(last, self._sid):
            end = behind
        others, rest = _between(data, end)
        if any(_is_message(each, self._sid) for each in others):
            return None
        try:
            rows = self._cut(memoryview(data)[:end])
        except pa.ArrowInvalid:  # a number or a time that is none
            return None
        return DirectWindow(rows, others, rest) if rows else None

    def _cut(self, data: memoryview) -> Rows | None:
        """Return the messages of data that ends where a frame ends; None where one is not as its frame announces it."""
        every = self._ruler.every
        split = pieces(whole(data), self._mark)
        count = len(split) - 1
        halves = pieces(split[1:], LINE_END, most=1)
        if count < 1 or split[0].as_py() or len(halves) != 2 * count:
            return None
        sizes = pieces(every(halves, 2, 0, count), b" ")
        if len(sizes) != 2 * count:
            return None
        heads, totals = (numbers(every(sizes, 2, at, count)).cast(pa.int32()) for at in range(2))
        found = Contents(self._ruler, halves, Sizes(heads, totals))
        if not found.fit() or not all_are(found.rests, b""):
            return None
        return self._placed(found.headers, found.payloads)

    def _placed(self, blocks: pa.BinaryArray, bodies: pa.BinaryArray) -> Rows | None:
        """Return the rows that header blocks describe; None where one does not."""
        every, count = self._ruler.every, len(bodies)
        halves = pc.split_pattern(blocks, PLACE_LINE, max_splits=1, reverse=True).values
        if len(halves) != 2 * count:
            return None
        lines = pieces(every(halves, 2, 1, count), LINE_END)
        if len(lines) != PLACE_LINES * count:
            return None
        if not all_are(every(lines, PLACE_LINES, 0, count), self._stream):
            return None
        found = [self._field(name, every(lines, PLACE_LINES, at, count)) for at, name in enumerate(FIELDS, 1)]
        subjects, seqs, stamps = found
        if subjects is None or seqs is None or stamps is None:
            return None
        times = text_array(stamps).cast(pa.timestamp("ns", "UTC")).cast(pa.int64())
        return Rows(numbers(seqs), times, subjects, _blocks(every(halves, 2, 0, count)), bodies)

    def _field(self, name: bytes, lines: pa.BinaryArray) -> pa.BinaryArray | None:
        """Return the values of headers; None where one has another name."""
        halves = pieces(lines, b": ", most=1)
        if len(halves) != 2 * len(lines) or not all_are(self._ruler.every(halves, 2, 0, len(lines)), name):
            return None
        return self._ruler.every(halves, 2, 1, len(lines))

    def exactly(self, data: bytes) -> DirectWindow:
        """Return the frames, one by one."""
        found: list[Message] = []
        others: list[Message | bytes] = []
        at = 0
        for end, frame in read_frames(data):
            at = end
            if isinstance(frame, Message) and _is_message(frame, self._sid):
                check_origin(self._stream, frame.headers)
                found.append(frame)
            else:
                others.append(frame)
        return DirectWindow(_rows(found) if found else None, others, data[at:])


def _is_message(what: Message | bytes, sid: bytes) -> bool:
    """Return whether it is a stored message; a status has no sequence."""
    return isinstance(what, Message) and what.sid == sid and not status_of(what.headers)


def _between(data: bytes, at: int) -> tuple[list[Message | bytes], bytes]:
    others: list[Message | bytes] = []
    for end, frame in read_frames(data, at):
        at = end
        others.append(frame)
    return others, data[at:]


def _rows(messages: list[Message]) -> Rows:
    """Messages as columns; where a header is there twice, the server's own is the last."""
    stamps = [time_ns_of(header_of(each.headers, b"Nats-Time-Stamp").decode()) for each in messages]
    return Rows(
        int_array([int(header_of(each.headers, b"Nats-Sequence")) for each in messages]),
        int_array(stamps),
        [header_of(each.headers, b"Nats-Subject") for each in messages],
        [_own(each.headers) for each in messages],
        [each.body for each in messages],
    )


def _blocks(owns: pa.BinaryArray) -> pa.BinaryArray | tuple[()]:
    """Return the messages' own headers as blocks that end as such; nothing where no message has any."""
    none = pc.equal(owns, whole(NO_HEADERS)[0])
    if pc.all(none).as_py():
        return ()
    ended = pc.binary_join_element_wise(owns, whole(2 * LINE_END)[0], whole(b"")[0])
    return pc.if_else(none, whole(b"")[0], ended)


def _own(headers: bytes) -> bytes:
    """Return the message's own headers; empty without any."""
    own = headers[: headers.rindex(PLACE_LINE) + 2]
    return own + b"\r\n" if own.count(b"\r\n") > 1 else b""
