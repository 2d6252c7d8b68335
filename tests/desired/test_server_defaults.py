"""Configurations as servers keep them."""

from typing import Any

import pytest

from natsctl.api.stream import StreamConfig
from natsctl.desired.assets import AssetKey
from natsctl.desired.server_defaults import ConfigRefusedError, ServerContext, kept, normalised

SECOND = 1_000_000_000
STREAM, CONSUMER = AssetKey("A"), AssetKey("A", "c")


@pytest.mark.parametrize(
    ("config", "window"),
    [
        ({"subjects": ["a"]}, 120 * SECOND),
        ({"subjects": ["a"], "max_age": 60 * SECOND}, 60 * SECOND),
        ({"subjects": ["a"], "max_age": 600 * SECOND}, 120 * SECOND),
        ({"subjects": ["a"], "duplicate_window": SECOND}, SECOND),
        ({"mirror": {"name": "B"}}, None),
        ({"sources": [{"name": "B"}]}, None),
    ],
)
def test_the_duplicate_window_follows_the_rest(config: dict[str, Any], window: int | None) -> None:
    assert normalised(STREAM, config).get("duplicate_window") == window


def test_a_servers_cap_shortens_the_window_that_it_fills_in() -> None:
    around = ServerContext(limits={"max_duplicate_window": 30 * SECOND})
    assert normalised(STREAM, {"subjects": ["a"]}, around)["duplicate_window"] == 30 * SECOND


def test_servers_before_2_14_give_streams_with_sources_a_window() -> None:
    around = ServerContext(windows_for_sources=True)
    assert normalised(STREAM, {"sources": [{"name": "B"}]}, around)["duplicate_window"] == 120 * SECOND
    shorter = {"sources": [{"name": "B"}], "max_age": 5 * SECOND}
    assert normalised(STREAM, shorter, around)["duplicate_window"] == 5 * SECOND
    assert "duplicate_window" not in normalised(STREAM, {"mirror": {"name": "B"}}, around)


def test_consumers_follow_the_limits_of_their_stream_and_of_the_account() -> None:
    streams = {"A": StreamConfig(name="A", subjects=["a"], num_replicas=1)}
    explicit = {"durable_name": "c", "ack_policy": "explicit"}
    assert normalised(CONSUMER, explicit)["max_ack_pending"] == 1000
    tight = ServerContext(limits={"max_ack_pending": 50})
    assert normalised(CONSUMER, explicit, tight)["max_ack_pending"] == 50
    tier = ServerContext(limits={"tiers": {"R1": {"limits": {"max_ack_pending": 40}}}})
    assert normalised(CONSUMER, explicit, tier)["max_ack_pending"] == 40
    streams["A"].consumer_limits.max_ack_pending = 7
    assert normalised(CONSUMER, explicit, ServerContext(streams.get))["max_ack_pending"] == 7
    batch = ServerContext(limits={"max_request_batch": 256})
    assert normalised(CONSUMER, explicit, batch)["max_batch"] == 256


def test_the_ack_wait_follows_the_backoff_and_an_ephemeral_ends_in_five_seconds() -> None:
    backoff = {"durable_name": "c", "ack_policy": "explicit", "backoff": [SECOND, 2 * SECOND], "max_deliver": 5}
    assert normalised(CONSUMER, backoff)["ack_wait"] == SECOND
    assert normalised(CONSUMER, {"name": "c"})["inactive_threshold"] == 5 * SECOND
    assert "inactive_threshold" not in normalised(CONSUMER, {"durable_name": "c"})


def test_a_mirror_answers_direct_gets_where_its_origin_does() -> None:
    streams = {"B": StreamConfig(name="B", allow_direct=True)}
    assert normalised(STREAM, {"mirror": {"name": "B"}}, ServerContext(streams.get))["mirror_direct"] is True
    assert normalised(STREAM, {"mirror": {"name": "B"}})["mirror_direct"] is False


def test_unknown_fields_are_kept_at_every_depth_and_nulls_ask_for_nothing() -> None:
    config = {
        "subjects": ["a"],
        "x": 1,
        "description": None,
        "consumer_limits": {"y": 2},
        "sources": [{"name": "B", "z": 3, "filter_subject": None}],
    }
    written = normalised(STREAM, config)
    assert written["x"] == 1
    assert written["consumer_limits"] == {"y": 2}
    assert written["sources"] == [{"name": "B", "z": 3}]
    assert "description" not in written


def test_a_refusal_has_the_servers_words() -> None:
    with pytest.raises(ConfigRefusedError, match="max age needs to be >= 100ms") as refused:
        normalised(STREAM, {"subjects": ["a"], "max_age": 5})
    assert refused.value.error.err_code == 10052
    with pytest.raises(ConfigRefusedError, match="Expected `int`"):
        normalised(STREAM, {"max_age": "5"})


def test_settling_twice_changes_nothing_and_what_is_live_is_read_in_the_same_words() -> None:
    config = {"subjects": ["a"], "subject_delete_marker_ttl": SECOND, "allow_msg_schedules": True}
    once = normalised(STREAM, config)
    assert once["allow_rollup_hdrs"] is True and once["allow_msg_ttl"] is True
    assert normalised(STREAM, once) == once == kept(STREAM, once)


def test_a_live_configuration_of_another_kind_of_server_is_read_as_it_stands() -> None:
    assert kept(STREAM, {"name": "A", "retention": "forever"}) == {"name": "A", "retention": "forever"}
    assert kept(STREAM, {"name": "A", "max_msgs": 0})["max_msgs"] == -1


def test_what_older_servers_keep_below_zero_is_none() -> None:
    live = {"durable_name": "c", "name": "c", "max_bytes": -1, "max_expires": -5, "max_deliver": 0}
    read = kept(CONSUMER, live)
    assert ("max_bytes" in read, "max_expires" in read, read["max_deliver"]) == (False, False, -1)
