"""What a plan does with what documents want: the cases of plans.yaml, each with the plans that come of it.

Where plans are meant to change, `python -m tests.desired.test_plans` writes them anew: read what differs.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from natsctl.desired.live import LiveState
from natsctl.desired.plan import Change
from natsctl.desired.planner import PlanOptions, make_destruction, make_plan
from tests.desired.sets import account, documents, key_of, write_cases

FILE = Path(__file__).with_name("plans.yaml")
CASES: dict[str, dict[str, Any]] = yaml.load(FILE.read_text(), Loader=yaml.CSafeLoader)
SAID = ("needs", "takes_over", "refused", "hint", "messages", "bytes", "losses", "notes")


def live_of(case: dict[str, Any]) -> LiveState:
    """The account of a case: what arguments of `account` make together, with fields as a server shows them besides."""
    live = LiveState(unreadable=case.get("unreadable", {}))
    for given in case.get("live", []):
        one = account(**given)
        live = LiveState({**live.assets, **one.assets}, one.server, one.limits, now_ns=one.now_ns)
    for name, fields in case.get("shown", {}).items():
        live.assets[key_of(name)].info["config"].update(fields)
    return live


def told(change: Change) -> dict[str, Any]:
    """What a change says, and the fields that it sends with other values than they had."""
    said = {str(change.action): change.key.name, "there": change.before is not None}
    said |= {name: value for name in SAID if (value := getattr(change, name)) or (value == "" and name == "takes_over")}
    if change.differences:
        said["differences"] = {one.path: [one.old, one.new] for one in change.differences}
    if change.config is not None:
        sent, before = change.config, change.before or {}
        names = sorted(sent.keys() | before.keys())
        said["sends"] = {name: sent.get(name) for name in names if sent.get(name) != before.get(name)}
    return said


def plans(case: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for asked in case["plans"]:
        wanted = documents(asked["wanted"], protect=asked.get("protect", ()))
        named = frozenset(asked.get("named", ()))
        options = PlanOptions(**dict.fromkeys(asked.get("options", ()), True), named=named)
        plan = (make_destruction if asked.get("destroy") else make_plan)(wanted, live_of(case), options)
        said = {"changes": [told(one) for one in plan.changes], "unchanged": plan.unchanged, "notes": plan.notes}
        found.append(msgspec.to_builtins(said))
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_plans_are_as_expected(name: str) -> None:
    assert plans(CASES[name]) == [asked["plan"] for asked in CASES[name]["plans"]]


if __name__ == "__main__":
    for case in CASES.values():
        for asked, plan in zip(case["plans"], plans(case), strict=True):
            asked["plan"] = plan
    write_cases(FILE, CASES)
