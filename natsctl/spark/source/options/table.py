"""Every option of the data source: its name, its default, where it counts, what it means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from natsctl.spark.source.options.values import (
    duration_s,
    flag,
    key_text,
    moment_ns,
    moments_ns,
    names,
    one_of,
    sequences,
    size_bytes,
    some_text,
    subjects,
    text,
    time_pattern,
    time_zone,
    wait_s,
    whole,
)

BATCH_READ: Final = "batch read"
STREAM_READ: Final = "streaming read"
BATCH_WRITE: Final = "batch write"
STREAM_WRITE: Final = "streaming write"
READ: Final = (BATCH_READ, STREAM_READ)
WRITE: Final = (BATCH_WRITE, STREAM_WRITE)
ALL: Final = (*READ, *WRITE)


@dataclass(frozen=True)
class Option:
    """One option; `default` is a text that `parse` takes, or "" where there is none."""

    name: str
    default: str
    where: tuple[str, ...]
    parse: Callable[[str], Any]
    meaning: str
    idle: tuple[str, ...] = ()
    """Where it is taken and changes nothing, as Spark's Kafka source does with limits of triggers in a batch."""
    otherwise: str = ""
    """The meaning of its absence, for readers of the table, where that is no text of its own."""


CONNECTION: Final = (
    Option("servers", "", ALL, names, "The servers' URLs by commas: `nats://`, `tls://`; `host:port` will do.",
           otherwise="context, environment, else `nats://127.0.0.1:4222`"),
    Option("context", "", ALL, some_text, "A context of the `nats` tool, looked up on the driver.",
           otherwise="the selected one, unless `servers` is given"),
    Option("user", "", ALL, text, "A user's name."),
    Option("password", "", ALL, text, "The user's password."),
    Option("token", "", ALL, text, "A token."),
    Option("credentials", "", ALL, some_text, "The path of a credentials file on the driver."),
    Option("credentialsContent", "", ALL, some_text, "The text of a credentials file."),
    Option("nkey", "", ALL, some_text, "The path of a file with an NKey seed on the driver."),
    Option("nkeyContent", "", ALL, some_text, "An NKey seed."),
    Option("tlsCa", "", ALL, some_text, "The path of a file of trusted certificates on the driver."),
    Option("tlsCaContent", "", ALL, some_text, "Trusted certificates, as PEM."),
    Option("tlsCert", "", ALL, some_text, "The path of the client's certificate on the driver."),
    Option("tlsCertContent", "", ALL, some_text, "The client's certificate, as PEM."),
    Option("tlsKey", "", ALL, some_text, "The path of the client's key on the driver."),
    Option("tlsKeyContent", "", ALL, some_text, "The client's key, as PEM."),
    Option("tlsFirst", "false", ALL, flag, "TLS begins before the server says a word."),
    Option("tlsInsecure", "false", ALL, flag, "The server's certificate is not checked."),
    Option("apiPrefix", "$JS.API", ALL, some_text, "What subjects of JetStream's API begin with."),
    Option("domain", "", ALL, some_text, "A JetStream domain, in place of `apiPrefix`."),
    Option("inboxPrefix", "_INBOX", ALL, some_text, "What subjects for answers begin with."),
    Option("requestTimeout", "5s", ALL, wait_s, "How long a connection or an answer is waited for."),
    Option("numRetries", "3", ALL, whole(0), "How often what found no server or no answer is tried anew."),
    Option("retryInterval", "1s", ALL, duration_s, "The pause before each of them."),
)  # fmt: skip

READING: Final = (
    Option("streamPattern", "", READ, some_text,
           "Streams by a pattern such as `ORDERS*`; those made later are read from their beginning."),
    Option("backup", "", (BATCH_READ,), some_text,
           "The path of a backup that is read in place of a server, in `stream`'s stead."),
    Option("subject", "", READ, subjects, "Subjects by commas, wildcards allowed; the server sends no others.",
           otherwise="all"),
    Option("startingOffsets", "", READ, sequences("earliest", "latest"),
           '`earliest`, `latest`, or the first sequence by stream: `{"ORDERS": 123}`, -2 earliest, -1 latest. A query '
           "that goes on from a checkpoint does not look at it.", otherwise="`earliest`; streaming `latest`"),
    Option("endingOffsets", "latest", (BATCH_READ,), sequences("latest"),
           '`latest`, or the last sequence by stream, itself included: `{"ORDERS": 999}`, -1 latest.'),
    Option("startingTimestamp", "", READ, moment_ns,
           "The first message at or after a time, RFC 3339 or milliseconds since 1970; wins over `startingOffsets`. A "
           "number from 1 to 99999999999, which would be before March 1973, is refused: it is likely in seconds."),
    Option("endingTimestamp", "", (BATCH_READ,), moment_ns,
           "Only messages before a time; wins over `endingOffsets`."),
    Option("startingOffsetsByTimestamp", "", READ, moments_ns,
           'The same by stream: `{"ORDERS": "2026-11-01T00:00:00Z"}`, or milliseconds; a stream that is not named '
           "begins by `startingOffsets`. `startingTimestamp` wins."),
    Option("endingOffsetsByTimestamp", "", (BATCH_READ,), moments_ns,
           "The same for `endingTimestamp`.", (STREAM_READ,)),
    Option("startingOffsetsByTimestampStrategy", "error", READ, one_of("error", "latest"),
           "What is done where no message is as late as `startingTimestamp`."),
    Option("failOnDataLoss", "true", READ, flag,
           "A query fails where messages it was to read are gone; else it goes on behind them with a warning."),
    Option("maxOffsetsPerTrigger", "", (STREAM_READ,), whole(1),
           "The most messages of a batch, shared among streams by how much waits in each.", (BATCH_READ,)),
    Option("maxBytesPerTrigger", "", (STREAM_READ,), size_bytes,
           "The same in bytes, by the average message of each stream.", (BATCH_READ,)),
    Option("minOffsetsPerTrigger", "", (STREAM_READ,), whole(1),
           "A batch waits for so many messages, `maxTriggerDelay` at most; not with `availableNow`.", (BATCH_READ,)),
    Option("maxTriggerDelay", "15m", (STREAM_READ,), duration_s,
           "How long `minOffsetsPerTrigger` may hold a batch back.", (BATCH_READ,)),
    Option("minPartitions", "", READ, whole(1),
           "Into how many tasks a read is split, if there are 10,000 messages for each.",
           otherwise="the driver's cores, or more: one for each 250,000 messages, 400 at most"),
    Option("maxRecordsPerPartition", "", READ, whole(1), "The most messages of a task; it has as many more tasks."),
    Option("transport", "auto", READ, one_of("auto", "blocks", "consumer", "direct", "get"),
           "By blocks of the log of natsctl's server, by a short-lived consumer, by direct get, by single requests, or "
           "by what suits the stream."),
    Option("fetchMessages", "10000", READ, whole(1), "How many messages are asked for at once."),
    Option("fetchBytes", "8MiB", READ, size_bytes, "How many bytes are asked for at once."),
    Option("fetchTimeout", "30s", READ, wait_s, "Without data that long, a task asks anew where it is."),
    Option("includeHeaders", "true", READ, flag, "Without, the column `headers` is null and costs nothing."),
    Option("valueFormat", "binary", READ, one_of("binary", "text", "json"),
           "The column `value`: bytes, text, or what `valueSchema` says of JSON."),
    Option("valueSchema", "", READ, some_text,
           "The type of JSON values, as DDL such as `id bigint, total double` or as Spark's JSON."),
    Option("valueMode", "PERMISSIVE", READ, one_of("permissive", "failfast", "dropmalformed"),
           "What becomes of a message that `valueSchema` does not fit: what does not fit is null, the query fails, or "
           "the row is left out."),
    Option("columnNameOfCorruptRecord", "_corrupt_record", READ, some_text,
           "The field of `valueSchema` that holds the text of a message which does not fit, null in all others."),
    Option("timestampFormat", "", READ, time_pattern,
           "A pattern of Java's for times in JSON, such as `dd.MM.yyyy HH:mm`.",
           otherwise="RFC 3339 and what else `cast` takes; numbers are seconds since 1970"),
    Option("timestampNTZFormat", "", READ, time_pattern, "The same for times without a zone.",
           otherwise="what `cast` takes"),
    Option("dateFormat", "", READ, time_pattern, "The same for dates.", otherwise="what `cast` takes"),
    Option("timeZone", "UTC", READ, time_zone, "The zone of times in JSON that have none."),
    Option("allowComments", "false", READ, flag, "Whether JSON may have comments as in Java."),
    Option("allowUnquotedFieldNames", "false", READ, flag, "Whether names of fields may stand without quotes."),
    Option("allowSingleQuotes", "true", READ, flag, "Whether names and texts may stand in single quotes."),
    Option("allowNumericLeadingZeros", "false", READ, flag, "Whether numbers may begin with 0, such as 007."),
    Option("allowNonNumericNumbers", "true", READ, flag, "Whether `NaN`, `Infinity` and the like are numbers."),
    Option("allowBackslashEscapingAnyCharacter", "false", READ, flag, "Whether any character may be escaped."),
    Option("allowUnquotedControlChars", "false", READ, flag, "Whether texts may have control characters."),
    Option("filterPushdown", "false", (BATCH_READ,), flag,
           "The server does what it can of `WHERE`; needs `spark.sql.python.filterPushdown.enabled`. Only for a frame "
           "of which one query takes one look: Spark keeps what it pushed for every other use of it.",
           (STREAM_READ,)),
    Option("commitConsumer", "", (STREAM_READ,), some_text,
           "A durable consumer that follows the query, so that `natsctl consumer report` shows its lag.",
           (BATCH_READ,)),
    Option("payloadCompression", "none", READ,
           one_of("none", "auto", "gzip", "zlib", "zstd", "snappy", "s2", "lz4", "brotli"),
           "What payloads were compressed with, each by itself: `gzip`, `zlib`, `zstd`, `snappy`, `s2`, `lz4`, "
           "`brotli`; with `auto` each message's header `Content-Encoding` says so. One that is damaged counts as one "
           "that does not fit: see `valueMode`."),
    Option("ackMode", "none", (STREAM_READ,), one_of("none", "explicit"),
           "With `explicit` a query reads through a durable consumer, `consumer`, and acknowledges each batch when "
           "Spark has committed it: at least once.", (BATCH_READ,)),
    Option("consumer", "", (STREAM_READ,), some_text, "The durable pull consumer that `ackMode` reads through.",
           (BATCH_READ,)),
    Option("createConsumer", "false", (STREAM_READ,), flag,
           "The durable is made where it does not exist, for `subject`, with an ack wait of 60 s and up to 100,000 "
           "messages at work.", (BATCH_READ,)),
    Option("includeMetadata", "false", (STREAM_READ,), flag,
           "With `ackMode`, the columns `consumer`, `delivered`, `pending` and `reply` as well.", (BATCH_READ,)),
)  # fmt: skip

STREAM: Final = Option(
    "stream", "", ALL, names,
    "The stream to read, or several by commas; `load(\"ORDERS\")` says the same. In a write, the stream that has to "
    "take the messages.",
)  # fmt: skip

WRITING: Final = (
    Option("subject", "", WRITE, some_text, "The subject of all rows, in place of the column `subject`."),
    Option("valueFormat", "text", WRITE, one_of("binary", "text", "json"),
           "With `json` and no column `value`, the columns without another meaning become one JSON object."),
    Option("msgIdColumn", "", WRITE, some_text, "The column of message ids.", otherwise="`msgId`, if there is one"),
    Option("messageIds", "content", WRITE, one_of("content", "row"),
           "What ids are made from where a row brings none: `content`, with stream and sequence where the frame has "
           "them, is the same however rows are cut into tasks; `row`, its number, is cheaper, and right only where "
           "every attempt has the same rows in the same tasks in the same order; not with `writeId`."),
    Option("idempotence", "ids", WRITE, one_of("ids", "ledger", "none"),
           "How what is sent again is stored once: by message ids, for as long as the stream's duplicate window; by a "
           "ledger as well, which knows no limit of time; or not at all."),
    Option("writeId", "", (BATCH_WRITE,), key_text,
           "A name for this write alone: the job, run again under it with the same rows, stores each once, on any "
           "number of cores, as late as `idempotence` allows.",
           otherwise="a new one each time"),
    Option("orderBy", "", WRITE, names,
           "Columns by which each task sorts its rows before it sends them. With `repartition(n, \"subject\")` before, "
           "`orderBy` `seq` keeps the order of each subject, in streaming queries too, where Spark cannot sort."),
    Option("window", "4000", WRITE, whole(1), "How many messages may wait for their acknowledgement."),
    Option("ackTimeout", "10s", WRITE, wait_s, "Without an acknowledgement that long, messages are sent again."),
)  # fmt: skip

TABLE: Final = (STREAM, *READING, *WRITING, *CONNECTION)

OF_KAFKA: Final = {
    "subscribe": "stream",
    "assign": "stream",
    "topic": "stream",
    "subscribepattern": "streamPattern",
    "kafka.bootstrap.servers": "servers",
    "kafka.group.id": "commitConsumer",
    "groupidprefix": "commitConsumer",
    "fetchoffset.numretries": "numRetries",
    "fetchoffset.retryintervalms": "retryInterval",
}
"""The names here of options of Spark's Kafka source, which are in lower case."""

OF_SPARK: Final = frozenset(
    {"path", "paths", "checkpointlocation", "queryname", "primitivesasstring", "prefersdecimal", "multiline"}
)
"""Options that Spark itself adds, in lower case, and options of JSON that change nothing where there is a
schema; `path` is what `load` was given."""
