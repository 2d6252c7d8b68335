"""The writers as Spark calls them, without Spark: ids over attempts, the ledger, commits, what is refused."""

import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import StructType

from natsctl.spark.source.errors import NoResponseError, OptionError, SourceNotAuthorisedError, StreamNotFoundError
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.ledger import BUCKET, Ledger
from natsctl.spark.source.link import Link, Reply
from natsctl.spark.source.writers import JetStreamBatchWriter, JetStreamStreamWriter
from tests.spark.source.reads import parsed_schema
from tests.spark.source.streams import messages, until

pytestmark = pytest.mark.both

DDL = "subject string, value string"


@pytest.fixture
def api(api: JetStreamApi) -> JetStreamApi:
    """Requests to a server with a stream OUT, which forgets message ids at once."""
    api.ask("STREAM.CREATE.OUT", {"name": "OUT", "subjects": ["out.>"], "duplicate_window": 100_000_000})
    return api


def schema() -> StructType:
    return parsed_schema(DDL)


def batches(values: list[str], fails_after: int = -1) -> Iterator[pa.RecordBatch]:
    """One batch per row, so that a task can fail between them."""
    for at, value in enumerate(values):
        if at == fails_after:
            raise OSError("the task fails")
        yield pa.RecordBatch.from_arrays([pa.array(["out.a"]), pa.array([value])], names=["subject", "value"])


def batch_writer(api: JetStreamApi, **options: str) -> JetStreamBatchWriter:
    return JetStreamBatchWriter({"servers": api.link.settings.urls[0], **options}, schema(), False)


def stored(api: JetStreamApi) -> list[str]:
    return sorted(payload.decode() for _, _, payload in messages(api, "OUT"))


def notes(api: JetStreamApi) -> list[str]:
    try:
        info = api.stream_info(f"KV_{BUCKET}", subjects_filter=">")
    except StreamNotFoundError:
        return []
    found = info["state"].get("subjects") or {}
    return sorted(re.sub(r"\.[0-9a-f]{32}\.", ".<run>.", subject.removeprefix(f"$KV.{BUCKET}.")) for subject in found)


VALUES = ["a", "b", "c", "b", "d"]


def fail_and_retry(api: JetStreamApi, writer: JetStreamBatchWriter, values: list[str], *, late: bool = False) -> Any:
    with pytest.raises(OSError, match="the task fails"):
        writer.write(batches(VALUES, fails_after=3))
    if late:
        forget(api)
    return writer.write(batches(values))


def forget(api: JetStreamApi) -> None:
    """Wait until the server has forgotten all ids, by one that it knows three times as long."""
    api.ask("STREAM.CREATE.CLOCK", {"name": "CLOCK", "subjects": ["clock"], "duplicate_window": 300_000_000})
    header = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % time.monotonic_ns()
    api.link.request("clock", b"", headers=header)
    until(lambda: b"duplicate" not in api.link.request("clock", b"", headers=header).body)


def wide_window(api: JetStreamApi) -> None:
    config = api.stream_info("OUT")["config"]
    api.ask("STREAM.UPDATE.OUT", config | {"duplicate_window": 120_000_000_000})


def test_row_numbers_as_ids_lose_rows_that_come_in_another_order(api: JetStreamApi) -> None:
    wide_window(api)
    writer = batch_writer(api, messageIds="row")
    fail_and_retry(api, writer, VALUES)
    assert stored(api) == sorted(VALUES)
    writer.write(batches(["new", *VALUES]))
    assert "new" not in stored(api)


def test_another_write_of_the_same_rows_stores_them_again_unless_it_has_the_same_name(api: JetStreamApi) -> None:
    wide_window(api)
    batch_writer(api).write(batches(VALUES))
    batch_writer(api, writeId="day-7").write(batches(VALUES))
    assert len(stored(api)) == 10
    assert batch_writer(api, writeId="day-7").write(batches(VALUES[::-1])).duplicates == 5
    assert len(stored(api)) == 10


def test_without_idempotence_what_is_tried_again_is_there_twice(api: JetStreamApi) -> None:
    wide_window(api)
    fail_and_retry(api, batch_writer(api, idempotence="none"), VALUES)
    assert len(stored(api)) > 5


def test_ids_alone_do_not_outlive_the_duplicate_window_and_the_ledger_does(api: JetStreamApi) -> None:
    fail_and_retry(api, batch_writer(api), VALUES, late=True)
    assert len(stored(api)) > 5
    api.ask("STREAM.PURGE.OUT")
    writer = batch_writer(api, idempotence="ledger", stream="OUT")
    told = fail_and_retry(api, writer, VALUES[::-1], late=True)
    assert stored(api) == sorted(VALUES)
    assert told.messages + told.skipped == 5
    assert told.skipped >= 1
    assert len(notes(api)) == 1
    writer.commit([told])
    assert notes(api) == []


def test_the_ledger_of_a_named_write_stays_for_its_next_run(api: JetStreamApi) -> None:
    options = {"idempotence": "ledger", "stream": "OUT", "writeId": "day-7"}
    first = batch_writer(api, **options)
    first.commit([first.write(batches(VALUES))])
    forget(api)
    again = batch_writer(api, **options).write(batches(VALUES))
    assert (again.messages, again.skipped) == (0, 5)
    assert stored(api) == sorted(VALUES)
    assert notes(api) == ["day-7.<run>.0"] * 2


def test_the_ledger_tells_of_a_target_that_was_made_again(api: JetStreamApi) -> None:
    options = {"idempotence": "ledger", "stream": "OUT", "writeId": "w"}
    batch_writer(api, **options).write(batches(VALUES))
    api.ask("STREAM.DELETE.OUT")
    api.ask("STREAM.CREATE.OUT", {"name": "OUT", "subjects": ["out.>"]})
    told = batch_writer(api, **options).write(batches(VALUES))
    assert stored(api) == sorted(VALUES)
    assert "recreated" in told.warnings[0]


def test_the_ledger_refuses_a_target_whose_messages_go_when_they_are_read(api: JetStreamApi) -> None:
    api.ask("STREAM.CREATE.WORK", {"name": "WORK", "subjects": ["work.>"], "retention": "workqueue"})
    with pytest.raises(OptionError, match="retention is workqueue"):
        batch_writer(api, idempotence="ledger", stream="WORK").write(batches(VALUES))


def test_the_ledger_tells_of_messages_that_are_gone_since(api: JetStreamApi) -> None:
    options = {"idempotence": "ledger", "stream": "OUT", "writeId": "w"}
    batch_writer(api, **options).write(batches(VALUES))
    api.ask("STREAM.PURGE.OUT", {"seq": 4})
    forget(api)
    told = batch_writer(api, **options).write(batches(VALUES))
    assert (told.messages, told.skipped) == (3, 2)
    assert "has lost the messages 1 to 3" in told.warnings[0]


def test_a_note_of_the_ledger_whose_acknowledgement_is_lost_is_as_good(api: JetStreamApi) -> None:
    class Forgetful(Link):
        lost = 0

        def request(self, subject: str, *words: Any, **more: Any) -> Reply:
            reply = super().request(subject, *words, **more)
            if subject.startswith("$KV.") and reply.status != 503 and not self.lost:
                self.lost += 1
                raise NoResponseError("the test has lost it")
            return reply

    batch_writer(api).write(batches(VALUES))
    with Forgetful.open(api.link.settings) as link:
        found = Ledger(link, api.link.settings, "OUT").begin("k", "0" * 32, 0)
        assert (link.lost, len(found.ids), notes(api)) == (1, 0, ["k.<run>.0"])


@pytest.fixture
def micro_batch(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What Spark tells the tasks of a micro-batch."""
    properties = {"sql.streaming.queryId": "q1", "streaming.sql.batchId": "7"}

    class Context:
        def partitionId(self) -> int:
            return 3

        def getLocalProperty(self, key: str) -> str | None:
            return properties.get(key)

    monkeypatch.setattr(TaskContext, "_taskContext", Context())
    return properties


def stream_writer(api: JetStreamApi, **options: str) -> JetStreamStreamWriter:
    return JetStreamStreamWriter({"servers": api.link.settings.urls[0], **options}, schema(), False)


def test_a_micro_batch_of_another_driver_stores_nothing_twice_and_the_next_batch_does(
    api: JetStreamApi, micro_batch: dict[str, str]
) -> None:
    wide_window(api)
    stream_writer(api).write(batches(VALUES[:3]))
    assert stream_writer(api).write(batches(VALUES)).duplicates == 3
    assert stored(api) == sorted(VALUES)
    micro_batch["streaming.sql.batchId"] = "8"
    stream_writer(api).write(batches(VALUES))
    assert len(stored(api)) == 10


def test_the_ledger_of_a_micro_batch_goes_when_spark_has_committed_it(
    api: JetStreamApi, micro_batch: dict[str, str]
) -> None:
    def write() -> JetStreamStreamWriter:
        writer = stream_writer(api, idempotence="ledger", stream="OUT")
        writer.commit([writer.write(batches(VALUES))], int(micro_batch["streaming.sql.batchId"]))
        return writer

    write()
    forget(api)
    write()
    assert stored(api) == sorted(VALUES)
    assert notes(api) == ["q1.7.<run>.3"] * 2
    micro_batch["streaming.sql.batchId"] = "8"
    write()
    assert notes(api) == ["q1.8.<run>.3"]
    assert len(stored(api)) == 10


def test_what_is_stored_is_committed_where_the_ledger_cannot_be_cleared(
    api: JetStreamApi, micro_batch: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"idempotence": "ledger", "stream": "OUT"}
    whole, micro = batch_writer(api, **options), stream_writer(api, **options)
    written, also_written = whole.write(batches(VALUES)), micro.write(batches(VALUES))
    with monkeypatch.context() as patch:
        patch.setattr(JetStreamApi, "ask", refused)
        whole.commit([written])
        micro.commit([also_written], 7)
    assert caplog.text.count("stay in natsctl_spark: [JETSTREAM_NOT_AUTHORISED] the test does not permit it") == 2
    assert len(notes(api)) == 2
    assert len(stored(api)) == 10


def test_commits_log_what_was_written_and_warn_of_a_window_that_is_too_short(
    api: JetStreamApi, caplog: pytest.LogCaptureFixture
) -> None:
    writer = batch_writer(api)
    with caplog.at_level(logging.INFO, "natsctl.spark.jetstream"):
        writer.commit([writer.write(batches(VALUES)), None])
        writer.abort([None])
    text = caplog.text
    assert "5 messages to OUT, sequences 1 to 5" in text
    assert "OUT knows message ids for 0.1 s" in text
    assert "the write failed" in text


def test_a_partition_without_rows_asks_no_server() -> None:
    writer = JetStreamBatchWriter({"servers": "nats://127.0.0.1:1"}, schema(), False)
    assert writer.write(iter([])).messages == 0


def refused(*_: Any, **__: Any) -> Any:
    raise SourceNotAuthorisedError("the test does not permit it")


def test_rows_are_sorted_by_columns_that_are_not_written(api: JetStreamApi) -> None:
    made = parsed_schema("subject string, value string, n int")
    writer = JetStreamBatchWriter({"servers": api.link.settings.urls[0], "orderBy": "n"}, made, False)
    rows = [
        pa.RecordBatch.from_pydict({"subject": ["out.a"] * 2, "value": [str(n), str(n - 10)], "n": [n, n - 10]})
        for n in (30, 20)
    ]
    writer.write(iter(rows))
    assert [int(payload) for _, _, payload in messages(api, "OUT")] == [10, 20, 20, 30]


@pytest.mark.parametrize(
    ("options", "overwrite", "told"),
    [
        ({}, True, "cannot be overwritten"),
        ({"stream": "A,B"}, False, "a write has one stream, not A, B"),
        ({"stream": "A", "path": "B"}, False, "a write has one stream, not A, B"),
        ({"path": "A*"}, False, "is no name of a stream"),
        ({"idempotence": "ledger"}, False, "needs the option stream"),
        ({"writeId": "a b"}, False, "letters, digits"),
        ({"writeId": "a", "messageIds": "row"}, False, "with messageIds=row a job that is cut into other tasks"),
        ({"orderBy": "nowhere"}, False, "no column nowhere"),
        ({"maxOffsetsPerTrigger": "5"}, False, "is for a streaming read"),
    ],
)
def test_what_a_write_cannot_be_is_refused_on_the_driver(options: dict[str, str], overwrite: bool, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        JetStreamBatchWriter({"servers": "nats://127.0.0.1:1", **options}, schema(), overwrite)


def test_output_mode_complete_is_refused() -> None:
    with pytest.raises(OptionError, match=r"outputMode complete .* write each batch of outputMode update by foreach"):
        JetStreamStreamWriter({"servers": "nats://127.0.0.1:1"}, schema(), True)
