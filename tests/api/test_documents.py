"""Configuration documents: words for durations and sizes, and faults by path and reason."""

import datetime
from typing import Any

import pytest

from natsctl.api.codec import load
from natsctl.api.consumer import AckPolicy, ConsumerConfig
from natsctl.api.errors import UsageError
from natsctl.api.stream import RetentionPolicy, StorageType, StreamConfig, StreamConsumerLimits

DAY = 86_400 * 10**9


def fault(document: Any, model: type = StreamConfig) -> str:
    with pytest.raises(UsageError) as caught:
        load(document, model, "orders.json")
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_people_may_write_words() -> None:
    config = load(
        {
            "name": "ORDERS",
            "subjects": ["ORDERS.*"],
            "max_age": "1y",
            "max_bytes": "10GiB",
            "max_msg_size": "64K",
            "duplicate_window": 120_000_000_000,
            "retention": "Limits",
            "storage": "file",
            "consumer_limits": {"inactive_threshold": "90s"},
            "max_msgs": -1,
            "num_replicas": 1.0,
        },
        StreamConfig,
        "orders.json",
    )
    assert config == StreamConfig(
        name="ORDERS",
        subjects=["ORDERS.*"],
        max_age=365 * DAY,
        max_bytes=10 * 2**30,
        max_msg_size=64 * 1024,
        duplicate_window=120 * 10**9,
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        consumer_limits=StreamConsumerLimits(inactive_threshold=90 * 10**9),
        max_msgs=-1,
        num_replicas=1,
    )


def test_a_consumer_may_be_written_with_words() -> None:
    document = {"durable_name": "NEW", "ack_policy": "explicit", "ack_wait": "30s", "backoff": ["1s", 2_000_000_000]}
    config = load(document, ConsumerConfig, "new.yaml")
    assert config.ack_policy is AckPolicy.EXPLICIT
    assert (config.ack_wait, config.backoff) == (30 * 10**9, [10**9, 2 * 10**9])


def test_an_info_document_stands_for_its_configuration() -> None:
    document = {
        "type": "io.nats.jetstream.api.v1.stream_info_response",
        "config": {"name": "S", "from_the_future": 1},
        "created": "2026-01-01T00:00:00Z",
        "state": {"messages": 1},
    }
    assert load(document, StreamConfig, "s.json") == StreamConfig(name="S")


def test_an_info_document_of_2020_stands_for_its_configuration() -> None:
    assert load({"config": {"name": "S"}, "stats": {"messages": 0}}, StreamConfig, "s.json").name == "S"


def test_a_time_may_be_text_or_a_date_of_yaml() -> None:
    for value in ("2026-01-01T00:00:00Z", datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)):
        config = load({"opt_start_time": value, "deliver_policy": "by_start_time"}, ConsumerConfig, "c.yaml")
        assert config.opt_start_time in ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00+00:00")


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], "orders.json: $: expected an object, got a list"),
        ({"max_agee": 1}, "orders.json: $.max_agee: unknown key, did you mean max_age?"),
        ({"zzzz": 1}, "orders.json: $.zzzz: unknown key"),
        ({"name": 5}, "orders.json: $.name: expected a text, got 5"),
        ({"no_ack": "yes"}, 'orders.json: $.no_ack: expected true or false, got "yes"'),
        ({"no_ack": 1}, "orders.json: $.no_ack: expected true or false, got 1"),
        ({"max_msgs": "many"}, 'orders.json: $.max_msgs: expected a whole number, got "many"'),
        ({"max_msgs": 1.5}, "orders.json: $.max_msgs: expected a whole number, got 1.5"),
        ({"max_msgs": float("inf")}, "orders.json: $.max_msgs: expected a whole number, got inf"),
        ({"max_msgs": True}, "orders.json: $.max_msgs: expected a whole number, got true"),
        (
            {"first_seq": -1},
            "orders.json: $.first_seq: expected a whole number from 0 to 18446744073709551615, got -1",
        ),
        (
            {"max_age": "soon"},
            "orders.json: $.max_age: expected a duration such as 30s, 5m, 1h30m or 1y, got 'soon'",
        ),
        ({"max_age": []}, "orders.json: $.max_age: expected a whole number or a duration, got a list"),
        ({"max_bytes": "big"}, "orders.json: $.max_bytes: expected a size such as 512, 64KiB, 10MB or 1GiB, got 'big'"),
        ({"storage": "disk"}, 'orders.json: $.storage: expected one of file, memory, got "disk"'),
        ({"storage": 1}, "orders.json: $.storage: expected one of file, memory, got 1"),
        ({"subjects": "ORDERS.*"}, 'orders.json: $.subjects: expected a list, got "ORDERS.*"'),
        ({"subjects": ["a", 5]}, "orders.json: $.subjects[1]: expected a text, got 5"),
        ({"metadata": {"a": 1}}, "orders.json: $.metadata.a: expected a text, got 1"),
        ({"metadata": []}, "orders.json: $.metadata: expected an object, got a list"),
        (
            {"sources": [{"name": "A"}, {"nam": "B"}]},
            "orders.json: $.sources[1].nam: unknown key, did you mean name?",
        ),
        (
            {"mirror": {"name": "A", "opt_start_time": "today"}},
            "orders.json: $.mirror.opt_start_time: expected a time such as 2026-01-31T12:00:00Z, got 'today'",
        ),
        (
            {"mirror": {"name": "A", "opt_start_time": 5}},
            "orders.json: $.mirror.opt_start_time: expected a time such as 2026-01-31T12:00:00Z, got 5",
        ),
        ({"config": {"name": 1}, "state": {}}, "orders.json: $.config.name: expected a text, got 1"),
    ],
)
def test_a_fault_is_told_by_path_and_reason(document: Any, text: str) -> None:
    assert fault(document) == text


def test_null_counts_as_not_given() -> None:
    assert load({"name": "S", "subjects": None, "mirror": None}, StreamConfig, "s.yaml") == StreamConfig(name="S")


def test_a_long_value_is_cut_in_the_text() -> None:
    assert fault({"no_ack": "x" * 500}).endswith("…")
