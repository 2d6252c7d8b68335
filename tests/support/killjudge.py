"""The judge of the kill loop: compares what a server has stored with what its clients were told."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tests.support.kill_report import render_figures
from tests.support.killclients import Publisher
from tests.support.killjournal import read_name


@dataclasses.dataclass(slots=True)
class Summary:
    """What happened, and every promise that was broken (all zero, or the server is wrong)."""

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


class Judge:
    """Takes the stored messages in their order, one range after another, and counts broken promises."""

    def __init__(
        self,
        summary: Summary,
        publishers: Sequence[Publisher],
        acks: dict[int, tuple[int, int]],
        confirmed: set[int],
    ) -> None:
        """Judge by `acks` (publisher and number by stream sequence); findings go to `summary`."""
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
        """Judge one stored message."""
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
        """Judge what was not there."""
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
