"""The position of a streaming query: by stream the last sequence it has read, as Spark's checkpoint keeps it.

`{"v": 1, "streams": {"ORDERS": {"seq": 400000, "created": "2026-11-21T03:38:08.293843492Z"}}}`. A start is
exclusive and an end inclusive, so that an empty stream is at 0. `created` is the identity of a stream. Where a batch
does not go on from the batch before, because a stream was found by its pattern or is another one of the same name, the
end of that batch says `since`: the sequence behind which it begins, so that the batch is the same whenever it runs.
`known` is where the stream ended when the offset was made, and `gone` how many messages between the two were deleted
by then, if any: what is deleted later was lost to the query. `cuts` are the last sequences of the parts of the batch
that ends here, but for the last part: a batch that is run again has the same parts, on however many cores. Offsets of
earlier versions have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from natsctl.spark.source.errors import OptionError
from natsctl.spark.source.options.values import moment_ns

VERSION: Final = 1


@dataclass(frozen=True)
class Position:
    """The position up to which one stream has been read."""

    seq: int
    created: str
    since: int | None = None
    known: int | None = None
    gone: int = 0
    cuts: tuple[int, ...] | None = None

    def same_stream(self, created: str) -> bool:
        """Return whether it is of the stream that was made at that time."""
        return moment_ns(self.created) == moment_ns(created)


Offsets = Mapping[str, Position]


def encode_offsets(offsets: Offsets) -> dict[str, Any]:
    """Return the offsets as JSON has them; equal ones give equal texts."""
    streams: dict[str, dict[str, Any]] = {}
    for name in sorted(offsets):
        position = offsets[name]
        streams[name] = {"seq": position.seq, "created": position.created}
        if position.since is not None:
            streams[name]["since"] = position.since
        if position.known is not None:
            streams[name]["known"] = position.known
        if position.gone:
            streams[name]["gone"] = position.gone
        if position.cuts is not None:
            streams[name]["cuts"] = list(position.cuts)
    return {"v": VERSION, "streams": streams}


def parse_offsets(said: Mapping[str, Any]) -> dict[str, Position]:
    """Return the offsets of a checkpoint; raises OptionError for those of another version or of another source."""
    if said.get("v") != VERSION or not isinstance(said.get("streams"), dict):
        raise OptionError(
            f"the checkpoint's offsets are not of this source, or of a newer version than {VERSION}: give the query a "
            "checkpoint of its own, or use the natsctl that wrote it"
        )
    return {name: _position(each) for name, each in said["streams"].items()}


def _position(said: Mapping[str, Any]) -> Position:
    cuts = said.get("cuts")
    return Position(
        int(said["seq"]),
        str(said["created"]),
        said.get("since"),
        said.get("known"),
        said.get("gone", 0),
        None if cuts is None else tuple(map(int, cuts)),
    )
