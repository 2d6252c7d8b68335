"""Differences by what fields mean."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from natsctl.desired.plan import differences, without_passed_pause

SECOND = 1_000_000_000
PAIRS = yaml.safe_load(Path(__file__).with_name("differences.yaml").read_text())


def told(old: dict[str, Any], new: dict[str, Any]) -> list[list[Any]]:
    return [[one.path, one.old, one.new] for one in differences(old, new)]


@pytest.mark.parametrize(("old", "new"), PAIRS["same"])
def test_what_means_the_same_is_no_difference(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert told(old, new) == told(new, old) == []


@pytest.mark.parametrize(("old", "new", "expected"), PAIRS["different"])
def test_every_difference_is_named_by_its_path(
    old: dict[str, Any], new: dict[str, Any], expected: list[list[Any]]
) -> None:
    assert told(old, new) == expected


def test_a_pause_that_is_over_is_none() -> None:
    over = {"pause_until": "2026-01-01T00:00:00Z", "name": "c"}
    then_ns = 1_767_225_600 * SECOND
    assert without_passed_pause(over, then_ns) == {"name": "c"}
    assert without_passed_pause(over, then_ns - 1) == over
