"""The documents that `natsctl pipeline` prints with -j."""

from __future__ import annotations

import msgspec


class Initialised(msgspec.Struct):
    """A new project, and the files written."""

    pipeline: str
    folder: str
    files: list[str]


class CheckedFault(msgspec.Struct):
    """A fault in a file; line 0 is the file as a whole."""

    file: str
    line: int
    text: str
    hint: str


class Checked(msgspec.Struct):
    """The result of the checks of a project by Spark and the server."""

    pipeline: str
    folder: str
    valid: bool
    faults: list[CheckedFault]


class Happened(msgspec.Struct):
    """One event of a run; `flow` is empty for an update as a whole, `state` for Spark's other messages.

    `read` is the number of sequences by stream that a completed flow has passed.
    """

    time: str
    flow: str
    state: str
    message: str
    error: str
    read: dict[str, int]


class Started(msgspec.Struct):
    """A detached run: its process, and the file of its events."""

    pipeline: str
    folder: str
    pid: int
    log: str


class StreamStatus(msgspec.Struct):
    """The progress of a flow in a stream; `bytes` is of average messages, `trouble` is empty without a problem."""

    stream: str
    seq: int
    last_seq: int
    sequences: int
    messages: int
    bytes: int
    trouble: str


class ConsumerStatus(msgspec.Struct):
    """The durable that a flow acknowledges through; `taken` and `again` count its messages, by the checkpoint.

    The other numbers are the server's: not delivered yet, not acknowledged yet, and of these delivered again.
    """

    stream: str
    consumer: str
    taken: int
    again: int
    pending: int
    ack_pending: int
    redelivered: int
    trouble: str


class FlowStatus(msgspec.Struct):
    """One flow: its state in the last run, its last finished batch, and the streams that it reads.

    `consumers` are of reads with `ackMode`; these have no position in a stream. `state` is empty if no run
    reported it; `batch` is -1 before the first, `in_flight` is whether another has begun.
    """

    flow: str
    target: str
    state: str
    updated: str
    batch: int
    in_flight: bool
    streams: list[StreamStatus]
    error: str
    consumers: list[ConsumerStatus]


class Status(msgspec.Struct):
    """A pipeline, or the query of a checkpoint; `state` is running, failed, stopped or new, `pid` 0 unless it runs."""

    pipeline: str
    folder: str
    state: str
    pid: int
    interval_s: float
    updates: int
    failed_updates: int
    updated: str
    error: str
    flows: list[FlowStatus]


class Known(msgspec.Struct):
    """A pipeline that was made or run here."""

    pipeline: str
    folder: str
    state: str
    pid: int
    updated: str


class Stopped(msgspec.Struct):
    """A detached run that was ended; `stopped` is false if none ran."""

    pipeline: str
    pid: int
    stopped: bool
