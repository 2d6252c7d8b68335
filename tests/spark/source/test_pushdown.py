"""What of WHERE becomes ranges and subjects."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from natsctl.spark.source.planning import Wanted, push

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_NS = 1767268800 * 10**9
SEQ, SUBJECT, TIME = ("seq",), ("subject",), ("timestamp",)


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([EqualTo(SEQ, 5)], (5, 5)),
        ([EqualNullSafe(SEQ, 5)], (5, 5)),
        ([GreaterThan(SEQ, 5), LessThan(SEQ, 9)], (6, 8)),
        ([GreaterThanOrEqual(SEQ, 5), LessThanOrEqual(SEQ, 9), LessThanOrEqual(SEQ, 12)], (5, 9)),
        ([In(SEQ, (4, 3, 5))], (3, 5)),
    ],
)
def test_sequences_become_a_range_and_nothing_is_left_to_spark(filters: list[Filter], bounds: tuple[int, int]) -> None:
    wanted, left = push(filters, Wanted())
    assert (wanted.first, wanted.last) == bounds
    assert left == []
    wanted, left = push([In(SEQ, (3, 9))], Wanted())
    assert (wanted.first, wanted.last, left) == (3, 9, [In(SEQ, (3, 9))]), "Spark looks at a set with gaps again"
    assert push([GreaterThan(SEQ, 9), LessThan(SEQ, 5)], Wanted())[0].nothing


def test_a_microsecond_stands_for_its_thousand_nanoseconds() -> None:
    at = push([EqualTo(TIME, NOON)], Wanted())[0]
    assert (at.since_ns, at.until_ns) == (NOON_NS, NOON_NS + 999)
    between = push([GreaterThan(TIME, NOON), LessThan(TIME, NOON + timedelta(seconds=1))], Wanted())[0]
    assert (between.since_ns, between.until_ns) == (NOON_NS + 1000, NOON_NS + 10**9 - 1)
    ends = [GreaterThan(TIME, datetime.max.replace(tzinfo=UTC)), LessThan(TIME, datetime.min.replace(tzinfo=UTC))]
    assert push(ends, Wanted())[0].nothing


def test_times_of_any_zone_are_the_same_moment_and_spark_looks_again() -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5)))
    wanted, left = push([GreaterThanOrEqual(TIME, elsewhere)], Wanted())
    assert wanted.since_ns == NOON_NS
    assert len(left) == 1


@pytest.mark.parametrize(
    ("filters", "asked", "subjects"),
    [
        ([EqualTo(SUBJECT, "a.b")], None, ("a.b",)),
        ([In(SUBJECT, ("a.b", "a.c", None))], None, ("a.b", "a.c")),
        ([StringStartsWith(SUBJECT, "a.b.")], None, ("a.b.>",)),
        ([StringStartsWith(SUBJECT, "a.b")], None, ("a.>",)),
        ([EqualTo(SUBJECT, "a.b")], ("a.*", "c"), ("a.b",)),
        ([StringStartsWith(SUBJECT, "a.")], ("*.x", "c"), ("a.x",)),
        ([EqualTo(SUBJECT, "d")], ("a.*", "c"), ()),
        ([StringStartsWith(SUBJECT, "a."), EqualTo(SUBJECT, "a.b")], None, ("a.b",)),
    ],
)
def test_subjects_become_filters(
    filters: list[Filter], asked: tuple[str, ...] | None, subjects: tuple[str, ...]
) -> None:
    assert push(filters, Wanted(subjects=asked))[0].subjects == subjects


@pytest.mark.parametrize(
    "each",
    [
        EqualTo(SUBJECT, "a.*"),
        EqualTo(SUBJECT, "no subject"),
        StringStartsWith(SUBJECT, "a"),
        StringStartsWith(SUBJECT, "*.b"),
        StringContains(SUBJECT, "a"),
        Not(EqualTo(SUBJECT, "a")),
        Not(EqualTo(SEQ, 1)),
        EqualTo(("headers", "key"), "x"),
        EqualTo(("seq", "x"), 1),
        EqualTo(SEQ, None),
        EqualTo(("value",), b"x"),
    ],
)
def test_what_the_server_cannot_say_is_left_to_spark(each: Filter) -> None:
    assert push([each], Wanted()) == (Wanted(), [each])


def test_columns_that_are_never_null_need_no_second_look() -> None:
    filters: list[Filter] = [IsNotNull(SEQ), IsNotNull(SUBJECT), IsNotNull(("headers",)), IsNotNull(("value",))]
    assert push(filters, Wanted())[1] == [IsNotNull(("headers",)), IsNotNull(("value",))]


def test_streams_are_chosen_by_name() -> None:
    both = push([In(("stream",), ("A", "B")), EqualTo(("stream",), "B")], Wanted())[0]
    assert both.streams == ("B",)
    assert push([EqualTo(("stream",), "A"), EqualTo(("stream",), "B")], Wanted())[0].nothing
