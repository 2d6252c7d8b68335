"""kill -9 on the real server; the long form is `python -m tests.support.kill_loop --kills 100`."""

import asyncio
from pathlib import Path

import pytest

from natsctl.testing.process import READY_WITHIN_S
from tests.support.crash_checker import CrashChecker, Summary
from tests.support.kill_clients import Journal, Publisher, expected_payload
from tests.support.kill_loop import KILL_STREAM, KillLoop
from tests.support.kill_loop import STREAMS as FLOW_STREAMS


@pytest.mark.live
@pytest.mark.timeout(600)
@pytest.mark.parametrize("key", ["", "key: secret"], ids=["plain", "encrypted"])
async def test_nothing_acknowledged_is_lost_altered_or_reordered_by_kills(tmp_path: Path, key: str) -> None:
    config = tmp_path / "nats.conf"
    config.write_text(f"jetstream {{ {key} }}\n")
    summary = await KillLoop(tmp_path, 5, 20200120, "-c", str(config)).run()
    assert summary.broken == 0, summary.render()
    assert summary.kills == 5
    assert summary.acked > 500
    assert summary.double_acked > 100
    assert summary.stored >= summary.acked


def test_repeats_are_known_for_longer_than_a_server_takes_to_start() -> None:
    for config in (KILL_STREAM, *FLOW_STREAMS.values()):
        if "subjects" in config:
            assert config["duplicate_window"] > 10 * READY_WITHIN_S * 1_000_000_000


class Case:
    """A checker over what two publishers sent: three messages each, all acked, stored by turns."""

    def __init__(self, folder: Path) -> None:
        self.summary = Summary()
        journal = Journal(folder / "journal")
        publishers = [Publisher(number, journal) for number in range(2)]
        self.stored = []
        acks = {}
        for seq in range(1, 7):
            publisher, number = (seq - 1) % 2, (seq - 1) // 2
            self.stored.append((seq, b"KILL.%d" % publisher, expected_payload(publisher, number)))
            acks[seq] = (publisher, number)
        for publisher in publishers:
            publisher.next_number = 3
        self.checker = CrashChecker(self.summary, publishers, acks, set())
        journal.close()

    def verdict(self) -> Summary:
        self.checker.begin(1, 6)
        for message in self.stored:
            self.checker.message(*message)
        self.checker.end()
        self.checker.check_repeated()
        return self.summary


def test_the_judge_finds_nothing_where_nothing_is_wrong(tmp_path: Path) -> None:
    assert Case(tmp_path).verdict().broken == 0


def test_the_judge_finds_a_lost_message(tmp_path: Path) -> None:
    case = Case(tmp_path)
    del case.stored[2]
    summary = case.verdict()
    assert summary.lost >= 1
    assert summary.gaps == 1


def test_the_judge_finds_a_missing_end(tmp_path: Path) -> None:
    case = Case(tmp_path)
    del case.stored[5]
    assert case.verdict().lost >= 1


def test_the_judge_finds_an_altered_message(tmp_path: Path) -> None:
    case = Case(tmp_path)
    seq, subject, payload = case.stored[3]
    case.stored[3] = (seq, subject, payload[:-1] + b"x")
    assert case.verdict().altered == 1


def test_the_judge_finds_messages_in_another_order(tmp_path: Path) -> None:
    case = Case(tmp_path)
    (a, subject_a, first), (b, subject_b, second) = case.stored[0], case.stored[2]
    case.stored[0], case.stored[2] = (a, subject_b, second), (b, subject_a, first)
    summary = case.verdict()
    assert summary.reordered == 1
    assert summary.lost == 2


def test_the_judge_finds_what_nobody_sent_and_what_is_there_twice(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.stored[4] = (5, b"KILL.0", expected_payload(0, 99))
    case.stored[5] = (6, b"KILL.1", expected_payload(1, 1))
    summary = case.verdict()
    assert summary.invented == 1
    assert summary.repeated == 1


def test_the_journal_reads_back_what_was_noted(tmp_path: Path) -> None:
    async def note() -> Journal:
        journal = Journal(tmp_path / "journal")
        journal.acked(3, 7, 11)
        journal.confirm(11)
        return journal

    journal = asyncio.run(note())
    assert journal.load() == ({11: (3, 7)}, {11})
    journal.close()
