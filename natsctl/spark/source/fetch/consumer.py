"""Reading by a consumer of the task's own: the quickest way, for all but small ranges.

Theory of operation. The consumer is ephemeral, in memory, acknowledges nothing and is deleted in the end, whatever the
end is. Two pulls are on their way at any time; the server deals messages out to both in turn, so what is counted is
how many messages are still owed by all of them together. Pulls do not wait: behind the last message the server says
so at once. That may be a server that lags behind the stream's leader, so the leader is asked before it is believed.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from natsctl.spark.source.columns.rows import Rows
from natsctl.spark.source.connection.api import ONE_SHOT, header_of
from natsctl.spark.source.connection.protocol import Message, description_of, status_of
from natsctl.spark.source.errors import ApiRefusedError, JetStreamSourceError, ServerUnreachableError
from natsctl.spark.source.fetch.frames import Deliveries, Window
from natsctl.spark.source.fetch.task import ReadInterruptedError, Task

BAD_REQUEST: Final = 400
NO_MESSAGES: Final = 404
TIMED_OUT: Final = 408
CONFLICT: Final = 409
SIZE_HEADER: Final = b"\r\nNats-Msg-Size: "
TOO_LARGE: Final = "Message Size Exceeds MaxBytes"
SERVED: Final = "Batch Completed"
"""Of a pull that got all it asked for, and could have taken more bytes."""


class ConsumerReader:
    """One consumer and what its pulls owe."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._name = f"natsctl-spark-{secrets.token_hex(6)}"
        self._inbox = task.link.new_inbox()
        self._pulls: dict[bytes, int] = {}
        """The number of messages that each pull asked for, by its subject."""
        self._owed = 0
        self._seen = 0
        """The last delivery that was seen."""
        self._pending = 0
        """The number of messages that the consumer has not delivered, as far as is known."""
        self._oversize = False
        """Whether the next message is larger than what a pull takes."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are left.

        Raises ApiRefusedError, NotAuthorisedError, and ServerUnreachableError to go on with another.
        """
        task = self._task
        try:
            made = task.api.create_consumer(task.stream, self._name, self._config())
            self._pending = int(made.get("num_pending") or 0)
            sid = task.link.subscribe(f"{self._inbox}.*")
            try:
                yield from self._run(b"%d" % sid)
            finally:
                with suppress(ServerUnreachableError):
                    task.link.unsubscribe(sid)
        finally:
            with suppress(JetStreamSourceError):  # it goes by itself, later, where it cannot be deleted
                task.api.delete_consumer(task.stream, self._name)

    def _config(self) -> dict[str, Any]:
        task = self._task
        config = {**ONE_SHOT, "deliver_policy": "by_start_sequence", "opt_start_seq": task.at}
        if task.todo.filters:
            config["filter_subjects"] = list(task.todo.filters)
        if not task.shape.wants_value:
            config["headers_only"] = True
        return config

    def _run(self, sid: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the rows; what was read and not used goes back to the link, which still has to ask for the deletion."""
        task, rest = self._task, b""
        wanted = task.shape
        frames = Deliveries(self._inbox.encode(), sid, values=wanted.wants_value, headers=wanted.wants_headers)
        try:
            while task.left:
                if not self._pending:
                    if task.more_to_come():
                        raise ReadInterruptedError(f"the consumer's server lags behind the leader of {task.stream}")
                    return
                self._pull()
                window = frames.window(task.gather(rest))
                rest = window.rest
                self._counted(window)
                if window.rows:
                    yield from task.handed_out(self._cleaned(window.rows))
                for what in window.others:
                    self._heed(what)
        finally:
            task.link.unread(rest)

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
        task = self._task
        reply = f"{self._inbox}.{len(self._pulls)}"
        body = json.dumps({"batch": messages, "no_wait": True, **more})
        subject = task.api.subject(f"CONSUMER.MSG.NEXT.{task.stream}.{self._name}")
        task.link.send(f"PUB {subject} {reply} {len(body)}\r\n{body}\r\n".encode())
        self._pulls[reply.encode()] = messages
        self._owed += messages

    def _counted(self, window: Window) -> None:
        """Count the deliveries of a window; raises ReadInterruptedError where one is missing."""
        if window.rows is None or window.first is None or window.last is None:
            return
        count = len(window.rows.seqs)
        if window.first.delivery != self._seen + 1 or window.last.delivery != self._seen + count:
            raise ReadInterruptedError(f"deliveries of {self._task.stream} behind {self._task.at} are missing")
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
        """Do what a line or a status wants; raises ReadInterruptedError, ApiRefusedError."""
        if isinstance(what, bytes):
            self._task.link.heed(what)
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
            raise ReadInterruptedError(f"the consumer on {self._task.stream} is gone: {status} {text}")
