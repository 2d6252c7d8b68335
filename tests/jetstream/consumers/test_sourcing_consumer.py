"""Consumers that feed other streams: what becomes of their configuration, and how they know which stream they read."""

from typing import Any

import msgspec
import pytest

from natsctl.api import headers
from tests.support.jet import SECOND, Jet

CONFIG: dict[str, Any] = {
    "name": "FEED", "deliver_subject": "d", "ack_policy": "none", "direct": True, "sourcing": True,
    "flow_control": True, "idle_heartbeat": SECOND, "max_deliver": 1, "inactive_threshold": 10 * SECOND,
}  # fmt: skip


@pytest.fixture
def jet() -> Jet:
    return Jet()


def feed(jet: Jet, header: bytes = b"") -> tuple[bytes, Any]:
    sid = jet.listen("in")
    body = msgspec.json.encode({"stream_name": "S", "config": CONFIG})
    jet.wire.publish("$JS.API.CONSUMER.CREATE.S.FEED", body, "in", header)
    (message,) = jet.heard(sid)
    return message.header, message.json()


def test_each_connection_has_a_consumer_of_its_own_that_lists_do_not_show(jet: Jet) -> None:
    jet.stream(max_consumers=1)
    jet.consumer()
    (_, first), (_, second) = feed(jet), feed(jet)
    assert first["name"].startswith("FEED-") and second["name"].startswith("FEED-")
    assert first["name"] != second["name"]
    assert jet.api("CONSUMER.NAMES.S")["consumers"] == ["C"]


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
def test_where_messages_wait_for_acks_it_is_durable_and_acks_by_flow_control(jet: Jet, retention: str) -> None:
    jet.stream(retention=retention)
    config = feed(jet)[1]["config"]
    assert (config["durable_name"], config["ack_policy"], config["max_deliver"]) == ("FEED", "flow_control", -1)
    assert "direct" not in config and "ack_wait" not in config and "inactive_threshold" not in config
    assert feed(jet)[1]["name"] == "FEED"


def test_the_answer_names_the_stream_and_another_one_of_that_name_is_refused(jet: Jet) -> None:
    jet.stream()
    identity = headers.get(feed(jet)[0], headers.STREAM_IDENTITY)
    assert identity is not None and len(identity) == 8
    known = headers.encode([(headers.STREAM_IDENTITY, identity)])
    assert "error" not in feed(jet, known)[1]
    jet.api("STREAM.DELETE.S")
    jet.advance(1)
    jet.stream()
    assert feed(jet, known)[1]["error"]["err_code"] == 10225


def test_a_message_that_is_deleted_acknowledges_none_before_it_that_is_on_its_way(jet: Jet) -> None:
    jet.stream(retention="workqueue")
    deliveries = jet.listen("d")
    feed(jet)
    jet.publish("one", "two", "three")
    assert [m.payload for m in jet.heard(deliveries) if not m.status] == [b"one", b"two", b"three"]
    jet.api("STREAM.MSG.DELETE.S", {"seq": 2})
    state = jet.api("STREAM.INFO.S")["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (2, 1, 3)


def test_it_is_answered_when_what_was_removed_before_it_is_durable(jet: Jet) -> None:
    jet.stream()
    jet.publish("one", "two")
    answers, deliveries = jet.listen("in"), jet.listen("d")
    jet.machine.hold_commits = True
    jet.wire.publish("$JS.API.STREAM.PURGE.S", b"", "x")
    body = msgspec.json.encode({"stream_name": "S", "config": CONFIG})
    jet.wire.publish("$JS.API.CONSUMER.CREATE.S.FEED", body, "in")
    assert not jet.heard(answers) and not jet.heard(deliveries)
    jet.machine.release_commits()
    (message,) = jet.heard(answers)
    assert message.json()["name"].startswith("FEED-")
