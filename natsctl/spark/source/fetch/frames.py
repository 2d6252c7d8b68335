"""What a consumer delivers, cut into columns, a window of many frames at a time.

Theory of operation. All frames of one consumer have the same shape but for five numbers and the subject, so a window
is split by one regular expression that begins with a literal, which is the quickest search that Python has. A payload
may hold what looks like a frame: then some piece is shorter or longer than its frame announced, which is looked at for
every row, and the window is read again frame by frame. What else a server sends between frames ends up behind the
payload before it, and is cut off there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from natsctl.spark.source.columns.arrays import int_array, number_array
from natsctl.spark.source.columns.rows import Rows
from natsctl.spark.source.connection.protocol import Message, read_next
from natsctl.spark.source.errors import ServerUnreachable

PLAIN_STRIDE: Final = 5
"""Pieces for each frame: subject, sequence, time, size, payload."""
MIXED_STRIDE: Final = 6
"""The same with the size of headers before the whole size; None without headers."""

SMALL_BYTES: Final = 16 << 10
"""Less than that is read frame by frame: it costs less than to learn a consumer's shape."""


class Place(NamedTuple):
    """Where a delivered message is in its stream and in its consumer's deliveries, and how many are to come."""

    seq: int
    delivery: int
    time_ns: int
    pending: int


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


def place_of(reply: bytes) -> Place:
    """What a delivery's reply subject tells: $JS.ACK.[domain.account.]stream.consumer.tries.seq.delivery.time.pending.

    Raises ServerUnreachable for any other subject.
    """
    words = reply.split(b".")
    try:
        numbers = words[-5:-1] if len(words) > 11 else words[-4:]
        return Place(*map(int, numbers))
    except (ValueError, TypeError) as failure:
        raise ServerUnreachable(f"the server delivers with {reply[:200]!r} as the place to acknowledge") from failure


class Deliveries:
    """Cuts what one pull consumer delivers; it learns from the first frame how its frames look."""

    def __init__(self, inbox: bytes, sid: bytes, *, values: bool = True, headers: bool = True) -> None:
        """`inbox` begins the subjects of what is no delivery but a status; what is not wanted stays empty."""
        self._inbox = inbox
        self._sid = sid
        self._values = values
        self._headers = headers
        self._plain: re.Pattern[bytes] | None = None
        self._mixed: re.Pattern[bytes] | None = None
        self._has_headers = False

    def window(self, data: bytes) -> Window:
        """The frames of a window, which begins where a frame begins."""
        if len(data) < SMALL_BYTES:
            return self.exactly(data)
        return self.quickly(data) or self.exactly(data)

    def quickly(self, data: bytes) -> Window | None:
        """The same as `exactly`; None where something stands in the way."""
        if self._plain is None:
            self._learn(data)
        if self._plain is None or self._mixed is None:
            return None
        if not self._has_headers and (cut := self._cut(self._plain.split(b"\r\n" + data), data, PLAIN_STRIDE)):
            return cut
        if cut := self._cut(self._mixed.split(b"\r\n" + data), data, MIXED_STRIDE):
            self._has_headers = True
        return cut

    def exactly(self, data: bytes) -> Window:
        """The frames, one by one."""
        found: list[tuple[Message, Place]] = []
        others: list[Message | bytes] = []
        at = 0
        while read := read_next(data, at):
            at = read.end
            if isinstance(read.what, Message) and self._is_delivery(read.what):
                found.append((read.what, place_of(read.what.reply)))
            else:
                others.append(read.what)
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

    def _learn(self, data: bytes) -> None:
        """Make the expressions from the first frame, if it is a delivery."""
        words = data[: data.find(b"\r\n")].split()
        if len(words) < 5 or words[0] not in (b"MSG", b"HMSG") or words[2] != self._sid:
            return
        if words[1].startswith(self._inbox):
            return
        tokens = words[3].split(b".")
        numbers = 5 if len(tokens) > 11 else 4
        # A class of one character that is not wanted is half as dear as one of three; sizes tell what it lets through.
        shape = rb"([^ ]+) %b %b\.(\d+)\.\d+\.(\d+)\.\d+%b " % (
            re.escape(words[2]),
            re.escape(b".".join(tokens[:-numbers])),
            rb"\.[^ ]+" if numbers == 5 else b"",
        )
        self._plain = re.compile(rb"\r\nMSG " + shape + rb"(\d+)\r\n")
        self._mixed = re.compile(rb"\r\nH?MSG " + shape + rb"(?:(\d+) )?(\d+)\r\n")

    def _cut(self, pieces: list[bytes], data: bytes, stride: int) -> Window | None:
        """The window of split data; None where a size is not as announced, or more than frames of that shape came."""
        if len(pieces) <= stride or pieces[0]:
            return None
        columns = [pieces[at::stride] for at in range(1, stride + 1)]
        sizes, bodies = columns[-2:]
        heads = columns[3] if stride == MIXED_STRIDE else []
        begin = _last_line(data, len(data) - len(bodies[-1]))
        first, last = place_of(_reply(data, 0)), place_of(_reply(data, begin))
        end = len(data) - len(bodies[-1]) + int(sizes[-1]) + 2
        if end > len(data):  # the last frame is not whole; the one before it was delivered just before
            end = begin
            last = last._replace(delivery=last.delivery - 1, pending=last.pending + 1)
            for column in columns:
                del column[-1]
        else:
            bodies[-1] = bodies[-1][: int(sizes[-1])]
        among = self._trimmed(bodies, number_array(sizes)) if bodies else None
        if among is None:
            return None
        others, rest = (list[Message | bytes](), data[begin:]) if end == begin else self._between(data, end)
        if any(self._is_delivery(each) for each in others):
            return None
        seqs = number_array(columns[1])
        rows = Rows(seqs, number_array(columns[2]), columns[0], *self._contents(heads, bodies))
        return Window(rows, first, last._replace(seq=seqs[-1].as_py()), [*among, *others], rest)

    def _trimmed(self, bodies: list[bytes], sizes: pa.Int64Array) -> list[Message | bytes] | None:
        """Cut what came between frames off the payloads, and return it; None where a payload is not as announced."""
        lengths = list(map(len, bodies))
        among: list[Message | bytes] = []
        if sizes.equals(int_array(lengths)):
            return among
        for at, (length, size) in enumerate(zip(lengths, sizes.to_pylist(), strict=True)):
            if length == size:
                continue
            if length < size or not bodies[at].startswith(b"\r\n", size):
                return None
            others, rest = self._between(bodies[at] + b"\r\n", size + 2)
            if rest or any(self._is_delivery(each) for each in others):
                return None
            among += others
            bodies[at] = bodies[at][:size]
        return among

    def _contents(self, heads: Sequence[bytes | None], bodies: list[bytes]) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """Header blocks and payloads, as far as they are wanted."""
        if not any(heads):
            return (), bodies if self._values else ()
        cuts = [int(head or 0) for head in heads]
        pairs = list(zip(bodies, cuts, strict=True))
        return (
            [body[:cut] for body, cut in pairs] if self._headers else (),
            [body[cut:] for body, cut in pairs] if self._values else (),
        )

    def _between(self, data: bytes, at: int) -> tuple[list[Message | bytes], bytes]:
        """What stands behind the frames, and the bytes of what is not whole."""
        others: list[Message | bytes] = []
        while read := read_next(data, at):
            others.append(read.what)
            at = read.end
        return others, data[at:]

    def _is_delivery(self, what: Message | bytes) -> bool:
        return isinstance(what, Message) and what.sid == self._sid and not what.subject.startswith(self._inbox)


def _last_line(data: bytes, before: int) -> int:
    """Where the line begins that ends at `before`."""
    found = data.rfind(b"\r\n", 0, before - 2)
    return 0 if found < 0 else found + 2


def _reply(data: bytes, at: int) -> bytes:
    """The reply subject of the message's line that begins at `at`."""
    return data[at : data.index(b"\r\n", at)].split()[3]
