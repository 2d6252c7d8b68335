"""Crash checker of the kill loops: what a server has stored, compared with what its clients were answered.

`CrashChecker` checks the streams of the plain loop, `FlowChecker` those that feed each other: which
messages may be gone, and which must be there exactly once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.support.kill_clients import Publisher, Worker, read_name

EXAMPLES: int = 20
"""Broken promises that are shown."""


def render_figures(summary: Any) -> str:
    """Return a line for each figure of a summary, a dataclass whose last field is its `examples`."""
    lines = []
    for field in dataclasses.fields(summary)[:-1]:
        value = getattr(summary, field.name)
        text = f"{value:.2f}" if isinstance(value, float) else str(value)
        lines.append(f"{field.name.replace('_', ' '):>22}  {text}")
    return "\n".join([*lines, *(f"  e.g. {text}" for text in summary.examples[:EXAMPLES])])


@dataclasses.dataclass(slots=True)
class Summary:
    """Counts of events and of broken promises (all zero, or the server is wrong)."""

    kills: int = 0
    kills_while_starting: int = 0
    published: int = 0
    acked: int = 0
    refused: int = 0
    stored: int = 0
    double_acked: int = 0
    erased: int = 0
    slowest_start_s: float = 0.0
    lost: int = 0
    altered: int = 0
    reordered: int = 0
    repeated: int = 0
    invented: int = 0
    gaps: int = 0
    returned: int = 0
    unerased: int = 0
    """Keys lost, erased messages that are back or still on the disk, and refusals, where messages are erased."""
    examples: list[str] = dataclasses.field(default_factory=list)

    @property
    def broken(self) -> int:
        """Return how many promises were broken."""
        wrong = self.lost + self.altered + self.reordered + self.repeated + self.invented + self.gaps
        return wrong + self.returned + self.unerased

    def render(self) -> str:
        """Return the summary for a person, a line for each figure."""
        return render_figures(self)


class CrashChecker:
    """A count of broken promises over the stored messages, which come in order, one range after another."""

    def __init__(
        self,
        summary: Summary,
        publishers: Sequence[Publisher],
        acks: dict[int, tuple[int, int]],
        confirmed: set[int],
    ) -> None:
        """Check by `acks` (publisher and number by stream sequence); findings go to `summary`."""
        self.acks = acks
        self.confirmed = confirmed
        self._summary = summary
        self._publishers = publishers
        self._newest = [-1] * len(publishers)
        self._seen: list[set[int]] = [set() for _ in publishers]
        self._next_seq = 1
        self._last_seq = 0
        self._read: set[int] = set()

    def begin(self, from_seq: int, last_seq: int) -> None:
        """Expect every sequence from `from_seq` to `last_seq`, both included."""
        self._next_seq, self._last_seq = from_seq, last_seq
        self._read.clear()
        for seq in self.acks:
            if seq > last_seq:
                self._lost(seq)

    def message(self, seq: int, subject: bytes, payload: bytes) -> None:
        """Check one stored message."""
        summary = self._summary
        if seq != self._next_seq:
            summary.gaps += 1
            summary.examples.append(f"sequence {seq} where {self._next_seq} was expected")
        self._next_seq = seq + 1
        self._read.add(seq)
        name = read_name(payload)
        if name is None or subject != b"KILL.%d" % name[0]:
            summary.altered += 1
            summary.examples.append(f"sequence {seq} holds {payload[:40]!r} on {subject!r}")
            return
        if self.acks.get(seq, name) != name:
            self._lost(seq)
        self._place(seq, *name)

    def _place(self, seq: int, publisher: int, number: int) -> None:
        summary = self._summary
        if number >= self._publishers[publisher].next_number:
            summary.invented += 1
            summary.examples.append(f"sequence {seq}: publisher {publisher} never sent {number}")
        elif number in self._seen[publisher]:
            summary.repeated += 1
            summary.examples.append(f"sequence {seq}: {number} of publisher {publisher} is there twice")
        elif number < self._newest[publisher]:
            summary.reordered += 1
            summary.examples.append(
                f"sequence {seq}: {number} of publisher {publisher} after {self._newest[publisher]}"
            )
        self._newest[publisher] = max(self._newest[publisher], number)
        self._seen[publisher].add(number)

    def end(self) -> None:
        """Check what was not there."""
        missing = self._last_seq - self._next_seq + 1
        if missing > 0:
            self._summary.gaps += missing
            self._summary.examples.append(f"{missing} messages at the end could not be read")

    def check_acked(self) -> None:
        """Count every acked sequence that the last range, which was the whole stream, did not have."""
        for seq in self.acks.keys() - self._read:
            if seq <= self._last_seq:
                self._lost(seq)

    def check_repeated(self) -> None:
        """Count what a repeating publisher sent and is not there; call after a range that was the whole stream."""
        self.check_acked()
        for publisher in self._publishers:
            if publisher.repeats:
                for number in set(range(publisher.next_number)) - self._seen[publisher.number]:
                    self._summary.lost += 1
                    self._summary.examples.append(f"{number} of publisher {publisher.number} was acked and is gone")

    def _lost(self, seq: int) -> None:
        self._summary.lost += 1
        self._summary.examples.append(f"sequence {seq} was acked for {self.acks[seq]} and is gone")


class Stored(NamedTuple):
    """One stored message."""

    seq: int
    ts_ns: int
    subject: bytes
    header: bytes
    payload: bytes


@dataclasses.dataclass(slots=True)
class FlowSummary:
    """Counts of events and of broken promises (all zero, or the server is wrong)."""

    kills: int = 0
    published: int = 0
    mirrored: int = 0
    sourced: int = 0
    worked: int = 0
    slowest_start_s: float = 0.0
    lost: int = 0
    repeated: int = 0
    reordered: int = 0
    altered: int = 0
    removed_early: int = 0
    returned: int = 0
    refused: int = 0
    examples: list[str] = dataclasses.field(default_factory=list)

    @property
    def broken(self) -> int:
        """Return how many promises were broken."""
        return self.lost + self.repeated + self.reordered + self.altered + self.removed_early + self.returned

    def render(self) -> str:
        """Return the summary for a person, a line for each figure."""
        return render_figures(self)


class FlowChecker:
    """A count of broken promises, added to a summary."""

    def __init__(
        self, summary: FlowSummary, publishers: Sequence[Publisher], workers: Mapping[tuple[bytes, bytes], Worker]
    ) -> None:
        """Check what `publishers` sent and `workers` acknowledged."""
        self._summary = summary
        self._publishers = publishers
        self._workers = workers

    # After each kill

    def removed(self, gone: Mapping[bytes, set[int]], drained: Sequence[Stored]) -> None:
        """Check what is gone: it must have been acknowledged by all who wanted it, or be where it was sourced to."""
        acked = {key: worker.delivered.keys() for key, worker in self._workers.items()}
        passed_on = {_origin_seq(message.header) for message in drained}
        allowed = {
            b"QUEUE": set(acked[b"QUEUE", b"W"]),
            b"EVENTS": acked[b"EVENTS", b"A"] & acked[b"EVENTS", b"B"],
            b"PIPE": passed_on,
        }
        for name, seqs in gone.items():
            early = seqs - allowed[name]
            self._summary.removed_early += len(early)
            self._say(f"{name.decode()} has lost {seq} before its ack" for seq in sorted(early)[:3])

    # In the end

    def finish(self, contents: Mapping[bytes, Sequence[Stored]]) -> None:
        """Check what every stream and worker has got when all has flowed."""
        origin = contents[b"ORIGIN"]
        for number in range(3):
            self._once("ORIGIN", number, _of(origin, b"o.%d" % number))
        self._same(origin, contents[b"COPY"])
        self._once("GATHER", 0, _of(contents[b"GATHER"], b"o.0"))
        self._once("GATHER", 1, _of(contents[b"GATHER"], b"g.1"))
        self._once("DRAIN", 4, contents[b"DRAIN"])
        for (stream, consumer), number in (
            ((b"TASKS", b"W"), 2),
            ((b"QUEUE", b"W"), 3),
            ((b"EVENTS", b"A"), 5),
            ((b"EVENTS", b"B"), 5),
        ):
            taken = sorted(self._workers[stream, consumer].delivered.items())
            self._once(f"{stream.decode()} > {consumer.decode()}", number, [_plain(*each) for each in taken])
        self._count(contents)

    def _once(self, where: str, publisher: int, messages: Iterable[Stored]) -> None:
        """Check that messages are those of one publisher, each once and in order."""
        summary, expected = self._summary, 0
        seen: set[int] = set()
        for message in messages:
            name = read_name(message.payload)
            if name is None or name[0] != publisher:
                summary.altered += 1
                self._say([f"{where} {message.seq} holds {message.payload[:40]!r}"])
                continue
            number = name[1]
            if number in seen:
                summary.repeated += 1
                self._say([f"{where} {message.seq}: {number} of publisher {publisher} is there twice"])
            elif number < expected:
                summary.reordered += 1
                self._say([f"{where} {message.seq}: {number} of publisher {publisher} after {expected - 1}"])
            seen.add(number)
            expected = max(expected, number + 1)
        lost = set(range(self._publishers[publisher].next_number)) - seen
        summary.lost += len(lost)
        self._say(f"{where}: {number} of publisher {publisher} is not there" for number in sorted(lost)[:3])

    def _same(self, origin: Sequence[Stored], copy: Sequence[Stored]) -> None:
        """Check that a mirror is what its origin is."""
        if len(copy) != len(origin):
            self._summary.lost += max(len(origin) - len(copy), 0)
            self._summary.repeated += max(len(copy) - len(origin), 0)
            self._say([f"COPY has {len(copy)} messages, ORIGIN {len(origin)}"])
        for mine, theirs in zip(origin, copy, strict=False):
            if mine != theirs:
                self._summary.altered += 1
                self._say([f"COPY has {theirs} where ORIGIN has {mine}"])

    def _count(self, contents: Mapping[bytes, Sequence[Stored]]) -> None:
        summary = self._summary
        summary.published = sum(publisher.next_number for publisher in self._publishers)
        summary.mirrored = len(contents[b"COPY"])
        summary.sourced = len(contents[b"GATHER"]) + len(contents[b"DRAIN"])
        summary.worked = sum(len(worker.delivered) for worker in self._workers.values())
        summary.refused = sum(len(publisher.errors) for publisher in self._publishers)
        self._say(f"refused: {text!r}" for publisher in self._publishers for text in publisher.errors[:2])
        for (stream, consumer), worker in self._workers.items():
            summary.returned += len(worker.returned)
            self._say(f"{stream.decode()} > {consumer.decode()} got {seq} again" for seq in worker.returned[:3])

    def _say(self, texts: Iterable[str]) -> None:
        self._summary.examples.extend(texts)


def _of(messages: Sequence[Stored], subject: bytes) -> list[Stored]:
    return [message for message in messages if message.subject == subject]


def _plain(seq: int, payload: bytes) -> Stored:
    return Stored(seq, 0, b"", b"", payload)


def _origin_seq(header: bytes) -> int:
    """Return the sequence that a source header names."""
    return int(header.partition(b"Nats-Stream-Source: ")[2].split(b" ", 2)[1])
