"""Leaders of consumers in a true cluster of three reference servers."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import eventually
from tests.support.servers import NAMES, Cluster

Run = Callable[..., Any]


@pytest.fixture
def run(three: Cluster, command: Callable[[str], Run]) -> Run:
    return command(three.url())


@pytest.fixture
def led(run: Run) -> Run:
    add = ("str", "add", "S", "--subjects", "s", "--replicas", "3", "--if-not-exists")
    eventually(lambda: run(*add), lambda done: done.code == 0)
    for number in range(6):
        words = ("con", "add", "S", f"C{number}", "--pull", "--if-not-exists")
        eventually(functools.partial(run, *words), lambda done: done.code == 0)
    return run


def leaders(run: Run) -> Counter[str]:
    return Counter(one["cluster"]["leader"] for one in run("con", "ls", "S", "-j", "--details").json)


def test_leaders_hand_over_and_are_spread_evenly(led: Run) -> None:
    before = led("con", "info", "S", "C0", "-j").json["cluster"]["leader"]
    preferred = next(name for name in NAMES if name != before)
    done = led("con", "cluster", "step-down", "S", "C0", "--preferred", preferred, "-f", "-j")
    assert (done.code, done.json["cluster"]["leader"]) == (0, preferred)
    for number in range(1, 6):
        led("con", "cluster", "step-down", "S", f"C{number}", "--preferred", preferred, "-f")
    assert leaders(led) == {preferred: 6}
    assert led("con", "find", "S", "--leader", preferred, "-n").out.split() == [f"C{number}" for number in range(6)]

    report = led("con", "report", "S", "-l", "-j").json
    assert report["leaders"] == [{"server": preferred, "cluster": "C", "consumers": 6}]
    assert f"{preferred}*" in led("con", "report", "S").out

    done = led("con", "cluster", "balance", "S", "--dry-run", "-j")
    assert (done.code, done.json["effect"]) == (0, {"leaders_moved": 4})
    assert leaders(led) == {preferred: 6}
    done = led("con", "cluster", "balance", "S", "-f", "-j")
    assert (done.code, len(done.json["moved"])) == (0, 4)
    assert sorted(leaders(led).values()) == [2, 2, 2]


@pytest.mark.parametrize(
    ("words", "matched"),
    [
        (("--pull",), 6),
        (("--push",), 0),
        (("--bound",), 0),
        (("--waiting", "1"), 6),
        (("--ack-pending", "1"), 6),
        (("--pending", "1"), 6),
        (("--idle", "1h"), 0),
        (("--created", "1h"), 0),
        (("--replicas", "2"), 0),
        (("--replicas", "3"), 6),
        (("--leader", "nobody"), 0),
        (("--pinned",), 0),
        (("--pull", "--invert"), 0),
        (("--expression", 'config.name == "C3"'), 1),
    ],
)
def test_only_what_is_described_is_balanced(led: Run, words: tuple[str, ...], matched: int) -> None:
    done = led("con", "cluster", "balance", "S", *words, "-f", "-j")
    assert (done.code, done.json["consumers"]) == (0, matched), done.err
