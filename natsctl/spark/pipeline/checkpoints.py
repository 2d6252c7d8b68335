"""The progress of streaming queries, from the files of their checkpoints, and their lag.

A checkpoint has a file in `offsets` for each batch that was begun and one in `commits` for each that is done. The files
are read while Spark writes them: each is whole or absent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from natsctl.spark.source.driver_settings import server_settings
from natsctl.spark.source.errors import (
    ApiRefusedError,
    NoResponseError,
    OptionError,
    SourceNotAuthorisedError,
    StreamNotFoundError,
)
from natsctl.spark.source.jetstream_api import Asking
from natsctl.spark.source.offsets import Position, parse_offsets
from natsctl.spark.source.source_options import STREAM_READ, Options


@dataclass(frozen=True)
class Acked:
    """The durable consumer that a query acknowledges through, and the deliveries that the query has taken from it."""

    stream: str
    consumer: str
    taken: int
    again: int
    """Messages among `taken` that had been delivered before."""


@dataclass(frozen=True)
class CheckpointProgress:
    """The progress of a query: the last position of its last finished batch, by stream."""

    flow: str
    target: str
    folder: Path
    batch: int
    """The last finished batch, -1 before the first."""
    begun: int
    """The last batch that was begun; beyond `batch` while it is in flight."""
    done_ns: int
    """End of the last batch in nanoseconds since 1970; 0 before the first."""
    streams: dict[str, Position]
    consumers: tuple[Acked, ...] = ()
    """Consumers of sources with `ackMode`, as of the last batch that began; the server keeps their positions."""


def pipeline_progress(checkpoints: Path) -> list[CheckpointProgress]:
    """Return every flow of a pipeline that has a checkpoint, by name; for a restarted flow the newest."""
    found: dict[Path, int] = {}
    for offsets in sorted(checkpoints.glob("**/offsets")):
        if offsets.parent.name.isdigit():
            flow = offsets.parent.parent
            found[flow] = max(found.get(flow, 0), int(offsets.parent.name))
    progress = [
        read_progress(flow / str(number), unquote(flow.name), unquote(flow.parent.name))
        for flow, number in found.items()
    ]
    return sorted((each for each in progress if each), key=lambda each: each.flow)


def read_progress(folder: Path, flow: str = "", target: str = "") -> CheckpointProgress | None:
    """Return the progress of a checkpoint's query; None if the folder is not a checkpoint."""
    if not (folder / "offsets").is_dir():
        return None
    begun, done = _batches(folder / "offsets"), _batches(folder / "commits")
    batch = max(done, default=-1)
    if not done and begun:
        batch = min(begun) - 1
    return CheckpointProgress(
        flow=flow or folder.name,
        target=target,
        folder=folder,
        batch=batch,
        begun=max(begun, default=-1),
        done_ns=done[batch].stat().st_mtime_ns if batch in done else 0,
        streams=_streams(begun[batch]) if batch in begun else {},
        consumers=_consumers(begun[max(begun)]) if begun else (),
    )


def _batches(folder: Path) -> dict[int, Path]:
    if not folder.is_dir():
        return {}
    return {int(path.name): path for path in folder.iterdir() if path.name.isdigit()}


def _streams(path: Path) -> dict[str, Position]:
    """Return the positions of all JetStream sources of a batch; of two on one stream the lower one."""
    streams: dict[str, Position] = {}
    for document in _documents(path.read_text(encoding="utf-8")):
        for name, position in parse_offsets(document).items():
            if name not in streams or position.seq < streams[name].seq:
                streams[name] = position
    return streams


def _consumers(path: Path) -> tuple[Acked, ...]:
    """Return the durables of all sources of a batch that acknowledge."""
    found: dict[tuple[str, str], Acked] = {}
    for document in _documents(path.read_text(encoding="utf-8"), "acked"):
        for stream, one in document["acked"].items():
            acked = Acked(stream, str(one["consumer"]), int(one["taken"]), int(one["again"]))
            found[stream, acked.consumer] = acked
    return tuple(found.values())


def _documents(text: str, kind: str = "streams") -> Iterator[dict[str, Any]]:
    """Yield the offsets of one kind of JetStream source among the lines, however this Spark writes the others."""
    for line in re.split(r"[\r\n]+", text):
        try:
            said = json.loads(line)
        except ValueError:
            continue
        yield from _within(said, kind)


def _within(said: Any, kind: str) -> Iterator[dict[str, Any]]:
    if isinstance(said, str) and said.startswith("{"):
        try:
            said = json.loads(said)
        except ValueError:
            return
    if not isinstance(said, dict):
        return
    if kind in said and "v" in said:
        if kind == "acked" or _is_readable(said):
            yield said
        return
    for value in said.values():
        yield from _within(value, kind)


def _is_readable(said: dict[str, Any]) -> bool:
    try:
        parse_offsets(said)
    except (OptionError, KeyError, TypeError, ValueError):
        return False
    return True


@dataclass(frozen=True)
class Behind:
    """One stream of a query: `seq` was read last, of `last_seq`; the rest in sequences, messages and bytes."""

    stream: str
    seq: int
    last_seq: int
    sequences: int
    messages: int
    bytes: int
    """An estimate from the stream's average message size: servers report no more."""
    trouble: str = ""
    """Why it cannot be known, or the error that the query will meet when it continues."""


@dataclass(frozen=True)
class Waiting:
    """One durable of a query, as the server has it: the messages that it has not delivered, and those not acknowledged.

    `redelivered` counts messages that were delivered more than once and are not acknowledged yet.
    """

    acked: Acked
    pending: int = 0
    ack_pending: int = 0
    redelivered: int = 0
    trouble: str = ""
    """Why the numbers are not known."""


def waiting(options: dict[str, str], progress: Sequence[CheckpointProgress]) -> dict[str, list[Waiting]]:
    """Return the state of the durables by the folder of each checkpoint. Raises the data source's errors."""
    asking = Asking(server_settings(Options(options, STREAM_READ), {}))
    try:
        return {str(each.folder): [_waiting(asking, consumer) for consumer in each.consumers] for each in progress}
    finally:
        asking.close()


_NUMBERS = ("pending", "ack_pending", "redelivered")


def _waiting(asking: Asking, acked: Acked) -> Waiting:
    try:
        info = asking(lambda api: api.ask(f"CONSUMER.INFO.{acked.stream}.{acked.consumer}"))
    except (ApiRefusedError, StreamNotFoundError):
        return Waiting(acked, trouble="the consumer was deleted")
    except (SourceNotAuthorisedError, NoResponseError):
        return Waiting(acked, trouble="this login cannot see the consumer")
    pending, ack_pending, redelivered = (int(info.get(f"num_{name}") or 0) for name in _NUMBERS)
    return Waiting(acked, pending, ack_pending, redelivered)


def lags(options: dict[str, str], progress: Sequence[CheckpointProgress]) -> dict[str, list[Behind]]:
    """Return the lag by the folder of each checkpoint. Raises the data source's errors."""
    asking = Asking(server_settings(Options(options, STREAM_READ), {}))
    try:
        states = {name: _stream(asking, name) for name in sorted({name for each in progress for name in each.streams})}
        return {str(each.folder): list(_of(asking, each.streams.items(), states)) for each in progress}
    finally:
        asking.close()


def _stream(asking: Asking, name: str) -> dict[str, Any] | None:
    try:
        return asking(lambda api: api.stream_info(name))
    except StreamNotFoundError:
        return None


def _of(
    asking: Asking, positions: Iterable[tuple[str, Position]], states: dict[str, dict[str, Any] | None]
) -> Iterable[Behind]:
    for name, position in positions:
        info = states[name]
        if info is None:
            yield Behind(name, position.seq, 0, 0, 0, 0, "the stream was deleted")
            continue
        yield _behind(asking, name, position, info)


def _behind(asking: Asking, name: str, position: Position, info: dict[str, Any]) -> Behind:
    state = info["state"]
    first, last, messages = int(state["first_seq"]), int(state["last_seq"]), int(state["messages"])
    seq, trouble = position.seq, ""
    if not position.same_stream(info["created"]):
        seq, trouble = 0, "the stream was recreated since: the query stops, or restarts without failOnDataLoss"
    elif seq > last:
        return Behind(name, seq, last, 0, 0, 0, "the stream ends before: an older backup was restored")
    elif first > seq + 1 and last >= first:
        trouble = f"sequences {seq + 1} to {first - 1} were removed"
    left = _messages(asking, name, max(seq + 1, first), state) if last > seq and messages else 0
    mean = int(state["bytes"]) / messages if messages else 0
    return Behind(name, seq, last, last - seq, left, round(left * mean), trouble)


def _messages(asking: Asking, name: str, first: int, state: dict[str, Any]) -> int:
    """Return the number of messages from a sequence on: computed if nothing was deleted in between."""
    last = int(state["last_seq"])
    if first > last:
        return 0
    if int(state["messages"]) == last - int(state["first_seq"]) + 1:
        return last - first + 1
    return asking(lambda api: api.pending(name, first))
