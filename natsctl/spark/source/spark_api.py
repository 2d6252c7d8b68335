"""The names of PySpark's data source API that older releases lack, and replacements for them.

| release | lacks | without it |
|---|---|---|
| 4.1 | limits of a trigger, `availableNow` by the source, starts in `latestOffset` | see `stream_reader` |
| 4.0 | filters, Arrow in streaming writes | no `filterPushdown`; streaming writes go through `foreachBatch` |

3.5 has no data source API for Python at all. The replacements are never instantiated there, only named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyspark
import pyspark.sql.datasource as datasource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable as ReadAllAvailable,
    )
    from pyspark.sql.streaming.datasource import (
        ReadLimit as ReadLimit,
    )
    from pyspark.sql.streaming.datasource import (
        ReadMaxBytes as ReadMaxBytes,
    )
    from pyspark.sql.streaming.datasource import (
        ReadMaxRows as ReadMaxRows,
    )
    from pyspark.sql.streaming.datasource import (
        ReadMinRows as ReadMinRows,
    )
    from pyspark.sql.streaming.datasource import (
        SupportsTriggerAvailableNow as SupportsTriggerAvailableNow,
    )
else:
    try:
        import pyspark.sql.streaming.datasource as limits
    except ImportError:
        limits = None

    class _Missing:
        """A class of the API that this release does not have."""

        def __init__(self, *values: Any) -> None:
            pass

    def _class(module: Any, name: str, base: type = _Missing) -> type:
        return getattr(module, name, None) or type(name, (base,), {})

    ReadAllAvailable = _class(limits, "ReadAllAvailable")
    ReadLimit = _class(limits, "ReadLimit")
    ReadMaxBytes = _class(limits, "ReadMaxBytes")
    ReadMaxRows = _class(limits, "ReadMaxRows")
    ReadMinRows = _class(limits, "ReadMinRows")
    SupportsTriggerAvailableNow = _class(limits, "SupportsTriggerAvailableNow", object)
    DataSourceStreamArrowWriter = _class(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)

RELEASE: Final = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
"""Major and minor version of PySpark."""
FILTERS_SINCE: Final = (4, 1)
ARROW_STREAM_WRITES_SINCE: Final = (4, 1)
LIMITS_SINCE: Final = (4, 2)
