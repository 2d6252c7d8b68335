"""Leaders of consumers: how they hand over and are spread, and on a true cluster of three nats-servers."""

import asyncio
import functools
from collections import Counter
from typing import Any

import pytest

from natsctl.api.catalogue import ApiError
from natsctl.api.errors import ApiResponseError, NatsctlError, UnreachableError
from natsctl.client import leaders
from natsctl.client.leaders import hand_over, leader_of, plan_spread
from tests.cli.conftest import eventually
from tests.support.commands import Run
from tests.support.servers import NAMES, Cluster


def led(leader: str, *others: str) -> dict[str, Any]:
    return {"cluster": {"name": "C", "leader": leader, "replicas": [{"name": name} for name in others]}}


class Consumer:
    """A consumer whose leader changes `after` looks; meanwhile nobody answers for it."""

    def __init__(self, before: dict[str, Any], after: int) -> None:
        self.info, self.left, self.asked = before, after, 0

    async def load(self) -> dict[str, Any]:
        if not self.asked:
            return self.info
        self.left -= 1
        if self.left == 1:
            raise UnreachableError("no answer")
        if self.left == 2:
            raise ApiResponseError(ApiError(code=503, err_code=10008, description="temporarily unavailable"))
        return led("n2", "n1") if self.left <= 0 else led("n1", "n2")

    async def ask(self) -> None:
        self.asked += 1


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "LOOK_EVERY_S", 0.001)


def test_it_waits_until_another_server_leads_whatever_happens_meanwhile(quick: None) -> None:
    one = Consumer(led("n1", "n2"), 4)
    before, after = asyncio.run(hand_over(one.load, one.ask, "it", 5.0))
    assert (leader_of(before), leader_of(after), one.asked) == ("n1", "n2", 1)


def test_the_wait_is_bounded(quick: None) -> None:
    one = Consumer(led("n1", "n2"), 10**9)
    with pytest.raises(UnreachableError, match=r"still led by n1 after 0\.05s"):
        asyncio.run(hand_over(one.load, one.ask, "it", 0.05))


@pytest.mark.parametrize(("info", "why"), [({}, "not clustered"), (led("n1"), "one copy")])
def test_what_no_other_server_can_lead_is_not_asked(info: dict[str, Any], why: str) -> None:
    one = Consumer(info, 0)
    with pytest.raises(NatsctlError, match=why):
        asyncio.run(hand_over(one.load, one.ask, "it"))
    assert one.asked == 0


@pytest.mark.parametrize(
    ("infos", "moves"),
    [
        ([led("n1", "n2", "n3")] * 6, 4),
        ([led("n1", "n2", "n3"), led("n2", "n1", "n3"), led("n3", "n1", "n2")], 0),
        ([led("n1", "n2")] * 3, 1),
        ([led("n1")] * 9, 0),
        ([{}] * 3, 0),
        ([led("", "n2")], 0),
        ([], 0),
    ],
)
def test_a_plan_spreads_leaders_and_moves_no_more_than_needed(infos: list[dict[str, Any]], moves: int) -> None:
    named = {f"C{number}": info for number, info in enumerate(infos)}
    plan = plan_spread(named.items())
    assert len(plan) == moves
    after = {name: leader_of(info) for name, info in named.items()} | {move.name: move.target for move in plan}
    for move in plan:
        assert move.target in leaders.peers_of(named[move.name])[1:]
    counts = Counter(leader for name, leader in after.items() if len(leaders.peers_of(named[name])) > 1)
    assert not plan or max(counts.values()) - min(counts.values()) <= 1


@pytest.fixture
def run(three: Cluster, command: Run) -> Run:
    return command(three.url())


@pytest.fixture
def spread(run: Run) -> Run:
    add = ("str", "add", "S", "--subjects", "s", "--replicas", "3", "--if-not-exists")
    eventually(lambda: run(*add), lambda done: done.code == 0)
    for number in range(6):
        words = ("con", "add", "S", f"C{number}", "--pull", "--if-not-exists")
        eventually(functools.partial(run, *words), lambda done: done.code == 0)
    return run


def leading(run: Run) -> Counter[str]:
    return Counter(one["cluster"]["leader"] for one in run("con", "ls", "S", "-j", "--details").json)


def test_leaders_hand_over_and_are_spread_evenly(spread: Run) -> None:
    before = spread("con", "info", "S", "C0", "-j").json["cluster"]["leader"]
    preferred = next(name for name in NAMES if name != before)
    done = spread("con", "cluster", "step-down", "S", "C0", "--preferred", preferred, "-f", "-j")
    assert (done.code, done.json["cluster"]["leader"]) == (0, preferred)
    for number in range(1, 6):
        spread("con", "cluster", "step-down", "S", f"C{number}", "--preferred", preferred, "-f")
    assert leading(spread) == {preferred: 6}
    assert spread("con", "find", "S", "--leader", preferred, "-n").out.split() == [f"C{number}" for number in range(6)]

    report = spread("con", "report", "S", "-l", "-j").json
    assert report["leaders"] == [{"server": preferred, "cluster": "C", "consumers": 6}]
    assert f"{preferred}*" in spread("con", "report", "S").out

    done = spread("con", "cluster", "balance", "S", "--dry-run", "-j")
    assert (done.code, done.json["effect"]) == (0, {"leaders_moved": 4})
    assert leading(spread) == {preferred: 6}
    done = spread("con", "cluster", "balance", "S", "-f", "-j")
    assert (done.code, len(done.json["moved"])) == (0, 4)
    assert sorted(leading(spread).values()) == [2, 2, 2]


@pytest.mark.parametrize(
    ("words", "matched"),
    [
        (("--pull",), 6),
        (("--replicas", "2"), 0),
        (("--pull", "--invert"), 0),
        (("--expression", 'config.name == "C3"'), 1),
    ],
)
def test_only_what_is_described_is_balanced(spread: Run, words: tuple[str, ...], matched: int) -> None:
    done = spread("con", "cluster", "balance", "S", *words, "-f", "-j")
    assert (done.code, done.json["consumers"]) == (0, matched), done.err
