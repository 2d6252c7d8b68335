"""What a direct get answers, cut into columns: every message tells of itself in headers behind its own.

The same way as with deliveries: a split by one expression, checked by every size, else frame by frame.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.columns.arrays import int_array, number_array, text_array
from natsctl.spark.source.columns.rows import Rows
from natsctl.spark.source.connection.api import header_of, time_ns_of
from natsctl.spark.source.connection.protocol import Message, read_next, status_of
from natsctl.spark.source.fetch.frames import SMALL_BYTES

SHAPE: Final = (
    rb" (\d+) (\d+)\r\nNATS/1\.0\r\n((?:[^\r]+\r\n)*?)Nats-Stream: [^\r]*\r\nNats-Subject: ([^\r]*)\r\n"
    rb"Nats-Sequence: (\d+)\r\nNats-Time-Stamp: ([^\r]*)\r\nNats-Num-Pending: \d+\r\nNats-Last-Sequence: \d+\r\n\r\n"
)
STRIDE: Final = 7
"""Pieces for each frame: size of headers, whole size, own headers, subject, sequence, time, payload."""
PLACE_LINE: Final = b"\r\nNats-Stream: "
"""With which the server's own headers begin."""


class DirectWindow(NamedTuple):
    """Rows, whatever came between them (the end of a batch), and the bytes of a frame that is not whole."""

    rows: Rows | None
    others: list[Message | bytes]
    rest: bytes


class DirectAnswers:
    """Cuts the answers to batched direct gets on one inbox."""

    def __init__(self, inbox: bytes, sid: bytes) -> None:
        self._sid = sid
        self._shape = re.compile(rb"\r\nHMSG %b %b" % (re.escape(inbox), re.escape(sid)) + SHAPE)

    def window(self, data: bytes) -> DirectWindow:
        """The frames of a window, which begins where a frame begins."""
        if len(data) < SMALL_BYTES:
            return self.exactly(data)
        return self.quickly(data) or self.exactly(data)

    def quickly(self, data: bytes) -> DirectWindow | None:
        """The same as `exactly`; None where something stands in the way."""
        pieces = self._shape.split(b"\r\n" + data)
        if len(pieces) <= STRIDE or pieces[0]:
            return None
        heads, sizes, own, subjects, seqs, times, bodies = (pieces[at::STRIDE] for at in range(1, STRIDE + 1))
        begin = len(data) - len(bodies[-1])
        size = int(sizes[-1]) - int(heads[-1])
        if begin + size + 2 > len(data):  # the last frame is not whole
            end = data.rfind(b"\r\nHMSG ", 0, begin) + 2
            for column in (heads, sizes, own, subjects, seqs, times, bodies):
                del column[-1]
        else:
            end = begin + size + 2
            bodies[-1] = bodies[-1][:size]
        if not bodies or not pc.subtract(number_array(sizes), number_array(heads)).equals(
            int_array(list(map(len, bodies)))
        ):
            return None
        others, rest = ([], data[end:]) if end < begin else _between(data, end)
        if any(_is_message(each, self._sid) for each in others):
            return None
        stamps = text_array(times).cast(pa.timestamp("ns", "UTC")).cast(pa.int64())
        blocks = [b"NATS/1.0\r\n%b\r\n" % block if block else b"" for block in own]
        return DirectWindow(Rows(number_array(seqs), stamps, subjects, blocks, bodies), others, rest)

    def exactly(self, data: bytes) -> DirectWindow:
        """The frames, one by one."""
        found: list[Message] = []
        others: list[Message | bytes] = []
        at = 0
        while read := read_next(data, at):
            at = read.end
            if isinstance(read.what, Message) and _is_message(read.what, self._sid):
                found.append(read.what)
            else:
                others.append(read.what)
        return DirectWindow(_rows(found) if found else None, others, data[at:])


def _is_message(what: Message | bytes, sid: bytes) -> bool:
    """Whether it is a stored message; a status has no sequence."""
    return isinstance(what, Message) and what.sid == sid and not status_of(what.headers)


def _between(data: bytes, at: int) -> tuple[list[Message | bytes], bytes]:
    others: list[Message | bytes] = []
    while read := read_next(data, at):
        others.append(read.what)
        at = read.end
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


def _own(headers: bytes) -> bytes:
    """The message's own headers; empty without any."""
    own = headers[: headers.rindex(PLACE_LINE) + 2]
    return own + b"\r\n" if own.count(b"\r\n") > 1 else b""
