"""Which consumer configurations are refused, with which error, and what the others become."""

from __future__ import annotations

from typing import Any

import pytest

from natsctl.api import consumer_config
from natsctl.testing.jet import SECOND, Jet

MS = 1_000_000
PUSH = {"deliver_subject": "d.x"}


def attempt(jet: Jet, **config: Any) -> Any:
    """Return the answer to creating the consumer C."""
    config = {"name": "C", "ack_policy": "explicit", **config}
    return jet.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})


@pytest.fixture
def jet() -> Jet:
    jet = Jet()
    jet.stream()
    return jet


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"num_replicas": -1}, 10133),
        ({"num_replicas": 3}, 10074),
        ({"ack_wait": -1}, 10183),
        ({"backoff": [SECOND, -1]}, 10184),
        ({"backoff": [SECOND, SECOND], "max_deliver": 1}, 10116),
        ({"description": "x" * 4097}, 10107),
        ({"metadata": {"k": "x" * 131072}}, 10135),
        ({"deliver_subject": "d.*"}, 10079),
        ({"deliver_subject": "d..x"}, 10112),
        ({"deliver_subject": "s.x"}, 10081),
        ({**PUSH, "max_waiting": 5}, 10080),
        ({**PUSH, "ack_policy": "none", "max_ack_pending": 5}, 10082),
        ({**PUSH, "idle_heartbeat": 99 * MS}, 10083),
        ({**PUSH, "flow_control": True}, 10108),
        ({"rate_limit_bps": 1}, 10086),
        ({"idle_heartbeat": SECOND}, 10088),
        ({"flow_control": True}, 10089),
        ({"max_expires": 999_999}, 10115),
        ({"direct": True}, 10090),
        ({"filter_subject": "s.a", "filter_subjects": ["s.b"]}, 10136),
        ({"filter_subjects": ["s.a", ""]}, 10139),
        ({"filter_subjects": ["s.a", "s.*"]}, 10138),
        ({"filter_subjects": ["s.*", "s.a"]}, 10138),
        ({"filter_subjects": ["s.*.b", "s.>"]}, 10138),
        ({"filter_subjects": ["s.b", "s.a", "s.b"]}, 10138),
        ({"filter_subject": "s..a"}, 10052),
        ({"deliver_policy": "by_start_sequence"}, 10094),
        ({"deliver_policy": "by_start_time"}, 10094),
        ({"opt_start_seq": 1}, 10094),
        ({"opt_start_time": "2026-01-01T00:00:00Z"}, 10094),
        ({"opt_start_time": "0001-01-01T00:00:00Z"}, 10094),
        ({"deliver_policy": "last_per_subject"}, 10094),
        ({"sample_freq": "often"}, 10095),
        ({"ack_policy": "flow_control"}, 10218),
        ({"priority_policy": "overflow"}, 10159),
        ({"priority_groups": ["A"]}, 10196),
        ({**PUSH, "priority_groups": ["A"], "priority_policy": "overflow"}, 10178),
    ],
)
def test_refusals(jet: Jet, config: dict[str, Any], code: int) -> None:
    answer = attempt(jet, **config)
    assert answer["error"]["err_code"] == code
    assert jet.api("CONSUMER.NAMES.S")["total"] == 0


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            {"deliver_policy": "by_start_sequence"},
            "consumer delivery policy is deliver by start sequence, but optional start sequence is not set",
        ),
        (
            {"deliver_policy": "last", "opt_start_seq": 5},
            "consumer delivery policy is deliver last, but optional start sequence is also set",
        ),
        (
            {"deliver_policy": "last_per_subject"},
            "consumer delivery policy is deliver last per subject, but optional filter subject is not set",
        ),
        (
            {"sample_freq": "x%"},
            'failed to parse consumer sampling configuration: strconv.Atoi: parsing "x": invalid syntax',
        ),
    ],
)
def test_refusals_name_what_is_wrong(jet: Jet, config: dict[str, Any], text: str) -> None:
    assert attempt(jet, **config)["error"]["description"] == text


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [
        ({"max_deliver": -7}, "max_deliver", -1),
        ({"max_batch": -1}, "max_batch", None),
        ({"max_ack_pending": -7}, "max_ack_pending", -1),
        ({"ack_policy": "none"}, "max_ack_pending", None),
        ({"ack_policy": "none"}, "ack_wait", None),
        ({"backoff": [2 * SECOND]}, "ack_wait", 2 * SECOND),
        ({"backoff": [2 * SECOND], "ack_wait": 9 * SECOND}, "ack_wait", 2 * SECOND),
        ({"deliver_subject": "d.x"}, "max_waiting", None),
        ({}, "inactive_threshold", 5 * SECOND),
        ({"durable_name": "C"}, "inactive_threshold", None),
    ],
)
def test_values_are_normalised(jet: Jet, config: dict[str, Any], key: str, value: object) -> None:
    assert attempt(jet, **config)["config"].get(key) == value


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"max_deliver": -7}, "max_deliver must be set to -1"),
        ({"max_batch": -1}, "max_batch must not be negative"),
        ({"backoff": [SECOND], "ack_wait": 2 * SECOND}, "first backoff value has to equal batch AckWait"),
    ],
)
def test_pedantic_requests_are_refused_instead(jet: Jet, config: dict[str, Any], text: str) -> None:
    body = {"stream_name": "S", "config": {"name": "C", **config}, "pedantic": True}
    error = jet.api("CONSUMER.CREATE.S.C", body)["error"]
    assert (error["err_code"], error["description"]) == (10157, f"pedantic mode: {text}")


def test_consumer_limits_of_the_stream_are_defaults_and_bounds() -> None:
    jet = Jet()
    jet.stream(consumer_limits={"inactive_threshold": 60 * SECOND, "max_ack_pending": 50})
    config = attempt(jet)["config"]
    assert (config["inactive_threshold"], config["max_ack_pending"]) == (60 * SECOND, 50)
    assert attempt(jet, name="C", max_ack_pending=51)["error"]["err_code"] == 10121
    assert attempt(jet, name="C", inactive_threshold=61 * SECOND)["error"]["err_code"] == 10153


def test_a_filter_outside_the_streams_subjects_is_accepted(jet: Jet) -> None:
    assert attempt(jet, filter_subject="other")["name"] == "C"


def test_a_thousand_filters_are_not_compared_with_each_other(jet: Jet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_config, "is_subset", lambda *subjects: pytest.fail("compared"))
    filters = [f"s.{number}" for number in range(1000)]
    assert len(jet.consumer(filter_subjects=filters)["config"]["filter_subjects"]) == 1000
