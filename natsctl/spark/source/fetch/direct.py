"""Reading by direct gets: no consumer, so the way for small ranges, and where a consumer must not or cannot be.

A follower may answer, and lag behind; so the leader is asked before an early end is believed. A mirror with
`mirror_direct` may answer as well, and have other messages; it gives its own name, and is not listened to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pyarrow as pa

from natsctl.spark.source.connection.api import header_of
from natsctl.spark.source.connection.protocol import Message, description_of, status_of
from natsctl.spark.source.errors import ApiRefusedError, ServerUnreachableError
from natsctl.spark.source.fetch.direct_frames import DirectAnswers
from natsctl.spark.source.fetch.subjects import Subjects
from natsctl.spark.source.fetch.task import ReadInterruptedError, Task

MOST_BYTES: Final = 4 << 20
"""Of one request: it holds the server's connection for as long as it takes."""
END_OF_BATCH: Final = 204
NOT_FOUND: Final = 404
NOBODY: Final = 503


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
                        raise ReadInterruptedError(f"who answers direct gets of {task.stream} lags behind its leader")
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
        body = json.dumps({**wanted, "max_bytes": min(task.limits.bytes, MOST_BYTES)})
        subject = task.api.subject(f"DIRECT.GET.{task.stream}")
        task.link.send(f"PUB {subject} {self._inbox} {len(body)}\r\n{body}\r\n".encode())
        self._open = True

    def _heed(self, what: Message | bytes, sid: bytes) -> None:
        """Do what a line or a status wants; raises ApiRefusedError."""
        if isinstance(what, bytes):
            self._task.link.heed(what)
        elif what.sid == sid:
            status = status_of(what.headers)
            self._open = False
            if status == END_OF_BATCH:
                self._exhausted = header_of(what.headers, b"Nats-Num-Pending") == b"0"
            elif status == NOT_FOUND:
                self._exhausted = True
            elif status == NOBODY:
                raise ApiRefusedError(
                    f"nobody answers direct gets of {self._task.stream}: set allow_direct, or read with "
                    "transport=consumer or get"
                )
            else:
                raise ApiRefusedError(
                    f"a direct get of {self._task.stream} is refused: {status} {description_of(what.headers)}"
                )
