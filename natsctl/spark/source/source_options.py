"""Options of the data source: names, defaults, scopes and descriptions, and the parsed options of a read or write.

A parser returns the value, or raises a ValueError with the expected form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Final

from natsctl.spark.source.errors import OptionError

EARLIEST = -2
LATEST = -1
"""The numbers with a special meaning in an offset by stream, as in Spark's Kafka source."""

_UNIT_S = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60,
    "h": 3600, "hour": 3600, "d": 86400, "day": 86400,
}  # fmt: skip
_SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
MIN_MS = 100_000_000_000
"""1973-03-03 as milliseconds since 1970; as seconds, such a number is of the year 5138."""
_LATEST_MS = 253_402_300_799_999
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)")


def text(said: str) -> str:
    return said


def some_text(said: str) -> str:
    """Return the text without blanks around it; raises ValueError if nothing is left."""
    if not said.strip():
        raise ValueError("it is empty")
    return said.strip()


def key_text(said: str) -> str:
    """Return a text that can be part of a key: letters, digits, dashes and underscores."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", said.strip()):
        raise ValueError("it has letters, digits, - and _ only")
    return said.strip()


def flag(said: str) -> bool:
    if said.strip().lower() not in ("true", "false"):
        raise ValueError("it is true or false")
    return said.strip().lower() == "true"


def one_of(*known: str) -> Callable[[str], str]:
    def parse(said: str) -> str:
        if said.strip().lower() not in known:
            raise ValueError(f"it is one of {', '.join(known)}")
        return said.strip().lower()

    return parse


def whole(least: int) -> Callable[[str], int]:
    def parse(said: str) -> int:
        try:
            number = int(said.strip())
        except ValueError:
            raise ValueError("it is a whole number") from None
        if number < least:
            raise ValueError(f"it is at least {least}")
        return number

    return parse


def duration_s(said: str) -> float:
    """Return the seconds of a duration such as `30s`, `1m30s`, `15 minutes`; raises ValueError."""
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]+)", said.lower())
    if not parts or re.sub(r"(\d+(?:\.\d+)?)\s*([a-z]+)|\s", "", said.lower()):
        raise ValueError("it is a duration with its unit, such as 500ms, 30s or 15m")
    try:
        return sum(float(number) * _unit_s(unit) for number, unit in parts)
    except KeyError as failure:
        raise ValueError(f"{failure.args[0]!r} is no unit of time; write ms, s, m, h or d") from None


def wait_s(said: str) -> float:
    """Return the same, more than nothing."""
    seconds = duration_s(said)
    if not seconds:
        raise ValueError("it is longer than nothing")
    return seconds


def _unit_s(unit: str) -> float:
    return _UNIT_S[unit] if unit in _UNIT_S else _UNIT_S[unit.removesuffix("s")]


def size_bytes(said: str) -> int:
    """Return bytes, of a number or a text such as `8MiB`, `64m`."""
    match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)(?:i?b)?\s*", said.lower())
    if not match or int(match[1]) < 1:
        raise ValueError("it is a size of at least a byte, such as 1048576, 8MiB or 1g")
    return int(match[1]) * _SIZES[match[2]]


def names(said: str) -> tuple[str, ...]:
    """Return the parts of a list by commas, once each."""
    parts = [part.strip() for part in said.split(",")]
    if not all(parts):
        raise ValueError("it is a list by commas, and one of its parts is empty")
    return tuple(dict.fromkeys(parts))


def moment_ns(said: str) -> int:
    """Nanoseconds since 1970, of RFC 3339 or of milliseconds since 1970.

    Numbers that are small enough for seconds are refused, except 0.
    """
    if re.fullmatch(r"\s*\d+\s*", said):
        if int(said) > _LATEST_MS:
            raise ValueError("there is no such time: it is milliseconds since 1970, of a year before 10000")
        if 0 < int(said) < MIN_MS:
            raise ValueError(
                f"{said.strip()} milliseconds since 1970 are before March 1973; if these are seconds, write "
                f"{datetime.fromtimestamp(int(said), UTC):%Y-%m-%dT%H:%M:%SZ}"
            )
        return int(said) * 1_000_000
    match = _MOMENT.fullmatch(said.strip())
    if not match:
        raise ValueError("it is a time such as 2026-01-31T12:00:00Z, or milliseconds since 1970")
    day, clock, fraction, zone = match.groups()
    try:
        seconds = datetime.fromisoformat(f"{day}T{clock}{zone.upper().replace('Z', '+00:00')}")
    except ValueError as failure:
        raise ValueError(f"there is no such time: {failure}") from None
    since = seconds - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * 1_000_000_000 + int((fraction or "").ljust(9, "0"))


def moments_ns(said: str) -> dict[str, int]:
    """Nanoseconds since 1970 by stream, of a JSON object of times as `moment_ns` takes them."""
    example = '{"ORDERS": "2026-01-31T12:00:00Z"}'
    try:
        found = json.loads(said)
    except ValueError:
        raise ValueError(f"it is JSON such as {example}") from None
    if not isinstance(found, dict):
        raise ValueError(f"it gives each stream a time: {example}")
    moments: dict[str, int] = {}
    for name, each in found.items():
        if isinstance(each, bool) or not isinstance(each, str | int):
            raise ValueError(f"{name} needs a time, not {json.dumps(each)}: {example}")
        try:
            moments[name] = moment_ns(str(each))
        except ValueError as failure:
            raise ValueError(f"{name}: {failure}") from None
    return moments


def sequences(*words: str) -> Callable[[str], str | dict[str, int]]:
    """Return one of the names, or a JSON object of sequences by stream: -2 is the earliest and -1 the latest."""

    def parse(said: str) -> str | dict[str, int]:
        if said.strip().lower() in words:
            return said.strip().lower()
        example = '{"ORDERS": 123}'
        try:
            found = json.loads(said)
        except ValueError:
            raise ValueError(f"it is {' or '.join(words)}, or JSON such as {example}") from None
        if not isinstance(found, dict) or not all(_is_sequence(number) for number in found.values()):
            raise ValueError(f"it gives each stream a sequence, -2 (earliest) or -1 (latest): {example}")
        return found

    return parse


def _is_sequence(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= EARLIEST


def subjects(said: str) -> tuple[str, ...]:
    """Return the subjects of a list by commas, wildcards allowed, without subjects covered by others."""
    from_list = names(said)
    for subject in from_list:
        check_subject(subject)
    kept = tuple(one for one in from_list if not any(other != one and covers(other, one) for other in from_list))
    for index, one in enumerate(kept):
        for other in kept[index + 1 :]:
            if meet(one, other) is not None:
                raise ValueError(f"{one} and {other} have subjects in common: the server refuses that")
    return kept


def check_stream(name: str) -> None:
    """Raise ValueError for what no stream is called; a server may not answer at all when it is asked for such."""
    if re.search(r"[\s.*>]", name):
        raise ValueError(f"{name!r} is no name of a stream: it has no blanks, dots or wildcards")


def check_subject(subject: str) -> None:
    """Raise ValueError for an invalid subject; wildcards are allowed."""
    tokens = subject.split(".")
    if not all(tokens) or re.search(r"\s", subject) or ">" in tokens[:-1]:
        raise ValueError(f"{subject!r} is no subject: tokens are separated by single dots, and > stands last")


def covers(wide: str, narrow: str) -> bool:
    """Return whether every subject of one filter is also one of a wider."""
    return meet(wide, narrow) == narrow


def meet(one: str, other: str) -> str | None:
    """Return the filter for subjects that two filters have in common, or None."""
    here, there = one.split("."), other.split(".")
    common: list[str] = []
    for at in range(max(len(here), len(there))):
        mine = here[at] if at < len(here) else ""
        yours = there[at] if at < len(there) else ""
        if mine == ">" and yours:
            return ".".join(common + there[at:])
        if yours == ">" and mine:
            return ".".join(common + here[at:])
        if not mine or not yours or (mine != yours and "*" not in (mine, yours)):
            return None
        common.append(yours if mine == "*" else mine)
    return ".".join(common)


def subject_pattern(filters: Sequence[str]) -> re.Pattern[bytes]:
    words = {"*": rb"[^.]+", ">": rb".+"}
    expressions = (
        rb"\.".join(words.get(token) or re.escape(token.encode()) for token in each.split(".")) for each in filters
    )
    return re.compile(b"|".join(expressions), re.DOTALL)


BATCH_READ: Final = "batch read"
STREAM_READ: Final = "streaming read"
BATCH_WRITE: Final = "batch write"
STREAM_WRITE: Final = "streaming write"
READ: Final = (BATCH_READ, STREAM_READ)
WRITE: Final = (BATCH_WRITE, STREAM_WRITE)
ALL: Final = (*READ, *WRITE)
ANY_READ: Final = "read"
"""A read before Spark says whether it is a batch or a streaming query."""


@dataclass(frozen=True)
class Option:
    """One option; `default` is a text for `parse`, or ""."""

    name: str
    default: str
    where: tuple[str, ...]
    parse: Callable[[str], Any]
    meaning: str
    otherwise: str = ""
    """The meaning of its absence, for readers of the table, if `default` is not enough."""


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
    Option("tlsFirst", "false", ALL, flag, "TLS begins before the server sends INFO."),
    Option("tlsInsecure", "false", ALL, flag, "The server's certificate is not checked."),
    Option("apiPrefix", "$JS.API", ALL, some_text, "The prefix of subjects of JetStream's API."),
    Option("domain", "", ALL, some_text, "A JetStream domain, instead of `apiPrefix`."),
    Option("inboxPrefix", "_INBOX", ALL, some_text, "The prefix of subjects for answers."),
    Option("requestTimeout", "5s", ALL, wait_s, "Time to wait for a connection or an answer."),
    Option("retryTimeout", "", ALL, duration_s,
           "Maximum duration of an outage: attempts are repeated until then. See [Outages](#outages).",
           otherwise="`2m`; batch read `30s`"),
    Option("numRetries", "", ALL, whole(0), "A limit by number of repeated attempts, instead of `retryTimeout`.",
           otherwise="by `retryTimeout`"),
    Option("retryInterval", "500ms", ALL, duration_s,
           "The first pause of an outage; each further one is twice as long, up to 5 s, and shortened at random."),
)  # fmt: skip

READING: Final = (
    Option("streamPattern", "", READ, some_text,
           "Streams by a pattern such as `ORDERS*`; those made later are read from their beginning."),
    Option("backup", "", (BATCH_READ,), some_text,
           "The path of a backup to read instead of a server."),
    Option("subject", "", READ, subjects, "Subjects by commas, wildcards allowed; the server sends no others.",
           otherwise="all"),
    Option("startingOffsets", "", READ, sequences("earliest", "latest"),
           '`earliest`, `latest`, or the first sequence by stream: `{"ORDERS": 123}`, -2 earliest, -1 latest. Without '
           "effect on a query that continues from a checkpoint.", otherwise="`earliest`; streaming `latest`"),
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
           "The same for `endingTimestamp`."),
    Option("startingOffsetsByTimestampStrategy", "error", READ, one_of("error", "latest"),
           "The effect of a `startingTimestamp` after the last message: an error, or a start at the end."),
    Option("failOnDataLoss", "true", READ, flag,
           "A query fails if messages that it should read were removed; else it continues after them with a warning."),
    Option("maxOffsetsPerTrigger", "", (STREAM_READ,), whole(1),
           "Maximum messages of a batch, shared among streams in proportion to their pending messages."),
    Option("maxBytesPerTrigger", "", (STREAM_READ,), size_bytes,
           "The same in bytes, by the average message of each stream."),
    Option("minOffsetsPerTrigger", "", (STREAM_READ,), whole(1),
           "The messages that a batch waits for, `maxTriggerDelay` at most; not with `availableNow`."),
    Option("maxTriggerDelay", "15m", (STREAM_READ,), duration_s,
           "Maximum delay of a batch by `minOffsetsPerTrigger`."),
    Option("minPartitions", "", READ, whole(1),
           "The tasks of a read, if there are 10,000 messages for each.",
           otherwise="the driver's cores, or more: one for each 250,000 messages, 400 at most"),
    Option("maxRecordsPerPartition", "", READ, whole(1), "Maximum messages of a task; a larger read has more tasks."),
    Option("transport", "auto", READ, one_of("auto", "blocks", "consumer", "direct", "get"),
           "Read blocks of the log of natsctl's server, through a short-lived consumer, by direct gets, by single "
           "requests, or by what suits the stream (`auto`)."),
    Option("fetchMessages", "10000", READ, whole(1), "Messages requested at once."),
    Option("fetchBytes", "8MiB", READ, size_bytes, "Bytes requested at once."),
    Option("fetchTimeout", "30s", READ, wait_s,
           "After this time without data, a task repeats its request from its position."),
    Option("includeHeaders", "true", READ, flag, "If false, the column `headers` is null and costs nothing."),
    Option("valueFormat", "binary", READ, one_of("binary", "text"),
           "The column `value` as bytes or text. For JSON use `from_json` or `json_table`: see [JSON](#read)."),
    Option("valueMode", "PERMISSIVE", READ, one_of("permissive", "failfast"),
           "A payload that `payloadCompression` does not fit is null, or the query fails."),
    Option("filterPushdown", "false", (BATCH_READ,), flag,
           "The server applies the supported part of `WHERE`; needs `spark.sql.python.filterPushdown.enabled`. "
           "Only for a frame that one query uses once: Spark applies the condition to every other use too."),
    Option("commitConsumer", "", (STREAM_READ,), some_text,
           "A durable consumer that follows the query, so that `natsctl consumer report` shows its lag."),
    Option("payloadCompression", "none", READ,
           one_of("none", "auto", "gzip", "zlib", "zstd", "snappy", "s2", "lz4", "brotli"),
           "The compression of each payload: `gzip`, `zlib`, `zstd`, `snappy`, `s2`, `lz4`, `brotli`; with `auto` it "
           "is in each message's header `Content-Encoding`. See `valueMode` for damaged "
           "payloads."),
    Option("ackMode", "none", (STREAM_READ,), one_of("none", "explicit"),
           "With `explicit` a query reads through a durable consumer, `consumer`, and acknowledges each batch when "
           "Spark has committed it: at least once."),
    Option("consumer", "", (STREAM_READ,), some_text, "The durable pull consumer that `ackMode` reads through."),
    Option("createConsumer", "false", (STREAM_READ,), flag,
           "The durable is created if it does not exist, for `subject`, with an ack wait of 60 s and up to 100,000 "
           "pending acks."),
    Option("includeMetadata", "false", (STREAM_READ,), flag,
           "With `ackMode`, the columns `consumer`, `delivered`, `pending` and `reply` as well."),
)  # fmt: skip

TOMBSTONES: Final = Option(
    "tombstones", "false", ALL, flag,
    "If true, a null `value` is written as a delete marker, an empty message with the header `KV-Operation: DEL`, and "
    "the `value` of delete markers is read as null. Otherwise null is written as an empty message, and an empty "
    "message is never read as null.",
)  # fmt: skip

STREAM: Final = Option(
    "stream", "", ALL, names,
    "The stream to read, or several by commas; `load(\"ORDERS\")` says the same. In a write, the stream that has to "
    "take the messages.",
)  # fmt: skip

WRITING: Final = (
    Option("subject", "", WRITE, some_text, "The subject of all rows, instead of the column `subject`."),
    Option("valueFormat", "text", WRITE, one_of("text", "json"),
           "With `json`, for frames without a column `value`, the columns without another meaning become one JSON "
           "object."),
    Option("msgIdColumn", "", WRITE, some_text, "The column of message ids.", otherwise="`msgId`, if there is one"),
    Option("messageIds", "content", WRITE, one_of("content", "row"),
           "The origin of an id for rows without one: `content`, with stream and sequence if the frame has them, "
           "does not depend on how rows are cut into tasks; `row`, its number, is cheaper, and right only if every "
           "attempt has the same rows in the same tasks in the same order; not with `writeId`."),
    Option("idempotence", "ids", WRITE, one_of("ids", "ledger", "none"),
           "Protection from storing a repeated row twice: by message ids, for as long as the stream's duplicate "
           "window; by a ledger as well, without a limit of time; or none."),
    Option("writeId", "", (BATCH_WRITE,), key_text,
           "A name for this write only: the job, run again under it with the same rows, stores each once, on any "
           "number of cores, as late as `idempotence` allows.",
           otherwise="a new one each time"),
    Option("orderBy", "", WRITE, names,
           "Sort columns of each task's rows before sending. With `repartition(n, \"subject\")` before, "
           "`orderBy` `seq` keeps the order of each subject, in streaming queries too, where Spark cannot sort."),
    Option("window", "4000", WRITE, whole(1), "Maximum number of unacknowledged messages."),
    Option("ackTimeout", "10s", WRITE, wait_s, "After this time without an acknowledgement, messages are sent again."),
)  # fmt: skip

TABLE: Final = (STREAM, *READING, *WRITING, TOMBSTONES, *CONNECTION)

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
    "kafkaconsumer.polltimeoutms": "fetchTimeout",
    "kafka.max.poll.records": "fetchMessages",
    "kafka.fetch.max.bytes": "fetchBytes",
    "kafka.security.protocol": "tlsCa",
    "kafka.ssl.truststore.location": "tlsCa",
    "kafka.ssl.keystore.location": "tlsCert",
    "kafka.sasl.jaas.config": "credentials",
    "kafka.enable.idempotence": "idempotence",
    "kafka.max.in.flight.requests.per.connection": "window",
    "kafka.linger.ms": "window",
    "kafka.batch.size": "window",
    "kafka.delivery.timeout.ms": "retryTimeout",
    "kafka.request.timeout.ms": "ackTimeout",
}
"""Our names of options of Spark's Kafka source (in lower case)."""

OF_SPARK: Final = frozenset({"path", "paths", "checkpointlocation", "queryname"})
"""Options that Spark itself adds, in lower case; `path` is the argument of `load`."""

REMOVED_JSON: Final = frozenset({"valueschema", "columnnameofcorruptrecord"})
"""Options of releases up to 0.1.0 that had JSON parsed by the source, as `valueFormat` `json` did."""


def from_json_hint(schema: str, stream: str = "ORDERS") -> str:
    """Return the line to write instead of a read with JSON values."""
    return (
        f"Spark parses JSON. Write natsctl.spark.json_table(spark, {stream!r}, {schema!r}), or after load({stream!r}) "
        f""".withColumn("value", from_json(col("value").cast("string"), {schema!r}))"""
    )


class Options:
    """The options that were given, by name in any case.

    `options["stream"]` is the value, its default, or None, as for an option that is for other places.
    """

    def __init__(self, given: Mapping[str, str], place: str) -> None:
        """Raise OptionError for an option that is unknown, does not count in that place, or has a wrong value."""
        self.place = place
        self.raw = {name.lower(): said for name, said in given.items()}
        self._known = _known_in(place)
        removed = self.raw.get("valueformat", "").lower() == "json" or bool(REMOVED_JSON & {*self.raw})
        if removed and place not in WRITE:
            schema = self.raw.get("valueschema") or "id bigint, total double"
            stream = self.path or self.raw.get("stream") or "ORDERS"
            raise OptionError(f"valueFormat json was removed: {from_json_hint(schema, stream)}")
        for name in self.raw:
            if name not in self._known and name not in OF_SPARK:
                raise _unknown(name, place)
        self._values = dict.fromkeys(option.name.lower() for option in TABLE)
        self._values |= {name: self._parsed(option) for name, option in self._known.items()}

    def __getitem__(self, name: str) -> Any:
        return self._values[name.lower()]

    def given(self, name: str) -> bool:
        """Return whether the option was said, and not as an empty text."""
        return bool(self.raw.get(name.lower()))

    @property
    def path(self) -> str:
        return self.raw.get("path", "")

    def said(self) -> list[str]:
        """Return the names of all options that were given, as the table spells them."""
        return [option.name for name, option in self._known.items() if self.given(name)]

    def _parsed(self, option: Option) -> Any:
        said = self.raw.get(option.name.lower()) or option.default
        if not said:
            return None
        try:
            return option.parse(said)
        except ValueError as failure:
            raise OptionError(f"option {option.name}: {failure}") from None


_INSTEAD: Final = {
    ("ackMode",): (
        "Spark does not report to a source that a batch is written. readStream with trigger(availableNow=True) reads "
        "the present messages and ends, and foreachBatch gives each batch as a frame"
    ),
    ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"): (
        "A batch read has one batch: limit it with startingOffsets, endingOffsets or the timestamps"
    ),
    ("filterPushdown",): (
        "Spark pushes no conditions into a streaming source: select by the option subject, and begin with "
        "startingOffsets or startingTimestamp"
    ),
    ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"): (
        "A query that should end takes trigger(availableNow=True)"
    ),
    ("writeId",): "The checkpoint of a query identifies its writes",
}
"""What to do without options that are not for this place."""


def _known_in(place: str) -> dict[str, Option]:
    places = READ if place == ANY_READ else (place,)
    return {option.name.lower(): option for option in TABLE if not {*places}.isdisjoint(option.where)}


def _unknown(name: str, place: str) -> OptionError:
    places = [where for option in TABLE if option.name.lower() == name for where in option.where]
    spelled = next((option.name for option in TABLE if option.name.lower() == name), name)
    if places:
        advice = next((f". {text}" for names, text in _INSTEAD.items() if spelled in names), "")
        return OptionError(f"option {spelled} is for a {' or a '.join(places)}, and this is a {place}{advice}")
    known = {lower: option.name for lower, option in _known_in(place).items()}
    every = {option.name.lower(): option.name for option in TABLE}
    near = [every[match] for match in get_close_matches(name, list(every), n=2, cutoff=0.6)]
    if OF_KAFKA.get(name, "").lower() in known:
        near = [OF_KAFKA[name]]
    meant = (
        f"; did you mean {' or '.join(near)}?"
        if near
        else f"; known for a {place} are {', '.join(sorted(known.values()))}"
    )
    return OptionError(f"there is no option {name}{meant}")


def as_markdown() -> str:
    """Return the table of options as docs/spark.md shows it."""
    head = ["| option | default | for | meaning |", "|---|---|---|---|"]
    return "\n".join(head + [_row(option) for option in TABLE]) + "\n"


def _row(option: Option) -> str:
    default = option.otherwise or (f"`{option.default}`" if option.default else "")
    meaning = option.meaning.replace("|", "\\|")
    return f"| `{option.name}` | {default} | {_places(option)} | {meaning} |"


def _places(option: Option) -> str:
    kinds = {where.split()[1] for where in option.where}
    names = [kind for kind in ("read", "write") if kind in kinds]
    short = {where.split()[0] for where in option.where}
    only = "" if len(short) == 2 else f"{short.pop()} "
    return f"{only}{' and '.join(names)}"
