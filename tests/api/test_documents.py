"""Configuration documents: words for durations and sizes, and faults by path and reason."""

import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from natsctl.api.consumer import AckPolicy, ConsumerConfig
from natsctl.api.documents import load_document as load
from natsctl.api.errors import UsageError
from natsctl.api.stream import RetentionPolicy, StorageType, StreamConfig, StreamConsumerLimits

DAY = 86_400 * 10**9
FAULTS = Path(__file__).parent / "document_faults.yaml"


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


@pytest.mark.parametrize(("document", "text"), yaml.safe_load(FAULTS.read_text(encoding="utf-8")))
def test_a_fault_is_told_by_path_and_reason(document: Any, text: str) -> None:
    assert fault(document) == text


def test_null_counts_as_not_given() -> None:
    assert load({"name": "S", "subjects": None, "mirror": None}, StreamConfig, "s.yaml") == StreamConfig(name="S")


def test_a_long_value_is_cut_in_the_text() -> None:
    assert fault({"no_ack": "x" * 500}).endswith("…")
