"""Where the messages of a few subjects are in one segment."""

import random
from array import array

import pytest

from natsctl.store.filters import Filters
from natsctl.store.segment import FEW_POSITIONS, FEW_SUBJECTS, Segment
from natsctl.store.subject_table import GONE


def drawn(rng, asked):
    segment = Segment(1)
    count = rng.randint(0, 4 * FEW_POSITIONS)
    segment.sids = array("I", [rng.choice([rng.randint(0, 30), GONE]) for _ in range(count)])
    segment.sizes = array("I", [1] * count)
    segment.live = count
    if asked is not None:
        segment.seal()
        segment.asked = asked
    return segment


@pytest.mark.parametrize("asked", [None, 0, 1000], ids=["open", "sealed", "sorted"])
@pytest.mark.parametrize("seed", range(40))
def test_positions_of_few_subjects_are_those_that_a_look_at_every_message_finds(seed, asked):
    rng = random.Random(seed)
    segment = drawn(rng, asked)
    for _ in range(10):
        sids = {rng.randint(0, 35) for _ in range(rng.randint(0, FEW_SUBJECTS))}
        start = rng.randint(0, len(segment.sids))
        found = segment.positions_of_few(sids, start)
        assert found is None or found == segment.positions(sids, start)


def test_many_subjects_and_few_messages_are_looked_at_one_by_one():
    segment = Segment(1)
    segment.sids = array("I", range(4 * FEW_POSITIONS))
    assert segment.positions_of_few(set(range(FEW_SUBJECTS + 1))) is None
    assert segment.positions_of_few({1}, len(segment.sids) - FEW_POSITIONS + 1) is None


def test_consumers_of_one_subject_each_do_not_look_at_every_message(lab, monkeypatch):
    store = lab.open()
    stream = store.create("$G/A", b"meta")
    lab.fill(store, stream, 400, lambda n: b"s.%d" % (n % 100))
    monkeypatch.setattr(Segment, "positions", lambda *arguments: pytest.fail("every message was looked at"))
    assert stream.count(Filters((b"s.7", b"s.9")), stream.last_seq - 200, stream.last_seq) >= 2
