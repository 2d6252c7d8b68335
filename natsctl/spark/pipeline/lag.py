"""How far behind its streams a query is: what the server has beyond what the checkpoint says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from natsctl.spark.pipeline.checkpoints import Progress
from natsctl.spark.source.connection.asking import Asking
from natsctl.spark.source.errors import StreamNotFound
from natsctl.spark.source.options.driver_settings import server_settings
from natsctl.spark.source.options.options import Options
from natsctl.spark.source.options.table import STREAM_READ
from natsctl.spark.source.reading.offsets import Position


@dataclass(frozen=True)
class Behind:
    """One stream of a query: `seq` was read last, of `last_seq`; what is left in sequences, messages and bytes."""

    stream: str
    seq: int
    last_seq: int
    sequences: int
    messages: int
    bytes: int
    """Of the stream's average message, as servers tell no more."""
    trouble: str = ""
    """Why it can not be known, or what the query will meet when it goes on."""


def lags(options: dict[str, str], progress: Sequence[Progress]) -> dict[str, list[Behind]]:
    """What is behind, by the folder of each checkpoint. Raises what the data source raises."""
    asking = Asking(server_settings(Options(options, STREAM_READ), {}))
    try:
        states = {name: _stream(asking, name) for name in sorted({name for each in progress for name in each.streams})}
        return {str(each.folder): list(_of(asking, each.streams.items(), states)) for each in progress}
    finally:
        asking.close()


def _stream(asking: Asking, name: str) -> dict[str, Any] | None:
    try:
        return asking(lambda api: api.stream_info(name))
    except StreamNotFound:
        return None


def _of(
    asking: Asking, positions: Iterable[tuple[str, Position]], states: dict[str, dict[str, Any] | None]
) -> Iterable[Behind]:
    for name, position in positions:
        info = states[name]
        if info is None:
            yield Behind(name, position.seq, 0, 0, 0, 0, "the stream is gone")
            continue
        yield _behind(asking, name, position, info)


def _behind(asking: Asking, name: str, position: Position, info: dict[str, Any]) -> Behind:
    state = info["state"]
    first, last, messages = int(state["first_seq"]), int(state["last_seq"]), int(state["messages"])
    seq, trouble = position.seq, ""
    if not position.same_stream(info["created"]):
        seq, trouble = 0, "the stream was made again since: the query stops, or begins anew without failOnDataLoss"
    elif seq > last:
        return Behind(name, seq, last, 0, 0, 0, "the stream ends before: an older backup was restored")
    elif first > seq + 1 and last >= first:
        trouble = f"sequences {seq + 1} to {first - 1} are gone"
    left = _messages(asking, name, max(seq + 1, first), state) if last > seq and messages else 0
    mean = int(state["bytes"]) / messages if messages else 0
    return Behind(name, seq, last, last - seq, left, round(left * mean), trouble)


def _messages(asking: Asking, name: str, first: int, state: dict[str, Any]) -> int:
    """How many messages there are from a sequence on: counted here where nothing was deleted in between."""
    last = int(state["last_seq"])
    if first > last:
        return 0
    if int(state["messages"]) == last - int(state["first_seq"]) + 1:
        return last - first + 1
    return asking(lambda api: api.pending(name, first))
