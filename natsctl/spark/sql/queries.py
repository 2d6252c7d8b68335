"""Queries on one session of Spark: each finds its tables as views, and its mistakes told with what may be meant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from natsctl.spark.sql.catalogue import Catalogue, Table
from natsctl.spark.sql.columns import EVERYTHING
from natsctl.spark.sql.relations import quoted, relations
from natsctl.spark.sql.result import Result, of_arrow
from natsctl.spark.sql.statements import Suggest, UnknownTable, unknown_table
from natsctl.spark.sql.text import split_statements
from natsctl.spark.sql.views import Locate, Views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_TABLE, NO_COLUMN = "TABLE_OR_VIEW_NOT_FOUND", "UNRESOLVED_COLUMN"
_PLAIN = re.compile(r"\w+|.*\..*")
"""Names that are left as they are: identifiers, and those with their catalogue before them."""


class Queries:
    """Answers queries on a session; `suggest` says what an unknown name may have meant, given those there are."""

    def __init__(
        self,
        spark: SparkSession,
        catalogue: Catalogue,
        locate: Locate,
        suggest: Suggest,
        *,
        on_server: bool = True,
    ) -> None:
        self._spark, self._catalogue, self._suggest = spark, catalogue, suggest
        self._views = Views(spark, locate, on_server=on_server)

    def run(self, text: str, limit: int | None = None) -> Result:
        """The rows of the last statement, `limit` at most. Raises UnknownTable, UsageError, what Spark raises."""
        frame = self._last(text)
        found = of_arrow((frame if limit is None else frame.limit(limit + 1)).toArrow())
        return found.cut(limit)

    def explain(self, text: str) -> str:
        """How Spark would answer the last statement."""
        rows = self._last(text, "explain formatted ").collect()
        return "\n".join(str(row[0]) for row in rows).strip()

    def _last(self, text: str, asked: str = "") -> DataFrame:
        """The answer to the last statement with `asked` before it, after those before it."""
        *before, last = split_statements(text)
        for statement in before:
            self._frame(statement)
        return self._frame(last, asked)

    def _frame(self, statement: str, asked: str = "") -> DataFrame:
        from pyspark.errors import AnalysisException

        tables = tables_of(statement, self._catalogue)
        known = {table.name for table in tables}
        query = quoted(statement, lambda name: name in known or _PLAIN.fullmatch(name) is None)
        self._views.make(tables, query)
        try:
            frame = self._spark.sql(asked + query)
        except AnalysisException as failure:
            if failure.getCondition() == NO_TABLE:
                raise self._unknown(failure.getMessageParameters() or {}) from failure
            if not str(failure.getCondition()).startswith(NO_COLUMN):
                raise
        else:
            self._views.note(tables, query)
            return frame
        self._views.make(tables, EVERYTHING)  # of which Spark then says what may have been meant
        return self._spark.sql(asked + query)

    def _unknown(self, parameters: Mapping[str, Any]) -> UnknownTable:
        name = str(parameters.get("relationName", "")).replace("`", "")
        return unknown_table(name, self._catalogue, self._suggest)


def tables_of(query: str, catalogue: Catalogue) -> list[Table]:
    """The tables of a query that are streams or buckets. Raises UsageError."""
    return catalogue.find_all(named.name for named in relations(query))
