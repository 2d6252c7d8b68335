"""What may change about an existing consumer, and that it takes effect."""

from __future__ import annotations

from typing import Any

import pytest

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.consumer_config import check_update
from natsctl.testing.jet import SECOND, Jet, texts


@pytest.fixture
def jet() -> Jet:
    jet = Jet()
    jet.stream()
    return jet


def update(jet: Jet, **config: Any) -> Any:
    """Return the answer to creating the durable C once more."""
    config = {"durable_name": "C", "ack_policy": "explicit", **config}
    return jet.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"deliver_policy": "new"}, "deliver policy can not be updated"),
        ({"mem_storage": True}, "storage type can not be updated"),
        ({"ack_policy": "all"}, "ack policy can not be updated"),
        ({"replay_policy": "original"}, "replay policy can not be updated"),
        ({"deliver_subject": "d.x"}, "can not update pull consumer to push based"),
        ({"max_waiting": 5}, "max waiting can not be updated"),
    ],
)
def test_fixed_fields_of_a_pull_consumer(jet: Jet, config: dict[str, Any], text: str) -> None:
    jet.consumer()
    error = update(jet, **config)["error"]
    assert (error["code"], error["err_code"], error["description"]) == (500, 10012, text)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"deliver_subject": "d.x", "idle_heartbeat": 2 * SECOND}, "heart beats can not be updated"),
        (
            {"deliver_subject": "d.x", "idle_heartbeat": SECOND, "flow_control": True},
            "flow control can not be updated",
        ),
        ({"idle_heartbeat": 0}, "heart beats can not be updated"),
    ],
)
def test_fixed_fields_of_a_push_consumer(jet: Jet, config: dict[str, Any], text: str) -> None:
    jet.consumer(deliver_subject="d.x", idle_heartbeat=SECOND)
    assert update(jet, **config)["error"]["description"] == text


def test_push_does_not_become_pull(jet: Jet) -> None:
    jet.consumer(deliver_subject="d.x")
    assert update(jet)["error"]["description"] == "can not update push consumer to pull based"


def test_start_options_are_fixed(jet: Jet) -> None:
    jet.consumer(deliver_policy="by_start_sequence", opt_start_seq=3)
    error = update(jet, deliver_policy="by_start_sequence", opt_start_seq=4)["error"]
    assert error["description"] == "start sequence can not be updated"


def test_a_deliver_subject_in_use_stays(jet: Jet) -> None:
    jet.consumer(deliver_subject="d.x")
    sid = jet.listen("d.x")
    assert update(jet, deliver_subject="d.y")["error"]["err_code"] == 10013
    jet.wire.unsubscribe(sid)
    update(jet, deliver_subject="d.y")
    sid = jet.listen("d.y")
    jet.publish("1")
    assert texts(jet.heard(sid)) == ["1"]


def test_a_refused_update_changes_nothing(jet: Jet) -> None:
    jet.consumer(description="old")
    update(jet, description="new", ack_policy="all")
    assert jet.info()["config"]["description"] == "old"


def test_filters_change_what_is_pending(jet: Jet) -> None:
    jet.consumer()
    for subject in ("s.a", "s.b", "s.b", "s.c"):
        jet.publish("x", subject=subject)
    jet.pull()
    assert update(jet, filter_subject="s.b")["num_pending"] == 2
    assert update(jet, filter_subjects=["s.b", "s.c"])["num_pending"] == 3
    assert update(jet)["num_pending"] == 3


def test_ack_wait_takes_effect_on_what_is_pending(jet: Jet) -> None:
    jet.consumer(ack_wait=60 * SECOND)
    jet.publish("1")
    jet.pull()
    update(jet, ack_wait=2 * SECOND)
    jet.advance(2.1)
    assert texts(jet.pull({"batch": 1, "no_wait": True})) == ["1"]


def test_max_ack_pending_takes_effect_at_once(jet: Jet) -> None:
    jet.consumer(max_ack_pending=1)
    jet.publish("1", "2")
    sid = jet.listen("in.1")
    jet.wire.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"2", "in.1")
    assert texts(jet.heard(sid)) == ["1"]
    update(jet, max_ack_pending=2)
    assert texts(jet.heard(sid)) == ["2"]


def test_a_pause_is_kept_by_updates(jet: Jet) -> None:
    jet.consumer()
    jet.api("CONSUMER.PAUSE.S.C", {"pause_until": "2026-01-01T00:01:00Z"})
    assert update(jet, description="x")["paused"] is True


@pytest.mark.parametrize(("told", "refused"), [("", True), ("x", True), ("2026-01-31T13:00:00+01:00", False)])
def test_start_times_are_compared_by_the_moment_they_mean_and_as_they_are_where_they_mean_none(
    told: str, refused: bool
) -> None:
    wanted = ConsumerConfig(opt_start_time="2026-01-31T12:00:00Z")
    assert (check_update(ConsumerConfig(opt_start_time=told), wanted, False) is not None) is refused
