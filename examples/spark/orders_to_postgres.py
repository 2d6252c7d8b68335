"""Keep a table in PostgreSQL up to date with a stream: each order is a row once, however often a batch is run again.

Every batch is copied into a temporary table by `psql`, and merged from there in one transaction. A row's stream and
sequence are its key, so a batch that is done again after a failure changes nothing. `psql` finds the database by the
usual variables (PGHOST, PGDATABASE, PGUSER, PGPASSWORD) or by `--database postgres://…`; it runs on the driver.

    python orders_to_postgres.py --stream ORDERS --checkpoint /data/checkpoints/orders-postgres
"""

from __future__ import annotations

import argparse
import subprocess
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from natsctl.spark import json_table
from natsctl.spark.session import open_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming import StreamingQuery

TABLE = """CREATE TABLE IF NOT EXISTS orders (
  stream text, seq bigint, stored timestamptz NOT NULL, customer text, amount double precision,
  PRIMARY KEY (stream, seq)
);
"""
MERGE = """BEGIN;
CREATE TEMPORARY TABLE batch (LIKE orders) ON COMMIT DROP;
COPY batch (stream, seq, stored, customer, amount) FROM STDIN;
{rows}\\.
INSERT INTO orders SELECT * FROM batch ON CONFLICT (stream, seq) DO NOTHING;
COMMIT;
"""
COLUMNS = ("stream", "seq", "timestamp", "value.customer", "value.amount")
ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r", "\0": "\ufffd"})
"""What stands for characters with a meaning of their own; PostgreSQL has no text with NUL."""
ROWS = 20_000
"""Copied at once, and held on the driver as text."""


def start(spark: SparkSession, checkpoint: str, database: str, stream: str = "ORDERS", **server: str) -> StreamingQuery:
    """Start the query; it ends when everything is in the table that the stream holds now."""
    psql(database, TABLE)
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "100000"}
    orders = json_table(spark, stream, "customer string, amount double", streaming=True, **limits, **server)

    def merge(batch: DataFrame, number: int) -> None:
        for rows in texts(batch.select(*COLUMNS).toLocalIterator()):
            psql(database, MERGE.format(rows=rows))

    writer = orders.writeStream.foreachBatch(merge).option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start()


def texts(rows: Iterator[Row]) -> Iterator[str]:
    """Yield the rows as COPY reads them, so many at a time."""
    while lines := ["\t".join(map(field, row)) + "\n" for row in islice(rows, ROWS)]:
        yield "".join(lines)


def field(value: object) -> str:
    """Return one value in COPY's text format: no payload can end the data, or be taken for SQL."""
    if value is None:
        return r"\N"
    text = value.astimezone().isoformat() if isinstance(value, datetime) else str(value)
    return text.translate(ESCAPES)


def psql(database: str, sql: str) -> str:
    """Run SQL, and return what it prints; raises CalledProcessError where any of it fails."""
    command = ["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", *([database] if database else [])]
    return subprocess.run(command, input=sql, text=True, check=True, stdout=subprocess.PIPE).stdout


def main() -> None:
    """Run the query from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", default="ORDERS")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--database", default="", help="a URI of the database, unless PGHOST and so on name it")
    options = parser.parse_args()
    with open_session() as spark:
        start(spark, options.checkpoint, options.database, options.stream).awaitTermination()


if __name__ == "__main__":
    main()
