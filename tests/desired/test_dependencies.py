"""What must be done before what."""

from __future__ import annotations

from typing import Any

from natsctl.desired.live import LiveState
from natsctl.desired.planner import PlanOptions, make_destruction, make_plan
from tests.desired.sets import account, actions, change_of, documents

C = {"durable_name": "c", "ack_policy": "explicit"}


def test_origins_come_before_what_is_fed_by_them_and_streams_before_consumers() -> None:
    wanted = documents(
        {
            "ALL": {"sources": [{"name": "COPY"}, {"name": "B"}]},
            "COPY": {"mirror": {"name": "A"}},
            "A > c": C,
            "A": {"subjects": ["a"]},
            "B": {"subjects": ["b"]},
        }
    )
    plan = make_plan(wanted, LiveState())
    names = [name for _, name in actions(plan)]
    assert names.index("A") < names.index("COPY") < names.index("ALL")
    assert names.index("B") < names.index("ALL")
    assert change_of(plan, "A > c").needs == ["A"]
    assert sorted(change_of(plan, "ALL").needs) == ["B", "COPY"]


def test_origins_elsewhere_are_waited_for_by_nobody() -> None:
    wanted = documents(
        {
            "M": {"mirror": {"name": "A", "external": {"api": "$JS.hub.API"}}},
            "A": {"subjects": ["a"]},
            "N": {"mirror": {"name": "ELSEWHERE"}},
        }
    )
    assert [change.needs for change in make_plan(wanted, LiveState()).changes] == [[], [], []]


def test_a_stream_gives_up_subjects_before_another_takes_them() -> None:
    live_state = account({"A": {"subjects": ["a.>", "b.>"]}, "OLD": {"subjects": ["c.*"]}})
    wanted = documents({"B": {"subjects": ["b.x"]}, "C": {"subjects": ["c.1", "c.2"]}, "A": {"subjects": ["a.>"]}})
    plan = make_plan(wanted, live_state, PlanOptions(prune=True))
    assert change_of(plan, "B").needs == ["A"]
    assert change_of(plan, "C").needs == ["OLD"]
    order = [name for _, name in actions(plan)]
    assert order.index("A") < order.index("B") and order.index("OLD") < order.index("C")


def test_streams_that_swap_subjects_are_refused_with_a_way_out() -> None:
    live_state = account({"A": {"subjects": ["a"]}, "B": {"subjects": ["b"]}})
    plan = make_plan(
        documents({"A": {"subjects": ["b"]}, "B": {"subjects": ["a"]}, "C": {"subjects": ["c"]}}), live_state
    )
    assert actions(plan)[0] == ("create", "C")
    for name in ("A", "B"):
        assert "subjects" in change_of(plan, name).refused
        assert "twice" in change_of(plan, name).hint


def test_streams_that_feed_each_other_with_filters_are_made_all_the_same() -> None:
    wanted = documents(
        {
            "A": {"subjects": ["a.>"], "sources": [{"name": "B", "filter_subject": "b.only"}]},
            "B": {"subjects": ["b.>"], "sources": [{"name": "A", "filter_subject": "a.only"}]},
        }
    )
    plan = make_plan(wanted, LiveState())
    assert [change.refused for change in plan.changes] == ["", ""]
    assert [change.needs for change in plan.changes] == [[], ["A"]]


def test_a_circle_of_origins_is_refused_with_the_servers_reason() -> None:
    wanted = documents({"A": {"sources": [{"name": "B"}]}, "B": {"sources": [{"name": "A"}]}})
    assert {change.refused for change in make_plan(wanted, LiveState()).changes} == {"detected cycle"}


def test_mirrors_go_before_their_origins() -> None:
    live_state = account({"A": {"subjects": ["a"]}, "M": {"mirror": {"name": "A"}}, "N": {"sources": [{"name": "M"}]}})
    plan = make_destruction(documents({"A": {}, "M": {}, "N": {}}), live_state)
    assert actions(plan) == [("delete", "N"), ("delete", "M"), ("delete", "A")]


def test_consumers_yield_before_their_stream_limits_them() -> None:
    limited: dict[str, Any] = {"subjects": ["a"], "consumer_limits": {"max_ack_pending": 50}}
    assets: dict[str, Any] = {
        "A": {"subjects": ["a"]},
        "A > c": C,
        "A > d": {**C, "durable_name": "d", "max_ack_pending": 5},
    }
    wanted = documents({**assets, "A": limited})
    plan = make_plan(wanted, account(assets))
    assert actions(plan) == [("update", "A > c"), ("update", "A")]
    assert (change_of(plan, "A > c").config or {})["max_ack_pending"] == 50
    assert change_of(plan, "A").needs == ["A > c"]


def test_limits_that_a_consumer_breaks_which_nobody_changes_are_refused() -> None:
    live_state = account({"A": {"subjects": ["a"]}, "A > c": C})
    (change,) = make_plan(
        documents({"A": {"subjects": ["a"], "consumer_limits": {"max_ack_pending": 50}}}), live_state
    ).changes
    assert change.refused == "change to limits violates consumers: c"


def test_consumers_of_a_work_queue_hand_filters_over_in_order() -> None:
    queue: dict[str, Any] = {"subjects": ["a.>"], "retention": "workqueue"}
    old: dict[str, Any] = {
        "A": queue,
        "A > c": {**C, "filter_subject": "a.1"},
        "A > d": {**C, "durable_name": "d", "filter_subject": "a.2"},
    }
    new: dict[str, Any] = {
        "A": queue,
        "A > e": {**C, "durable_name": "e", "filter_subject": "a.2"},
        "A > c": {**C, "filter_subject": "a.3"},
    }
    new["A > f"] = {**C, "durable_name": "f", "filter_subject": "a.1"}
    plan = make_plan(documents(new), account(old), PlanOptions(prune=True))
    assert change_of(plan, "A > e").needs == ["A > d"]
    assert sorted(change_of(plan, "A > f").needs) == ["A > c", "A > d"]
    assert [change.refused for change in plan.changes] == [""] * 4


def test_removals_make_room_where_the_account_limits_streams() -> None:
    live_state = account({"OLD": {"subjects": ["old"]}}, limits={"max_streams": 1})
    plan = make_plan(documents({"NEW": {"subjects": ["new"]}}), live_state, PlanOptions(prune=True))
    assert actions(plan) == [("delete", "OLD"), ("create", "NEW")]


def test_subjects_that_another_stream_keeps_are_refused() -> None:
    live_state = account({"OTHER": {"subjects": ["a.>", "b"]}})
    wanted = {"A": {"subjects": ["a.x"]}, "C": {"subjects": ["c"]}}
    plan = make_plan(documents(wanted), live_state)
    assert change_of(plan, "A").refused == "subjects overlap with an existing stream: a.x is taken by OTHER"
    assert change_of(plan, "C").refused == ""
    given = make_plan(documents({**wanted, "OTHER": {"subjects": ["b"]}}), live_state)
    assert [change.refused for change in given.changes] == ["", "", ""]
    assert change_of(given, "A").needs == ["OTHER"]
    pruned = make_plan(documents(wanted), live_state, PlanOptions(prune=True))
    assert [change.refused for change in pruned.changes] == ["", "", ""]


def test_consumers_whose_filters_match_nothing_any_more_are_named() -> None:
    consumers = {"A > c": {**C, "filter_subject": "b.x"}, "A > d": {**C, "durable_name": "d", "filter_subject": "a.*"}}
    live_state = account({"A": {"subjects": ["a.>", "b.>"]}, **consumers})
    (change,) = make_plan(documents({"A": {"subjects": ["a.>"]}, **consumers}), live_state).changes
    assert change.notes == ["it will have nothing for what these consumers filter: c"]
