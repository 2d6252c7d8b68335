"""Crash checker of the kill loops: what a server has stored, compared with what its clients were answered.

`CrashChecker` checks the stream of the plain loop, `check_flows` streams that feed each other: which messages may be
gone, and which must be there exactly once.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tests.support.kill_clients import Publisher, Worker, read_name

EXAMPLES: Final = 20
"""Broken promises that are shown."""
BROKEN: Final = (
    "lost", "altered", "reordered", "repeated", "invented", "gaps", "removed_early", "returned", "unerased",
)  # fmt: skip
"""Counts of broken promises; `unerased` are keys lost, and erased messages that are back or still on the disk."""


class Stored(NamedTuple):
    seq: int
    ts_ns: int
    subject: bytes
    header: bytes
    payload: bytes


class Summary(Counter[str]):
    """Counts of events and of broken promises (all zero, or the server is wrong)."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(BROKEN, 0))
        self.examples: list[str] = []
        self.slowest_start_s = 0.0

    @property
    def broken(self) -> int:
        return sum(self[kind] for kind in BROKEN)

    def fault(self, kind: str, texts: Iterable[str]) -> None:
        examples = list(texts)
        self[kind] += len(examples)
        self.examples += examples[:3]

    def render(self) -> str:
        lines = [f"{name.replace('_', ' '):>22}  {count}" for name, count in self.items()]
        examples = [f"  e.g. {text}" for text in self.examples[:EXAMPLES]]
        return "\n".join([*lines, f"{'slowest start':>22}  {self.slowest_start_s:.2f} s", *examples])


class PublishedNumbers:
    """The numbers of one publisher, as its messages are found: each once and in order."""

    def __init__(self, summary: Summary, publisher: Publisher) -> None:
        self._summary, self._publisher = summary, publisher
        self._seen: set[int] = set()
        self._newest = -1

    def take(self, where: str, payload: bytes) -> None:
        name, mine = read_name(payload), self._publisher
        if name is None or name[0] != mine.number:
            self._summary.fault("altered", [f"{where} holds {payload[:40]!r}"])
            return
        number = name[1]
        if number >= mine.next_number:
            self._summary.fault("invented", [f"{where}: publisher {mine.number} never sent {number}"])
        elif number in self._seen:
            self._summary.fault("repeated", [f"{where}: {number} of publisher {mine.number} is there twice"])
        elif number < self._newest:
            self._summary.fault("reordered", [f"{where}: {number} of publisher {mine.number} after {self._newest}"])
        self._newest = max(self._newest, number)
        self._seen.add(number)

    def finish(self, where: str) -> None:
        missing = sorted(set(range(self._publisher.next_number)) - self._seen)
        self._summary.fault("lost", (f"{where}: {n} of publisher {self._publisher.number} is gone" for n in missing))


class CrashChecker:
    """Checks of the stored messages, which come in order, one range after another."""

    def __init__(self, summary: Summary, publishers: Sequence[Publisher], acks: dict[int, tuple[int, int]]) -> None:
        """Check by `acks` (publisher and number by stream sequence); findings go to `summary`."""
        self._summary, self._acks, self._publishers = summary, acks, publishers
        self._numbers = [PublishedNumbers(summary, publisher) for publisher in publishers]

    def check(self, messages: Sequence[Stored], from_seq: int, last_seq: int) -> None:
        """Check all messages that are stored from `from_seq` on."""
        found = {message.seq: message for message in messages}
        missing = [seq for seq in range(from_seq, last_seq + 1) if seq not in found]
        self._summary.fault("gaps", (f"sequence {seq} is not there" for seq in missing))
        self._lost(seq for seq in self._acks if seq > last_seq or seq in missing)
        for seq, message in found.items():
            publisher = int(message.subject.rpartition(b".")[2])
            self._numbers[publisher].take(f"sequence {seq}", message.payload)
            if seq in self._acks and read_name(message.payload) != self._acks[seq]:
                self._lost([seq])

    def finish(self) -> None:
        """Check that everything is there that publishers repeated; call after a range that was the whole stream."""
        for publisher, numbers in zip(self._publishers, self._numbers, strict=True):
            if publisher.repeats:
                numbers.finish("KILL")

    def _lost(self, seqs: Iterable[int]) -> None:
        texts = (f"sequence {seq} was acked for {self._acks[seq]} and is gone" for seq in seqs)
        self._summary.fault("lost", texts)


Workers = Mapping[tuple[bytes, bytes], Worker]


def check_removed(
    summary: Summary, workers: Workers, gone: Mapping[bytes, set[int]], drained: Sequence[Stored]
) -> None:
    """Check what is gone: it must have been acknowledged by all who wanted it, or be where it was sourced to."""
    acked = {key: worker.delivered.keys() for key, worker in workers.items()}
    allowed: dict[bytes, set[int]] = {
        b"QUEUE": set(acked[b"QUEUE", b"W"]),
        b"EVENTS": acked[b"EVENTS", b"A"] & acked[b"EVENTS", b"B"],
        b"PIPE": {int(each.header.partition(b"Nats-Stream-Source: ")[2].split(b" ", 2)[1]) for each in drained},
    }
    for name, seqs in gone.items():
        early = sorted(seqs - allowed[name])
        summary.fault("removed_early", (f"{name.decode()} has lost {seq} before its ack" for seq in early))


def check_flows(
    summary: Summary, publishers: Sequence[Publisher], workers: Workers, contents: Mapping[bytes, Sequence[Stored]]
) -> None:
    """Check what every stream and worker has got when all has flowed."""
    origin, copy, gathered = contents[b"ORIGIN"], contents[b"COPY"], contents[b"GATHER"]
    found = {
        ("ORIGIN", number): [each for each in origin if each.subject == b"o.%d" % number] for number in range(3)
    } | {
        ("GATHER", 0): [each for each in gathered if each.subject == b"o.0"],
        ("GATHER", 1): [each for each in gathered if each.subject == b"g.1"],
        ("DRAIN", 4): contents[b"DRAIN"],
    }  # fmt: skip
    payloads = {where: [message.payload for message in messages] for where, messages in found.items()}
    for (stream, consumer), worker in workers.items():
        number = {b"TASKS": 2, b"QUEUE": 3, b"EVENTS": 5}[stream]
        where = f"{stream.decode()} > {consumer.decode()}"
        payloads[where, number] = [payload for _, payload in sorted(worker.delivered.items())]
        summary.fault("returned", (f"{where} got {seq} again" for seq in worker.returned))
    for (where, number), texts in payloads.items():
        numbers = PublishedNumbers(summary, publishers[number])
        for payload in texts:
            numbers.take(where, payload)
        numbers.finish(where)
    if len(copy) != len(origin):
        summary.fault("lost", [f"COPY has {len(copy)} messages, ORIGIN {len(origin)}"])
    pairs = zip(origin, copy, strict=False)
    summary.fault("altered", (f"COPY has {theirs}, ORIGIN {mine}" for mine, theirs in pairs if mine != theirs))
    summary["mirrored"] = len(copy)
    summary["sourced"] = len(gathered) + len(contents[b"DRAIN"])
    summary["worked"] = sum(len(worker.delivered) for worker in workers.values())
