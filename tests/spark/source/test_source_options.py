"""The options' texts, faults and table."""

from pathlib import Path

import pytest

from natsctl.spark.source.driver_settings import server_settings
from natsctl.spark.source.errors import OptionError
from natsctl.spark.source.read_request import reading_of
from natsctl.spark.source.source_options import (
    BATCH_READ,
    BATCH_WRITE,
    OF_KAFKA,
    STREAM_READ,
    STREAM_WRITE,
    TABLE,
    Options,
    duration_s,
    meet,
    moment_ns,
    sequences,
    size_bytes,
    subjects,
)

PLACES = (BATCH_READ, STREAM_READ, BATCH_WRITE, STREAM_WRITE)


def test_names_count_in_any_case_and_values_are_parsed() -> None:
    options = Options({"STREAM": "ORDERS, BILLS", "maxtriggerdelay": "1m30s", "fetchBytes": "4MiB"}, STREAM_READ)
    assert options["stream"] == ("ORDERS", "BILLS")
    assert options["maxTriggerDelay"] == 90
    assert options["fetchBytes"] == 4 << 20
    assert options["failOnDataLoss"] is True
    assert Options({"maxoffsetspertrigger": "5"}, STREAM_READ).said() == ["maxOffsetsPerTrigger"]
    parse = sequences("earliest", "latest")
    assert (parse("Earliest"), parse('{"A": -2, "B": 7}')) == ("earliest", {"A": -2, "B": 7})
    assert subjects("a.b, a.>, c") == ("a.>", "c"), "what others cover is left out"


@pytest.mark.parametrize(
    ("name", "place", "told"),
    [
        ("startingOffset", BATCH_READ, "no option startingoffset; did you mean startingOffsets"),
        ("maxOffsetPerTrigger", BATCH_READ, "did you mean maxOffsetsPerTrigger"),
        ("subscribe", BATCH_READ, r"did you mean stream\?"),
        ("kafka.bootstrap.servers", BATCH_READ, r"did you mean servers\?"),
        ("topic", BATCH_READ, r"did you mean stream\?"),
        ("endingOffsets", STREAM_READ, "endingOffsets is for a batch read, and this is a streaming read"),
    ],
)
def test_an_option_that_is_not_for_this_place_is_told_with_what_was_meant(name: str, place: str, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        Options({name: "5"}, place)


@pytest.mark.parametrize("place", PLACES)
def test_what_spark_adds_is_no_fault(place: str) -> None:
    Options({"path": "ORDERS", "checkpointLocation": "/tmp/x", "queryName": "q"}, place)


@pytest.mark.parametrize("place", PLACES)
def test_every_default_is_a_text_that_its_option_takes(place: str) -> None:
    options = Options({}, place)
    for option in TABLE:
        if place in option.where and option.default:
            assert options[option.name] is not None


@pytest.mark.parametrize(
    ("name", "said", "told"),
    [
        ("failOnDataLoss", "maybe", "true or false"),
        ("maxOffsetsPerTrigger", "0", "at least 1"),
        ("maxBytesPerTrigger", "lots", "it is a size"),
        ("startingOffsets", "first", "earliest or latest, or JSON"),
        ("startingTimestamp", "99999999999999999999", "there is no such time"),
        ("requestTimeout", "0s", "longer than nothing"),
        ("startingOffsets", '{"ORDERS": -3}', "-2"),
        ("startingOffsets", "[1]", "gives each stream a sequence"),
        ("startingTimestamp", "1764000000", "if these are seconds, write 2025-11-24T16:00:00Z"),
        ("startingTimestamp", "99999999999", "are before March 1973"),
        ("startingTimestamp", "yesterday", "2026-01-31T12:00:00Z"),
        ("startingTimestamp", "2026-02-31T12:00:00Z", "no such time"),
        ("maxTriggerDelay", "15", "with its unit"),
        ("maxTriggerDelay", "15 parsecs", "no unit of time"),
        ("subject", "a..b", "no subject"),
        ("subject", "a.*.c,a.b.*", "in common"),
        ("transport", "pigeon", "one of auto, blocks, consumer, direct, get"),
        ("stream", "A,,B", "one of its parts is empty"),
    ],
)
def test_a_wrong_value_is_told_by_its_option(name: str, said: str, told: str) -> None:
    with pytest.raises(OptionError) as fault:
        Options({name: said}, STREAM_READ)
    assert f"option {name}: " in str(fault.value)
    assert told in str(fault.value)


def test_times_are_exact_to_the_nanosecond() -> None:
    assert moment_ns("1970-01-01T00:00:01.000000001Z") == 1_000_000_001
    assert moment_ns("2026-11-21T05:08:08.293843492+01:30") == moment_ns("2026-11-21T03:38:08.293843492Z")
    assert moment_ns("2026-11-21T03:38:08.29Z") - moment_ns("2026-11-21T03:38:08Z") == 290_000_000
    assert moment_ns("0") == 0
    assert moment_ns("100000000000") == 100_000_000_000_000_000


def test_durations_and_sizes_have_units() -> None:
    assert [duration_s(said) for said in ("500ms", "15 minutes", "1h30m", "2.5s")] == [0.5, 900, 5400, 2.5]
    assert [size_bytes(said) for said in ("1", "8MiB", "64m", "1GB", "2k")] == [1, 8 << 20, 64 << 20, 1 << 30, 2048]


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ("a.>", "*.b", "a.b"),
        ("a.*", "a.b.c", None),
        (">", "a.*.c", "a.*.c"),
        ("a.>", "a", None),
        ("*.b.*", "a.*.c", "a.b.c"),
        ("a.>", "a.>", "a.>"),
    ],
)
def test_what_two_filters_have_in_common(one: str, other: str, common: str | None) -> None:
    assert meet(one, other) == common
    assert meet(other, one) == common


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "which stream"),
        ({"path": "ORDERS", "stream": "BILLS"}, "give one of them"),
        ({"stream": "ORDERS", "streamPattern": "O*"}, "exclude each other"),
    ],
)
def test_streams_are_named_one_way(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        reading_of(Options(given, BATCH_READ))


def test_a_batch_begins_with_the_earliest_and_a_query_with_the_latest() -> None:
    assert reading_of(Options({"stream": "A"}, BATCH_READ)).start == "earliest"
    assert reading_of(Options({"stream": "A"}, STREAM_READ)).start == "latest"


def test_logins_in_urls_are_taken_out_of_them() -> None:
    settings = server_settings(Options({"servers": "nats://bob:s%40crt@a:1,b:2"}, BATCH_READ), {})
    assert settings.urls == ("nats://a:1", "nats://b:2")
    assert (settings.user, settings.password) == ("bob", "s@crt")
    assert "s@crt" not in repr(settings)


def test_each_option_of_kafka_is_in_the_table_of_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
    table = page.partition("**Kafka option → here.**")[2].partition("##")[0].lower()
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| ")]
    for kafka, here in OF_KAFKA.items():
        assert any(f"`{kafka}`" in row[1] and f"`{here.lower()}`" in row[2] for row in rows), kafka
