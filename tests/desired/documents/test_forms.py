"""Saved plans, and what is only created."""

from natsctl.desired.assets import AssetKey
from natsctl.desired.live import LiveAsset, LiveState
from natsctl.desired.plan import Action, Plan, encode_plan
from natsctl.desired.planner import make_plan


def test_a_saved_plan_is_told_as_what_it_is(told) -> None:
    saved = encode_plan(Plan(owner="shop")).decode()
    assert told(saved) == [(1, "$", "this is a saved plan, natsctl apply --plan FILE carries it out")]


def test_what_is_made_only_is_left_as_it_is(read) -> None:
    text = "streams:\n- {name: A, max_msgs: 5, create_only: true}\n- {name: B, max_msgs: 5, create_only: true}\n"
    live = LiveAsset(AssetKey("A"), {"config": {"name": "A", "subjects": ["A"], "max_msgs": 7, "num_replicas": 1}})
    plan = make_plan(read(text), LiveState({live.key: live}))
    assert [(change.action, change.stream) for change in plan.changes] == [(Action.CREATE, "B")]
    assert plan.unchanged == 1
    plain = make_plan(read(text.replace(", create_only: true", "")), LiveState({live.key: live}))
    assert [(change.action, change.stream) for change in plain.changes] == [(Action.UPDATE, "A"), (Action.CREATE, "B")]
