"""Reading by direct gets, and message by message from the leader: the ways without a consumer.

Direct gets serve small ranges, and logins that may not create consumers. Each answer has headers behind the message's
own that describe it; answers are cut into columns by Arrow where all frames are as announced, else frame by frame.
Where a server takes only one filter, the others are applied here.

A follower may answer, and lag behind; so the leader is asked before an early end is believed. A mirror with
`mirror_direct` may answer as well, and have other messages; it gives its own name, and is not listened to.

The last way, where nothing else is allowed, reads message by message from the stream's leader. Requests for the
sequences of a stretch are all on their way at once. A stretch without any message of the read is left by one request
for the next one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.arrays import RowPicker, int_array, one_row, parsed_ints, split_on, text_array
from natsctl.spark.source.errors import ApiRefusedError, NoResponseError, ServerUnreachableError
from natsctl.spark.source.fetch_task import ReadInterruptedError, Task
from natsctl.spark.source.frames import SMALL_BYTES, Contents, Sizes, all_are
from natsctl.spark.source.jetstream_api import NO_MESSAGE, check_origin, header_of, object_in, refuse, time_ns_of
from natsctl.spark.source.link import Message, description_of, read_frames, status_of
from natsctl.spark.source.rows import Rows
from natsctl.spark.source.source_options import subject_pattern
from natsctl.wire.server_frames import LINE_END

FIELDS: Final = (b"Nats-Subject", b"Nats-Sequence", b"Nats-Time-Stamp")
"""The server's headers behind the stream's name, as far as they are looked at."""
PLACE_LINES: Final = 1 + len(FIELDS) + 4
"""Header lines of a message: stream, fields, pending messages, sequence before, and the end of the block."""
NO_HEADERS: Final = b"NATS/1.0"
PLACE_LINE: Final = b"\r\nNats-Stream: "
"""With which the server's own headers begin."""


class DirectWindow(NamedTuple):
    """Rows, whatever came between them (the end of a batch), and the bytes of a frame that is not whole."""

    rows: Rows | None
    others: list[Message | bytes]
    rest: bytes


class DirectAnswers:
    """A splitter of the answers to batched direct gets on one inbox."""

    def __init__(self, inbox: bytes, sid: bytes, stream: str) -> None:
        """`stream` is the one that was asked; both ways raise ApiRefusedError for an answer of a mirror of it."""
        self._sid = sid
        self._stream = stream.encode()
        self._mark = b"HMSG %b %b " % (inbox, sid)
        self._picker = RowPicker()

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
        every = self._picker.every
        split = split_on(one_row(data), self._mark)
        count = len(split) - 1
        halves = split_on(split[1:], LINE_END, most=1)
        if count < 1 or split[0].as_py() or len(halves) != 2 * count:
            return None
        sizes = split_on(every(halves, 2, 0, count), b" ")
        if len(sizes) != 2 * count:
            return None
        heads, totals = (parsed_ints(every(sizes, 2, at, count)).cast(pa.int32()) for at in range(2))
        found = Contents(self._picker, halves, Sizes(heads, totals))
        if not found.fit() or not all_are(found.rests, b""):
            return None
        return self._placed(found.headers, found.payloads)

    def _placed(self, blocks: pa.BinaryArray, bodies: pa.BinaryArray) -> Rows | None:
        """Return the rows that header blocks describe; None where one does not."""
        every, count = self._picker.every, len(bodies)
        halves = pc.split_pattern(blocks, PLACE_LINE, max_splits=1, reverse=True).values
        if len(halves) != 2 * count:
            return None
        lines = split_on(every(halves, 2, 1, count), LINE_END)
        if len(lines) != PLACE_LINES * count:
            return None
        if not all_are(every(lines, PLACE_LINES, 0, count), self._stream):
            return None
        found = [self._field(name, every(lines, PLACE_LINES, at, count)) for at, name in enumerate(FIELDS, 1)]
        subjects, seqs, stamps = found
        if subjects is None or seqs is None or stamps is None:
            return None
        times = text_array(stamps).cast(pa.timestamp("ns", "UTC")).cast(pa.int64())
        return Rows(parsed_ints(seqs), times, subjects, _blocks(every(halves, 2, 0, count)), bodies)

    def _field(self, name: bytes, lines: pa.BinaryArray) -> pa.BinaryArray | None:
        """Return the values of headers; None where one has another name."""
        halves = split_on(lines, b": ", most=1)
        if len(halves) != 2 * len(lines) or not all_are(self._picker.every(halves, 2, 0, len(lines)), name):
            return None
        return self._picker.every(halves, 2, 1, len(lines))

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
    none = pc.equal(owns, one_row(NO_HEADERS)[0])
    if pc.all(none).as_py():
        return ()
    ended = pc.binary_join_element_wise(owns, one_row(2 * LINE_END)[0], one_row(b"")[0])
    return pc.if_else(none, one_row(b"")[0], ended)


def _own(headers: bytes) -> bytes:
    """Return the message's own headers; empty without any."""
    own = headers[: headers.rindex(PLACE_LINE) + 2]
    return own + b"\r\n" if own.count(b"\r\n") > 1 else b""


EVERYTHING = ">"


class Subjects:
    """Filters of a read: `pattern` is what a server is asked for, `of` takes what is wanted of that."""

    def __init__(self, filters: Sequence[str]) -> None:
        self.pattern = filters[0] if len(filters) == 1 else EVERYTHING
        self._several = len(filters) > 1
        self._wanted = subject_pattern(filters or (EVERYTHING,))

    def has(self, subject: bytes) -> bool:
        """Return whether a subject fits one of the filters."""
        return self._wanted.fullmatch(subject) is not None

    def of(self, rows: Rows) -> Rows:
        """Return the rows that are wanted of those that fit `pattern`, perhaps none."""
        if not self._several:
            return rows
        subjects = rows.subjects.to_pylist() if isinstance(rows.subjects, pa.Array) else rows.subjects
        keep = [at for at, subject in enumerate(subjects) if self.has(subject)]
        return rows if len(keep) == len(rows.seqs) else _taken(rows, keep)


def _taken(rows: Rows, keep: list[int]) -> Rows:
    """Return some of the rows."""
    places = int_array(keep)
    return Rows(
        rows.seqs.take(places),
        rows.times_ns.take(places) if rows.times_ns is not None else None,
        *(_some(column, places, keep) for column in (rows.subjects, rows.headers, rows.values)),
    )


def _some(column: Sequence[bytes] | pa.Array, places: pa.Int64Array, keep: list[int]) -> Sequence[bytes] | pa.Array:
    """Return some values of a column, which may be empty as a whole."""
    if isinstance(column, pa.Array):
        return column.take(places) if len(column) else column
    return [column[at] for at in keep] if column else ()


MAX_BYTES: Final = 4 << 20
"""Most bytes of one request: its answer occupies the server's connection until it ends."""
END_OF_BATCH: Final = 204
NOT_FOUND: Final = 404
NO_RESPONDERS: Final = 503


class DirectReader:
    """Batched direct gets, one after the other."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._inbox = task.link.new_inbox()
        self._subjects = Subjects(task.todo.filters)
        self._rest = b""
        self._open = False
        """Whether the answer to the last request has not ended."""
        self._exhausted = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are left.

        Raises ApiRefusedError, NotAuthorisedError, and ServerUnreachableError to ask anew.
        """
        link = self._task.link
        sid = link.subscribe(self._inbox)
        try:
            yield from self._run(b"%d" % sid)
        finally:
            link.unread(self._rest)
            with suppress(ServerUnreachableError):
                link.unsubscribe(sid)

    def _run(self, sid: bytes) -> Iterator[pa.RecordBatch]:
        task = self._task
        frames = DirectAnswers(self._inbox.encode(), sid, task.stream)
        while task.left:
            if not self._open:
                if self._exhausted:
                    if task.more_to_come():
                        raise ReadInterruptedError(
                            f"the replica that answers direct gets of {task.stream} lags behind its leader"
                        )
                    return
                self._ask()
            window = frames.window(task.gather(self._rest))
            self._rest = window.rest
            if window.rows:
                last = window.rows.seqs[-1].as_py()
                if len((chosen := self._subjects.of(window.rows)).seqs):
                    yield from task.handed_out(chosen)
                task.at = max(task.at, last + 1)
            for what in window.others:
                self._heed(what, sid)

    def _ask(self) -> None:
        task = self._task
        wanted = {"seq": task.at, "next_by_subj": self._subjects.pattern, "batch": min(task.left, task.limits.messages)}
        body = json.dumps({**wanted, "max_bytes": min(task.limits.bytes, MAX_BYTES)})
        subject = task.api.subject(f"DIRECT.GET.{task.stream}")
        task.link.send(f"PUB {subject} {self._inbox} {len(body)}\r\n{body}\r\n".encode())
        self._open = True

    def _heed(self, what: Message | bytes, sid: bytes) -> None:
        """Do what a line or a status wants; raises ApiRefusedError."""
        if isinstance(what, bytes):
            self._task.link.handle_line(what)
        elif what.sid == sid:
            status = status_of(what.headers)
            self._open = False
            if status == END_OF_BATCH:
                self._exhausted = header_of(what.headers, b"Nats-Num-Pending") == b"0"
            elif status == NOT_FOUND:
                self._exhausted = True
            elif status == NO_RESPONDERS:
                raise ApiRefusedError(
                    f"no server answers direct gets of {self._task.stream}: set allow_direct, or read with "
                    "transport=consumer or get"
                )
            else:
                raise ApiRefusedError(
                    f"a direct get of {self._task.stream} is refused: {status} {description_of(what.headers)}"
                )


STRETCH: Final = 256
"""Sequences that are asked for at once; a server lets some thousands of requests wait."""


class SingleReader:
    """Requests of STREAM.MSG.GET."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._inbox = task.link.new_inbox()
        self._subjects = Subjects(task.todo.filters)
        self._rest = b""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are left.

        Raises ApiRefusedError, NotAuthorisedError, and ServerUnreachableError to ask anew.
        """
        task = self._task
        sid = task.link.subscribe(f"{self._inbox}.*")
        try:
            while task.left:
                last = min(task.at + STRETCH - 1, task.todo.last)
                found = self._stretch(task.at, last, b"%d" % sid)
                wanted = [each for each in found if self._subjects.has(each["subject"].encode())]
                if wanted:
                    yield from task.handed_out(_single_rows(wanted))
                task.at = last + 1 if found else self._next(last + 1)
        finally:
            task.link.unread(self._rest)
            with suppress(ServerUnreachableError):
                task.link.unsubscribe(sid)

    def _next(self, seq: int) -> int:
        """Return the next sequence that there is, from one on; one behind the range where there is none."""
        task = self._task
        found = task.api.message(task.stream, {"seq": seq, "next_by_subj": self._subjects.pattern})
        return found.seq if found else task.todo.last + 1

    def _stretch(self, first: int, last: int, sid: bytes) -> list[dict[str, Any]]:
        """Return the messages from one sequence to another, as the API returns them."""
        subject = self._task.api.subject(f"STREAM.MSG.GET.{self._task.stream}")
        bodies = [(seq, json.dumps({"seq": seq})) for seq in range(first, last + 1)]
        lines = [f"PUB {subject} {self._inbox}.{seq} {len(body)}\r\n{body}\r\n" for seq, body in bodies]
        self._task.link.send("".join(lines).encode())
        answers: dict[int, dict[str, Any]] = {}
        while len(answers) < len(bodies):
            data = self._rest + self._task.link.read(self._task.limits.timeout_s)
            at = 0
            for end, frame in read_frames(data):
                at = end
                self._rest = data[at:]
                if isinstance(frame, bytes):
                    self._task.link.handle_line(frame)
                elif frame.sid == sid:
                    answers[int(frame.subject.rpartition(b".")[2])] = self._answer(frame)
            self._rest = data[at:]
        return [answers[seq] for seq in sorted(answers) if answers[seq]]

    def _answer(self, what: Message) -> dict[str, Any]:
        """Return the message of an answer; empty where the sequence is gone. Raises ApiRefusedError."""
        if status_of(what.headers):
            raise NoResponseError(f"no server answers requests for messages of {self._task.stream}")
        name = f"STREAM.MSG.GET.{self._task.stream}"
        answer = object_in(what.body, name)
        error: dict[str, Any] = answer.get("error") or {}
        if error and error.get("err_code") != NO_MESSAGE:
            refuse(name, error)
        found: dict[str, Any] = {} if error else answer["message"]
        return found


def _single_rows(messages: list[dict[str, Any]]) -> Rows:
    """Messages of the API as columns."""
    return Rows(
        int_array([each["seq"] for each in messages]),
        int_array([time_ns_of(each["time"]) for each in messages]),
        [each["subject"].encode() for each in messages],
        [base64.b64decode(each.get("hdrs") or "") for each in messages],
        [base64.b64decode(each.get("data") or "") for each in messages],
    )
