"""Queries that Spark answers: a session for each, or one that stays for several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from natsctl.cli.session import Session
    from natsctl.cli.spark_flags import SparkFlags
    from natsctl.cli.sql.tables import Tables
    from natsctl.spark.sql.queries import Queries
    from natsctl.spark.sql.result import Result

T = TypeVar("T")


class SparkQueries:
    """Answers queries over tables; views that queries make stay while the session of Spark does."""

    def __init__(self, session: Session, spark: SparkFlags, tables: Tables) -> None:
        self._session, self._spark, self._tables = session, spark, tables
        self._known: tuple[SparkSession, Queries] | None = None

    def run(self, text: str, limit: int | None, *, bar: bool = True) -> Result:
        """The rows of a query, `limit` at most."""
        return self._ask(lambda queries: queries.run(text, limit), bar)

    def explain(self, text: str) -> str:
        """How Spark would answer a query."""
        return self._ask(lambda queries: queries.explain(text), True)

    @contextmanager
    def staying(self) -> Iterator[None]:
        """Have one session of Spark for all that is asked meanwhile."""
        from natsctl.spark.session import open_session

        with open_session(self._spark.options):
            yield

    def _ask(self, question: Callable[[Queries], T], bar: bool) -> T:
        from natsctl.cli.spark_work import run_on_spark

        def work(opened: SparkSession, options: dict[str, str]) -> T:
            return question(self._queries(opened, options))

        needs_server = self._tables.on_server
        return run_on_spark(self._session, self._spark, work, what="Query", bar=bar, needs_server=needs_server)

    def _queries(self, opened: SparkSession, options: dict[str, str]) -> Queries:
        """The queries of that session, with the views that they have made there."""
        from natsctl.cli.suggest import did_you_mean
        from natsctl.spark.sql.queries import Queries

        if self._known is None or self._known[0] is not opened:
            tables = self._tables

            def locate(stream: str) -> dict[str, str]:
                return tables.options(options, stream)

            self._known = (
                opened,
                Queries(opened, tables.catalogue, locate, did_you_mean, on_server=tables.on_server),
            )
        return self._known[1]
