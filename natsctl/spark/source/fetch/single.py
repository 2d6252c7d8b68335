"""Reading message by message from the stream's leader: the last way, where nothing else is allowed.

Requests for the sequences of a stretch are all on their way at once. A stretch without any message of the read is left
by one request for the next one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from natsctl.spark.source.columns.arrays import int_array
from natsctl.spark.source.columns.rows import Rows
from natsctl.spark.source.connection.api import NO_MESSAGE, refuse, time_ns_of
from natsctl.spark.source.connection.protocol import Message, read_frames, status_of
from natsctl.spark.source.errors import NoResponseError, ServerUnreachableError
from natsctl.spark.source.fetch.subjects import Subjects
from natsctl.spark.source.fetch.task import Task

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
                    yield from task.handed_out(_rows(wanted))
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
                    self._task.link.heed(frame)
                elif frame.sid == sid:
                    answers[int(frame.subject.rpartition(b".")[2])] = self._answer(frame)
            self._rest = data[at:]
        return [answers[seq] for seq in sorted(answers) if answers[seq]]

    def _answer(self, what: Message) -> dict[str, Any]:
        """Return the message of an answer; empty where the sequence is gone. Raises ApiRefusedError."""
        if status_of(what.headers):
            raise NoResponseError(f"nobody answers requests for messages of {self._task.stream}")
        answer: dict[str, Any] = json.loads(what.body)
        error: dict[str, Any] = answer.get("error") or {}
        if error and error.get("err_code") != NO_MESSAGE:
            refuse(f"STREAM.MSG.GET.{self._task.stream}", error)
        found: dict[str, Any] = {} if error else answer["message"]
        return found


def _rows(messages: list[dict[str, Any]]) -> Rows:
    """Messages of the API as columns."""
    return Rows(
        int_array([each["seq"] for each in messages]),
        int_array([time_ns_of(each["time"]) for each in messages]),
        [each["subject"].encode() for each in messages],
        [base64.b64decode(each.get("hdrs") or "") for each in messages],
        [base64.b64decode(each.get("data") or "") for each in messages],
    )
