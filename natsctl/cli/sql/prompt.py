"""The prompt for queries: one session of Spark, started with the first query that needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsctl.api.errors import UsageError

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.cli.spark_flags import SparkFlags
    from natsctl.cli.sql.shown import Shown
    from natsctl.cli.sql.tables import Tables


def prompt(session: Session, spark: SparkFlags, tables: Tables, shown: Shown) -> None:
    """Answer queries until the person ends the prompt. Raises UsageError where there is no terminal."""
    if not session.interactive:
        raise UsageError("a query is needed", hint="give QUERY, @FILE, or - for stdin")
