"""The index of subject patterns agrees with a comparison of each pattern."""

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from natsctl.api import subject_index
from natsctl.api.subject_index import SubjectIndex, finish, first_covered, first_overlap
from natsctl.api.subjects import is_subset, overlaps
from tests.support import tiers

LITERALS = st.lists(st.sampled_from([b"a", b"b"]), min_size=1, max_size=4).map(b".".join)
TOKENS = st.lists(st.sampled_from([b"a", b"b", b"*"]), min_size=1, max_size=4)
PATTERNS = st.builds(lambda tokens, end: b".".join([*tokens, *end]), TOKENS, st.sampled_from([[], [b">"]]))
PATTERNS |= st.just(b">")


@given(st.lists(PATTERNS, max_size=12), st.sets(st.integers(0, 11)), PATTERNS, LITERALS)
def test_the_index_finds_what_overlaps_and_what_matches(
    patterns: list[bytes], removed: set[int], wanted: bytes, subject: bytes
) -> None:
    check_what_is_found(patterns, removed, wanted, subject)
    for depth in (1, 2):
        with mock.patch.multiple(subject_index, MAX_DEPTH=depth, WALK_STEP=3):
            check_what_is_found(patterns, removed, wanted, subject)


def check_what_is_found(patterns: list[bytes], removed: set[int], wanted: bytes, subject: bytes) -> None:
    index: SubjectIndex[int] = SubjectIndex()
    for at, pattern in enumerate(patterns):
        index.add(pattern, at)
    kept = dict(enumerate(patterns))
    for at in removed:
        assert index.remove(kept.pop(at, b"unknown"), at) is (at < len(patterns))
    assert sorted(index.overlapping(wanted)) == [at for at, one in kept.items() if overlaps(one, wanted)]
    assert sorted(index.covering(wanted)) == [at for at, one in kept.items() if is_subset(wanted, one)]
    assert sorted(index.matching(subject)) == [at for at, one in kept.items() if is_subset(subject, one)]
    assert sorted(index) == list(kept) and index.count == len(kept)


@given(st.lists(PATTERNS, max_size=12))
def test_nothing_is_left_of_removed_patterns(patterns: list[bytes]) -> None:
    index: SubjectIndex[str] = SubjectIndex()
    for pattern in patterns:
        index.add(pattern, "owner")
    assert all(index.remove(pattern, "owner") for pattern in dict.fromkeys(patterns))
    assert not index._root.children


TEXTS = st.lists(
    st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3).flatmap(
        lambda tokens: st.sampled_from([".".join(tokens), ".".join([*tokens, ">"])])
    ),
    max_size=12,
)


@tiers.examples(500)
@given(TEXTS)
def test_the_first_overlap_is_the_one_that_comparing_all_pairs_finds(patterns: list[str]) -> None:
    count = len(patterns)
    pairs = ((at, by) for at in range(count) for by in range(at + 1, count) if overlaps(patterns[at], patterns[by]))
    assert finish(first_overlap(patterns)) == next(pairs, None)


@tiers.examples(500)
@given(TEXTS)
def test_the_first_covered_pattern_is_the_one_that_comparing_all_pairs_finds(patterns: list[str]) -> None:
    places = (
        at
        for at, one in enumerate(patterns)
        if any(is_subset(one, other) for by, other in enumerate(patterns) if by != at)
    )
    assert finish(first_covered(patterns)) == next(places, None)
