"""Reading a range by whichever way the stream and the login allow, over lost connections and servers that go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import pyarrow as pa

from natsctl.spark.source.columns.rows import RowShape
from natsctl.spark.source.connection.link import Link
from natsctl.spark.source.connection.settings import ServerSettings
from natsctl.spark.source.errors import ApiRefused, ConnectionLost, NoAnswer, NotAuthorised
from natsctl.spark.source.fetch.consumer import ConsumerReader
from natsctl.spark.source.fetch.direct import DirectReader
from natsctl.spark.source.fetch.ranges import FetchLimits, ReadRange, Transport
from natsctl.spark.source.fetch.single import SingleReader
from natsctl.spark.source.fetch.task import Interrupted, Task

SMALL_RANGE: Final = 5_000
"""So few messages are there sooner by direct get than a consumer is made."""


class Reader(Protocol):
    """One way to read what is left of a task."""

    def __init__(self, task: Task) -> None: ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows that are left."""


Look = Callable[[dict[str, Any]], object]
"""Is shown a STREAM.INFO answer, and may raise."""

READERS: Final[dict[Transport, type[Reader]]] = {
    "consumer": ConsumerReader,
    "direct": DirectReader,
    "get": SingleReader,
}


def read_range(
    settings: ServerSettings, todo: ReadRange, limits: FetchLimits, columns: RowShape, look: Look | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, in order, each once; the stream is looked at before reading begins, and begins again.

    Raises StreamNotFound, ApiRefused, NotAuthorised, ServerUnreachable after all retries, ValueDoesNotFit. However it
    ends, nothing is left on the server.
    """
    if todo.first > todo.last:
        return
    with Link.open(settings) as link:
        task = Task(link, settings, todo, limits, columns)
        ways = [todo.transport] if todo.transport != "auto" else _ways(task)
        refused: ApiRefused | NotAuthorised | Interrupted | None = None
        for way in ways:
            try:
                yield from _persistently(task, READERS[way], look)
            except (ApiRefused, NotAuthorised, Interrupted) as failure:
                refused = refused or failure
            else:
                return
        if refused:
            raise refused


def _persistently(task: Task, reader: type[Reader], look: Look | None) -> Iterator[pa.RecordBatch]:
    """The rows that are left, begun anew where something stops short; the count of retries, too, after any progress."""
    left = task.settings.retries
    while task.left:
        before = task.at
        try:
            if look:
                look(task.api.stream_info(task.stream))
            yield from reader(task).batches()
        except (ConnectionLost, NoAnswer, Interrupted) as failure:
            left = task.settings.retries if task.at > before else left - 1
            if left < 0:
                raise
            if isinstance(failure, ConnectionLost):
                task.link.reopen()
            elif task.at == before:
                task.pause()
        else:
            return


def _ways(task: Task) -> list[Transport]:
    """The ways to read, the best one first.

    A consumer on a work queue or a stream that lives by interest would take part in who has seen what, so they are
    read without.
    """
    try:
        config: dict[str, Any] = task.api.stream_info(task.stream)["config"]
    except (ApiRefused, NotAuthorised):
        return ["consumer", "direct", "get"]
    if config.get("retention", "limits") != "limits":
        return ["direct", "get"] if config.get("allow_direct") else ["get"]
    if not config.get("allow_direct"):
        return ["consumer", "get"]
    return ["direct", "consumer", "get"] if task.left <= SMALL_RANGE else ["consumer", "direct", "get"]
