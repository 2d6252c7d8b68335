"""Positions of streaming queries as Spark's checkpoint keeps them, by stream, and the report of lost messages.

`{"v": 1, "streams": {"ORDERS": {"seq": 400000, "created": "2026-11-21T03:38:08.293843492Z"}}}`. A start is
exclusive and an end inclusive, so that an empty stream is at 0. `created` is the identity of a stream. If a batch
does not go on from the batch before, because a stream was found by its pattern or is another one of the same name, the
end of that batch has `since`: the sequence before its first one, so that the batch is the same whenever it runs.
`known` is the end of the stream when the offset was made, and `gone` the number of messages between the two deleted by
then, if any: later deletions are losses for the query. `cuts` are the last sequences of the parts of the batch that
ends here, without the last part: a batch that is run again has the same parts for any number of cores. Offsets of
earlier versions have no cuts.

Removed messages that should be read are reported exactly, or skipped if that is allowed.

| condition | error | else |
|---|---|---|
| the stream is another one of the same name | StreamRecreatedError | reading restarts |
| it has become another one since a task was planned | StreamRecreatedError | the task reads the present messages |
| it ends before where reading stood | SequenceResetError | reading waits |
| its first message is after the read position | DataLossError | reading goes on at the first message |
| messages in between were deleted since it was looked at last | DataLossError | reading goes on without them |

The last two are not a loss if the stream removes messages by design: a limit by subject replaces older messages by
newer ones, and a work queue or a stream with interest drops consumed messages. Messages that had been deleted before a
query saw the stream, or that were on subjects it does not read, are not a loss either.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from natsctl.spark.source.errors import DataLossError, OptionError, SequenceResetError, StreamRecreatedError
from natsctl.spark.source.source_options import moment_ns

VERSION: Final = 1


@dataclass(frozen=True)
class Position:
    """The last position of a stream that was read."""

    seq: int
    created: str
    since: int | None = None
    known: int | None = None
    gone: int = 0
    cuts: tuple[int, ...] | None = None

    def same_stream(self, created: str) -> bool:
        return moment_ns(self.created) == moment_ns(created)


Offsets = Mapping[str, Position]


def encode_offsets(offsets: Offsets) -> dict[str, Any]:
    """Return the offsets as JSON has them; equal ones give equal texts."""
    streams: dict[str, dict[str, Any]] = {}
    for name in sorted(offsets):
        position = offsets[name]
        streams[name] = {"seq": position.seq, "created": position.created}
        cuts = None if position.cuts is None else list(position.cuts)
        more = {"since": position.since, "known": position.known, "gone": position.gone or None, "cuts": cuts}
        streams[name] |= {key: value for key, value in more.items() if value is not None}
    return {"v": VERSION, "streams": streams}


def parse_offsets(said: Mapping[str, Any]) -> dict[str, Position]:
    """Return the offsets of a checkpoint; raises OptionError for another version or another source."""
    if said.get("v") != VERSION or not isinstance(said.get("streams"), dict):
        raise OptionError(
            f"the checkpoint's offsets are not of this source, or of a newer version than {VERSION}: give the query a "
            "checkpoint of its own, or use the natsctl that wrote it"
        )
    return {name: _position(stream) for name, stream in said["streams"].items()}


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


MAX_DELETED: Final = 100_000
"""Maximum deleted messages for requesting their sequences: about a megabyte."""
_MAX_SPANS: Final = 10
_GO_ON: Final = "start with another checkpoint or offsets, or let the query continue with failOnDataLoss=false"


@dataclass(frozen=True)
class StreamBounds:
    """The facts of STREAM.INFO that planning needs."""

    name: str
    created: str
    first: int
    last: int
    messages: int
    bytes: int
    retention: str
    per_subject: int
    limits: tuple[str, ...]
    """The limits that remove old messages, as texts."""
    thins_out: bool = False
    """Whether messages inside are removed without being deleted by a client."""
    has_own_ends: bool = False
    """Whether single messages expire or are replaced, by TTLs, schedules or rollups."""
    num_deleted: int = 0
    deleted: tuple[int, ...] | None = None
    """The sequences of deleted messages, ascending; None if unknown."""

    @property
    def whole(self) -> bool:
        """Return whether every sequence from the first to the last has its message."""
        return self.messages == self.last - self.first + 1

    @property
    def by_design(self) -> bool:
        """Return whether messages are removed although no reader was late."""
        return self.retention != "limits" or self.per_subject > 0

    @property
    def why_beginning_moves(self) -> str:
        """Return why messages at the beginning are removed although no reader was late; "" if they should not be.

        If a limit of age, number or size removes messages too, the cause is unknown, and they count as lost.
        """
        if self.per_subject > 0:
            return "as a limit by subject wants it"
        if self.retention != "limits":
            return f"as its retention {self.retention!r} wants it"
        return "by a TTL, a schedule or a rollup" if self.has_own_ends and set(self.limits) <= {_OWN_TTL} else ""


def stream_state(answer: dict[str, Any]) -> StreamBounds:
    config, state = answer["config"], answer["state"]
    return StreamBounds(
        name=config["name"],
        created=answer["created"],
        first=max(state.get("first_seq", 0), 1),
        last=state.get("last_seq", 0),
        messages=state.get("messages", 0),
        bytes=state.get("bytes", 0),
        retention=config.get("retention", "limits"),
        per_subject=max(config.get("max_msgs_per_subject", 0), 0),
        limits=_limits(config),
        thins_out=any(config.get(name) for name in (*_OWN_ENDS, "mirror")),
        has_own_ends=any(config.get(name) for name in _OWN_ENDS),
        num_deleted=state.get("num_deleted", 0),
        deleted=tuple(state.get("deleted") or ()) if "deleted" in state or not state.get("num_deleted") else None,
    )


_OWN_TTL: Final = "the messages' own TTL"
_OWN_ENDS: Final = ("allow_rollup_hdrs", "allow_msg_ttl", "allow_msg_schedules")
"""Features that let messages replace earlier ones, or expire separately. A mirror may never get a message."""


def standing_at(seq: int, now: StreamBounds, since: int | None = None) -> Position:
    """Return the position of a query that has read a stream up to a sequence, and its knowledge of the rest."""
    if now.deleted is None:
        return Position(seq, now.created, since)
    return Position(seq, now.created, since, max(now.last, seq), sum(one > seq for one in now.deleted))


def _limits(config: dict[str, Any]) -> tuple[str, ...]:
    found = []
    if config.get("max_age", 0) > 0:
        found.append(f"max_age {config['max_age'] / 1e9:g}s")
    found += [f"{name} {config[name]}" for name in ("max_msgs", "max_bytes") if config.get(name, -1) > 0]
    if config.get("allow_msg_ttl"):
        found.append(_OWN_TTL)
    return tuple(found)


def check_identity(stood: Position, now: StreamBounds, *, fail: bool) -> bool:
    """Return whether a stream is the one that was read before; raises StreamRecreatedError if that is an error."""
    if stood.same_stream(now.created):
        return True
    report_loss(
        StreamRecreatedError(
            f"{now.name} was deleted and recreated, or restored from a backup: offsets up to {stood.seq} are of the "
            f"stream of {stood.created}, and this one is of {now.created} with {span(now.first, now.last)}. If it has "
            f'the same messages, go on with a new checkpoint and startingOffsets {{"{now.name}": {stood.seq + 1}}}; '
            "else what was not read is gone, and failOnDataLoss=false begins with the new stream's first message"
        ),
        fail=fail,
    )
    return False


def check_planned(first: int, last: int, created: str, now: StreamBounds, *, fail: bool) -> bool:
    """Return whether a stream is the one that a read was planned for; raises StreamRecreatedError if it must be."""
    if Position(last, created).same_stream(now.created):
        return True
    report_loss(
        StreamRecreatedError(
            f"{now.name} was deleted and recreated, or restored from a backup, since it was looked up: "
            f"{span(first, last)} were to be read of the stream of {created}, and this one is of {now.created} with "
            f"{span(now.first, now.last)}. Load it anew, or start the streaming query again"
        ),
        fail=fail,
    )
    return False


def check_end(seq: int, now: StreamBounds, *, fail: bool) -> bool:
    """Return whether a stream still reaches the read position; raises SequenceResetError if not allowed."""
    if now.last >= seq:
        return True
    report_loss(
        SequenceResetError(
            f"{now.name} ends at {now.last}, and sequence {seq} was read or is to be read: an older state of it was "
            f"restored, or the offsets are not its own; {_GO_ON}, which waits until the stream has come that far"
        ),
        fail=fail,
    )
    return False


def check_said(option: str, seq: int, name: str, end: int, *, fail: bool) -> None:
    """Raise SequenceResetError if the sequence of an option is after a stream's end, unless allowed."""
    if end < seq:
        report_loss(
            SequenceResetError(
                f"option {option}: it says {seq}, and {name} ends at {end}: an older state was restored, "
                f"or the offset is another stream's; give one up to {end}, or failOnDataLoss=false, with which "
                "a batch reads what is there, and a streaming query waits until the stream has come that far"
            ),
            fail=fail,
        )


def check_begin(first: int, last: int, now: StreamBounds, *, fail: bool) -> int:
    """Return the first readable sequence from `first` to `last`.

    Raises DataLossError if messages before that were removed and missed.
    """
    if now.first <= first or first > last:
        return first
    gone = min(now.first - 1, last)
    if why := now.why_beginning_moves:
        if fail:
            _note(f"{now.name}: {span(first, gone)} went {why}; reading goes on at {gone + 1}")
    else:
        report_loss(
            DataLossError(f"{now.name}: {span(first, gone)} {why_gone(now)}; {_GO_ON} at {gone + 1}"), fail=fail
        )
    return gone + 1


def check_deleted(stood: Position, last: int, now: StreamBounds, *, fail: bool) -> None:
    """Raise DataLossError where messages up to `last` were deleted that the query had not read at its last look."""
    if now.by_design or now.thins_out or stood.known is None or now.deleted is None:
        return
    earlier = [seq for seq in now.deleted if stood.seq < seq <= stood.known]
    later = [seq for seq in now.deleted if stood.known < seq <= last]
    missing = max(len(earlier) - stood.gone, 0) + len(later)
    if not missing:
        return
    among = f", {stood.gone} more of them were removed before" if stood.gone else ""
    report_loss(
        DataLossError(
            f"{now.name}: {missing} {'message' if missing == 1 else 'messages'} between {stood.seq} and {last} were "
            f"deleted before they were read ({spans([*earlier, *later])}{among}); {_GO_ON}, which goes on without them"
        ),
        fail=fail,
    )


def spans(seqs: Sequence[int]) -> str:
    """Return ascending sequences as text: runs as ranges, a long list truncated."""
    if not seqs:
        return ""
    breaks = [number for number, (one, next_one) in enumerate(pairwise(seqs), 1) if next_one != one + 1]
    ends = [0, *breaks, len(seqs)]
    texts = [
        f"{seqs[begin]}" if end == begin + 1 else f"{seqs[begin]}..{seqs[end - 1]}"
        for begin, end in pairwise(ends[: _MAX_SPANS + 1])
    ]
    more = len(seqs) - ends[min(_MAX_SPANS, len(ends) - 1)]
    return ", ".join(texts) + (f" and {more} more" if more else "")


def check_read(first: int, last: int, missing: int, now: StreamBounds, *, fail: bool) -> None:
    """Raise DataLossError where messages went between planning and reading since the stream's beginning passed them."""
    if missing <= 0 or now.first <= first or now.why_beginning_moves:
        return
    gone = min(now.first - 1, last)
    report_loss(
        DataLossError(
            f"{now.name}: {missing} {'message' if missing == 1 else 'messages'} of {span(first, last)} went while they "
            f"were being read: {span(first, gone)} {why_gone(now)}; {_GO_ON}"
        ),
        fail=fail,
    )


def why_gone(now: StreamBounds) -> str:
    """Return the cause that removed messages at the beginning of a stream: its limits, or a purge or deletes."""
    if now.limits:
        return f"expired by {', '.join(now.limits)}, or were purged"
    return "were purged or deleted"


def span(first: int, last: int) -> str:
    if first > last:
        return "no messages"
    return f"sequence {first}" if first == last else f"sequences {first}..{last}"


def report_loss(failure: DataLossError, *, fail: bool) -> None:
    """Raise a loss, or if allowed only write it to the log."""
    if fail:
        raise failure
    _note(f"{failure} (failOnDataLoss=false)")


def _note(text: str) -> None:
    logging.getLogger("pyspark_jetstream").warning(text)
