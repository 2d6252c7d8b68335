"""Each native function over columns does what its specification in Python does, on any arguments."""

from __future__ import annotations

from array import array
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.native import lib
from natsctl.store import bulk, columns, subject_table
from tests.support.native_cases import anchor_offsets, narrow, spec, split_offsets

pytestmark = pytest.mark.skipif(lib is None, reason="the native module is not built, or NATSCTL_PURE is set")


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
    assert lib.narrow(wide) == narrow(wide)
    kept = columns.narrowed(wide)
    assert kept == wide
    assert kept.itemsize == (4 if not column or max(column) > 65_535 else 2 if max(column) > 255 else 1)
    assert columns.widened(kept) == wide
    assert columns.widened(kept).typecode == "I"


@given(st.integers(0, 2**31), st.lists(st.integers(0, 5000) | st.integers(0, 70_000), max_size=70), st.data())
def test_offsets(first: int, steps: list[int], data: st.DataObject) -> None:
    assert lib is not None
    offsets = array("I", accumulate(steps, initial=first))
    assert lib.split_offsets(offsets) == split_offsets(offsets)
    overhead = data.draw(st.integers(0, min(steps, default=0)))
    sizes = columns.narrowed(array("I", [step - overhead for step in steps] + [7]))
    if data.draw(st.booleans()):
        sizes[data.draw(st.integers(0, len(steps)))] += 1
    assert lib.anchor_offsets(offsets, sizes, overhead) == anchor_offsets(offsets, sizes, overhead)
    for places in (columns.packed(offsets, sizes, overhead), columns.packed(offsets, array("I"), overhead)):
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
    assert lib.split_offsets(offsets) == split_offsets(offsets)
    assert type(columns.packed(offsets, array("I", [3999] * size), 1)) is columns.AdjacentOffsets
    assert type(columns.packed(offsets, array("I", [3999] * size), 0)) is (
        columns.Offsets if size > 1 else columns.AdjacentOffsets
    )
    assert columns.packed(array("I", [64, 70_000]), array("I", [1, 1]), 0) == array("I", [64, 70_000])


SUBJECTS = 5
known = st.integers(0, SUBJECTS - 1)


def column_of(numbers: list[int]) -> array[int]:
    return columns.narrowed(array("I", numbers))


def marked(numbers: set[int]) -> bytearray:
    marks = bytearray(SUBJECTS)
    bulk.mark(marks, array("I", numbers))
    return marks


@st.composite
def removals(draw: st.DrawFn) -> tuple[array[int], array[int], array[int], array[int] | None, int]:
    """Return subject numbers, sizes, positions, sequences where these are listed, and the base."""
    sids = draw(st.lists(known, max_size=30))
    sizes = draw(st.lists(st.integers(0, 300), min_size=len(sids), max_size=len(sids)))
    positions = sorted(draw(st.sets(st.integers(0, len(sids) - 1)))) if sids else []
    base = draw(st.integers(1, 2**63))
    seqs = array("Q", range(base, base + 2 * len(sids), 2)) if draw(st.booleans()) else None
    return column_of(sids), column_of(sizes), array("I", positions), seqs, base


@given(removals(), st.booleans())
def test_messages_are_taken_out(
    removal: tuple[array[int], array[int], array[int], array[int] | None, int], marked: bool
) -> None:
    assert lib is not None
    sids, sizes, positions, seqs, base = removal
    listed = spec(bulk.sequences_at)(array("I", range(len(sids))), seqs, base)
    assert array("Q", lib.sequences(array("I", range(len(sids))), seqs, base)) == listed
    counts = array("Q", [[*sids].count(sid) for sid in range(SUBJECTS)])
    lasts = array("Q", [max((listed[at] for at, one in enumerate(sids) if one == sid), default=0) for sid in range(5)])
    dead = bytearray(len(sids)) if marked else None
    ours = (counts[:], lasts[:], None if dead is None else dead[:], sids, sizes, positions)
    size, emptied, uncovered = lib.take_out(*ours, seqs, base)
    theirs = (counts, lasts, dead, sids, sizes, positions)
    wanted = spec(bulk.take_out)(*theirs, seqs, base)
    assert [size, *(sorted(array("I", numbers)) for numbers in (emptied, uncovered))] == [
        wanted[0], *(sorted(array("I", numbers)) for numbers in wanted[1:])
    ]  # fmt: skip
    assert ours == theirs


@given(removals(), st.sets(known), st.sets(known))
def test_subjects_are_counted_down_and_seen(
    removal: tuple[array[int], array[int], array[int], array[int] | None, int], listed: set[int], before: set[int]
) -> None:
    assert lib is not None
    sids, _, positions, _, _ = removal
    keys = array("I", sorted(listed))
    ours, wanted = array("I", [50]) * len(keys), array("I", [50]) * len(keys)
    lib.count_down(keys, ours, sids, positions)
    spec(bulk.count_down)(keys, wanted, sids, positions)
    assert ours == wanted
    seen, wanted_seen = (marked(before) for _ in range(2))
    assert array("I", lib.unseen(seen, sids, positions)) == spec(bulk.last_of_each)(wanted_seen, sids, positions)
    assert seen == wanted_seen


def test_what_lies_beyond_a_column_is_an_error() -> None:
    assert lib is not None
    one, far, wide = array("I", [0]), array("I", [1]), array("Q", [5])
    for start, stop in ((-1, 0), (1, 0), (0, 2)):
        with pytest.raises(ValueError, match="positions"):
            lib.pick(one, None, None, start, stop)
    with pytest.raises(ValueError, match="positions"):
        lib.pick(one, bytearray(), None, 0, 1)
    taken = (wide, array("Q", [5]), None, one, one, one, None, 1)
    for at, word in ((0, array("Q")), (1, array("Q")), (2, bytearray()), (3, far), (4, array("I")), (5, far)):
        with pytest.raises(ValueError, match=r"beyond|no such"):
            lib.take_out(*taken[:at], word, *taken[at + 1 :])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="beyond"):
        lib.take_out(*taken[:6], array("Q"), 1)
    for work in (
        lambda: lib.mark(bytearray(1), far),
        lambda: lib.above(wide, far, 0, 0),
        lambda: lib.above(wide, None, 2, 0),
        lambda: lib.above(wide, None, -1, 0),
        lambda: lib.count_down(one, array("I"), one, one),
        lambda: lib.count_down(one, array("I", [0]), one, far),
        lambda: lib.unseen(bytearray(1), one, far),
        lambda: lib.unseen(bytearray(), one, one),
        lambda: lib.sequences(far, wide, 0),
        lambda: lib.surplus(array("Q"), one, one, 0),
        lambda: lib.surplus(wide, one, far, 0),
    ):
        with pytest.raises(ValueError, match=r"beyond|no such|as many"):
            work()
    assert (wide[0], one[0]) == (5, 0)


def test_columns_of_another_width_are_errors() -> None:
    assert lib is not None
    for work in (lib.narrow, lib.split_offsets, lambda column: lib.tally(column, None, 1)):
        with pytest.raises(TypeError, match="4 bytes"):
            work(array("H", [1]))
    with pytest.raises(TypeError, match="8 bytes"):
        lib.tally(array("I", [1]), array("I", [1]), 1)
    with pytest.raises(TypeError, match="another width"):
        lib.sequences(array("H", [1]), None, 1)
    with pytest.raises(TypeError, match="another width"):
        lib.above(array("Q", [1]), array("Q", [1]), 1, 1)
    with pytest.raises(TypeError, match="another width"):
        lib.order(array("Q", [1]))
    with pytest.raises(ValueError, match="overlaps"):
        lib.unseen(both := bytearray(2), both, array("I", [0]))  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        lib.unseen(bytes(1), array("I", [0]), array("I", [0]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="as many"):
        lib.tally(array("I", [1]), array("Q"), 1)
    with pytest.raises(ValueError, match="1 sequences of 2"):
        subject_table._tally_in_c(array("I", [1, 1]), range(1, 2))
