"""Queries that Spark answers: a session for each, or one that stays for several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
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

    def check(self, text: str) -> None:
        """Raises UsageError and UnknownTableError for what needs no Spark to be known."""
        from natsctl.cli.suggest import did_you_mean
        from natsctl.spark.session.connect import remote_for
        from natsctl.spark.sql.queries import check_changes_nothing, check_named

        check_changes_nothing(text, self._tables.catalogue)
        options = self._spark.options
        if self._known is None and not options.conf and not options.master and remote_for(options) is None:
            check_named(text, self._tables.catalogue, did_you_mean)

    def run(self, text: str, limit: int | None, *, bar: bool = True) -> Result:
        """The rows of a query, `limit` at most."""
        return self._ask(lambda queries: queries.run(text, limit), bar, self._messages(text))

    def explain(self, text: str) -> str:
        """How Spark would answer a query."""
        return self._ask(lambda queries: queries.explain(text), True, 0)

    @contextmanager
    def staying(self, text: str = "") -> Iterator[None]:
        """Have one session of Spark for all that is asked meanwhile: of that query, if it is known."""
        from natsctl.spark.session import open_session

        with open_session(replace(self._spark.options, messages=self._messages(text))):
            yield

    def _messages(self, text: str) -> int:
        """How many messages the tables of a query have."""
        from natsctl.spark.sql.relations import relations

        found = self._tables.catalogue.find_all(named.name for named in relations(text))
        streams = {table.stream for table in found if table.kind != "subjects"}
        return sum(int(self._tables.state(stream).get("messages") or 0) for stream in streams)

    def _ask(self, question: Callable[[Queries], T], bar: bool, messages: int) -> T:
        from natsctl.cli.spark_work import run_on_spark

        def work(opened: SparkSession, options: dict[str, str]) -> T:
            return question(self._queries(opened, options))

        needs_server = self._tables.on_server
        return run_on_spark(
            self._session, self._spark, work, what="Query", bar=bar, needs_server=needs_server, messages=messages
        )

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
