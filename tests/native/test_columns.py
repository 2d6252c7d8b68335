"""Each native function over columns does what its specification in Python does, on any arguments."""

from __future__ import annotations

from array import array
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from natsctl.native import lib
from natsctl.store import columns, subject_table
from natsctl.store.filters import MANY_PATTERNS, Filters
from natsctl.store.subject_table import GONE

pytestmark = pytest.mark.skipif(lib is None, reason="the native module is not built, or NATSCTL_PURE is set")

tokens = st.sampled_from([b"a", b"b", b"ab", b"", b"*", b">", b"*a", b"\n", b"\0", b"\xff"])
subjects = st.lists(tokens, min_size=1, max_size=5).map(b".".join)
patterns = subjects.map(lambda subject: subject + b".>") | subjects.map(lambda subject: b"*." + subject) | subjects


@given(st.lists(subjects, max_size=20), st.lists(patterns, max_size=MANY_PATTERNS), st.integers(0, 20))
@example([b"a.b", b"a.", b"a..b", b".", b"", b"a"], [b"a.>", b"*"], 0)
@example([b"a.b", b"a.", b"a..b", b".b", b"b"], [b"a.*", b">.b", b"*.b"], 1)
def test_numbers_of_subjects(names: list[bytes], filters: list[bytes], start: int) -> None:
    wanted = Filters(filters)
    if wanted.wildcards:
        start = min(start, len(names))
        assert wanted.numbers_of(names, start, len(names)) == wanted._numbers_of(names, start, len(names))


def test_wrong_arguments_are_errors() -> None:
    assert lib is not None
    for words in (((b"a",), 0, 1, (b"*",)), ([b"a"], -1, 1, (b"*",)), ([b"a"], 0, 2, (b"*",))):
        with pytest.raises(ValueError, match="names"):
            lib.matching(*words)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        lib.matching(["a"], 0, 1, (b"*",))  # type: ignore[list-item]
    with pytest.raises(TypeError):
        lib.matching([b"a"], 0, 1, ("*",))  # type: ignore[arg-type]


numbers = st.one_of(*(st.lists(st.integers(0, top), max_size=70) for top in (255, 256, 65_535, 65_536, 2**32 - 1)))


@given(numbers)
def test_narrow_columns(column: list[int]) -> None:
    assert lib is not None
    wide = array("I", column)
    assert lib.narrow(wide) == columns._narrow(wide)
    narrow = columns.narrowed(wide)
    assert narrow == wide
    assert narrow.itemsize == (4 if not column or max(column) > 65_535 else 2 if max(column) > 255 else 1)
    assert columns.widened(narrow) == wide
    assert columns.widened(narrow).typecode == "I"


@given(st.integers(0, 2**31), st.lists(st.integers(0, 5000) | st.integers(0, 70_000), max_size=70), st.data())
def test_offsets(first: int, steps: list[int], data: st.DataObject) -> None:
    assert lib is not None
    offsets = array("I", accumulate(steps, initial=first))
    assert lib.split_offsets(offsets) == columns._split_offsets(offsets)
    places = columns.packed(offsets)
    assert [places[at] for at in range(len(places))] == [*places] == [*offsets]
    assert places[-1] == offsets[-1]
    assert columns.widened(places) == offsets
    if isinstance(places, columns.Offsets):
        stop = data.draw(st.integers(0, len(places)))
        start = data.draw(st.integers(0, stop))
        assert places.between(start, stop) == offsets[start:stop]
        for wrong in ((-1, 0), (1, 0), (0, len(places) + 1)):
            with pytest.raises(ValueError, match="no such positions"):
                places.between(*wrong)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 100])
def test_close_offsets_are_packed(size: int) -> None:
    offsets = array("I", range(2**31, 2**31 + 4000 * size, 4000))
    assert lib is not None
    assert lib.split_offsets(offsets) == columns._split_offsets(offsets)
    assert isinstance(columns.packed(offsets), columns.Offsets)
    assert columns.packed(array("I", [64, 70_000])) == array("I", [64, 70_000])


@given(st.lists(st.integers(0, 9) | st.sampled_from([1000, GONE]), max_size=60), st.integers(1, 2**63), st.booleans())
def test_tallies(sids: list[int], base: int, sparse: bool) -> None:
    column, seqs = array("I", sids), range(base, base + len(sids))
    wanted = array("Q", [2 * seq - base for seq in seqs if 2 * seq < 2**64]) if sparse else seqs
    if len(wanted) == len(sids):
        assert subject_table._tally_in_c(column, wanted) == subject_table._tally_of(column, wanted)


def test_columns_of_another_width_are_errors() -> None:
    assert lib is not None
    for work in (lib.narrow, lib.split_offsets, lambda column: lib.tally(column, None, 1)):
        with pytest.raises(TypeError, match="4 bytes"):
            work(array("H", [1]))
    with pytest.raises(TypeError, match="8 bytes"):
        lib.tally(array("I", [1]), array("I", [1]), 1)
    with pytest.raises(ValueError, match="as many"):
        lib.tally(array("I", [1]), array("Q"), 1)
    with pytest.raises(ValueError, match="1 sequences of 2"):
        subject_table._tally_in_c(array("I", [1, 1]), range(1, 2))
