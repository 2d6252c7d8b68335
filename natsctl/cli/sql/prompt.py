"""The prompt for queries: one session of Spark, started with the first query that needs it and kept until the end."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from natsctl.api.errors import NatsctlError
from natsctl.cli import output

if TYPE_CHECKING:
    from collections.abc import Callable

    from natsctl.cli.sql.on_spark import SparkQueries
    from natsctl.cli.sql.shown import Look, Shown
    from natsctl.cli.sql.tables import Tables

ENDING = ("exit", "quit", "\\q")
_KEYWORDS = (
    "select", "from", "where", "group by", "order by", "limit", "having", "join", "distinct", "count(*)",
    "cast(value as string)", "between", "like", "desc", "with",
)  # fmt: skip


class Prompt:
    """Reads queries from a person and shows their answers; a mistake ends a query, not the prompt."""

    def __init__(
        self, asked: SparkQueries, tables: Tables, shown: Shown, counting: Callable[[str], Look | None]
    ) -> None:
        """`counting` gives what answers a query without Spark, or None."""
        self._asked, self._tables, self._shown, self._counting = asked, tables, shown, counting
        self._spark = ExitStack()
        self._warm = False

    def run(self) -> None:
        """Answer queries until the person ends the prompt with Ctrl-D, `quit` or `exit`."""
        asking = _asking(self._tables)
        with self._spark:
            while True:
                try:
                    text = asking.prompt("sql> ").strip()
                except KeyboardInterrupt:
                    continue
                except EOFError:
                    return
                if text.rstrip("; ").lower() in ENDING:
                    return
                self._answer(text)

    def _answer(self, text: str) -> None:
        from natsctl.cli.failures import render_error
        from natsctl.spark.sql.relations import split_statements

        if not split_statements(text):
            return
        try:
            counted = self._counting(text)
            self._shown.show(counted or (lambda: self._on_spark(text)))
        except KeyboardInterrupt:
            output.note("interrupted")
        except NatsctlError as failure:
            output.note(render_error(failure, False))

    def _on_spark(self, text: str) -> Any:
        self._asked.check(text)
        if not self._warm:
            output.note("starting Spark; later queries use the same session")
            self._spark.enter_context(self._asked.staying())
            self._warm = True
        return self._asked.run(text, self._shown.limit)


def _asking(tables: Tables) -> Any:
    """What reads a line, with those before it and words that may be meant."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.output import create_output

    from natsctl.spark.sql.catalogue import BUCKET_COLUMNS, STREAM_COLUMNS

    words = [*_KEYWORDS, *dict.fromkeys((*STREAM_COLUMNS, *BUCKET_COLUMNS)), *tables.catalogue.names]
    path = history_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    return PromptSession(
        history=FileHistory(str(path)),
        completer=WordCompleter(words, ignore_case=True, WORD=True),
        complete_while_typing=False,
        output=create_output(stdout=sys.stderr),
    )


def history_path() -> Path:
    """Where the queries of earlier prompts are: `natsctl/sql_history` in XDG_STATE_HOME (~/.local/state)."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "natsctl" / "sql_history"
