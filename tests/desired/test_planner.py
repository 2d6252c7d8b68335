"""What a plan does with what documents want: create, update, replace, remove, leave, refuse."""

from __future__ import annotations

from typing import Any

import pytest

from natsctl.desired.live import LiveState
from natsctl.desired.planner import PlanOptions, make_destruction, make_plan
from tests.desired.sets import SECOND, account, actions, change_of, documents, key_of, paths

A = {"subjects": ["a.>"], "max_age": 3600 * SECOND}
C = {"durable_name": "c", "ack_policy": "explicit"}


def test_what_is_missing_is_created_with_the_owners_label() -> None:
    plan = make_plan(documents({"A": A, "A > c": C}), LiveState())
    assert actions(plan) == [("create", "A"), ("create", "A > c")]
    assert change_of(plan, "A").config == {
        "name": "A", **A, "allow_direct": True, "metadata": {"natsctl.owner": "shop", "natsctl.creator": "shop"},
    }  # fmt: skip
    assert change_of(plan, "A").before is None


def test_what_is_as_described_needs_nothing() -> None:
    assets: dict[str, Any] = {"A": A, "A > c": C}
    plan = make_plan(documents(assets), account(assets))
    assert (plan.changes, plan.unchanged) == ([], 2)


def test_a_field_that_no_document_mentions_is_left_as_it_is_and_null_asks_for_the_default() -> None:
    live_state = account({"A": {**A, "max_msgs": 7, "description": "by hand", "metadata": {"team": "x", "cost": "y"}}})
    assert make_plan(documents({"A": A}), live_state).changes == []
    changed = change_of(make_plan(documents({"A": {**A, "max_bytes": 9, "metadata": {"team": "z"}}}), live_state), "A")
    assert paths(changed) == ["max_bytes", "metadata.team"]
    sent = changed.config or {}
    assert (sent["max_msgs"], sent["description"], sent["metadata"]["cost"]) == (7, "by hand", "y")
    plan = make_plan(documents({"A": {**A, "max_msgs": None, "description": None, "metadata.cost": None}}), live_state)
    assert [(one.path, one.old, one.new) for one in plan.changes[0].differences] == [
        ("description", "by hand", None),
        ("max_msgs", 7, -1),
        ("metadata.cost", "y", None),
    ]
    mentioned = make_plan(documents({"A": {**A, "metadata": {"team": "x"}, "metadata.cost": None}}), live_state)
    assert paths(change_of(mentioned, "A")) == ["metadata.cost"]


def test_an_update_sends_all_that_is_there_and_knows_what_was_before() -> None:
    live = account({"A": A})
    change = change_of(make_plan(documents({"A": {**A, "max_msgs": 9}}), live), "A")
    assert change.config == {**live.assets[key_of("A")].config, "max_msgs": 9}
    assert change.before is not None and change.before["max_msgs"] == -1


@pytest.mark.parametrize(
    ("live", "wanted", "differs"),
    [
        ({}, {"max_age": 60 * SECOND}, ["max_age", "duplicate_window"]),
        ({"duplicate_window": 90 * SECOND}, {"max_age": 60 * SECOND}, ["max_age", "duplicate_window"]),
        ({"max_age": 60 * SECOND}, {"max_age": 3600 * SECOND}, ["max_age"]),
    ],
)
def test_a_window_that_a_server_filled_in_or_that_is_too_long_follows_the_age(
    live: dict[str, Any], wanted: dict[str, Any], differs: list[str]
) -> None:
    plan = make_plan(documents({"A": {"subjects": ["a"], **wanted}}), account({"A": {"subjects": ["a"], **live}}))
    assert plan.refused == []
    assert sorted(paths(change_of(plan, "A"))) == sorted(differs)


@pytest.mark.parametrize(
    ("live", "wanted", "gone"),
    [
        ({"filter_subject": "a.x"}, {"filter_subjects": ["a.y", "a.z"]}, "filter_subject"),
        ({"filter_subjects": ["a.y", "a.z"]}, {"filter_subject": "a.x"}, "filter_subjects"),
    ],
)
def test_a_field_that_excludes_another_takes_its_place(live: dict[str, Any], wanted: dict[str, Any], gone: str) -> None:
    live_state = account({"A": A, "A > c": {**C, **live}})
    change = change_of(make_plan(documents({"A": A, "A > c": {**C, **wanted}}), live_state), "A > c")
    assert change.refused == ""
    assert gone not in (change.config or {})
    assert sorted(paths(change)) == sorted([*live, *wanted])


@pytest.mark.parametrize(
    ("name", "live", "wanted", "reason"),
    [
        ("A", A, {**A, "storage": "memory"}, "storage type"),
        ("A", A, {**A, "retention": "workqueue"}, "retention policy"),
        ("A", {**A, "deny_delete": True}, {**A, "deny_delete": None}, "cancel deny message deletes"),
        ("A > c", C, {**C, "ack_policy": "all"}, "ack policy can not be updated"),
        ("A > c", C, {**C, "deliver_subject": "d"}, "pull consumer to push"),
        ("A > c", {"name": "c", "inactive_threshold": 3600 * SECOND}, {"durable_name": "c"}, "for good"),
    ],
)
def test_what_cannot_be_changed_in_place_is_replaced_if_that_is_allowed(
    name: str, live: dict[str, Any], wanted: dict[str, Any], reason: str
) -> None:
    stream = {} if name == "A" else {"A": A}
    live_state = account({**stream, name: live}, states={name: {"messages": 5, "bytes": 230}})
    refused = change_of(make_plan(documents({**stream, name: wanted}), live_state), name)
    assert refused.action == "replace"
    assert reason in refused.refused
    assert "--allow-replace" in refused.hint
    allowed = change_of(
        make_plan(documents({**stream, name: wanted}), live_state, PlanOptions(allow_replace=True)), name
    )
    assert (allowed.action, allowed.refused, allowed.messages, allowed.bytes) == ("replace", "", 5, 230)
    assert any(reason in note for note in allowed.notes)


def test_consumers_of_a_replaced_stream_are_made_anew() -> None:
    live_state = account({"A": A, "A > c": C, "A > by_hand": {"durable_name": "by_hand"}})
    wanted = documents({"A": {**A, "storage": "memory"}, "A > c": C})
    plan = make_plan(wanted, live_state, PlanOptions(allow_replace=True))
    assert actions(plan) == [("replace", "A"), ("create", "A > c")]
    made = change_of(plan, "A > c")
    assert made.before is not None and made.differences == []
    assert "its consumers go with it: by_hand" in change_of(plan, "A").notes


def test_a_consumer_that_comes_back_with_its_replaced_stream_is_removed_behind_it() -> None:
    live = account({"A": A, "A > c": C, "A > old": {"durable_name": "old"}})
    wanted = documents({"A": {**A, "storage": "memory"}, "A > c": C})
    kept = make_plan(wanted, live, PlanOptions(prune=True, allow_replace=True, keep_messages=True))
    assert actions(kept)[0] == ("replace", "A")
    assert ("delete", "A > old") in actions(kept)
    assert change_of(kept, "A > old").needs == ["A"]
    lost = make_plan(wanted, live, PlanOptions(prune=True, allow_replace=True))
    assert actions(lost) == [("replace", "A"), ("create", "A > c")]


def test_prune_removes_only_what_has_this_owners_label() -> None:
    mine = account({"A": A, "OLD": {"subjects": ["old"]}, "A > c": C, "A > old": {"durable_name": "old"}})
    theirs = account({"X": {"subjects": ["x"]}}, owner="them")
    nobodys = account({"Y": {"subjects": ["y"]}}, owner="")
    live_state = LiveState({**mine.assets, **theirs.assets, **nobodys.assets}, mine.server)
    wanted = documents({"A": A, "A > c": C})
    assert actions(make_plan(wanted, live_state)) == []
    assert "OLD" in make_plan(wanted, live_state).notes[0]
    assert actions(make_plan(wanted, live_state, PlanOptions(prune=True))) == [("delete", "OLD"), ("delete", "A > old")]


def test_what_another_has_made_or_nobody_is_neither_pruned_nor_destroyed() -> None:
    live_state = account({"HAND": {"subjects": ["h"]}, "TAKEN": {"subjects": ["t"]}}, owner="")
    taken = live_state.assets[key_of("TAKEN")].info["config"]
    taken["metadata"] = {"natsctl.owner": "shop"}  # labelled by a change, not made
    assert make_plan(documents({}), live_state, PlanOptions(prune=True)).changes == []
    plan = make_destruction(documents({"HAND": {}, "TAKEN": {}}), live_state)
    assert {change.stream: change.refused for change in plan.changes} == {
        "HAND": "natsctl did not create it",
        "TAKEN": "",
    }
    assert make_destruction(documents({"HAND": {}}), live_state, PlanOptions(adopt=True)).refused == []


def test_a_stream_that_is_pruned_and_feeds_another_is_warned_of() -> None:
    live: dict[str, Any] = {"A": A, "OLD": {"subjects": ["old"]}, "M": {"sources": [{"name": "OLD"}]}}
    plan = make_plan(documents({"A": A, "M": live["M"]}), account(live), PlanOptions(prune=True))
    assert change_of(plan, "OLD").notes == ["warning: it feeds M, which will get nothing more"]


def test_who_copies_from_a_stream_that_loses_its_messages_is_told_to_wait() -> None:
    copies: dict[str, Any] = {"M": {"mirror": {"name": "A"}}, "S": {"sources": [{"name": "A"}]}}
    states = {"A": {"messages": 50, "bytes": 50, "last_seq": 1050}}
    live_state = account({"A": A, **copies}, states=states)
    wanted = documents({"A": {**A, "storage": "memory"}, **copies})
    (change,) = make_plan(wanted, live_state, PlanOptions(allow_replace=True)).changes
    (note,) = [note for note in change.notes if "begins again" in note]
    assert "M, S may copy nothing of it before message 1,051" in note
    (change,) = make_plan(wanted, live_state, PlanOptions(allow_replace=True, keep_messages=True)).changes
    assert [note for note in change.notes if "begins again" in note] == []


@pytest.mark.parametrize("consumers", [{"A > c": C}, {}])
def test_a_stream_is_not_pruned_below_a_consumer_that_is_described(consumers: dict[str, Any]) -> None:
    plan = make_plan(documents({"A > c": C}), account({"A": A, **consumers}), PlanOptions(prune=True))
    assert change_of(plan, "A").refused == "no document describes it, but Consumer A > c is described"
    destroyed = make_destruction(documents({"A > c": C}), account({"A": A, "A > c": C}), PlanOptions(prune=True))
    assert (actions(destroyed), destroyed.refused) == ([("delete", "A")], [])


def test_consumers_of_a_removed_stream_need_no_removal_of_their_own() -> None:
    live_state = account({"OLD": {"subjects": ["old"]}, "OLD > c": C}, states={"OLD": {"messages": 3, "bytes": 90}})
    (change,) = make_plan(documents({}), live_state, PlanOptions(prune=True)).changes
    assert (change.action, change.stream, change.messages, change.bytes) == ("delete", "OLD", 3, 90)
    assert change.notes == ["its consumers go with it: c"]


def test_protected_assets_are_neither_removed_nor_replaced() -> None:
    live_state = account({"A": A, "B": {"subjects": ["b"]}}, protect=("A", "B"))
    plan = make_plan(
        documents({"A": {**A, "storage": "memory"}}, protect=("A",)),
        live_state,
        PlanOptions(prune=True, allow_replace=True, adopt=True),
    )
    assert all("protected" in change.refused and "protect: false" in change.hint for change in plan.changes)
    assert actions(plan) == [("replace", "A"), ("delete", "B")]
    assert len(make_destruction(documents({"A": A}), live_state).refused) == 1


def test_a_stream_with_a_protected_consumer_stays() -> None:
    live_state = account({"A": A, "A > c": C}, protect=("A > c",))
    (change,) = make_destruction(documents({"A": A}), live_state).changes
    assert change.refused == "Consumer A > c is protected"


def test_protection_is_put_on_and_taken_off_by_documents() -> None:
    put = make_plan(documents({"A": A}, protect=("A",)), account({"A": A}))
    assert paths(change_of(put, "A")) == ["metadata.natsctl.protect"]
    assert (change_of(put, "A").config or {})["metadata"]["natsctl.protect"] == "true"
    taken = make_plan(documents({"A": A}), account({"A": A}, protect=("A",)))
    assert [(one.path, one.old, one.new) for one in change_of(taken, "A").differences] == [
        ("metadata.natsctl.protect", "true", None)
    ]


def test_another_owners_asset_is_changed_only_when_adopted() -> None:
    theirs = account({"A": A}, owner="them")
    wanted = documents({"A": {**A, "max_msgs": 5}})
    refused = change_of(make_plan(wanted, theirs), "A")
    assert refused.refused == "it belongs to them"
    assert "--adopt" in refused.hint
    adopted = change_of(make_plan(wanted, theirs, PlanOptions(adopt=True)), "A")
    assert adopted.refused == ""
    assert paths(adopted) == ["max_msgs", "metadata.natsctl.owner"]
    assert make_plan(documents({"A": A}), theirs).changes == []


def test_what_has_no_label_is_left_alone_until_it_changes_or_is_adopted() -> None:
    nobodys = account({"A": A}, owner="")
    assert make_plan(documents({"A": A}), nobodys).changes == []
    assert paths(change_of(make_plan(documents({"A": A}), nobodys, PlanOptions(adopt=True)), "A")) == [
        "metadata.natsctl.owner"
    ]
    changed = change_of(make_plan(documents({"A": {**A, "max_msgs": 5}}), nobodys), "A")
    assert changed.refused == "" and paths(changed) == ["max_msgs"]
    assert (changed.config or {})["metadata"] == {"natsctl.owner": "shop"}


def test_a_consumer_of_no_stream_is_refused() -> None:
    (change,) = make_plan(documents({"A > c": C}), LiveState()).changes
    assert "stream A does not exist" in change.refused


def test_what_the_server_would_refuse_is_refused_with_its_own_reason() -> None:
    (change,) = make_plan(documents({"A": {**A, "duplicate_window": 7200 * SECOND}}), LiveState()).changes
    assert "duplicates window can not be larger" in change.refused


def test_what_a_server_of_another_version_took_is_no_difference_though_refused_today() -> None:
    config = {"subjects": ["a"], "allow_msg_schedules": True, "discard": "new", "allow_rollup_hdrs": True}
    live_state = account({"A": {**config, "discard": "old"}})
    live_state.assets[key_of("A")].info["config"]["discard"] = "new"
    assert make_plan(documents({"A": config}), live_state).changes == []


def test_a_stream_that_the_server_does_not_show_is_not_created() -> None:
    (change,) = make_plan(documents({"A": A}), LiveState(unreadable={"A": "it is offline"})).changes
    assert "it is offline" in change.refused


def test_a_stream_is_not_made_sealed() -> None:
    (change,) = make_plan(documents({"A": {**A, "sealed": True}}), LiveState()).changes
    assert "sealed" in change.refused


def test_what_sealing_sets_is_no_difference_and_is_said_in_later_updates() -> None:
    sealed = {**A, "sealed": True}
    as_kept = {"max_age": 0, "discard": "new", "deny_delete": True, "deny_purge": True}
    live_state = account({"A": {**sealed, **as_kept}})
    assert make_plan(documents({"A": sealed}), live_state).changes == []
    (change,) = make_plan(documents({"A": {**sealed, "description": "closed"}}), live_state).changes
    assert (change.action, paths(change)) == ("update", ["description"])
    assert change.config is not None and change.config["deny_delete"] and change.config["deny_purge"]


def test_what_a_sealed_stream_keeps_for_good_is_a_conflict_and_all_else_is_not() -> None:
    live_state = account({"A": {"subjects": ["a"], "sealed": True, "discard": "new", "deny_delete": True}})
    assert make_plan(documents({"A": {"subjects": ["a"]}}), live_state).changes == []
    for wanted in ({"max_age": 60 * SECOND}, {"sealed": False}, {"deny_delete": False, "description": "x"}):
        (change,) = make_plan(documents({"A": {"subjects": ["a"], **wanted}}), live_state).changes
        assert change.refused.startswith("it is sealed for good"), wanted


def test_fields_of_newer_servers_stay_as_they_are() -> None:
    live_state = account({"A": A})
    live_state.assets[key_of("A")].info["config"]["from_the_future"] = {"x": 1}
    assert make_plan(documents({"A": A}), live_state).changes == []
    changed = change_of(make_plan(documents({"A": {**A, "max_msgs": 3}}), live_state), "A")
    assert paths(changed) == ["max_msgs"]
    assert (changed.config or {})["from_the_future"] == {"x": 1}
    named = change_of(make_plan(documents({"A": {**A, "from_the_future": {"x": 2}}}), live_state), "A")
    assert paths(named) == ["from_the_future.x"]


def test_destruction_removes_what_documents_name_and_prune_all_of_the_owner() -> None:
    live_state = account({"A": A, "A > c": C, "B": {"mirror": {"name": "A"}}, "Z": {"subjects": ["z"]}})
    wanted = documents({"A": A, "B": {"mirror": {"name": "A"}}, "GONE": {}})
    assert actions(make_destruction(wanted, live_state)) == [("delete", "B"), ("delete", "A")]
    assert ("delete", "Z") in actions(make_destruction(wanted, live_state, PlanOptions(prune=True)))
