"""Subject grammar and matching, held against a model that enumerates a small world of subjects."""

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.subjects import (
    domain_prefix,
    has_wildcard,
    is_literal,
    is_subset,
    is_valid_name,
    is_valid_subject,
    matches,
    overlaps,
)

WORDS = ("a", "b", "foo*")
LITERALS = [".".join(tokens) for length in (1, 2, 3, 4) for tokens in product(WORDS, repeat=length)]
PATTERN = st.lists(st.sampled_from([*WORDS, "*"]), min_size=1, max_size=3).flatmap(
    lambda tokens: st.sampled_from([".".join(tokens), ".".join([*tokens, ">"]), ">"])
)


def as_regex(pattern: str) -> re.Pattern[str]:
    """The naive model: a regular expression made of the pattern's tokens."""
    parts = {"*": r"[^.]+", ">": r".+"}
    return re.compile(r"\.".join(parts.get(token, re.escape(token)) for token in pattern.split(".")))


def taken(pattern: str) -> set[str]:
    return {subject for subject in LITERALS if as_regex(pattern).fullmatch(subject)}


@given(PATTERN, st.sampled_from(LITERALS))
def test_matching_agrees_with_the_model(pattern: str, subject: str) -> None:
    expected = as_regex(pattern).fullmatch(subject) is not None
    assert matches(pattern, subject) is expected
    assert matches(pattern.encode(), subject.encode()) is expected


@given(PATTERN, PATTERN)
def test_overlap_and_subset_agree_with_the_model(a: str, b: str) -> None:
    assert overlaps(a, b) is bool(taken(a) & taken(b))
    assert overlaps(a.encode(), b.encode()) is overlaps(b, a)
    if is_subset(a, b):
        assert taken(a) <= taken(b)
    elif not taken(a) <= taken(b):
        assert not is_subset(a.encode(), b.encode())


@pytest.mark.parametrize(
    ("a", "b", "subset"),
    [
        ("a", "a", True),
        ("a", "*", True),
        ("*", "a", False),
        ("a.*", "a.>", True),
        (">", ">", True),
        (">", "*", False),
        ("a.>", "a.*", False),
        ("a", "a.>", False),
        ("a.b", "a", False),
        ("*.b", "a.b", False),
        ("a.b", "*.b", True),
    ],
)
def test_a_subset_takes_nothing_else(a: str, b: str, subset: bool) -> None:
    assert is_subset(a, b) is subset


VALID = [
    ("a", True), ("a.b.c", True), ("*", True), (">", True), ("a.*.>", True), ("foo*bar", True), ("a>b", True),
    ("é", True), ("", False), (".", False), ("a.", False), (".a", False), ("a..b", False), ("a b", False),
    (" a", False), ("a ", False), ("a\t", False), ("a\r\n", False), (">.a", False), ("a.>.b", False), ("a\0", False),
]  # fmt: skip


@pytest.mark.parametrize(("subject", "valid"), VALID)
def test_a_subject_is_valid_or_not(subject: str, valid: bool) -> None:
    assert is_valid_subject(subject) is valid
    assert is_valid_subject(subject.encode()) is valid


@pytest.mark.parametrize(("subject", "wild"), [("a.b", False), ("a.*", True), ("a.>", True), ("a*.b>", False)])
def test_only_whole_tokens_are_wildcards(subject: str, wild: bool) -> None:
    assert has_wildcard(subject) is wild
    assert is_literal(subject.encode()) is not wild


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("ORDERS", True),
        ("a-b_c=d$1é", True),
        ("n" * 255, True),
        ("n" * 256, False),
        ("ü" * 127, True),
        ("ü" * 128, False),
        ("", False),
    ]
    + [(f"a{bad}b", False) for bad in " \t\r\n\f.*>\\/\0"],
)
def test_a_name_is_valid_or_not(name: str, valid: bool) -> None:
    assert is_valid_name(name) is valid


def test_a_domain_changes_the_prefix() -> None:
    assert domain_prefix("") == "$JS.API"
    assert domain_prefix("hub") == "$JS.hub.API"
