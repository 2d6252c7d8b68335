"""The API level that requests and configurations need, where it is stored and where it is shown."""

from __future__ import annotations

from typing import Any

import pytest

from natsctl.api.stream import StreamConfig
from natsctl.api.versions import API_LEVEL, SERVER_VERSION, is_level_met
from natsctl.jetstream.streams.stream import StreamMeta
from tests.support.jet import SECOND, Jet, ok

SHOWN = {"_nats.level": str(API_LEVEL), "_nats.ver": SERVER_VERSION}


@pytest.mark.parametrize(
    ("features", "level"),
    [
        ({}, "0"),
        ({"allow_msg_ttl": True}, "1"),
        ({"subject_delete_marker_ttl": SECOND}, "1"),
        ({"allow_msg_counter": True}, "2"),
        ({"allow_atomic": True}, "2"),
        ({"allow_msg_schedules": True}, "2"),
        ({"persist_mode": "async"}, "2"),
        ({"allow_batched": True, "allow_msg_ttl": True}, "4"),
    ],
)
def test_a_stream_stores_the_level_it_needs_and_info_shows_what_the_server_is(
    jet: Jet, features: dict[str, Any], level: str
) -> None:
    stored = {"_nats.req.level": level}
    created = ok(jet.api("STREAM.CREATE.S", {"name": "S", **features}))
    assert created["config"]["metadata"] == {**stored, **SHOWN}
    assert jet.api("STREAM.INFO.S")["config"]["metadata"] == {**stored, **SHOWN}
    assert ok(jet.api("STREAM.UPDATE.S", {"name": "S", **features}))["config"]["metadata"] == {**stored, **SHOWN}
    assert jet.api("STREAM.LIST")["streams"][0]["config"]["metadata"] == stored
    assert Jet(jet.machine.restarted()).api("STREAM.LIST")["streams"][0]["config"]["metadata"] == stored


@pytest.mark.parametrize(
    ("features", "level"),
    [
        ({}, "0"),
        ({"pause_until": "2099-01-01T00:00:00Z"}, "1"),
        ({"priority_policy": "overflow", "priority_groups": ["A"]}, "1"),
        ({"ack_policy": "flow_control", "deliver_subject": "d"}, "4"),
    ],
)
def test_a_consumer_stores_the_level_it_needs(jet: Jet, features: dict[str, Any], level: str) -> None:
    jet.stream()
    config = {"durable_name": "C", "ack_policy": "explicit", **features}
    stored = {"_nats.req.level": level}
    created = ok(jet.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config}))
    assert created["config"]["metadata"] == {**stored, **SHOWN}
    assert jet.info()["config"]["metadata"] == {**stored, **SHOWN}
    assert jet.api("CONSUMER.LIST.S")["consumers"][0]["config"]["metadata"] == stored


def test_the_level_follows_an_update(jet: Jet) -> None:
    ok(jet.api("STREAM.CREATE.S", {"name": "S"}))
    ok(jet.api("STREAM.UPDATE.S", {"name": "S", "allow_atomic": True}))
    assert jet.api("STREAM.LIST")["streams"][0]["config"]["metadata"] == {"_nats.req.level": "2"}
    ok(jet.api("STREAM.UPDATE.S", {"name": "S"}))
    assert jet.api("STREAM.LIST")["streams"][0]["config"]["metadata"] == {"_nats.req.level": "0"}


@pytest.mark.parametrize("verb", ["CONSUMER.MSG.NEXT.S.C", "DIRECT.GET.S"])
def test_a_level_above_ours_is_refused_with_a_status(jet: Jet, verb: str) -> None:
    jet.stream(allow_direct=True)
    jet.consumer()
    sid = jet.listen("in")
    jet.wire.publish(f"$JS.API.{verb}", b'{"seq":1}', "in", b"NATS/1.0\r\nNats-Required-Api-Level: 6\r\n\r\n")
    assert [m.header for m in jet.heard(sid)] == [b"NATS/1.0 412 Required Api Level\r\n\r\n"]


def test_a_level_is_a_whole_number() -> None:
    assert is_level_met("5") and is_level_met(b"-3") and not is_level_met("") and not is_level_met("1_0")


def test_a_stored_stream_of_a_later_level_is_offline_and_says_why(jet: Jet) -> None:
    jet.stream()
    config = StreamConfig(name="S", subjects=["s.>"], metadata={"_nats.req.level": "6"})
    jet.machine.streams["S"].store.set_meta(StreamMeta(1, config).encode())
    jet.machine.settle()
    again = Jet(jet.machine.restarted())
    refusal = again.api("STREAM.INFO.S")["error"]
    why = "unsupported - required API level: 6, current API level: 5"
    assert (refusal["err_code"], refusal["description"]) == (10194, f"stream is offline: {why}")
