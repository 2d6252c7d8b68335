"""The names of PySpark's data source API that older releases lack, and replacements for them.

| release | lacks | without it |
|---|---|---|
| 4.1 | limits of a trigger, `availableNow` by the source, starts in `latestOffset` | see `stream_reader` |
| 4.0 | filters, Arrow in streaming writes | no `filterPushdown`; streaming writes go through `foreachBatch` |

3.5 has no data source API for Python at all. The replacements are never instantiated there, only named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyspark
import pyspark.sql.datasource as datasource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceStreamArrowWriter,
        EqualNullSafe,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        IsNotNull,
        LessThan,
        LessThanOrEqual,
        StringStartsWith,
    )
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:
        from dataclasses import dataclass

        class ReadLimit:
            """A limit of a trigger; these releases do not have it."""

        class ReadAllAvailable(ReadLimit):
            """No limit."""

        @dataclass
        class ReadMaxRows(ReadLimit):
            """Messages at most."""

            max_rows: int

        @dataclass
        class ReadMinRows(ReadLimit):
            """Messages at least."""

            min_rows: int

        @dataclass
        class ReadMaxBytes(ReadLimit):
            """Bytes at most."""

            max_bytes: int

        class SupportsTriggerAvailableNow:
            """A source that ends a run of `availableNow` itself."""

    class _Missing:
        """A class of the API that this release does not have."""

    def _named(name):
        return getattr(datasource, name, None) or type(name, (_Missing,), {})

    Filter = _named("Filter")
    EqualNullSafe = _named("EqualNullSafe")
    EqualTo = _named("EqualTo")
    GreaterThan = _named("GreaterThan")
    GreaterThanOrEqual = _named("GreaterThanOrEqual")
    In = _named("In")
    IsNotNull = _named("IsNotNull")
    LessThan = _named("LessThan")
    LessThanOrEqual = _named("LessThanOrEqual")
    StringStartsWith = _named("StringStartsWith")
    DataSourceStreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", None) or type(
        "DataSourceStreamArrowWriter", (datasource.DataSourceStreamWriter,), {}
    )

RELEASE: Final = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
"""Major and minor version of PySpark."""
FILTERS_SINCE: Final = (4, 1)
ARROW_STREAM_WRITES_SINCE: Final = (4, 1)
LIMITS_SINCE: Final = (4, 2)

__all__ = [
    "ARROW_STREAM_WRITES_SINCE",
    "FILTERS_SINCE",
    "LIMITS_SINCE",
    "RELEASE",
    "DataSourceStreamArrowWriter",
    "EqualNullSafe",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "IsNotNull",
    "LessThan",
    "LessThanOrEqual",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "StringStartsWith",
    "SupportsTriggerAvailableNow",
]
