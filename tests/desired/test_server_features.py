"""What servers are too old for is refused before it is sent."""

from typing import Any

import pytest

from natsctl.desired.live import LiveState
from natsctl.desired.planner import PlanOptions, make_plan
from tests.desired.sets import account, change_of, documents

OLD = {"version": "2.9.25"}
MIDDLE = {"version": "2.11.12", "api_level": 1}


@pytest.mark.parametrize(
    ("shown", "config", "why"),
    [
        (OLD, {"compression": "s2"}, "compression needs nats-server 2.10, this is 2.9.25"),
        (OLD, {"compression": "none"}, ""),
        (OLD, {"allow_msg_ttl": True}, "allow_msg_ttl needs JetStream API level 1"),
        (MIDDLE, {"allow_msg_ttl": True}, ""),
        (
            MIDDLE,
            {"allow_msg_counter": True},
            "allow_msg_counter needs JetStream API level 2, the server 2.11.12 has 1",
        ),
        ({"version": "custom"}, {"allow_msg_counter": True}, ""),
    ],
)
def test_a_field_that_the_server_would_drop_is_refused(shown: dict[str, Any], config: dict[str, Any], why: str) -> None:
    (change,) = make_plan(documents({"A": {"subjects": ["a"], **config}}), LiveState(server=shown)).changes
    assert change.refused == why or (why and change.refused.startswith(why))
    live_state = account({"A": {"subjects": ["a"]}}, server=shown)
    plan = make_plan(documents({"A": {"subjects": ["a"], **config}}), live_state, PlanOptions(allow_replace=True))
    assert [change.refused.startswith(why) for change in plan.changes if why] == [True] * bool(why)


def test_a_server_without_metadata_gets_no_labels_and_misses_none() -> None:
    created = change_of(make_plan(documents({"A": {"subjects": ["a"]}}), LiveState(server=OLD)), "A")
    assert "metadata" not in (created.config or {})
    live_state = account({"A": {"subjects": ["a"]}}, owner="", server=OLD)
    assert (
        make_plan(documents({"A": {"subjects": ["a"]}}, protect=("A",)), live_state, PlanOptions(adopt=True)).changes
        == []
    )
