"""How often subjects are looked at to find those that a filter takes."""

from array import array

import pytest

from natsctl.native import lib
from natsctl.store.filters import Filters
from natsctl.store.index import LOOK_STEP, QUICK_LOOK_STEP, StreamIndex

SUBJECTS = 40_000


@pytest.fixture
def index():
    index = StreamIndex(1)
    index.table.intern_all([b"a.%d.%d.x" % (number % 400, number // 400) for number in range(SUBJECTS)])
    return index


@pytest.fixture
def looked(monkeypatch):
    """Subjects that were looked up singly, in Python."""
    subjects = []
    lookup = Filters.matches_wildcard
    monkeypatch.setattr(
        Filters, "matches_wildcard", lambda self, subject: subjects.append(subject) or lookup(self, subject)
    )
    return subjects


@pytest.mark.parametrize("pattern", [b"a.%d.>", b"a.*.%d.>", b"a.%d.*.x"])
@pytest.mark.parametrize("count", [1, 30, 300])
def test_many_patterns_take_as_many_steps_as_one(index, looked, pattern, count):
    filters = Filters([pattern % number for number in range(count)])
    pauses = len(list(index.preparing(filters)))
    view = index.view(filters)
    step = LOOK_STEP if lib is None else QUICK_LOOK_STEP
    assert pauses == -(-SUBJECTS // step) - 2  # none before the first step, or after the last
    assert len(looked) == (SUBJECTS if lib is None else 0)
    token = 2 if b"*.%d" in pattern else 1
    assert sorted(view.sids) == [
        sid for sid, subject in enumerate(index.table.names) if int(subject.split(b".")[token]) < count
    ]


def test_a_new_subject_is_looked_up_alone_if_there_are_many_patterns(index, looked):
    filters = Filters([b"a.%d.>" % number for number in range(300)])
    index.view(filters)
    looked.clear()
    index.table.intern(b"a.7.new")
    assert len(index.table.names) - 1 in index.view(filters).sids
    assert looked == [b"a.7.new"]


def test_patterns_are_not_compiled_for_fewer_subjects_than_that_pays_for(looked):
    names = [b"a.%d.b" % number for number in range(100)]
    filters = Filters([b"a.%d.*" % number for number in range(10, 1000)])
    assert filters.numbers_of(names, 0, 100) == array("I", range(10, 100))
    assert len(looked) == 100
