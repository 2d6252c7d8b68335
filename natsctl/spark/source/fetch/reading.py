"""Reading a range by whichever way the stream and the login allow, over lost connections and servers that go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import pyarrow as pa

from natsctl.spark.source.columns.rows import RowShape
from natsctl.spark.source.connection.link import Link
from natsctl.spark.source.connection.settings import ServerSettings
from natsctl.spark.source.errors import (
    ApiRefusedError,
    ConnectionLostError,
    NoResponseError,
    NotAuthorisedError,
    ServerUnreachableError,
)
from natsctl.spark.source.fetch.block_reader import BlockReader
from natsctl.spark.source.fetch.consumer import ConsumerReader
from natsctl.spark.source.fetch.direct import DirectReader
from natsctl.spark.source.fetch.ranges import FetchLimits, ReadRange, Transport
from natsctl.spark.source.fetch.single import SingleReader
from natsctl.spark.source.fetch.task import ReadInterruptedError, Task

SMALL_RANGE: Final = 5_000
"""So few messages are there sooner by direct get than a consumer is made."""
LARGE_BYTES: Final = 4 << 10
"""Of a message on average: blocks hold payloads, and where those are not wanted a consumer leaves them out."""


class Reader(Protocol):
    """One way to read what is left of a task."""

    def __init__(self, task: Task) -> None: ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the rows that are left."""


Info = dict[str, Any]
Look = Callable[[Info], object]
"""Is shown a STREAM.INFO answer, and may raise."""

READERS: Final[dict[Transport, type[Reader]]] = {
    "blocks": BlockReader,
    "consumer": ConsumerReader,
    "direct": DirectReader,
    "get": SingleReader,
}


def read_range(
    settings: ServerSettings, todo: ReadRange, limits: FetchLimits, columns: RowShape, look: Look | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range, in order, each once; the stream is looked at before reading begins, and begins again.

    Raises StreamNotFoundError, ApiRefusedError, NotAuthorisedError, ServerUnreachableError after all retries,
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
        refused: ApiRefusedError | NotAuthorisedError | ServerUnreachableError | None = None
        for way in ways:
            try:
                yield from _persistently(task, READERS[way], look, known)
            except (ApiRefusedError, NotAuthorisedError, ReadInterruptedError, NoResponseError) as failure:
                if isinstance(failure, NoResponseError) and way != "blocks":
                    raise  # a block may be larger than what some server on its way lets through, and others be not
                refused = refused or failure
            else:
                return
        if refused:
            raise refused


def _persistently(task: Task, reader: type[Reader], look: Look | None, known: Info | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows that are left, begun anew where something stops short; any progress resets the count of retries.

    `known` is what the stream's info is, if it was asked just now.
    """
    left = task.settings.retries
    while task.left:
        before = task.at
        try:
            if look or reader is BlockReader:
                now, known = known or task.look(), None
                if look:
                    look(now)
            yield from reader(task).batches()
        except (ConnectionLostError, NoResponseError, ReadInterruptedError) as failure:
            left = task.settings.retries if task.at > before else left - 1
            known = None
            if left < 0:
                raise
            if isinstance(failure, ConnectionLostError):
                task.link.reopen()
            elif task.at == before:
                task.pause()
        else:
            return


def _ways(task: Task) -> tuple[Info | None, list[Transport]]:
    """Return the stream's info, if it may be known, and the ways to read, the best one first.

    A consumer on a work queue or a stream that lives by interest would take part in who has seen what, so they are
    read without.
    """
    try:
        info = task.look()
    except (ApiRefusedError, NotAuthorisedError):
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
    """Return whether blocks are worth reading: not for headers alone of messages with much behind them."""
    return task.shape.wants_value or state.get("bytes", 0) <= LARGE_BYTES * max(state.get("messages", 0), 1)
