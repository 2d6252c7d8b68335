"""Reading the stored messages as they lie in the log of natsctl's own server (STREAM.BLOCKS): the cheapest way.

Theory of operation. An answer holds as many frames of the log as fit into one message, and the range of sequences that
it covers; one request is on its way while the answer before is cut into columns. The server makes nothing of the
messages it sends, and keeps nothing, so that reading goes on with a request behind the last answer whatever happened
meanwhile. STREAM.INFO says whether a stream has blocks, and gives the identity that every answer repeats: one of
another stream of the same name is not taken.

A frame is: a magic number and its length (4 bytes each), its checksum, kind, flags (1: it has a header block), length
of the subject (2 bytes), sequence, time, another sequence (8 bytes each), all little-endian; then subject, header block
after its length, payload. Servers check frames that they have from the disk. Source: docs/adr/0004, docs/adr/0027.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.archive.blocks import DamagedRecordError, RecordHeads, rows_at
from natsctl.spark.source.columns.arrays import int_array
from natsctl.spark.source.columns.pieces import Ruler
from natsctl.spark.source.columns.rows import Rows, RowShape
from natsctl.spark.source.columns.slices import number, sliced
from natsctl.spark.source.connection.api import NO_STREAM, header_of, refuse
from natsctl.spark.source.connection.protocol import Message, read_frames, status_of
from natsctl.spark.source.errors import ApiRefusedError, NoResponseError, ServerUnreachableError
from natsctl.spark.source.fetch.task import ReadInterruptedError, Task
from natsctl.wire.server_frames import frame_end

FORMAT: Final = b"1"
MOST_BYTES: Final = 4 << 20
"""Of one answer."""
HEADER_ROOM: Final = 1 << 10
"""Of what the server that we are connected to lets through in one message, for the headers."""
_DEFAULT_PAYLOAD: Final = 1 << 20
_COUNT_BYTES = _SIZE_BYTES = 4
_OVER_SIZE: Final = 10
"""A frame is so much longer than the accounted size of its message."""
_MAGIC: Final = 0x9E4C6A5B
_MESSAGE: Final = 1
_HAS_HEADER: Final = 1
_HEAD_BYTES: Final = 40
_WORDS: Final = _HEAD_BYTES // 8


class BlockReader:
    """Requests of STREAM.BLOCKS, the next one sent before an answer is looked at."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._inbox = task.link.new_inbox()
        self._sid = b""
        self._rest = b""
        self._cutter = FrameCutter(task.shape)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are left.

        Raises ApiRefusedError, NotAuthorisedError, and ServerUnreachableError to ask anew.
        """
        task = self._task
        if task.block_offer is None or task.block_offer.format != FORMAT:
            raise ApiRefusedError(
                f"{task.stream} has no blocks to read: only natsctl's server has them, of streams on files; read with "
                "transport=consumer"
            )
        sid = task.link.subscribe(self._inbox)
        self._sid = b"%d" % sid
        try:
            yield from self._run()
        finally:
            with suppress(ServerUnreachableError):
                task.link.unread(self._rest)
                task.link.unsubscribe(sid)

    def _run(self) -> Iterator[pa.RecordBatch]:
        task, asked = self._task, self._task.at
        self._ask(asked)
        while True:
            answer = self._answer()
            covered = self._covered(answer, asked)
            if goes_on := asked <= covered < task.todo.last:
                self._ask(covered + 1)
            rows = self._cutter.rows(answer.body)
            if len(rows.seqs):
                if rows.seqs[0].as_py() < asked or rows.seqs[-1].as_py() > covered:
                    raise ReadInterruptedError(f"a block of {task.stream} has other sequences than it says")
                yield from task.handed_out(rows)
            task.at = max(task.at, covered + 1)
            if not goes_on:
                return
            asked = covered + 1

    def _ask(self, seq: int) -> None:
        task = self._task
        allowed = int(task.link.info.get("max_payload") or _DEFAULT_PAYLOAD) - HEADER_ROOM
        most = max(min(task.limits.bytes, MOST_BYTES, allowed), 1)
        wanted = {"seq": seq, "last_seq": task.todo.last, "filters": [*task.todo.filters], "max_bytes": most}
        body = json.dumps(wanted).encode()
        subject = task.api.subject(f"STREAM.BLOCKS.{task.stream}").encode()
        task.link.send(b"PUB %b %b %d\r\n%b\r\n" % (subject, self._inbox.encode(), len(body), body))

    def _answer(self) -> Message:
        """Return the next answer; lines and other messages before it are dealt with.

        Raises NoResponseError, NotAuthorisedError.
        """
        link, timeout_s = self._task.link, self._task.limits.timeout_s
        data, at, self._rest = self._rest, 0, b""
        while True:
            for end, frame in read_frames(data, at):
                at = end
                if isinstance(frame, bytes):
                    link.heed(frame)
                elif frame.sid == self._sid:
                    self._rest = data[at:]
                    return frame
            data, at = self._more(data[at:], timeout_s), 0

    def _more(self, begun: bytes, timeout_s: float) -> bytes:
        """Return what has come with the rest of the message that it begins; more of it where its end is not known."""
        parts, size, wanted = [begun], len(begun), frame_end(begun)
        while size < wanted:
            parts.append(self._task.link.read(timeout_s))
            size += len(parts[-1])
        return b"".join(parts)

    def _covered(self, answer: Message, asked: int) -> int:
        """Return the last sequence that an answer covers.

        Raises ApiRefusedError, StreamNotFoundError, ReadInterruptedError, NoResponseError.
        """
        task, name = self._task, f"STREAM.BLOCKS.{self._task.stream}"
        if status_of(answer.headers):
            raise ApiRefusedError(f"nobody answers on {task.api.subject(name)}")
        if not header_of(answer.headers, b"Nats-Stream-Blocks"):
            error = json.loads(answer.body).get("error") or {}
            if error.get("err_code") == NO_STREAM:
                raise ReadInterruptedError(f"{task.stream} is gone")  # perhaps to be made again: its info will say
            refuse(name, error)
        said = header_of(answer.headers, b"Nats-Stream-Identity")
        if task.block_offer is None or said != task.block_offer.identity:
            raise ReadInterruptedError(f"{task.stream} was deleted and made again while it was read")
        if header_of(answer.headers, b"Nats-Sequence") != b"%d" % asked:
            raise NoResponseError(f"an answer on {name} is not the one that was asked for")
        return int(header_of(answer.headers, b"Nats-Last-Sequence"))


class FrameCutter:
    """Cuts the payload of an answer into columns."""

    def __init__(self, shape: RowShape) -> None:
        self._shape = shape
        self._ruler = Ruler()

    def rows(self, payload: bytes) -> Rows:
        """Return the messages of an answer; raises ReadInterruptedError where it is not what it should be."""
        count = int.from_bytes(payload[:_COUNT_BYTES], "little")
        frames_at = _COUNT_BYTES + _SIZE_BYTES * count
        if not count:
            return Rows(int_array(()), int_array(()), (), (), ())
        sizes = pa.Array.from_buffers(pa.uint32(), count, [None, pa.py_buffer(payload[_COUNT_BYTES:frames_at])])
        frames = pa.py_buffer(memoryview(payload)[frames_at:])
        lengths = pc.add(sizes.cast(pa.int64()), number(_OVER_SIZE))
        ends = pc.cumulative_sum(lengths)
        places = pc.subtract(ends, lengths)
        if ends[-1].as_py() != frames.size or pc.less(pc.min(lengths), number(_HEAD_BYTES)).as_py():
            raise ReadInterruptedError("a block of messages is longer or shorter than it says")
        heads = sliced(frames, places, pc.add(places, number(_HEAD_BYTES)))
        numbers = pa.Array.from_buffers(pa.int64(), _WORDS * count, [None, heads.buffers()[2]])
        first, second, seqs, times = (self._ruler.every(numbers, _WORDS, at, count) for at in range(4))
        kinds = pc.shift_right(second, number(32))
        begun = pc.bit_wise_or(pc.shift_left(lengths, number(32)), number(_MAGIC))
        as_said = (pc.equal(first, begun), pc.equal(pc.bit_wise_and(kinds, number(0xFF)), number(_MESSAGE)))
        if not all(pc.all(each).as_py() for each in as_said):
            raise ReadInterruptedError("a block of messages holds something else")
        has_header = pc.not_equal(pc.bit_wise_and(kinds, number(_HAS_HEADER << 8)), number(0))
        named = pc.bit_wise_and(pc.shift_right(kinds, number(16)), number(0xFFFF))
        start = pc.add(places, number(_HEAD_BYTES))
        try:
            return rows_at(frames, RecordHeads(seqs, times, start, named, has_header, ends), self._shape)
        except DamagedRecordError as damage:
            raise ReadInterruptedError(f"a message is shorter than {damage}") from damage
