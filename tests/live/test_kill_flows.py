"""kill -9 while streams feed each other; the long form is `python -m tests.support.kill_loop --flows --kills 50`."""

from pathlib import Path

import pytest

from tests.support.crash_checker import FlowChecker, FlowSummary, Stored
from tests.support.kill_clients import Journal, Publisher, Worker, expected_payload
from tests.support.kill_loop import SUBJECTS, WORKERS, FlowLoop


@pytest.mark.live
@pytest.mark.timeout(600)
async def test_mirrors_sources_queues_and_interest_lose_and_double_nothing(tmp_path: Path) -> None:
    summary = await FlowLoop(tmp_path, kills=3, seed=20261121).run()
    assert summary.broken == 0, summary.render()
    assert summary.mirrored > 300
    assert summary.sourced > 300
    assert summary.worked > 300


class Case:
    """A checker over what six publishers sent: two messages each, all taken."""

    def __init__(self, folder: Path) -> None:
        self.summary = FlowSummary()
        journal = Journal(folder / "journal")
        publishers = [Publisher(number, journal, subject) for number, subject in enumerate(SUBJECTS)]
        for publisher in publishers:
            publisher.next_number = 2
        self.workers = {key: Worker(journal, *key) for key in WORKERS}
        for (stream, _), worker in self.workers.items():
            number = {b"TASKS": 2, b"QUEUE": 3, b"EVENTS": 5}[stream]
            worker.delivered = {seq: expected_payload(number, seq - 1) for seq in (1, 2)}
        self.checker = FlowChecker(self.summary, publishers, self.workers)
        journal.close()
        origin = [stored(1 + at * 3 + number, b"o.%d" % number, number, at) for at in (0, 1) for number in range(3)]
        self.contents = {
            b"ORIGIN": origin,
            b"COPY": list(origin),
            b"GATHER": [
                stored(1, b"o.0", 0, 0),
                stored(2, b"g.1", 1, 0),
                stored(3, b"o.0", 0, 1),
                stored(4, b"g.1", 1, 1),
            ],
            b"DRAIN": [stored(1, b"p.4", 4, 0), stored(2, b"p.4", 4, 1)],
        }

    def verdict(self) -> FlowSummary:
        everything = {1, 2}
        gone = {b"QUEUE": everything, b"EVENTS": everything, b"PIPE": everything}
        self.checker.removed(gone, self.contents[b"DRAIN"])
        self.checker.finish(self.contents)
        return self.summary


def stored(seq: int, subject: bytes, publisher: int, number: int) -> Stored:
    header = b"NATS/1.0\r\nNats-Stream-Source: PIPE %d > > p.4\r\n\r\n" % seq
    return Stored(seq, seq, subject, header, expected_payload(publisher, number))


def test_the_judge_finds_nothing_where_nothing_is_wrong(tmp_path: Path) -> None:
    assert Case(tmp_path).verdict().broken == 0


def test_the_judge_finds_what_a_source_lost_doubled_or_turned_round(tmp_path: Path) -> None:
    case = Case(tmp_path)
    first, second, third, fourth = case.contents[b"GATHER"]
    case.contents[b"GATHER"] = [first, third, third, fourth, second]
    case.contents[b"DRAIN"].pop()
    summary = case.verdict()
    assert (summary.repeated, summary.reordered, summary.lost) == (1, 1, 1)


def test_the_judge_finds_a_mirror_that_differs(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.contents[b"COPY"][2] = case.contents[b"COPY"][2]._replace(ts_ns=99)
    case.contents[b"COPY"].pop()
    summary = case.verdict()
    assert (summary.altered, summary.lost) == (1, 1)


def test_the_judge_finds_what_was_removed_before_its_ack(tmp_path: Path) -> None:
    case = Case(tmp_path)
    del case.workers[b"EVENTS", b"B"].delivered[2]
    case.contents[b"DRAIN"].pop()
    case.checker.removed({b"QUEUE": {3}, b"EVENTS": {1, 2}, b"PIPE": {1, 2}}, case.contents[b"DRAIN"])
    assert case.summary.removed_early == 3


def test_the_judge_finds_a_task_under_two_sequences(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.workers[b"TASKS", b"W"].delivered[3] = expected_payload(2, 1)
    assert case.verdict().repeated == 1
