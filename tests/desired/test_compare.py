"""Differences by what fields mean."""

from __future__ import annotations

from typing import Any

import pytest

from natsctl.desired.plan import differences, without_passed_pause

SECOND = 1_000_000_000


def told(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """The differences as tuples."""
    return [(one.path, one.old, one.new) for one in differences(old, new)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"subjects": ["a", "b"]}, {"subjects": ["b", "a"]}),
        ({"placement": {"tags": ["x", "y"]}}, {"placement": {"tags": ["y", "x"]}}),
        ({"opt_start_time": "2026-01-01T00:00:00Z"}, {"opt_start_time": "2026-01-01T01:00:00.000+01:00"}),
        ({"description": ""}, {}),
        ({"consumer_limits": {}}, {}),
        ({"metadata": {}}, {"metadata": None}),
        ({"no_ack": False}, {}),
        ({"sample_freq": "100"}, {"sample_freq": "100%"}),
        ({"sample_freq": "0%"}, {}),
        ({"sources": [{"name": "A"}, {"name": "B"}]}, {"sources": [{"name": "B"}, {"name": "A"}]}),
    ],
)
def test_what_means_the_same_is_no_difference(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert told(old, new) == told(new, old) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"max_age": 1}, {"max_age": 2}, [("max_age", 1, 2)]),
        ({}, {"description": "x"}, [("description", None, "x")]),
        ({"sample_freq": "10"}, {"sample_freq": "100%"}, [("sample_freq", "10", "100%")]),
        ({"backoff": [1, 2]}, {"backoff": [2, 1]}, [("backoff", [1, 2], [2, 1])]),
        (
            {"metadata": {"a": "1", "b": "2"}},
            {"metadata": {"b": "3"}},
            [("metadata.a", "1", None), ("metadata.b", "2", "3")],
        ),
        (
            {"consumer_limits": {}},
            {"consumer_limits": {"max_ack_pending": 5}},
            [("consumer_limits.max_ack_pending", None, 5)],
        ),
        (
            {"republish": {"src": "a", "dest": "b"}},
            {"republish": {"src": "a", "dest": "c"}},
            [("republish.dest", "b", "c")],
        ),
        ({"mirror": {"name": "A"}}, {}, [("mirror", {"name": "A"}, None)]),
        (
            {"sources": [{"name": "A"}, {"name": "B", "filter_subject": "b"}]},
            {"sources": [{"name": "B", "filter_subject": "c"}, {"name": "C"}]},
            [
                ("sources[A]", {"name": "A"}, None),
                ("sources[B].filter_subject", "b", "c"),
                ("sources[C]", None, {"name": "C"}),
            ],
        ),
        (
            {"sources": [{"name": "A", "filter_subject": "x"}, {"name": "A", "filter_subject": "y"}]},
            {"sources": [{"name": "A", "filter_subject": "y"}]},
            [("sources[A]", {"name": "A", "filter_subject": "x"}, None)],
        ),
        (
            {"opt_start_time": "2026-01-01T00:00:00Z"},
            {"opt_start_time": "2026-01-01T00:00:01Z"},
            [("opt_start_time", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z")],
        ),
    ],
)
def test_every_difference_is_named_by_its_path(
    old: dict[str, Any], new: dict[str, Any], expected: list[tuple[str, Any, Any]]
) -> None:
    assert told(old, new) == expected


def test_a_pause_that_is_over_is_none() -> None:
    over = {"pause_until": "2026-01-01T00:00:00Z", "name": "c"}
    then_ns = 1_767_225_600 * SECOND
    assert without_passed_pause(over, then_ns) == {"name": "c"}
    assert without_passed_pause(over, then_ns - 1) == over
