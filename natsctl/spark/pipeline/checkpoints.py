"""How far streaming queries have read, from the files of their checkpoints.

A checkpoint has a file in `offsets` for each batch that was begun and one in `commits` for each that is done. The files
are read while Spark writes them: each is whole or absent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from natsctl.spark.source.errors import OptionFault
from natsctl.spark.source.reading.offsets import Position, parse_offsets


@dataclass(frozen=True)
class Progress:
    """Where one query stands: what its last finished batch read up to, by stream."""

    flow: str
    target: str
    folder: Path
    batch: int
    """The last finished batch, -1 before the first."""
    begun: int
    """The last batch that was begun; beyond `batch` while it is in flight."""
    done_ns: int
    """When the last batch was finished, in nanoseconds since 1970; 0 before the first."""
    streams: dict[str, Position]


def pipeline_progress(checkpoints: Path) -> list[Progress]:
    """Every flow of a pipeline that has a checkpoint, by name; of a flow that began anew the newest."""
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


def read_progress(folder: Path, flow: str = "", target: str = "") -> Progress | None:
    """Where the query of a checkpoint folder stands; None where the folder is none."""
    if not (folder / "offsets").is_dir():
        return None
    begun, done = _batches(folder / "offsets"), _batches(folder / "commits")
    batch = max(done, default=-1)
    if not done and begun:
        batch = min(begun) - 1
    return Progress(
        flow=flow or folder.name,
        target=target,
        folder=folder,
        batch=batch,
        begun=max(begun, default=-1),
        done_ns=done[batch].stat().st_mtime_ns if batch in done else 0,
        streams=_streams(begun[batch]) if batch in begun else {},
    )


def query_id(folder: Path) -> str:
    """The id of the query that a checkpoint is of, "" where it has not begun."""
    try:
        return str(json.loads((folder / "metadata").read_text(encoding="utf-8")).get("id", ""))
    except (OSError, ValueError):
        return ""


def _batches(folder: Path) -> dict[int, Path]:
    if not folder.is_dir():
        return {}
    return {int(path.name): path for path in folder.iterdir() if path.name.isdigit()}


def _streams(path: Path) -> dict[str, Position]:
    """The positions of all JetStream sources of one batch; of two sources of one stream the one that is behind."""
    found: dict[str, Position] = {}
    for said in _documents(path.read_text(encoding="utf-8")):
        for name, position in parse_offsets(said).items():
            if name not in found or position.seq < found[name].seq:
                found[name] = position
    return found


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """The offsets of JetStream sources among the lines, whichever way this Spark writes the others."""
    for line in re.split(r"[\r\n]+", text):
        try:
            said = json.loads(line)
        except ValueError:
            continue
        yield from _within(said)


def _within(said: Any) -> Iterator[dict[str, Any]]:
    if isinstance(said, str) and said.startswith("{"):
        try:
            said = json.loads(said)
        except ValueError:
            return
    if not isinstance(said, dict):
        return
    if "streams" in said and "v" in said:
        try:
            parse_offsets(said)
        except (OptionFault, KeyError, TypeError, ValueError):
            return
        yield said
        return
    for value in said.values():
        yield from _within(value)
