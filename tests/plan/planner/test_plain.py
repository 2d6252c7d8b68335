"""What is seen at a glance to be as described, is so by all the rules; and what is not, is not taken for it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsctl.plan.asset import AssetKey, Place
from natsctl.plan.planner.judge import Judge
from natsctl.plan.planner.plain import Plain
from natsctl.plan.planner.planner import make_plan
from natsctl.plan.planner.settle import settled
from natsctl.plan.wanted import DocumentSet, Wanted
from tests.plan.random_accounts import Account, accounts, world_of
from tests.plan.sets import account, documents

VALUES: list[Any] = [
    None,
    0,
    1,
    -1,
    7,
    120_000_000_000,
    True,
    False,
    "",
    "x",
    [],
    ["x"],
    {},
    {"x": "y"},
    "memory",
    "all",
]


def wanted_of(found: Account) -> DocumentSet:
    """The documents that describe an account."""
    return DocumentSet({key: Wanted(key, key.kind, config, Place("f")) for key, config in found.items()}, "default")


@settings(max_examples=20, deadline=None)
@given(accounts(), st.data())
def test_the_glance_never_contradicts_the_rules(found: Account, data: st.DataObject) -> None:
    documents = wanted_of(found)
    world = world_of(found)
    assert make_plan(documents, world).changes == []
    for key, live in world.assets.items():
        config = live.info["config"]
        name = data.draw(st.sampled_from(sorted(config)))
        config[name] = data.draw(st.sampled_from(VALUES))
        judge = Judge(documents, world, allow_replace=True, adopt=False)
        change = judge.change(documents.wanted[key], None)
        judge._is_plainly_so = lambda *_: False  # type: ignore[method-assign]  # the rules alone
        by_rules = judge.change(documents.wanted[key], None)
        if key.consumer or name != "name":
            assert (change is None) == (by_rules is None), (key, name, config[name])


@pytest.mark.parametrize("name", ["A", "A > c", "A > p", "A > e"])
def test_plain_assets_are_seen_to_be_so(name: str) -> None:
    assets: dict[str, Any] = {
        "A": {"subjects": ["a.>", "b"], "max_age": 10**9, "storage": "memory", "metadata": {"team": "x"}},
        "A > c": {"durable_name": "c", "ack_policy": "explicit", "filter_subject": "a.x", "max_deliver": 5},
        "A > p": {"durable_name": "p", "deliver_subject": "d", "deliver_group": "g"},
        "A > e": {"name": "e", "inactive_threshold": 10**9},
    }
    world, wanted = account(assets), documents(assets)
    stream, _, consumer = name.partition(" > ")
    key = AssetKey(stream, consumer)
    plain = Plain(world.limits, lambda name: assets.get(name))
    live = world.assets[key].config
    assert plain.is_so(key, live, wanted.wanted[key].config)
    for field, value in (("description", "x"), ("max_bytes", 5), ("metadata", {"other": "y"}), ("from_tomorrow", 1)):
        assert not plain.is_so(key, {**live, field: value}, wanted.wanted[key].config)


def test_a_consumer_below_limits_of_its_stream_is_left_to_the_rules() -> None:
    stream = {"subjects": ["a"], "consumer_limits": {"max_ack_pending": 5}}
    plain = Plain({}, lambda name: stream)
    config = {"durable_name": "c", "ack_policy": "explicit"}
    assert not plain.is_so(AssetKey("A", "c"), settled(AssetKey("A", "c"), config), config)
