"""The files of a new project: one that fills a table from a stream, and a stream from the table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from natsctl.spark.sql.relations import literal, quote

_SPECIFICATION: Final = """\
# Spark's own file: https://spark.apache.org/docs/latest/declarative-pipelines-programming-guide.html
name: {name}
storage: storage            # checkpoints: how far each flow has read
libraries:
  - glob:
      include: transformations/**
"""
_OWN: Final = """\
# What natsctl adds: streams as views and as sinks. Every option of docs/spark.md goes below a name.
streams:
  {stream}: {{}}                # FROM STREAM {quoted}, from the first message on, unless startingOffsets says otherwise
sinks:
  {sink}:                # a stream: each update publishes what the view big_messages gets
    from: big_messages
interval: 30s               # how often `natsctl pipeline run` updates; with --once one time
# context: lab              # the server, unless a flag or NATS_URL names it
"""
_SQL: Final = """\
-- What the stream brings, once and for all: the table keeps it when the stream no longer does.
CREATE STREAMING TABLE messages AS
SELECT seq, subject, timestamp, CAST(value AS STRING) AS body, length(value) AS bytes
FROM STREAM {quoted};

-- What to publish: a row is a message.
CREATE TEMPORARY VIEW big_messages AS
SELECT
  concat({prefix}, subject) AS subject,
  to_json(struct(seq, bytes)) AS value,
  concat({place}, seq) AS msgId
FROM STREAM messages
WHERE bytes > 100;
"""
_PYTHON: Final = '''\
"""Numbers by subject, made anew by each update that has something new."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


@dp.materialized_view
def by_subject() -> DataFrame:
    return (
        spark.read.table("messages")  # noqa: F821  # Spark gives `spark` to these files
        .groupBy("subject")
        .agg(F.count("*").alias("messages"), F.sum("bytes").alias("bytes"), F.max("timestamp").alias("last"))
    )
'''
_IGNORED: Final = "/storage/\n/tables/\n/.natsctl/\n__pycache__/\n"


_PLAIN: Final = re.compile(r"(?!(?:true|false|yes|no|on|off|y|n|null)$)[A-Za-z][A-Za-z0-9_-]*", re.IGNORECASE)
"""Texts that YAML takes for texts as they are."""


def write_project(folder: Path, stream: str, *, dry: bool = False) -> list[Path]:
    """Write a project that reads a stream, unless `dry`, and return its files. Raises FileExistsError, OSError.

    What it publishes goes to `BIG_<STREAM>`, a stream that the user makes.
    """
    sink = f"BIG_{stream}"
    words = {
        "name": _yaml(folder.absolute().name),
        "stream": _yaml(stream),
        "sink": _yaml(sink),
        "quoted": quote(stream),
        "prefix": literal(f"{sink}."),
        "place": literal(f"{stream}:"),
    }
    texts = {
        "spark-pipeline.yml": _SPECIFICATION.format(**words),
        "natsctl.yml": _OWN.format(**words),
        "transformations/messages.sql": _SQL.format(**words),
        "transformations/by_subject.py": _PYTHON,
        ".gitignore": _IGNORED,
    }
    there = [name for name in texts if (folder / name).exists()]
    if there:
        raise FileExistsError(f"{folder / there[0]} is there")
    for name, text in texts.items() if not dry else ():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(re.sub(r" +$", "", text, flags=re.MULTILINE), encoding="utf-8")
    return [folder / name for name in texts]


def _yaml(text: str) -> str:
    """Return a text as YAML reads it."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
