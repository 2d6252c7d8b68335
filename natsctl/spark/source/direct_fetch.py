"""Reading by direct gets, and message by message from the leader: the ways without a consumer.

Direct gets serve small ranges, and logins that may not create consumers. The server describes each answer in headers
after the message's own. If a server supports only one filter, the others are applied here.

A follower may answer, and lag; so the leader is asked before an early end is believed. A mirror with `mirror_direct`
may answer as well, and have other messages; its answers carry its own name and are refused.

The last way, if nothing else is allowed, reads message by message from the stream's leader. Requests for all sequences
of a stretch are sent at once. If a stretch has no matching message, one request finds the next one.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from natsctl.spark.source.arrays import int_array
from natsctl.spark.source.errors import ApiRefusedError, NoResponseError
from natsctl.spark.source.fetch_task import RangeReader, ReadInterruptedError, Task
from natsctl.spark.source.jetstream_api import NO_MESSAGE, check_origin, header_of, object_in, refuse, time_ns_of
from natsctl.spark.source.link import Message, description_of, read_frames, status_of
from natsctl.spark.source.rows import Rows
from natsctl.spark.source.source_options import subject_pattern

PLACE_LINE: Final = b"\r\nNats-Stream: "
"""The beginning of the server's own headers."""


def split_answers(data: bytes, sid: bytes, stream: str) -> tuple[list[Message], list[Message | bytes], bytes]:
    """Return the stored messages in some data, the other frames, and the bytes of a frame that is not whole.

    Raises ApiRefusedError for a message of a mirror of the stream.
    """
    messages: list[Message] = []
    others: list[Message | bytes] = []
    at = 0
    for end, frame in read_frames(data):
        at = end
        if isinstance(frame, Message) and frame.sid == sid and not status_of(frame.headers):
            check_origin(stream.encode(), frame.headers)
            messages.append(frame)
        else:
            others.append(frame)
    return messages, others, data[at:]


def direct_rows(messages: list[Message]) -> Rows:
    """Return the messages as columns; if a header occurs twice, the last is the server's own."""
    stamps = [time_ns_of(header_of(message.headers, b"Nats-Time-Stamp").decode()) for message in messages]
    return Rows(
        int_array([int(header_of(message.headers, b"Nats-Sequence")) for message in messages]),
        int_array(stamps),
        [header_of(message.headers, b"Nats-Subject") for message in messages],
        [_own(message.headers) for message in messages],
        [message.body for message in messages],
    )


def _own(headers: bytes) -> bytes:
    """Return the message's own headers, or b""."""
    own = headers[: headers.rindex(PLACE_LINE) + 2]
    return own + b"\r\n" if own.count(b"\r\n") > 1 else b""


EVERYTHING = ">"


MAX_BYTES: Final = 4 << 20
"""Maximum size of an answer: it occupies the server's connection until it ends."""
END_OF_BATCH: Final = 204
NOT_FOUND: Final = 404
NO_RESPONDERS: Final = 503


class _FilteringReader(RangeReader):
    def __init__(self, task: Task) -> None:
        super().__init__(task)
        filters = task.todo.filters or (EVERYTHING,)
        self._pattern = filters[0] if len(filters) == 1 else EVERYTHING
        self._fits = subject_pattern(filters).fullmatch


class DirectReader(_FilteringReader):
    """Batched direct gets, one at a time."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._open = False
        """Whether the answer to the last request has not ended."""
        self._exhausted = False

    def rows_to(self, sid: bytes) -> Iterator[pa.RecordBatch]:
        task = self._task
        while task.left:
            if not self._open:
                if self._exhausted:
                    if task.more_to_come():
                        raise ReadInterruptedError(
                            f"the replica that answers direct gets of {task.stream} lags behind its leader"
                        )
                    return
                self._ask()
            yield from self._window(task.gather(self._rest), sid)

    def _window(self, data: bytes, sid: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows of some data that begins with a frame, and handle its other frames."""
        task = self._task
        messages, others, self._rest = split_answers(data, sid, task.stream)
        if messages:
            last = int(header_of(messages[-1].headers, b"Nats-Sequence"))
            if chosen := [message for message in messages if self._fits(header_of(message.headers, b"Nats-Subject"))]:
                yield from task.handed_out(direct_rows(chosen))
            task.at = max(task.at, last + 1)
        for what in others:
            self._heed(what, sid)

    def _ask(self) -> None:
        task = self._task
        body = {"seq": task.at, "next_by_subj": self._pattern, "batch": min(task.left, task.limits.messages)}
        body["max_bytes"] = min(task.limits.bytes, MAX_BYTES)
        task.link.send(self.request(f"DIRECT.GET.{task.stream}", body))
        self._open = True

    def _heed(self, what: Message | bytes, sid: bytes) -> None:
        """Handle a line or a status. Raises ApiRefusedError."""
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
"""Sequences that are requested at once; a server queues some thousands of requests."""


class SingleReader(_FilteringReader):
    """Requests of STREAM.MSG.GET."""

    inbox_tokens = ".*"

    def rows_to(self, sid: bytes) -> Iterator[pa.RecordBatch]:
        task = self._task
        while task.left:
            last = min(task.at + STRETCH - 1, task.todo.last)
            found = self._stretch(task.at, last, sid)
            if fitting := [message for message in found if self._fits(message["subject"].encode())]:
                yield from task.handed_out(_single_rows(fitting))
            task.at = last + 1 if found else self._next(last + 1)

    def _next(self, seq: int) -> int:
        """Return the next matching sequence from `seq` on, or the one after the range."""
        task = self._task
        found = task.api.message(task.stream, {"seq": seq, "next_by_subj": self._pattern})
        return found.seq if found else task.todo.last + 1

    def _stretch(self, first: int, last: int, sid: bytes) -> list[dict[str, Any]]:
        verb, seqs = f"STREAM.MSG.GET.{self._task.stream}", range(first, last + 1)
        self._task.link.send(b"".join(self.request(verb, {"seq": seq}, f".{seq}") for seq in seqs))
        answers: dict[int, dict[str, Any]] = {}
        while len(answers) < len(seqs):
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
        """Return the message of an answer; empty if it was deleted. Raises ApiRefusedError."""
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
    return Rows(
        int_array([message["seq"] for message in messages]),
        int_array([time_ns_of(message["time"]) for message in messages]),
        [message["subject"].encode() for message in messages],
        [base64.b64decode(message.get("hdrs") or "") for message in messages],
        [base64.b64decode(message.get("data") or "") for message in messages],
    )
