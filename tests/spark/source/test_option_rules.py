"""Every option in every place either changes the reader or writer that Spark gets, or is refused with a reason."""

import enum
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from natsctl.spark.source.data_source import JetStreamDataSource
from natsctl.spark.source.errors import OptionError
from natsctl.spark.source.source_options import (
    ANY_READ,
    BATCH_READ,
    BATCH_WRITE,
    READ,
    STREAM_READ,
    STREAM_WRITE,
    TABLE,
    WRITE,
)
from natsctl.spark.source.stream_reader import RefusedStreamReader

PLACES: Final = (*READ, *WRITE)
SEED: Final = "SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4"
JWT: Final = "eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.eyJqdGkiOiJ4In0.c2ln"
CREDENTIALS: Final = f"{JWT}\n{SEED}\n"
ACKED: Final = {"ackMode": "explicit", "consumer": "SPARK"}

SAMPLES: Final[dict[str, dict[str, str]]] = {
    "stream": {"stream": "BILLS"},
    "streamPattern": {"streamPattern": "O*", "stream": ""},
    "backup": {"backup": "BACKUP", "servers": ""},
    "subject": {"subject": "ORDERS.paid"},
    "startingOffsets": {"startingOffsets": '{"ORDERS": 7}'},
    "endingOffsets": {"endingOffsets": '{"ORDERS": 9}'},
    "startingTimestamp": {"startingTimestamp": "2026-01-31T12:00:00Z"},
    "endingTimestamp": {"endingTimestamp": "2026-01-31T12:00:00Z"},
    "startingOffsetsByTimestamp": {"startingOffsetsByTimestamp": '{"ORDERS": 1764000000000}'},
    "endingOffsetsByTimestamp": {"endingOffsetsByTimestamp": '{"ORDERS": 1764000000000}'},
    "startingOffsetsByTimestampStrategy": {
        "startingOffsetsByTimestampStrategy": "latest",
        "startingTimestamp": "2026-01-31T12:00:00Z",
    },
    "failOnDataLoss": {"failOnDataLoss": "false"},
    "maxOffsetsPerTrigger": {"maxOffsetsPerTrigger": "5"},
    "maxBytesPerTrigger": {"maxBytesPerTrigger": "5k"},
    "minOffsetsPerTrigger": {"minOffsetsPerTrigger": "5"},
    "maxTriggerDelay": {"maxTriggerDelay": "5s", "minOffsetsPerTrigger": "5"},
    "minPartitions": {"minPartitions": "5"},
    "maxRecordsPerPartition": {"maxRecordsPerPartition": "5"},
    "transport": {"transport": "direct"},
    "fetchMessages": {"fetchMessages": "5"},
    "fetchBytes": {"fetchBytes": "5k"},
    "fetchTimeout": {"fetchTimeout": "5s"},
    "includeHeaders": {"includeHeaders": "false"},
    "valueFormat": {"valueFormat": "text"},
    "valueMode": {"valueMode": "FAILFAST", "payloadCompression": "gzip"},
    "filterPushdown": {"filterPushdown": "true"},
    "commitConsumer": {"commitConsumer": "SHOWS"},
    "payloadCompression": {"payloadCompression": "gzip"},
    "ackMode": {**ACKED},
    "consumer": {**ACKED, "consumer": "OTHER"},
    "createConsumer": {**ACKED, "createConsumer": "true"},
    "includeMetadata": {**ACKED, "includeMetadata": "true"},
    "msgIdColumn": {"msgIdColumn": "id"},
    "messageIds": {"messageIds": "row"},
    "idempotence": {"idempotence": "none"},
    "writeId": {"writeId": "totals-7"},
    "orderBy": {"orderBy": "id"},
    "window": {"window": "5"},
    "ackTimeout": {"ackTimeout": "5s"},
    "tombstones": {"tombstones": "true"},
    "servers": {"servers": "nats://other:1"},
    "context": {"context": "lab", "servers": ""},
    "user": {"user": "ann"},
    "password": {"user": "ann", "password": "secret"},
    "token": {"token": "secret"},
    "credentials": {"credentials": "CREDENTIALS"},
    "credentialsContent": {"credentialsContent": CREDENTIALS},
    "nkey": {"nkey": "SEED"},
    "nkeyContent": {"nkeyContent": SEED},
    "tlsCa": {"tlsCa": "PEM"},
    "tlsCaContent": {"tlsCaContent": "PEM"},
    "tlsCert": {"tlsCert": "PEM"},
    "tlsCertContent": {"tlsCertContent": "PEM"},
    "tlsKey": {"tlsKey": "PEM"},
    "tlsKeyContent": {"tlsKeyContent": "PEM"},
    "tlsFirst": {"tlsFirst": "true"},
    "tlsInsecure": {"tlsInsecure": "true"},
    "apiPrefix": {"apiPrefix": "imported.API"},
    "domain": {"domain": "hub"},
    "inboxPrefix": {"inboxPrefix": "_MINE"},
    "requestTimeout": {"requestTimeout": "7s"},
    "retryTimeout": {"retryTimeout": "7s"},
    "numRetries": {"numRetries": "7"},
    "retryInterval": {"retryInterval": "7s"},
}
"""Each option with a value that is not its default, and the options that it needs."""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """The files that samples name, and the contexts of a user."""
    contexts = tmp_path / "config" / "nats" / "context"
    contexts.mkdir(parents=True)
    (contexts / "lab.json").write_text(json.dumps({"url": "nats://lab:1"}))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name, text in {"CREDENTIALS": CREDENTIALS, "SEED": SEED, "PEM": "PEM"}.items():
        (tmp_path / name).write_text(text)
    return {name: str(tmp_path / name) for name in ("CREDENTIALS", "SEED", "PEM", "BACKUP")}


def used(place: str, options: Mapping[str, str]) -> str:
    """What Spark gets for the options, with all that it holds."""
    source = JetStreamDataSource({name: text for name, text in options.items() if text})
    if place in WRITE:
        schema = StructType([StructField(name, StringType()) for name in ("subject", "value")])
        id_schema = StructType([*schema, StructField("id", LongType())])
        fits = {"msgIdColumn", "orderBy"} & {*options}
        make = source.writer if place == BATCH_WRITE else source.streamWriter
        if options.get("valueFormat") == "json":
            schema = StructType([StructField("subject", StringType()), StructField("id", LongType())])
        return described(make(id_schema if fits else schema, False))
    schema = source.schema()
    if place == BATCH_READ:
        return described((source.reader(schema), schema))
    reader = source.streamReader(schema)
    if isinstance(reader, RefusedStreamReader):
        reader.initialOffset()
    return described((reader, schema))


def described(thing: Any) -> str:
    """A text of a value and of all that it holds, without ids and times of this run."""
    if isinstance(thing, (tuple, list)):
        return f"[{', '.join(map(described, thing))}]"
    if isinstance(thing, StructType):
        return thing.simpleString()
    if not hasattr(thing, "__dict__") or isinstance(thing, (type, enum.Enum)):
        return repr(thing)
    own = {name: each for name, each in vars(thing).items() if name not in ("run", "_fallback", "_last_batch_s")}
    if "_job" in own and not own["_job"].write_id:
        own.pop("_key", None)
    return f"{type(thing).__name__}({', '.join(f'{name}={described(each)}' for name, each in sorted(own.items()))})"


def base() -> dict[str, str]:
    return {"servers": "nats://127.0.0.1:1", "stream": "ORDERS"}


def test_the_samples_are_of_all_options() -> None:
    assert {*SAMPLES} == {option.name for option in TABLE}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", SAMPLES)
def test_an_option_has_an_effect_or_is_refused_with_the_places_that_have_it(
    name: str, place: str, files: Mapping[str, str]
) -> None:
    sample = {each: files.get(text, text) for each, text in SAMPLES[name].items()}
    places = [where for option in TABLE if option.name == name for where in option.where]
    if place in places:
        if name == "valueFormat" and place in WRITE:
            sample[name] = "json"
        given = {**base(), **sample}
        without = {**base(), **{each: text for each, text in sample.items() if each not in (name, *base())}}
        if name == "ackMode":
            without = base()
        elif name == "consumer":
            without = {**given, "consumer": "SPARK"}
        assert used(place, given) != used(place, without)
        return
    with pytest.raises(OptionError) as refusal:
        used(place, {**base(), name: sample[name]})
    text = str(refusal.value)
    assert f"option {name} is for a {' or a '.join(places)}, and this is a " in text
    assert text.partition("this is a ")[2].partition(".")[0] in (place, ANY_READ)


@pytest.mark.parametrize(
    ("place", "options", "text"),
    [
        (BATCH_READ, {"maxOffsetsPerTrigger": "5"}, "limit it with startingOffsets, endingOffsets"),
        (STREAM_READ, {"filterPushdown": "true"}, "select by the option subject"),
        (STREAM_READ, {"filterPushdown": "false"}, "filterPushdown is for a batch read"),
        (STREAM_READ, {"endingOffsets": "latest"}, "availableNow"),
        (STREAM_WRITE, {"writeId": "x"}, "The checkpoint of a query identifies its writes"),
        (BATCH_READ, {"valueSchema": "id bigint"}, r"json_table\(spark, 'ORDERS', 'id bigint'\)"),
        (STREAM_READ, {"valueSchema": "id bigint"}, r"json_table\(spark, 'ORDERS', 'id bigint'\)"),
        (BATCH_WRITE, {"valueSchema": "id bigint"}, "there is no option valueschema; did you mean valueFormat"),
        (STREAM_READ, {"maxTriggerDelay": "1m"}, "maxTriggerDelay has no effect without minOffsetsPerTrigger"),
        (BATCH_READ, {"valueMode": "FAILFAST"}, "valueMode has no effect without payloadCompression"),
        (
            BATCH_READ,
            {"startingOffsetsByTimestampStrategy": "latest"},
            "has no effect without startingTimestamp or startingOffsetsByTimestamp",
        ),
        (STREAM_READ, {"createConsumer": "true"}, "createConsumer has no effect without ackMode=explicit"),
        (STREAM_READ, {**ACKED, "fetchMessages": "5"}, "fetchMessages has no effect with ackMode"),
        (BATCH_READ, {"backup": "/b"}, "servers has no effect with backup"),
        (BATCH_READ, {"backup": "/b", "servers": "", "transport": "get"}, "transport has no effect with backup"),
        (BATCH_WRITE, {"idempotence": "none", "writeId": "x"}, "writeId has no effect with idempotence=none"),
        (STREAM_WRITE, {"idempotence": "none", "messageIds": "row"}, "messageIds has no effect with idempotence=none"),
        (BATCH_WRITE, {"tombstones": "true", "valueFormat": "json"}, "tombstones needs a column `value`"),
        (BATCH_READ, {"retryTimeout": "5s", "numRetries": "3"}, "retryTimeout and numRetries exclude each other"),
        (BATCH_READ, {"nkey": "/seed", "nkeyContent": SEED}, "nkey and nkeyContent exclude each other"),
    ],
)
def test_an_option_without_effect_is_refused_with_what_it_needs(place: str, options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        used(place, {**base(), **options})


SEVEN: Final = '{"ORDERS": 7}'


@pytest.mark.parametrize("backup", [{}, {"backup": "/b", "servers": ""}])
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"startingOffsets": SEVEN, "endingOffsets": '{"ORDERS": 5}'},
            r"endingOffsets \(5\) is before startingOffsets",
        ),
        ({"startingOffsets": SEVEN, "endingOffsets": '{"ORDERS": 6}'}, ""),
        ({"startingOffsets": SEVEN, "endingOffsets": '{"BILLS": 5}'}, ""),
        ({"startingOffsets": SEVEN, "endingOffsets": '{"ORDERS": -1}'}, ""),
        ({"startingTimestamp": "1764000000001", "endingTimestamp": "1764000000000"}, "before startingTimestamp"),
        ({"startingTimestamp": "1764000000000", "endingTimestamp": "1764000000000"}, ""),
        (
            {
                "startingOffsetsByTimestamp": '{"ORDERS": 1764000000001}',
                "endingOffsetsByTimestamp": '{"ORDERS": 1764000000000}',
            },
            "endingOffsetsByTimestamp is before startingOffsetsByTimestamp for ORDERS",
        ),
    ],
)
def test_a_batch_that_ends_before_it_begins_is_refused(
    options: dict[str, str], text: str, backup: dict[str, str]
) -> None:
    given = {**base(), **options, **backup}
    if not text:
        used(BATCH_READ, given)
        return
    with pytest.raises(OptionError, match=text):
        used(BATCH_READ, given)
