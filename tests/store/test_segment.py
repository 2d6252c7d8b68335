"""Where the messages of a few subjects are in one segment."""

import random
from array import array

import pytest

from natsctl.store.filters import Filters
from natsctl.store.index import StreamIndex
from natsctl.store.segment import FEW_POSITIONS, FEW_SUBJECTS, Segment, SegmentList
from natsctl.store.subject_table import GONE
from natsctl.store.view import FilterView
from tests.support import tiers


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
@pytest.mark.parametrize("seed", tiers.seeds(8, 40))
def test_positions_of_few_subjects_are_those_that_a_look_at_every_message_finds(seed, asked):
    rng = random.Random(seed)
    segment = drawn(rng, asked)
    for _ in range(10):
        sids = {rng.randint(0, 35) for _ in range(rng.randint(0, FEW_SUBJECTS))}
        start = rng.randint(0, len(segment.sids))
        found = segment.positions_of_few(sids, start)
        assert found is None or found == segment.positions(sids, start)


@pytest.mark.parametrize("seed", tiers.seeds(8, 40))
def test_removed_messages_with_bytes_are_found_as_by_a_look_at_each_place(seed):
    rng, index, base = random.Random(seed), SegmentList(10), 10
    for number in range(rng.randint(1, 5)):
        segment = index.open_segment(base) if number else index.active
        length = rng.randint(0, 20)
        segment.sids = array("I", range(length))
        if rng.random() < 0.5:
            segment.seqs = array("Q", sorted(rng.sample(range(base, base + 2 * length + 1), length)))
        segment.head = rng.choice([0, rng.randint(0, length)])
        if rng.random() < 0.7:
            segment.dead = bytearray(rng.randint(0, 1) for _ in range(length))
        base += 2 * length + 1 + rng.randint(0, 3)
    seqs = sorted(rng.choices(range(base + 5), k=rng.randint(0, 60)))
    places = [(seq, index.physical(seq)) for seq in seqs]
    removed = [seq for seq, place in places if place is not None and not place[0].is_live(place[1])]
    assert [seq for found in index.removals_among(seqs) for seq in found.find()] == removed


def test_consumers_of_one_subject_each_do_not_look_at_every_message(lab, monkeypatch):
    store = lab.open()
    stream = store.create("$G/A", b"meta")
    lab.fill(store, stream, 400, lambda n: b"s.%d" % (n % 100))
    monkeypatch.setattr(Segment, "positions", lambda *arguments: pytest.fail("every message was looked at"))
    assert stream.count(Filters((b"s.7", b"s.9")), stream.last_seq - 200, stream.last_seq) >= 2


PATTERNS = [b"*", b"a.*", b"*.1", b"a.>", b"b.*.2", b"a.1", b"b.2", b"a.3", b"c.1.2"]


@pytest.mark.parametrize("seed", tiers.seeds(12, 60))
def test_a_view_selects_what_its_filter_matches_in_steps_and_after_a_renumbering(seed):
    rng, index = random.Random(seed), StreamIndex(1)
    pool = [
        b".".join((first, *rest)) for first in (b"a", b"b", b"c") for rest in ((b"1",), (b"2",), (b"3",), (b"1", b"2"))
    ]
    rng.shuffle(pool)
    filters = Filters(rng.sample(PATTERNS, rng.randint(1, 4)))
    view = FilterView(filters, index, rng.randint(0, 3))
    for subject in pool:
        index.table.count[index.table.intern(subject)] = rng.randint(0, 3)
        if rng.random() < 0.2:
            index.table.renumber()
        while view.unseen and rng.random() < 0.7:
            view.refresh(rng.randint(0, 3))
    while view.unseen:
        view.refresh(rng.randint(0, 3))
    wanted = [sid for sid, name in enumerate(index.table.names) if filters.matches(name)]
    assert sorted(view.sids) == wanted
    assert sorted(view.listed) == ([] if isinstance(view.sids, range) else wanted)
    assert view.all == (len(wanted) == len(index.table.names))
    assert view.only == (wanted[0] if len(wanted) == 1 else -1)
