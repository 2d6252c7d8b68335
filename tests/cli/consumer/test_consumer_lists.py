"""Consumers listed, found and reported on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def three(fed: Run) -> Run:
    """A pull consumer with a lost ack, a fresh one in groups, and a push consumer."""
    fed("con", "add", "ORDERS", "WORK", "--pull", "--description", "works", "--max-deliver", "5")
    fed("con", "next", "ORDERS", "WORK", "--no-ack", "-r")
    fed("con", "add", "ORDERS", "GROUPS", "--overflow-groups", "g")
    fed("con", "add", "ORDERS", "PUSH", "--target", "out", "--ack", "none")
    return fed


def names(run: Run, *words: str) -> list[str]:
    done = run("con", "find", "ORDERS", *words, "-n")
    assert done.code == 0, done.err
    return sorted(done.out.split())


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ((), ["GROUPS", "PUSH", "WORK"]),
        (("--pull",), ["GROUPS", "WORK"]),
        (("--push",), ["PUSH"]),
        (("--pull", "--invert"), ["PUSH"]),
        (("--bound",), []),
        (("--waiting", "1"), ["GROUPS", "PUSH", "WORK"]),
        (("--ack-pending", "1"), ["GROUPS", "PUSH"]),
        (("--pending", "5"), ["WORK"]),
        (("--pending", "5", "--invert"), ["GROUPS", "PUSH"]),
        (("--idle", "1h"), []),
        (("--created", "0s"), ["GROUPS", "PUSH", "WORK"]),
        (("--replicas", "1"), ["GROUPS", "PUSH", "WORK"]),
        (("--leader", "n1"), []),
        (("--pinned",), []),
        (("--api-level", "1"), ["GROUPS"]),
        (("--expression", "config.max_deliver == 5"), ["WORK"]),
        (("--expression", 'state.num_pending > 4 && config.deliver_subject == "out"'), ["PUSH"]),
    ],
)
def test_find_keeps_those_for_which_every_condition_holds(three: Run, words: tuple[str, ...], found: list[str]) -> None:
    assert names(three, *words) == found


def test_find_shows_a_table_whole_objects_or_names(three: Run) -> None:
    assert [
        one["config"]["max_deliver"]
        for one in three("con", "find", "ORDERS", "--expression", "config.max_deliver == 5", "-j").json
    ] == [5]
    assert three("con", "find", "ORDERS", "--push", "-n", "-j").json == ["PUSH"]
    assert "PUSH" in three("con", "find", "ORDERS", "--push").out
    assert three("con", "find", "ORDERS", "--leader", "nobody").out == "No Consumers match\n"


def test_columns_are_chosen_and_sorted_by(three: Run) -> None:
    out = three("con", "ls", "ORDERS", "--columns", "name,mode", "--sort", "unprocessed", "-R").out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    assert rows[0] == ["Name", "Mode"]
    assert rows[-1] == ["WORK", "Pull"]
    wide = three("con", "ls", "ORDERS", "--wide").out
    assert "Filters" in wide
    assert "Filters" not in three("con", "ls", "ORDERS").out
    sorted_by_name = three("con", "ls", "ORDERS", "--sort", "name", "-R", "-j")
    assert sorted_by_name.json == ["WORK", "PUSH", "GROUPS"]
    whole = three("con", "ls", "ORDERS", "--sort", "name", "-R", "-j", "--details").json
    assert [one["config"]["durable_name"] for one in whole] == sorted_by_name.json
    alone = three("con", "ls", "ORDERS", "--details")
    assert (alone.code, alone.out, "-j" in alone.err) == (2, "", True)


def test_a_report_shows_where_each_consumer_stands_and_the_sums(three: Run) -> None:
    out = three("con", "report", "ORDERS").out
    assert "Consumer report for ORDERS with 3 consumers" in out
    work = next(line for line in out.splitlines() if "WORK" in line)
    assert [cell.strip() for cell in work.split("│")[1:9]] == [
        "WORK",
        "Pull",
        "Explicit",
        "30.00s",
        "1",
        "0",
        "4 / 80%",
        "0",
    ]
    assert "1 outstanding ack, 0 redelivered, 14 unprocessed" in out
    raw = three("con", "report", "ORDERS", "-r").out
    assert "30000000000" in raw
    assert three("con", "report", "ORDERS", "--sort", "speed").code == 2


def test_a_report_as_data_holds_whole_objects(three: Run) -> None:
    document = three("con", "report", "ORDERS", "-j", "-l").json
    assert (document["stream"], document["messages"], document["leaders"]) == ("ORDERS", 5, [])
    assert [one["name"] for one in document["consumers"]] == ["GROUPS", "PUSH", "WORK"]
    assert document["consumers"][0]["config"]["priority_groups"] == ["g"]


def test_a_report_of_nothing_and_of_a_missing_stream(orders: Run) -> None:
    assert orders("con", "report", "ORDERS").out == "No Consumers defined\n"
    assert orders("con", "report", "ORDRES").code == 3
