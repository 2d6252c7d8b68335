"""The wheel of deadlines."""

from __future__ import annotations

import random
import tracemalloc

from natsctl.jetstream.timed.deadlines import Deadlines

SECOND = 1_000_000_000
NOW = 1_767_225_600 * SECOND


def drained(deadlines: Deadlines, now_ns: int, limit: int = 100) -> list[tuple[int, int]]:
    """Take everything that is due, some at a time."""
    taken: list[tuple[int, int]] = []
    while found := deadlines.take_due(now_ns, limit):
        taken += found
    return taken


def test_what_is_due_comes_up_and_nothing_else() -> None:
    rng = random.Random(1)
    deadlines = Deadlines()
    entered = {seq: NOW + rng.choice((1, SECOND, 3600 * SECOND, 86_400 * 365 * SECOND)) * rng.randrange(1, 50)
               for seq in range(1, 3000)}  # fmt: skip
    for seq, due_ns in entered.items():
        deadlines.add(due_ns, seq)
    for now_ns in sorted(rng.choices(sorted(entered.values()), k=200)):
        due = {(seq, due_ns) for seq, due_ns in entered.items() if due_ns <= now_ns}
        assert set(drained(deadlines, now_ns, rng.randrange(1, 300))) == due
        for seq, _ in due:
            del entered[seq]
        assert len(deadlines) == len(entered)
        assert deadlines.next_ns() == min(entered.values(), default=None)


def test_what_is_due_together_comes_up_by_sequence() -> None:
    deadlines = Deadlines()
    for seq in (5, 2, 9, 1):
        deadlines.add(NOW + 10 - seq, seq)
    assert [seq for seq, _ in deadlines.take_due(NOW + 20, 10)] == [1, 2, 5, 9]


def test_an_entry_that_comes_late_is_not_lost() -> None:
    deadlines = Deadlines()
    deadlines.add(NOW + 100 * 86_400 * SECOND, 1)
    assert deadlines.next_ns() == NOW + 100 * 86_400 * SECOND  # its era is open now
    deadlines.add(NOW, 2)
    deadlines.add(-5, 3)
    deadlines.add(1 << 80, 4)
    assert deadlines.take_due(NOW, 10) == [(2, NOW), (3, 0)]
    assert len(deadlines) == 2


def test_entries_of_messages_that_are_gone_are_swept() -> None:
    deadlines = Deadlines()
    for seq in range(1, 20_001):
        deadlines.add(NOW + seq * (SECOND if seq % 2 else 86_400 * SECOND), seq)
    while deadlines.sweep(lambda seq: seq % 10 == 0):
        pass
    assert len(deadlines) == 2000
    assert [seq for seq, _ in drained(deadlines, 1 << 62)] == list(range(10, 20_001, 10))


def test_a_deadline_takes_few_bytes() -> None:
    rng = random.Random(2)
    for dues in (
        [NOW + at * 10_000 for at in range(100_000)],
        [NOW + rng.randrange(31_000_000) * SECOND for _ in range(100_000)],
    ):
        tracemalloc.start()
        deadlines = Deadlines()
        for seq, due_ns in enumerate(dues, 1):
            deadlines.add(due_ns, seq)
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert used < 48 * len(dues)
