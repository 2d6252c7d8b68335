"""The source as Spark asks it for readers, and where the server is."""

import json
import pickle
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import nkeys
import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceReader, EqualTo, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from natsctl.spark.source.data_source import JetStreamDataSource, JetStreamPushdownReader
from natsctl.spark.source.driver_settings import server_settings
from natsctl.spark.source.errors import DataLossError, OptionError, ServerUnreachableError
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.link import Link
from natsctl.spark.source.source_options import BATCH_READ, Options
from natsctl.spark.source.writers import JetStreamBatchWriter
from tests.spark.source.reads import parsed_schema
from tests.spark.source.streams import add, make, messages, remake, until

MAP = pa.map_(pa.string(), pa.string())
SEED = "SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4"
JWT = "eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.eyJqdGkiOiJ4In0.c2ln"
CREDENTIALS = f"-----BEGIN NATS USER JWT-----\n{JWT}\n------END NATS USER JWT------\n\n{SEED}\n"


def source(api: JetStreamApi, **options: str) -> JetStreamDataSource:
    return JetStreamDataSource({"servers": api.link.settings.urls[0], **options})


def rows(reader: DataSourceReader) -> list[dict[str, object]]:
    parts = list(reader.partitions()) or [InputPartition(None)]
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def table(api: JetStreamApi, **options: str) -> list[dict[str, object]]:
    made = source(api, **options)
    schema = made.schema()
    return rows(made.reader(schema))


@pytest.mark.both
def test_a_stream_is_a_table(api: JetStreamApi) -> None:
    make(api, number=0)
    assert table(api, stream="ORDERS") == []
    add(api, "ORDERS", 4)
    found = table(api, path="ORDERS")
    assert [list(row) for row in found[:1]] == [["stream", "seq", "subject", "timestamp", "headers", "value"]]
    assert [(row["seq"], row["subject"], row["value"]) for row in found] == [
        (seq, f"ORDERS.{seq - 1}", b"x") for seq in range(1, 5)
    ]
    schema = StructType([StructField("subject", StringType()), StructField("seq", LongType())])
    chosen = source(api, stream="ORDERS", subject="ORDERS.1,ORDERS.3").reader(schema)
    assert rows(chosen) == [{"subject": "ORDERS.1", "seq": 2}, {"subject": "ORDERS.3", "seq": 4}]


@pytest.mark.both
def test_values_are_text_and_json_names_the_line_that_parses_it(api: JetStreamApi) -> None:
    make(api, number=0)
    add(api, "ORDERS", 1, json.dumps({"id": 7, "total": 1.5}).encode())
    text = table(api, stream="ORDERS", valueFormat="text")
    assert text[0]["value"] == '{"id": 7, "total": 1.5}'
    line = r"json_table\(spark, 'ORDERS', 'id bigint'\).*from_json\(col\(\"value\"\).cast\(\"string\"\), 'id bigint'\)"
    for options in ({"valueFormat": "json", "valueSchema": "id bigint"}, {"valueSchema": "id bigint"}):
        with pytest.raises(OptionError, match=line):
            table(api, stream="ORDERS", **options)


@pytest.mark.both
def test_what_is_pushed_down_is_all_that_is_read(api: JetStreamApi) -> None:
    make(api, number=20)
    schema = StructType([StructField("seq", LongType())])
    reader = source(api, stream="ORDERS", filterPushdown="true").reader(schema)
    assert isinstance(reader, JetStreamPushdownReader)
    filters = [EqualTo(("subject",), "ORDERS.1")]
    assert list(reader.pushFilters([*filters, EqualTo(("seq",), 6)])) == filters
    assert rows(reader) == [{"seq": 6}]
    without = source(api, stream="ORDERS").reader(schema)
    assert type(without).pushFilters is DataSourceReader.pushFilters, "it does not look as if it had them"


@pytest.mark.both
def test_a_stream_that_is_made_again_between_planning_and_reading_is_not_taken_for_the_other(api: JetStreamApi) -> None:
    make(api, number=20)
    schema = StructType([StructField("seq", LongType())])
    readers = [source(api, stream="ORDERS", failOnDataLoss=fail).reader(schema) for fail in ("true", "false")]
    planned = [reader.partitions() for reader in readers]
    remake(api, number=30)
    with pytest.raises(
        DataLossError, match=r"since it was looked up: sequences 1\.\.20 .* with sequences 1\.\.30\. Load it anew"
    ):
        next(readers[0].read(planned[0][0]))
    assert [batch.num_rows for batch in readers[1].read(planned[1][0])] == [20]


@pytest.mark.both
def test_subjects_are_a_table_too(api: JetStreamApi) -> None:
    make(api, number=10)
    make(api, "BILLS", number=1)
    assert table(api, path="ORDERS$subjects,BILLS$subjects", subject="ORDERS.0,ORDERS.3,BILLS.*") == [
        {"stream": "ORDERS", "subject": "ORDERS.0", "messages": 3},
        {"stream": "ORDERS", "subject": "ORDERS.3", "messages": 2},
        {"stream": "BILLS", "subject": "BILLS.0", "messages": 1},
    ]
    with pytest.raises(OptionError, match="cannot be read as one"):
        table(api, stream="ORDERS$subjects,BILLS")
    with pytest.raises(OptionError, match="read it as a batch"):
        source(api, stream="ORDERS$subjects").streamReader(StructType()).initialOffset()
    with pytest.raises(OptionError, match="option startingOffsets has no effect on ORDERS"):
        table(api, path="ORDERS$subjects", startingOffsets="earliest")
    with pytest.raises(OptionError, match="did you mean startingOffsets"):
        source(api, stream="ORDERS", startOffsets="earliest").schema()


@pytest.mark.both
@pytest.mark.parametrize("format_of_value", ["binary", "text"])
def test_tombstones_keep_null_and_empty_apart(api: JetStreamApi, format_of_value: str) -> None:
    make(api, number=0)
    schema = parsed_schema("subject string, value string, headers map<string,string>")
    headers = pa.array([None, [], [("KV-Operation", "PURGE")], [("X", "KV-Operation: DEL")]], MAP)
    columns = [pa.array(["ORDERS.a"] * 4), pa.array([None, "", None, "v"]), headers]
    batch = pa.RecordBatch.from_arrays(columns, names=schema.names)
    written = {"servers": api.link.settings.urls[0], "stream": "ORDERS"}
    for options in ({**written, "tombstones": "true"}, written):
        writer = JetStreamBatchWriter(options, schema, False)
        writer.commit([writer.write(iter([batch]))])
    add_frame(api, "ORDERS.a", "NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\n\r\n")
    values = [row["value"] for row in table(api, stream="ORDERS", valueFormat=format_of_value, tombstones="true")]
    text = [None, "", None, "v", "", "", None, "v", None]
    assert values == [each if each is None or format_of_value == "text" else each.encode() for each in text]
    assert all(row["value"] is not None for row in table(api, stream="ORDERS"))
    operations = [bytes(block).count(b"KV-Operation: DEL\r\n") for _, block, _ in messages(api, "ORDERS")]
    assert operations == [1, 0, 0, 1, 0, 0, 0, 1, 0]
    only_value = source(api, stream="ORDERS", tombstones="true").reader(parsed_schema("value binary"))
    assert [row["value"] for row in rows(only_value)][:2] == [None, b""]
    with pytest.raises(OptionError, match="value is declared NOT NULL"):
        source(api, stream="ORDERS", tombstones="true").reader(parsed_schema("value binary not null"))


def add_frame(api: JetStreamApi, subject: str, headers: str) -> None:
    last = api.stream_info("ORDERS")["state"]["last_seq"]
    api.link.send(f"HPUB {subject} {len(headers)} {len(headers)}\r\n{headers}\r\n".encode())
    until(lambda: bool(api.stream_info("ORDERS")["state"]["last_seq"] == last + 1))


def begun(api: JetStreamApi, kind: str, **options: str) -> None:
    """Plan a read as a batch, or begin a streaming query."""
    made = source(api, **options)
    if kind == "batch":
        made.reader(made.schema()).partitions()
    else:
        with ExitStack() as stack:
            reader = made.streamReader(made.schema())
            stack.callback(reader.stop)
            reader.initialOffset()


@pytest.mark.both
@pytest.mark.parametrize("kind", ["batch", "streaming"])
def test_a_subject_that_no_stream_has_or_takes_is_refused(api: JetStreamApi, kind: str) -> None:
    make(api, number=4)
    make(api, "BILLS", number=1)
    with pytest.raises(OptionError, match=r"nothing is or will be stored under order\.>, new: ORDERS has ORDERS\.>"):
        begun(api, kind, stream="ORDERS", subject="order.>,new")
    begun(api, kind, stream="ORDERS", subject="ORDERS.1,order.>")
    begun(api, kind, stream="ORDERS,BILLS", subject="ORDERS.1,BILLS.7")
    begun(api, kind, stream="ORDERS", subject="*.7")


@pytest.mark.both
@pytest.mark.parametrize("kind", ["batch", "streaming"])
def test_a_subject_that_only_stored_messages_have_is_read(api: JetStreamApi, kind: str) -> None:
    make(api, number=4)
    api.ask("STREAM.UPDATE.ORDERS", {"name": "ORDERS", "subjects": ["SALES.>"]})
    begun(api, kind, stream="ORDERS", subject="ORDERS.*")
    with pytest.raises(OptionError, match=r"nothing is or will be stored under ORDERS\.7: ORDERS has SALES\.>"):
        begun(api, kind, stream="ORDERS", subject="ORDERS.7")
    api.ask("STREAM.CREATE.COPY", {"name": "COPY", "mirror": {"name": "ORDERS"}})
    begun(api, kind, stream="COPY", subject="ORDERS.7")
    transform = {"src": "raw.*", "dest": "done.{{wildcard(1)}}"}
    make(api, "CHANGED", number=0, subjects=["raw.*"], subject_transform=transform)
    begun(api, kind, stream="CHANGED", subject="done.1")


@pytest.mark.parametrize(
    ("number", "kind"), [(socket.EAI_NONAME, OptionError), (socket.EAI_AGAIN, ServerUnreachableError)]
)
def test_a_host_name_that_does_not_exist_fails_before_the_first_connection(
    monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(number, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    made = JetStreamDataSource({"servers": "nats://natz:4222", "stream": "ORDERS", "numRetries": "0"})
    with pytest.raises(kind, match="natz"):
        made.reader(made.schema()).partitions()
    with pytest.raises(kind, match="natz"):
        made.streamReader(made.schema()).initialOffset()
    with pytest.raises(ServerUnreachableError, match="natz"):
        Link.open(settings(servers="nats://natz:4222", numRetries="0"))


# -- where the server is


def settings(environment: dict[str, str] | None = None, **options: str) -> ServerSettings:
    return server_settings(Options({"stream": "ORDERS", **options}, BATCH_READ), environment or {"HOME": "/nowhere"})


def context(folder: Path, name: str, **said: object) -> dict[str, str]:
    """The environment of a person who has this context, selected."""
    contexts = folder / "nats" / "context"
    contexts.mkdir(parents=True)
    (contexts / f"{name}.json").write_text(json.dumps(said))
    (folder / "nats" / "context.txt").write_text(name)
    return {"XDG_CONFIG_HOME": str(folder), "HOME": str(folder)}


def test_a_context_is_found_out_on_the_driver_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "user.creds").write_text(CREDENTIALS)
    (tmp_path / "ca.pem").write_text("PEM")
    files = {"creds": str(tmp_path / "user.creds"), "ca": str(tmp_path / "ca.pem")}
    here = context(tmp_path, "production", url="nats://a:1,b", **files, jetstream_domain="hub", inbox_prefix="_I")
    found = settings(here, context="production")
    assert found == settings(here)
    assert found.urls == ("nats://a:1", "nats://b:4222")
    assert (found.jwt, found.seed, found.tls_ca) == (JWT, SEED, "PEM")
    assert (found.api_prefix, found.inbox_prefix) == ("$JS.hub.API", "_I")


def test_options_win_over_a_context_and_a_login_is_never_mixed(tmp_path: Path) -> None:
    here = context(tmp_path, "production", url="nats://a:1", user="ann", password="secret", jetstream_domain="hub")
    found = settings(here, context="production", servers="nats://b:2", token="t", domain="spoke")
    assert (found.urls, found.token, found.user, found.password) == (("nats://b:2",), "t", "", "")
    assert found.api_prefix == "$JS.spoke.API"
    assert settings({**here, "NATS_TOKEN": "t"}, servers="b:2") == ServerSettings(urls=("nats://b:2",))
    assert settings({"HOME": "/nowhere", "NATS_URL": "nats://e:1", "NATS_TOKEN": "t"}).urls == ("nats://e:1",)
    assert settings().urls == ("nats://127.0.0.1:4222",)
    with pytest.raises(OptionError, match=r"option context: .*productoin.*known are production"):
        settings(here, context="productoin")


def test_without_natsctl_a_context_is_told_with_what_does_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "natsctl.spark.contexts", None)
    with pytest.raises(OptionError, match=r"'production' cannot be looked up, since natsctl is not installed.*servers"):
        settings(context="production")
    assert settings({"NATS_URL": "nats://e:1", "NATS_USER": "u", "NATS_PASSWORD": "p"}).user == "u"


def test_secrets_are_options_files_or_their_contents(tmp_path: Path) -> None:
    path = tmp_path / "user.creds"
    path.write_text(CREDENTIALS)
    for login in ({"credentials": str(path)}, {"credentialsContent": CREDENTIALS}):
        found = settings(servers="a:1", **login)
        assert (found.jwt, found.seed) == (JWT, SEED)
    assert settings(servers="a:1", nkeyContent=SEED).seed == SEED
    nkeys.from_seed(bytearray(SEED.encode()))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"credentials": "/nowhere/user.creds"}, "option credentials: No such file"),
        ({"credentialsContent": "nothing"}, "no user JWT"),
        ({"nkeyContent": "nothing"}, "no NKey seed"),
    ],
)
def test_a_secret_that_is_none_is_told_without_it(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        settings(servers="a:1", **options)


def test_secrets_are_in_no_text_of_what_is_made_of_them(tmp_path: Path) -> None:
    secret = "hunter2"
    given = {"servers": f"nats://ann:{secret}@a:1", "stream": "ORDERS", "tlsKeyContent": secret}
    reader = JetStreamDataSource(given).reader(StructType([StructField("seq", LongType())]))
    assert secret not in repr(reader)
    assert secret not in repr(settings(**given))
    assert secret.encode() in pickle.dumps(settings(**given))
