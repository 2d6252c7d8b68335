"""Reading JSON of each kind that programs write: `valueFormat` `json` beside Spark's `from_json`, CPU a record.

Records have six fields and about 115 bytes. natsctl's figure is of the batches that a task reads, made in this
process; that of `from_json` is a query with it on rows in Spark's memory, less the same query without it.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bench.spark.spent import spent_by
from natsctl.spark.source.json_column import JsonColumn
from natsctl.spark.source.json_rows import JsonSettings
from natsctl.spark.source.rows import arrow_schema, parsed_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA: Final = "id bigint, customer string, total double, paid boolean, at timestamp, note string"
RECORDS: Final = 10_000
"""What a task reads at a time, more or less."""
TIMES: Final = 4
"""Runs of each, of which the one that took the least CPU counts."""
REPEATED: Final = 20
"""How often Spark is given the records in one query."""

Change = Callable[[dict[str, Any], int], Any]
"""Makes of a clean record one of a kind: another object, or its text."""


def _moment(spelling: str) -> Change:
    return lambda record, at: {**record, "at": spelling % (at % 60, at % 1000)}


KINDS: Final[dict[str, Change]] = {
    "clean, times in milliseconds": lambda record, at: record,
    "times in nanoseconds": _moment("2026-11-23T05:52:%02d.%06d789Z"),
    "times with an offset": _moment("2026-11-23T05:52:%02d.%03d+02:00"),
    "times without a zone": _moment("2026-11-23 05:52:%02d.%03d"),
    "seconds since 1970": lambda record, at: {**record, "at": 1_764_000_000 + at},
    "a number for a text": lambda record, at: {**record, "note": at / 4},
    "pretty-printed": lambda record, at: json.dumps(record, indent=2),
    "escapes": lambda record, at: {**record, "note": f'"{at}"\n\u00e9'},
    "fields that are not wanted": lambda record, at: {**record, "items": [{"sku": at, "tags": ["a"]}]},
    "fields left out": lambda record, at: {name: record[name] for name in list(record)[at % 3 :]},
    "all of these in turn": lambda record, at: list(KINDS.values())[at % 10](record, at),
    "a value that does not fit": lambda record, at: {**record, "total": "x"},
    "a name twice": lambda record, at: _compact(record)[:-1] + ',"id":7}',
    "cut off": lambda record, at: _compact(record)[:-9],
}


def _compact(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"))


def records_of(change: Change, number: int = RECORDS) -> list[bytes]:
    """Return records of a kind."""
    chance, found = random.Random(7), []
    for at in range(number):
        record = {
            "id": at,
            "customer": f"customer {chance.randrange(10**6)}",
            "total": chance.randrange(100_000) / 100,
            "paid": chance.random() < 0.5,
            "at": f"2026-11-23T05:52:{at % 60:02}.{at % 1000:03}Z",
            "note": f"n{chance.randrange(10**9)}",
        }
        made = change(record, at)
        found.append((made if isinstance(made, str) else _compact(made)).encode())
    return found


def ours_us(records: Sequence[bytes]) -> float:
    """Return microseconds of CPU a record in natsctl's reader."""
    column = JsonColumn(pa.struct(list(arrow_schema(parsed_schema(SCHEMA)))), JsonSettings())
    spent = []
    for _ in range(TIMES):
        begun = time.process_time()
        column.column(records)
        spent.append(time.process_time() - begun)
    return min(spent) / len(records) * 1e6


def from_json_us(spark: SparkSession, records: Sequence[bytes]) -> float:
    """Return microseconds of CPU a record in Spark's `from_json`."""
    from pyspark.sql import functions

    texts = spark.createDataFrame(pa.table({"text": pa.array([each.decode() for each in records] * REPEATED)})).cache()
    parsed = texts.select(functions.from_json("text", SCHEMA, {"timeZone": "UTC"}).alias("value"))
    least = []
    for frame in (texts, parsed):
        write = frame.write.format("noop").mode("overwrite").save
        write()
        least.append(min(spent_by(write).cpu_s for _ in range(TIMES)))
    texts.unpersist()
    return (least[1] - least[0]) / (len(records) * REPEATED) * 1e6


def report_json(spark: SparkSession) -> None:
    """Print what each kind costs."""
    print(f"\nJSON, us of CPU a record\n  {'':38} {'natsctl':>10} {'from_json':>10} {'of clean':>10}")
    clean = 0.0
    for name, change in KINDS.items():
        records = records_of(change)
        ours = ours_us(records)
        clean = clean or ours
        print(f"  {name:38} {ours:10.2f} {from_json_us(spark, records):10.2f} {ours / clean:10.2f}", flush=True)
