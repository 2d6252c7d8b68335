"""Queries over streams: `natsctl sql`, answered by Spark, or from the server's counts where these are enough."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from natsctl.api.errors import NatsctlError, NotFoundError, UsageError
from natsctl.api.model import Model
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json, Rounds, SparkFlags, Watch, check_rounds
from natsctl.cli.framework.live import emit_each, paced, watch
from natsctl.cli.framework.parameters import Argument, Option, as_usage_error
from natsctl.cli.framework.resolve import did_you_mean
from natsctl.cli.framework.session import Session
from natsctl.cli.render.text import safe
from natsctl.spark.sql_tables import BUCKET_COLUMNS, Catalogue, relations, split_statements, tokens
from natsctl.spark.stream_frames import STREAM_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from natsctl.spark.sql_queries import Queries, QueryResult


Rows = list[dict[str, Any]]
"""The rows of an answer by column: bytes as text if they are UTF-8, else as `{"base64": …}`; times as RFC 3339."""


class Explained(Model, kw_only=True):
    """The way a query is answered: by Spark, or from the server's counts."""

    spark: bool
    plan: str


STDIN = "-"
FILE = "@"


def read_query(words: str) -> str:
    """Return the query: as given, from `@FILE`, or from stdin for `-`. Raises UsageError for none."""
    text = words
    if words == STDIN:
        text = sys.stdin.read()
    elif words.startswith(FILE):
        with as_usage_error(words[1:]):
            text = Path(words[1:]).read_text(encoding="utf-8")
    if all(token.is_symbol(";") for token in tokens(text)):
        raise UsageError(
            "the query is empty", hint='such as natsctl sql "select subject, count(*) from ORDERS group by 1"'
        )
    return text


class ServerTables:
    """Streams of the server of the command's session."""

    on_server = True

    def __init__(self, session: Session) -> None:
        self._session = session
        self.catalogue = Catalogue(session.run(lambda manager: manager.stream_names()))

    def options(self, base: Mapping[str, str], stream: str) -> dict[str, str]:
        """Return the server's options, and the stream; messages that expire while they are read are no failure."""
        return {**base, "stream": stream, "failOnDataLoss": "false"}

    def state(self, stream: str) -> dict[str, Any]:
        return dict(self._session.run(lambda manager: manager.stream_info(stream)).raw.get("state") or {})


class BackupTables:
    """Streams of backups at or below a path."""

    on_server = False

    def __init__(self, path: Path) -> None:
        self._paths = backups_by_stream(path)
        self.catalogue = Catalogue(self._paths)

    def check(self, stream: str) -> None:
        if stream not in self._paths:
            names = ", ".join(self._paths)
            raise NotFoundError(
                f"there is no backup of Stream {stream}", hint=did_you_mean(stream, self._paths) or f"there is {names}"
            )

    def options(self, base: Mapping[str, str], stream: str) -> dict[str, str]:
        """Return the path of the stream's backup: no server is contacted."""
        return {"backup": str(self._paths[stream].resolve())}  # Spark in background runs in another folder

    def state(self, stream: str) -> dict[str, Any]:
        from natsctl.client.backup.reader import open_backup

        with open_backup(self._paths[stream]) as opened:
            return dict(opened.state)


Tables = ServerTables | BackupTables


def backups_by_stream(path: Path) -> dict[str, Path]:
    """Return the backups of streams at or below a path. Raises UsageError for none, or for two of one stream."""
    from natsctl.client.backup.discovery import find_backups

    backups: dict[str, Path] = {}
    for backup in find_backups(path):
        if backup.error or not backup.archive or not backup.stream:
            continue
        if backup.stream in backups:
            raise UsageError(
                f"{path} has two backups of Stream {backup.stream}",
                hint=f"name one: {backups[backup.stream]} or {backup.path}",
            )
        backups[backup.stream] = Path(backup.path)
    if not backups:
        raise UsageError(f"{path} holds no backup with messages", hint="natsctl backup ls shows the backups there")
    return backups


MAX_ROWS = 1000

Answer = Callable[[], "QueryResult"]


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Options about the output of answers: format, repetition, and number of rows (None for all)."""

    json: bool = False
    csv: bool = False
    every_s: float | None = None
    rounds: int = 0
    limit: int | None = MAX_ROWS

    def __post_init__(self) -> None:
        if self.json and self.csv:
            raise UsageError("--json and --csv exclude each other")

    def show(self, look: Answer) -> None:
        if self.every_s is None:
            self.once(look())
        elif self.json:
            emit_each(lambda: look().cut(self.limit).documents(), self.every_s, self.rounds)
        elif self.csv:
            for _ in paced(self.every_s, self.rounds):
                self.once(look())
        else:
            from natsctl.cli.render.spark_reports import render_result

            watch(lambda: render_result(look().cut(self.limit)), self.every_s, rounds=self.rounds)

    def once(self, found: QueryResult) -> None:
        found = found.cut(self.limit)
        if self.json:
            output.emit_json(found.documents())
            return
        if not found.columns:
            output.note("done: the statement returns no rows")
            return
        if self.csv:
            from natsctl.cli.render.spark_reports import csv_text

            output.emit(csv_text(found, safe) if sys.stdout.isatty() else csv_text(found))
        else:
            from natsctl.cli.render.spark_reports import render_result

            output.show_table(render_result(found))
        if found.more:
            output.note("there are more rows: --limit 0 shows all")


def rows_shown(given: int | None, all_rows: bool) -> int | None:
    if given is None:
        return None if all_rows else MAX_ROWS
    return given or None


T = TypeVar("T")


class SparkQueries:
    """Queries that Spark answers; views that they create last as long as the session of Spark."""

    def __init__(self, session: Session, spark: SparkFlags, tables: Tables, schemas: Mapping[str, str]) -> None:
        self._session, self._spark, self._tables, self._schemas = session, spark, tables, schemas
        self._known: tuple[SparkSession, Queries] | None = None

    def check(self, text: str) -> None:
        from natsctl.spark.session.connect import remote_for
        from natsctl.spark.sql_queries import check_changes_nothing, check_form, check_named

        check_form(text, did_you_mean)
        check_changes_nothing(text, self._tables.catalogue)
        options = self._spark.options
        if self._known is None and not options.conf and not options.master and remote_for(options) is None:
            check_named(text, self._tables.catalogue, did_you_mean)

    def run(self, text: str, limit: int | None, *, bar: bool = True) -> QueryResult:
        return self._ask(lambda queries: queries.run(text, limit), bar, self._messages(text))

    def explain(self, text: str) -> str:
        return self._ask(lambda queries: queries.explain(text), True, 0)

    @contextmanager
    def staying(self, text: str = "") -> Iterator[None]:
        """Keep one session of Spark for all queries meanwhile, sized for `text` if it is known."""
        from natsctl.spark.session import open_session

        with open_session(replace(self._spark.options, messages=self._messages(text))):
            yield

    def _messages(self, text: str) -> int:
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
        from natsctl.spark.sql_queries import Queries

        if self._known is None or self._known[0] is not opened:
            tables = self._tables

            def locate(stream: str) -> dict[str, str]:
                return tables.options(options, stream)

            self._known = (
                opened,
                Queries(
                    opened,
                    tables.catalogue,
                    locate,
                    did_you_mean,
                    on_server=tables.on_server,
                    schemas=self._schemas,
                ),
            )
        return self._known[1]


def sql(
    session: Session,
    spark: SparkFlags,
    query: Annotated[
        str | None,
        Argument(metavar="[QUERY]", help="the query, @FILE, or - for stdin; without it, a prompt"),
    ] = None,
    backup: Annotated[
        Path | None,
        Option("--backup", metavar="PATH", help="tables are backups at or below this path"),
    ] = None,
    value_schema: Annotated[
        list[str] | None,
        Option(
            "--value-schema", metavar="TABLE=SCHEMA", help="parse JSON values of a table, by 'id bigint, total double'"
        ),
    ] = None,
    limit: Annotated[
        int | None,
        Option("--limit", metavar="N", help="max rows; 0 for all [tables: 1000]", min=0),
    ] = None,
    csv: Annotated[bool, Option("--csv", help="show the rows as CSV")] = False,
    explain: Annotated[bool, Option("--explain", help="show how the query would be answered")] = False,
    use_spark: Annotated[bool, Option("--spark", help="use Spark even if the server can answer")] = False,
    watch: Watch = None,
    rounds: Rounds = 0,
    json: Json = False,
) -> None:
    """Query streams with SQL: each stream is a table, each bucket too, and STREAM$subjects has its subjects.

    Streams have the columns stream, seq, subject, timestamp, headers and value (binary; cast(value as string) is its
    text, and with --value-schema it is a struct of JSON). Buckets have bucket, key, revision, operation, timestamp and
    value. Counts of messages, also by subject, and the first and last sequence come from the server; Spark reads and
    answers everything else.

    --watch runs the query again each time, on all messages that exist then.
    """
    check_rounds(watch, rounds)
    shown = OutputOptions(json=json, csv=csv, every_s=watch, rounds=rounds, limit=rows_shown(limit, json or csv))
    if explain and (csv or watch):
        raise UsageError("--explain excludes --csv and --watch")
    schemas = value_schemas(value_schema or [])
    if query is None and not session.interactive:
        raise UsageError("a query is needed", hint="give QUERY, @FILE, or - for stdin")
    text = "" if query is None else read_query(query)
    tables: Tables = ServerTables(session) if backup is None else BackupTables(backup)
    asked = SparkQueries(session, spark, tables, schemas)

    def counted(text: str) -> Answer | None:
        return answered(session, tables, text, whole=not (use_spark or backup))

    if query is None:
        Prompt(asked, tables, shown, counted).run()
    else:
        _answer(asked, text, counted(text), shown, explain)


def value_schemas(texts: list[str]) -> dict[str, str]:
    """Return the types of JSON payloads by table, in lower case, from texts such as `ORDERS=id bigint`."""
    schemas: dict[str, str] = {}
    for text in texts:
        table, separator, schema = text.partition("=")
        if not separator or not schema.strip():
            raise UsageError(
                f"--value-schema {text!r} has no schema", hint="such as --value-schema 'ORDERS=id bigint, total double'"
            )
        schemas[table.strip().lower()] = schema
    return schemas


def _answer(asked: SparkQueries, text: str, counted: Answer | None, shown: OutputOptions, explain: bool) -> None:
    if counted is None:
        asked.check(text)
    if explain:
        _explain(asked, text, counted is not None, shown.json)
    elif counted is not None:
        shown.show(counted)
    elif shown.every_s is None:
        shown.show(lambda: asked.run(text, shown.limit))
    else:
        with asked.staying(text):
            shown.show(lambda: asked.run(text, shown.limit, bar=False))


def answered(session: Session, tables: Tables, text: str, *, whole: bool) -> Answer | None:
    """Return the answer to a query without Spark: lists of tables, and if `whole` the server's counts;

    None for others.
    """
    from natsctl.spark.sql_queries import listed

    if (found := listed(text, tables.catalogue)) is not None:
        return lambda: found
    return counting(session, tables, text) if whole else None


def counting(session: Session, tables: Tables, text: str) -> Answer | None:
    """Return the answer to a query from the server's counts; None if messages must be read."""
    from natsctl.spark.counted_queries import counted_query, facts_for
    from natsctl.spark.sql_queries import QueryResult

    found = counted_query(text, tables.catalogue)
    if found is None:
        return None
    query, stream = found
    if session.options.trace:
        output.note(f"answered from STREAM.INFO of {stream}, without Spark")

    def look() -> QueryResult:
        facts = session.run(lambda manager: facts_for(manager, stream, query))
        return QueryResult(query.columns, query.answer(facts), query.numbers)

    return look


def _explain(asked: SparkQueries, text: str, counted: bool, json: bool) -> None:
    plan = "Answered from STREAM.INFO, without Spark: no message is read" if counted else asked.explain(text)
    if json:
        output.emit_json({"spark": not counted, "plan": plan})
    else:
        from natsctl.cli.render.text import safe

        output.emit(safe(plan, block=True))


ENDING = ("exit", "quit", "\\q")
_KEYWORDS = (
    "select", "from", "where", "group by", "order by", "limit", "having", "join", "distinct", "count(*)",
    "cast(value as string)", "between", "like", "desc", "with",
)  # fmt: skip


class Prompt:
    """Prompt that reads queries and shows their answers; a mistake ends a query, not the prompt."""

    def __init__(
        self, asked: SparkQueries, tables: Tables, shown: OutputOptions, counting: Callable[[str], Answer | None]
    ) -> None:
        self._asked, self._tables, self._shown, self._counting = asked, tables, shown, counting
        self._spark = ExitStack()
        self._warm = False

    def run(self) -> None:
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

        if not split_statements(text):
            return
        try:
            counted = self._counting(text)
            self._shown.show(counted or (lambda: self._on_spark(text)))
        except KeyboardInterrupt:
            output.note("interrupted")
        except NatsctlError as failure:
            output.note(output.render_error(failure, False))

    def _on_spark(self, text: str) -> Any:
        self._asked.check(text)
        if not self._warm:
            output.note("starting Spark; later queries use the same session")
            self._spark.enter_context(self._asked.staying())
            self._warm = True
        return self._asked.run(text, self._shown.limit)


def _asking(tables: Tables) -> Any:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.output import create_output

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
    """Return the path of the history of queries: `natsctl/sql_history` in XDG_STATE_HOME (~/.local/state)."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "natsctl" / "sql_history"
