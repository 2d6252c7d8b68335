"""Reading a range of a stream as Arrow batches, by the quickest way that the stream and the login allow.

Reads survive lost connections and stopped servers, and leave nothing on the server.

Consumers. All but small ranges are read through a consumer of the task's own. It is ephemeral, in memory, acknowledges
nothing and is deleted at the end, also after a failure. Two pulls are open at any time. The server alternates between
them, so only the messages still owed by both together are counted. Pulls do not wait: after the last message the server
reports that immediately. It may be a server that lags the leader, so the leader is asked before the end is believed.

Blocks. The cheapest way reads the stored messages from the log of natsctl's server as they are (STREAM.BLOCKS). An
answer holds as many frames of the log as fit into one message, and the range of sequences that it covers; one request
is open while the answer before is cut into columns. The server neither decodes the messages nor keeps any state, so
after any failure reading continues with a request after the last answer. STREAM.INFO reports whether a stream has
blocks, and the identity that every answer repeats: answers of another stream of the same name are refused.

A frame is: a magic number and its length (4 bytes each), its checksum, kind, flags (1: it has a header block), length
of the subject (2 bytes), sequence, time, another sequence (8 bytes each), all little-endian; then subject, header block
after its length, payload. Servers check frames that they have from the disk. Source: docs/adr/0004, docs/adr/0027.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.arrays import RowPicker, any_sliced, int64_at, int_array, int_scalar, native, sliced
from natsctl.spark.source.direct_fetch import DirectReader, SingleReader
from natsctl.spark.source.errors import (
    ApiRefusedError,
    JetStreamSourceError,
    NoResponseError,
    ServerUnreachableError,
    SourceConnectionLostError,
    SourceNotAuthorisedError,
)
from natsctl.spark.source.fetch_task import FetchLimits, RangeReader, ReadInterruptedError, ReadRange, Task, Transport
from natsctl.spark.source.frames import Deliveries, Window
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import NO_STREAM, ONE_SHOT, header_of, object_in, refuse
from natsctl.spark.source.link import Link, Message, description_of, read_frames, status_of
from natsctl.spark.source.outages import Outage
from natsctl.spark.source.rows import Rows, RowShape
from natsctl.wire.server_frames import LINE_END, frame_end

BAD_REQUEST: Final = 400
NO_MESSAGES: Final = 404
TIMED_OUT: Final = 408
CONFLICT: Final = 409
SIZE_HEADER: Final = b"\r\nNats-Msg-Size: "
TOO_LARGE: Final = "Message Size Exceeds MaxBytes"
SERVED: Final = "Batch Completed"
"""Status of a pull that received all messages it asked for before its byte limit."""


class ConsumerReader(RangeReader):
    inbox_tokens = ".*"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._name = f"natsctl-spark-{secrets.token_hex(6)}"
        self._pulls: dict[bytes, int] = {}
        """The number of messages that each pull asked for, by its subject."""
        self._owed = 0
        self._seen = 0
        self._pending = 0
        """Known number of messages that the consumer has not delivered."""
        self._oversize = False
        """Whether the next message is larger than a pull's maximum."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        task = self._task
        try:
            made = task.api.create_consumer(task.stream, self._name, self._config())
            self._pending = int(made.get("num_pending") or 0)
            yield from super().batches()
        finally:
            with suppress(JetStreamSourceError):  # if it cannot be deleted, it expires later
                task.api.delete_consumer(task.stream, self._name)

    def _config(self) -> dict[str, Any]:
        task = self._task
        config = {**ONE_SHOT, "deliver_policy": "by_start_sequence", "opt_start_seq": task.at}
        if task.todo.filters:
            config["filter_subjects"] = list(task.todo.filters)
        if not task.shape.wants_value:
            config["headers_only"] = True
        return config

    def rows_to(self, sid: bytes) -> Iterator[pa.RecordBatch]:
        task, shape = self._task, self._task.shape
        frames = Deliveries(self._inbox.encode(), sid, values=shape.wants_value, headers=shape.wants_headers)
        while task.left:
            if not self._pending:
                if task.more_to_come():
                    raise ReadInterruptedError(f"the consumer's server lags behind the leader of {task.stream}")
                return
            self._pull()
            window = frames.window(task.gather(self._rest))
            self._rest = window.rest
            self._counted(window)
            if window.rows:
                yield from task.handed_out(self._cleaned(window.rows))
            for what in window.others:
                self._heed(what)

    def _pull(self) -> None:
        """Send as many pulls as keep two on their way, but for no more than is left."""
        limits = self._task.limits
        if self._oversize and self._owed <= 0:
            self._oversize = False
            self._ask(1, {})
        while not self._oversize and self._owed <= limits.messages:
            wanted = min(self._task.left, self._pending) - self._owed
            if wanted <= 0:
                break
            self._ask(min(wanted, limits.messages), {"max_bytes": limits.bytes})

    def _ask(self, messages: int, more: dict[str, int]) -> None:
        task, token = self._task, f".{len(self._pulls)}"
        body = {"batch": messages, "no_wait": True, **more}
        task.link.send(self.request(f"CONSUMER.MSG.NEXT.{task.stream}.{self._name}", body, token))
        self._pulls[f"{self._inbox}{token}".encode()] = messages
        self._owed += messages

    def _counted(self, window: Window) -> None:
        """Count the deliveries of a window; raises ReadInterruptedError if one is missing."""
        if window.rows is None or window.first is None or window.last is None:
            return
        count = len(window.rows.seqs)
        if window.first.delivery != self._seen + 1 or window.last.delivery != self._seen + count:
            raise ReadInterruptedError(f"deliveries of {self._task.stream} after {self._task.at} are missing")
        self._seen = window.last.delivery
        self._owed -= count
        self._pending = window.last.pending

    def _cleaned(self, rows: Rows) -> Rows:
        """Return the rows without the size that a server adds to headers where payloads are not asked for."""
        if self._task.shape.wants_value or not rows.headers:
            return rows
        found = rows.headers.to_pylist() if isinstance(rows.headers, pa.Array) else rows.headers
        blocks = [block[: block.rindex(SIZE_HEADER) + 2] + b"\r\n" if SIZE_HEADER in block else block
                  for block in found]  # fmt: skip
        return replace(rows, headers=blocks)

    def _heed(self, what: Message | bytes) -> None:
        """Handle a line or a status; raises ReadInterruptedError, ApiRefusedError."""
        if isinstance(what, bytes):
            self._task.link.handle_line(what)
            return
        asked = self._pulls.get(what.subject)
        if asked is None:
            return
        status, text = status_of(what.headers), description_of(what.headers)
        if status == NO_MESSAGES:
            self._pending = 0
        elif status == TIMED_OUT or (status == CONFLICT and text in (TOO_LARGE, SERVED)):
            pending = header_of(what.headers, b"Nats-Pending-Messages")
            remainder = int(pending) if pending else asked
            self._owed -= remainder
            self._oversize = text == TOO_LARGE and remainder == asked
        elif status == BAD_REQUEST:
            raise ApiRefusedError(f"a pull on {self._task.stream} is refused: {text}")
        else:
            raise ReadInterruptedError(f"the consumer on {self._task.stream} was deleted: {status} {text}")


FORMAT: Final = b"1"
MAX_BYTES: Final = 4 << 20
HEADER_ROOM: Final = 1 << 10
"""Bytes reserved for headers out of the connected server's max_payload."""
_DEFAULT_PAYLOAD: Final = 1 << 20
_COUNT_BYTES = _SIZE_BYTES = 4
_OVER_SIZE: Final = 10
"""A frame is so much longer than the accounted size of its message."""
_MAGIC: Final = 0x9E4C6A5B
_MESSAGE: Final = 1
_HAS_HEADER: Final = 1
_HEAD_BYTES: Final = 40
_WORDS: Final = _HEAD_BYTES // 8
_LENGTH_BYTES: Final = 4
_WORD_BYTES: Final = 8


class BlockAnswer(NamedTuple):
    headers: bytes
    block: bytes | memoryview


class BlockReader(RangeReader):
    """Requests of STREAM.BLOCKS, the next one sent before an answer is looked at."""

    _room = memoryview(b"")
    """Memory for large answers, each in the place of the one before."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        task = self._task
        if task.block_offer is None or task.block_offer.format != FORMAT:
            raise ApiRefusedError(
                f"{task.stream} has no blocks to read: only natsctl's server has them, of streams on files; read with "
                "transport=consumer"
            )
        yield from super().batches()

    def rows_to(self, sid: bytes) -> Iterator[pa.RecordBatch]:
        task, asked, cutter = self._task, self._task.at, FrameCutter(self._task.shape)
        self._ask(asked)
        while True:
            answer = self._answer(sid)
            covered = self._covered(answer, asked)
            if goes_on := asked <= covered < task.todo.last:
                self._ask(covered + 1)
            rows = cutter.rows(answer.block)
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
        most = max(min(task.limits.bytes, MAX_BYTES, allowed), 1)
        body = {"seq": seq, "last_seq": task.todo.last, "filters": [*task.todo.filters], "max_bytes": most}
        task.link.send(self.request(f"STREAM.BLOCKS.{task.stream}", body))

    def _answer(self, sid: bytes) -> BlockAnswer:
        """Return the next answer; lines before it are handled, other messages are dropped.

        Raises NoResponseError, SourceNotAuthorisedError.
        """
        link, timeout_s = self._task.link, self._task.limits.timeout_s
        data, at, self._rest = self._rest, 0, b""
        while True:
            for end, frame in read_frames(data, at):
                at = end
                if isinstance(frame, bytes):
                    link.handle_line(frame)
                elif frame.sid == sid:
                    self._rest = data[at:]
                    return BlockAnswer(frame.headers, frame.body)
            data, at = data[at:], 0
            if (size := frame_end(data)) <= len(data) + 1:
                data += link.read(timeout_s)
                continue
            answer, data = self._large(data, size, sid), b""
            if answer is not None:
                return answer

    def _large(self, begun: bytes, size: int, sid: bytes) -> BlockAnswer | None:
        """Receive the rest of a message and return it, None if it is another's. The next one takes its place."""
        if len(self._room) < size:
            self._room = memoryview(bytearray(size))
        self._room[: len(begun)] = begun
        received = len(begun)
        while received < size:
            received += self._task.link.read_into(self._room[received:size], self._task.limits.timeout_s)
        line = begun[: begun.index(LINE_END)]
        words, begin = line.split(b" "), len(line) + len(LINE_END)
        head = begin + int(words[-2]) if words[0] == b"HMSG" else begin
        if words[2] != sid:
            return None
        return BlockAnswer(bytes(self._room[begin:head]), self._room[head : size - len(LINE_END)])

    def _covered(self, answer: BlockAnswer, asked: int) -> int:
        """Return the last sequence that an answer covers.

        Raises ApiRefusedError, StreamNotFoundError, ReadInterruptedError, NoResponseError.
        """
        task, name = self._task, f"STREAM.BLOCKS.{self._task.stream}"
        if status_of(answer.headers):
            raise ApiRefusedError(f"no server answers on {task.api.subject(name)}")
        if not header_of(answer.headers, b"Nats-Stream-Blocks"):
            error = object_in(bytes(answer.block), name).get("error") or {}
            if error.get("err_code") == NO_STREAM:
                raise ReadInterruptedError(f"{task.stream} was deleted")  # perhaps recreated: its info will show
            refuse(name, error)
        said = header_of(answer.headers, b"Nats-Stream-Identity")
        if task.block_offer is None or said != task.block_offer.identity:
            raise ReadInterruptedError(f"{task.stream} was deleted and made again while it was read")
        if header_of(answer.headers, b"Nats-Sequence") != b"%d" % asked:
            raise NoResponseError(f"an answer on {name} is not the one that was asked for")
        return int(header_of(answer.headers, b"Nats-Last-Sequence"))


class FrameCutter:
    """A splitter of the payload of an answer into columns."""

    def __init__(self, shape: RowShape) -> None:
        self._shape = shape
        self._picker = RowPicker()

    def rows(self, payload: bytes | memoryview) -> Rows:
        """Return the messages of an answer; raises ReadInterruptedError if it is malformed."""
        shape, quick = self._shape, native("block_columns")
        columns = quick(payload, shape.wants_headers, shape.wants_value) if quick else None
        return Rows.of(columns) if columns else self._rows(payload)

    def _rows(self, payload: bytes | memoryview) -> Rows:
        count = int.from_bytes(payload[:_COUNT_BYTES], "little")
        frames_at = _COUNT_BYTES + _SIZE_BYTES * count
        if not count:
            return Rows(int_array(()), int_array(()), (), (), ())
        if frames_at > len(payload):
            raise ReadInterruptedError(f"a block of {count} messages has {len(payload)} bytes")
        sizes = pa.Array.from_buffers(pa.uint32(), count, [None, pa.py_buffer(payload[_COUNT_BYTES:frames_at])])
        frames = pa.py_buffer(memoryview(payload)[frames_at:])
        lengths = pc.add(sizes.cast(pa.int64()), int_scalar(_OVER_SIZE))
        ends = pc.cumulative_sum(lengths)
        places = pc.subtract(ends, lengths)
        if ends[-1].as_py() != frames.size or pc.less(pc.min(lengths), int_scalar(_HEAD_BYTES)).as_py():
            raise ReadInterruptedError("a block of messages is longer or shorter than it says")
        heads = sliced(frames, places, pc.add(places, int_scalar(_HEAD_BYTES)))
        numbers = pa.Array.from_buffers(pa.int64(), _WORDS * count, [None, heads.buffers()[2]])
        first, second, seqs, times = (self._picker.every(numbers, _WORDS, at, count) for at in range(4))
        kinds = pc.shift_right(second, int_scalar(32))
        begun = pc.bit_wise_or(pc.shift_left(lengths, int_scalar(32)), int_scalar(_MAGIC))
        as_said = (pc.equal(first, begun), pc.equal(pc.bit_wise_and(kinds, int_scalar(0xFF)), int_scalar(_MESSAGE)))
        if not all(pc.all(each).as_py() for each in as_said):
            raise ReadInterruptedError("a block of messages holds something else")
        has_header = pc.not_equal(pc.bit_wise_and(kinds, int_scalar(_HAS_HEADER << 8)), int_scalar(0))
        named = pc.bit_wise_and(pc.shift_right(kinds, int_scalar(16)), int_scalar(0xFFFF))
        subject = pc.add(places, int_scalar(_HEAD_BYTES))
        header = pc.add(subject, named)
        _check(pc.less(ends, header), "subject")
        value = self._values_at(frames, header, has_header, ends) if pc.any(has_header).as_py() else header
        _check(pc.less(ends, value), "header")
        wanted = self._shape
        return Rows(
            seqs,
            times,
            sliced(frames, subject, header),
            any_sliced(frames, pc.add(header, _lengths(has_header)), value) if wanted.wants_headers else [],
            sliced(frames, value, ends) if wanted.wants_value else [],
        )

    def _values_at(
        self, frames: pa.Buffer, header: pa.Int64Array, has_header: pa.BooleanArray, ends: pa.Int64Array
    ) -> pa.Int64Array:
        """Return the places of payloads: after the header block, if there is one, and its length."""
        begin = pc.add(header, _lengths(has_header))
        _check(pc.less(ends, begin), "header")
        # The length as the second half of a word: that is within the data for any end of a frame.
        words = int64_at(frames, pc.subtract(begin, int_scalar(_WORD_BYTES)))
        sizes = pc.bit_wise_and(pc.shift_right(words, int_scalar(32)), int_scalar(0xFFFFFFFF))
        return pc.add(begin, pc.if_else(has_header, sizes, int_scalar(0)))


def _lengths(has_header: pa.BooleanArray) -> pa.Int64Array:
    """Return the bytes of the length before each header block."""
    return pc.if_else(has_header, int_scalar(_LENGTH_BYTES), int_scalar(0))


def _check(damaged: pa.BooleanArray, what: str) -> None:
    if pc.any(damaged).as_py():
        raise ReadInterruptedError(f"a message is shorter than its {what}")


SMALL_RANGE: Final = 5_000
"""Maximum messages that direct gets read faster than a consumer can be created."""
LARGE_BYTES: Final = 4 << 10
"""Min average message size to use a consumer if payloads are not needed: blocks contain them."""


Info = dict[str, Any]
Look = Callable[[Info], object]
"""Is shown a STREAM.INFO answer, and may raise."""

READERS: Final[dict[Transport, type[RangeReader]]] = {
    "blocks": BlockReader,
    "consumer": ConsumerReader,
    "direct": DirectReader,
    "get": SingleReader,
}


def read_range(
    settings: ServerSettings, todo: ReadRange, limits: FetchLimits, columns: RowShape, look: Look | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range, in order, each once; `look` sees the stream's info whenever reading begins.

    Raises StreamNotFoundError, ApiRefusedError, SourceNotAuthorisedError, ServerUnreachableError after all retries,
    SchemaMismatchError. However it ends, nothing is left on the server.
    """
    if todo.first > todo.last:
        return
    with Link.open(settings) as link:
        task = Task(link, settings, todo, limits, columns)
        known = None
        ways = [todo.transport]
        if todo.transport == "auto":
            known, ways = _ways(task)
        refused: ApiRefusedError | SourceNotAuthorisedError | ServerUnreachableError | None = None
        for way in ways:
            try:
                yield from _persistently(task, READERS[way], look, known)
            except (ApiRefusedError, SourceNotAuthorisedError, ReadInterruptedError, NoResponseError) as failure:
                if isinstance(failure, NoResponseError) and way != "blocks":
                    raise  # a block may be larger than what some server on its way lets through, and others be not
                refused = refused or failure
            else:
                return
        if refused:
            raise refused


def _persistently(
    task: Task, reader: type[RangeReader], look: Look | None, known: Info | None
) -> Iterator[pa.RecordBatch]:
    """Yield the remaining rows, restarting after interruptions; any progress ends an outage.

    `known` is the stream's info, if it was requested just now.
    """
    outage = Outage(task.settings)
    while task.left:
        before = task.at
        try:
            if look or reader is BlockReader:
                now, known = known or task.look(), None
                if look:
                    look(now)
            yield from reader(task).batches()
        except (SourceConnectionLostError, NoResponseError, ReadInterruptedError) as failure:
            known = None
            if task.at > before:
                outage.end()
            if task.at == before or isinstance(failure, SourceConnectionLostError):
                outage.pause(failure)
            if isinstance(failure, SourceConnectionLostError):
                task.link.reopen()
        else:
            return


def _ways(task: Task) -> tuple[Info | None, list[Transport]]:
    """Return the stream's info, if it may be known, and the ways to read, the best one first.

    A consumer on a work queue or a stream that lives by interest would take part in who has seen what, so they are
    read without.
    """
    try:
        info = task.look()
    except (ApiRefusedError, SourceNotAuthorisedError):
        return None, ["consumer", "direct", "get"]
    config: Info = info["config"]
    ways: list[Transport]
    if config.get("retention", "limits") != "limits":
        ways = ["direct", "get"] if config.get("allow_direct") else ["get"]
    elif not config.get("allow_direct"):
        ways = ["consumer", "get"]
    else:
        ways = ["direct", "consumer", "get"] if task.left <= SMALL_RANGE else ["consumer", "direct", "get"]
    return info, ["blocks", *ways] if task.block_offer and _suits_blocks(task, info["state"]) else ways


def _suits_blocks(task: Task, state: Info) -> bool:
    """Return whether blocks are worth reading: not if only headers of large messages are needed."""
    return task.shape.wants_value or state.get("bytes", 0) <= LARGE_BYTES * max(state.get("messages", 0), 1)
