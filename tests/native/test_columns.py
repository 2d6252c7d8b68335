"""Each native function over columns does what its specification in Python does, on any arguments."""

from __future__ import annotations

import operator
import tracemalloc
from array import array
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.native import lib
from natsctl.store import bulk, columns, subject_table
from tests.support.native_cases import anchor_offsets, check_packed, spec

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


numbers = st.one_of(*(st.lists(st.integers(0, top), max_size=70) for top in (0, 1, 1000, 65_536, 2**31, 2**32 - 1)))


@given(numbers)
def test_packed_columns(column: list[int]) -> None:
    assert lib is not None
    wide = array("I", column)
    check_packed(lib.pack_column(wide), wide)
    kept = columns.narrowed(wide)
    assert columns.narrowed(kept) is kept
    assert columns.widened(kept) == wide
    assert type(columns.widened(kept)) is array
    assert columns.total(kept) == sum(column)


def test_a_packed_column_takes_no_more_bits_than_its_numbers_need() -> None:
    assert lib is not None
    close, far = array("I", [2**32 - 1 - number % 1000 for number in range(10_000)]), array("I", [0, 2**31])
    tracemalloc.start()
    kept = lib.pack_column(close)
    assert tracemalloc.get_traced_memory()[0] < 10_000 * 10 // 8 + 200
    tracemalloc.stop()
    assert kept is not None
    assert columns.narrowed(far) is far, "32 bits"


def test_a_packed_column_cannot_be_changed_and_has_no_more_positions() -> None:
    assert lib is not None
    column = lib.pack_column(array("I", [5, 6]))
    assert column is not None
    for position in (2, -3, 2**63):
        with pytest.raises(IndexError):
            column[position]
    for number, start in ((5, 1), (7, 0), (2**32 + 5, 0), (-1, 0)):
        with pytest.raises(ValueError, match="not in the column"):
            column.index(number, start)
    wrong: Any = column
    for work in (
        lambda: wrong.index("5", 0),
        lambda: wrong["0"],
        lambda: operator.setitem(wrong, 0, 1),
        lambda: type(wrong)(),
        lambda: lib.mark(bytearray(9), wrong),
        lambda: lib.count_down(array("I"), wrong, wrong, array("I")),
    ):
        with pytest.raises(TypeError):
            work()


@given(st.integers(0, 2**31), st.lists(st.integers(0, 5000) | st.integers(0, 70_000), max_size=70), st.data())
def test_offsets(first: int, steps: list[int], data: st.DataObject) -> None:
    assert lib is not None
    offsets = array("I", accumulate(steps, initial=first))
    overhead = data.draw(st.integers(0, min(steps, default=0)))
    sizes = array("I", [step - overhead for step in steps] + [7])
    if data.draw(st.booleans()):
        sizes[data.draw(st.integers(0, len(steps)))] += 1
    if data.draw(st.booleans()):
        sizes = columns.narrowed(sizes)
    assert lib.anchor_offsets(offsets, sizes, overhead) == anchor_offsets(offsets, sizes, overhead)
    for places, kept in (columns.packed(offsets, sizes, overhead), columns.packed(offsets, array("I"), overhead)):
        assert columns.widened(kept) in (columns.widened(sizes), array("I"))
        assert [places[at] for at in range(len(places))] == [*places] == [*offsets]
        assert places[-1] == offsets[-1]
        assert columns.widened(places) == offsets
        if isinstance(places, columns.AdjacentOffsets):
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
    assert type(columns.packed(offsets, array("I", [3999] * size), 1)[0]) is columns.AdjacentOffsets
    assert type(columns.packed(offsets, array("I", [3999] * size), 0)[0]) is (
        lib.PackedColumn if size > 1 else columns.AdjacentOffsets
    )


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
    for work in (lib.pack_column, lambda column: lib.tally(column, None, 1)):
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
        lib.count_down(both := array("I", [1]), both, array("I", [1]), array("I", [0]))
    with pytest.raises(BufferError):
        lib.unseen(bytes(1), array("I", [0]), array("I", [0]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="as many"):
        lib.tally(array("I", [1]), array("Q"), 1)
    with pytest.raises(ValueError, match="1 sequences of 2"):
        subject_table._tally_in_c(array("I", [1, 1]), range(1, 2))
