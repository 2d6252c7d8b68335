"""Formats of files, recognised by the endings of their names, and paths in Spark's spelling.

Delta needs a separate package: neither Spark nor natsctl includes it.

Spark writes local paths as URLs without escapes. An escape is plain characters to it, so that
`Path.as_uri` names another folder as soon as there is a space or a letter beyond ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from natsctl.api.errors import NatsctlError, UsageError


@dataclass(frozen=True, slots=True)
class Format:
    """A format: its name, the endings of its files, and the options that Spark writes and reads it with."""

    name: str
    endings: tuple[str, ...]
    writing: dict[str, str] = field(default_factory=dict)
    reading: dict[str, str] = field(default_factory=dict)
    is_text: bool = False
    """Whether files of it can be concatenated."""
    is_folder: bool = False
    """Whether it has no files of its own, only folders."""


_TIMES = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
_CSV = {"quote": '"', "escape": '"', "header": "true", "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false"}  # fmt: skip

PARQUET: Final = Format("parquet", (".parquet", ".pq"), reading={"mergeSchema": "true"})
JSON: Final = Format(
    "json",
    (".jsonl", ".ndjson", ".json"),
    writing={"timestampFormat": _TIMES},
    reading={"mode": "FAILFAST", "maxStringLen": str((1 << 31) - 1)},  # Spark takes 20 million characters otherwise
    is_text=True,
)
CSV: Final = Format(
    "csv",
    (".csv",),
    writing={**_CSV, "timestampFormat": _TIMES, "quoteAll": "true", "emptyValue": ""},
    reading={**_CSV, "mode": "FAILFAST", "multiLine": "true", "enforceSchema": "false"},
    is_text=True,
)
DELTA: Final = Format("delta", (".delta",), is_folder=True)
FORMATS: Final = {one.name: one for one in (PARQUET, JSON, CSV, DELTA)}
GZIP: Final = ".gz"


def format_of(path: str, asked: str = "") -> Format:
    """Return the format that is asked for, else that of the path's ending, else Parquet. Raises UsageError."""
    if asked:
        if asked not in FORMATS:
            raise UsageError(f"--format: expected one of {', '.join(FORMATS)}, not {asked!r}")
        return FORMATS[asked]
    return named_format(path) or PARQUET


def named_format(path: str) -> Format | None:
    bare = path.lower().removesuffix(GZIP)
    return next((one for one in FORMATS.values() if bare.endswith(one.endings)), None)


def is_gzip(path: str) -> bool:
    return path.lower().endswith(GZIP)


def is_url(path: str) -> bool:
    """Return whether the path is a place that Spark knows, such as s3a://bucket/folder, and no file of this machine."""
    return "://" in path


_NOT_FOUND = "DATA_SOURCE_NOT_FOUND"
_HINT = (
    "give it the version that is for this Spark, such as for Spark 4.2 (4.4.0 writes on 4.3 too, but does not read):\n"
    "--conf spark.jars.packages=io.delta:delta-spark_4.2_2.13:4.4.0\n"
    "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension\n"
    "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
)


@contextmanager
def missing_format_reported(format: Format) -> Iterator[None]:
    """Report how to add a format that Spark does not know. Raises NatsctlError."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as failure:
        if _NOT_FOUND not in str(failure) or not format.is_folder:
            raise
        raise NatsctlError("Spark has no Delta here", hint=_HINT) from failure


_SCHEME: Final = "file:"
_OF_PATTERNS: Final = re.compile(r"([\\{}\[\]*?])")
_OTHER_PLACES: Final = ("dbfs", "hdfs", "s3a")


def spark_path(path: Path) -> str:
    whole = path.absolute().as_posix()
    return f"{_SCHEME}//{whole if whole.startswith('/') else f'/{whole}'}"


def spark_input(path: Path) -> str:
    """Return the spelling for Spark of a path that it reads, and would take for a pattern otherwise."""
    return _OF_PATTERNS.sub(r"\\\1", spark_path(path))


def is_pattern(path: Path) -> bool:
    """Return whether Spark treats a path as a pattern by default; not all of its readers can change that."""
    return _OF_PATTERNS.search(path.as_posix()) is not None


def local_path(place: str) -> Path | None:
    """Return the path that Spark's spelling names, None for other file systems."""
    if place.startswith(_SCHEME):
        rest = place.removeprefix(_SCHEME)
        return Path(rest.removeprefix("//"))
    return None if "://" in place or place.partition(":")[0] in _OTHER_PLACES else Path(place)
