"""A pipeline's definitions given to Spark: streams as views and sinks, then the project's own files.

The place of each definition is kept, so that Spark's failures are reported with file and line; for SQL, Spark names
the statement only.

A streaming table of files has a log that numbers its batches, and Spark skips a batch with a known number.
So rows would be missing if two flows fill one table, or if a flow restarts next to the batches of another one:
such flows are faults.
"""

from __future__ import annotations

import contextlib
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from pyspark import pipelines
from pyspark.errors import PySparkException
from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
from pyspark.pipelines.block_session_mutations import block_session_mutations
from pyspark.pipelines.flow import Flow
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.pipelines.output import Output, StreamingTable, Table
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph

from natsctl.spark.pipeline.checkpoints import CheckpointProgress
from natsctl.spark.pipeline.project import FILE, Project, ProjectFault, StreamSink, StreamView
from natsctl.spark.pipeline.run_record import Event, name_parts, readable_error, short_name
from natsctl.spark.sql_tables import Token, quote, tokens
from natsctl.spark.stream_frames import FORMAT, parse_json_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_KINDS = ("TABLE", "VIEW", "FLOW")
_TABLE = re.compile(
    r"(?:--[^\n]*\n\s*|/\*.*?\*/\s*)*create\s+(?:or\s+\w+\s+)?(?P<kind>(?:streaming\s+)?table|materialized\s+view)\b",
    re.IGNORECASE | re.DOTALL,
)
_POSITION = re.compile(r"line (\d+),? pos \d+")
_DRAWN = re.compile(r"== SQL[^\n]*==\n(.*?)\n-*\^\^\^", re.DOTALL)


@dataclass(frozen=True)
class Statement:
    """One statement as Spark sees it: from the end of the one before; `line` is the line of that place."""

    text: str
    line: int
    made: tuple[str, ...] = ()
    """The parts of the name of the created object."""
    filled: tuple[str, ...] = ()
    """The parts of the name of its flow's target; none without a flow."""
    format: str = ""
    """The format after USING."""

    @property
    def name(self) -> str:
        return self.made[-1] if self.made else ""

    @property
    def is_table(self) -> bool:
        """Return whether it creates a table, including a materialized view's."""
        return _TABLE.match(self.text.lstrip()) is not None

    @property
    def is_streaming_table(self) -> bool:
        """Return whether it makes a table that streaming flows fill."""
        match = _TABLE.match(self.text.lstrip())
        return match is not None and match["kind"].lower().endswith("table")

    @property
    def first_line(self) -> int:
        return self.line + self.text[: len(self.text) - len(self.text.lstrip())].count("\n")


def statements(sql: str) -> list[Statement]:
    found = []
    words: list[Token] = []
    begin = 0
    for token in tokens(sql):
        if not token.is_symbol(";"):
            words.append(token)
            continue
        found.append(_statement(sql, begin, token.start, words))
        begin, words = token.end, []
    if words:
        found.append(_statement(sql, begin, len(sql), words))
    return found


def line_of_failure(statement: Statement, text: str) -> int:
    """Return the line of the file that Spark's message on a statement names."""
    position = _POSITION.search(text)
    return statement.line + int(position[1]) - 1 if position else statement.first_line


def line_of_syntax(sql: str, text: str) -> int:
    """Return the line of Spark's syntax error in the file; 0 if unknown.

    Spark draws the statement down to that line, with a mark below, and counts from the statement's begin.
    """
    drawn, position = _DRAWN.search(text), _POSITION.search(text)
    if not drawn or not position:
        return 0
    begin = " ".join(drawn[1].split())
    for statement in statements(sql):
        if " ".join(statement.text.split()).startswith(begin):
            return statement.line + int(position[1]) - 1
    return 0


def _statement(sql: str, begin: int, end: int, words: list[Token]) -> Statement:
    made = next(_names(words), [])
    filled = made if any(word.is_word("AS") for word in words) else []
    if any(word.is_word("FLOW") for word in words[:2]):
        filled = next((_dotted(words[index + 1 :]) for index, word in enumerate(words) if word.is_word("INTO")), [])
    using = [after.name for word, after in pairwise(words) if word.is_word("USING")]
    line = sql.count("\n", 0, begin) + 1
    return Statement(sql[begin:end], line, tuple(made), tuple(filled), using[0] if using else "")


def _names(words: list[Token]) -> Iterator[list[str]]:
    """Return the name that a statement creates, in parts: after TABLE, VIEW or FLOW."""
    for index, token in enumerate(words):
        if not token.is_word(*_KINDS):
            continue
        rest = words[index + 1 :]
        while rest and rest[0].is_word("IF", "NOT", "EXISTS"):
            rest = rest[1:]
        if parts := _dotted(rest):
            yield parts


def _dotted(words: list[Token]) -> list[str]:
    parts = [words[0].name] if words and words[0].name else []
    while parts and len(words) > 2 and words[1].is_symbol(".") and words[2].name:
        words = words[2:]
        parts.append(words[0].name)
    return parts


FILE_FORMATS: Final = ("parquet", "orc", "json", "csv", "text", "avro", "xml")
"""The formats that Spark writes with such a log."""
_LOG: Final = "_spark_metadata"
_DEFAULT: Final = "default"

TableName = tuple[str, str]
"""A database and a table in it, in small letters."""


@dataclass(frozen=True)
class Filling:
    """A flow, the table that it fills, and the place of its definition."""

    flow: str
    table: TableName
    file: str
    line: int


def table_name(parts: Iterable[str], database: str | None) -> TableName:
    """Return the table of a name's parts; the default database is that one."""
    found = [part.lower() for part in parts]
    return (found[-2] if len(found) > 1 else (database or _DEFAULT).lower(), found[-1])


def shared(fillings: Iterable[Filling]) -> Iterator[ProjectFault]:
    """Yield the flows into tables that have another one: their own, of their name, or one before it."""
    first: dict[TableName, Filling] = {}
    for each in sorted(fillings, key=lambda each: each.flow.lower() != each.table[1]):
        before = first.setdefault(each.table, each)
        if before != each:
            text = (
                f"{each.flow}: {each.table[1]} has the flow {before.flow}; rows of a second one would be missing there"
            )
            yield ProjectFault(each.file, each.line, text, "make them one flow by UNION ALL, or two tables")


def left_by_others(
    fillings: Iterable[Filling], tables: Path, flows: Iterable[CheckpointProgress]
) -> Iterator[ProjectFault]:
    """Yield the flows into tables of that folder with more batches than the flows have started."""
    begun = {(flow.folder.parents[2].name, flow.target, flow.flow): flow.begun for flow in flows}
    known = {tuple(part.lower() for part in key): batch for key, batch in begun.items()}
    logged = dict(_logged(tables))
    for each in fillings:
        if logged.get(each.table, -1) > known.get((*each.table, each.flow.lower()), -1):
            name = each.table[1]
            why = "its checkpoint was removed, or its name is new"
            text = f"{each.flow}: {name} has batches that this flow has not made: {why}"
            yield ProjectFault(each.file, each.line, text, f"--full-refresh {name} refills it")


def _logged(tables: Path) -> Iterator[tuple[TableName, int]]:
    """Yield the last batch of each table that has a log."""
    for log in [*tables.glob(f"*/{_LOG}"), *tables.glob(f"*.db/*/{_LOG}")]:
        table = log.parent
        database = table.parent.name.removesuffix(".db") if table.parent != tables else _DEFAULT
        numbers = (path.name.removesuffix(".compact") for path in log.iterdir())
        yield (
            (database.lower(), table.name.lower()),
            max((int(number) for number in numbers if number.isdigit()), default=-1),
        )


Place = tuple[str, int]


class _Registry(SparkConnectGraphElementRegistry):
    """Spark's own registry; it also keeps the place of each definition."""

    def __init__(self, spark: SparkSession, graph_id: str, places: dict[str, Place]) -> None:
        super().__init__(spark, graph_id)
        self._places = places
        self.tables: set[str] = set()
        self.streaming: dict[str, str] = {}
        self.targets: list[tuple[str, str]] = []
        """Each flow and its target."""

    def register_output(self, output: Output) -> None:
        if isinstance(output, Table):
            self.tables.add(short_name(output.name))
        if isinstance(output, StreamingTable):
            self.streaming[output.name] = output.format or ""
        super().register_output(output)

    def register_flow(self, flow: Flow) -> None:
        """Remember a flow before it is registered, as that may fail."""
        location = flow.source_code_location
        self._places.setdefault(short_name(flow.name), (location.filename, location.line_number or 0))
        self.targets.append((short_name(flow.name), flow.target))
        super().register_flow(flow)


class Graph:
    """The definitions of one update; `faults` are from files that Spark did not accept."""

    def __init__(self, spark: SparkSession, project: Project, server: Mapping[str, str]) -> None:
        self._spark, self._project, self._server = spark, project, server
        self._places: dict[str, Place] = {}
        self._statements: dict[str, tuple[str, Statement]] = {}
        self.faults: list[ProjectFault] = []
        self.id = create_dataflow_graph(
            spark,
            default_catalog=project.catalog,
            default_database=project.database,
            sql_conf=dict(_runtime(spark, project.configuration)),
        )
        self._registry = _Registry(spark, self.id, self._places)

    @property
    def tables(self) -> set[str]:
        return self._registry.tables | {made.name for _, made in self._statements.values() if made.is_table}

    def fillings(self) -> list[Filling]:
        """Return the flows into streaming tables that are files; none in a catalog of the project's own."""
        if self._project.catalog not in (None, "spark_catalog"):
            return []
        usual = self._spark.conf.get("spark.sql.sources.default") or ""
        written = [statement for _, statement in self._statements.values()]
        formats = {self._table(name_parts(name)): said for name, said in self._registry.streaming.items()}
        formats |= {self._table(made.made): made.format for made in written if made.is_streaming_table}
        files = {table for table, said in formats.items() if (said or usual).lower() in FILE_FORMATS}
        found = [
            Filling(flow, self._table(name_parts(target)), self._shown(self._places[flow][0]), self._places[flow][1])
            for flow, target in self._registry.targets
        ]
        found += [
            Filling(made.name, self._table(made.filled), file, made.first_line)
            for file, made in self._statements.values()
            if made.filled
        ]
        return [each for each in found if each.table in files]

    def _table(self, parts: Sequence[str]) -> TableName:
        return table_name(parts, self._project.database)

    def declare(self, views: tuple[StreamView, ...], sinks: tuple[StreamSink, ...]) -> None:
        """Pass all definitions to Spark; failures become faults, and later files are still read."""
        out = contextlib.redirect_stdout(sys.stderr)  # output of a file is for a person
        with out, contextlib.chdir(self._project.folder), graph_element_registration_context(self._registry):
            for view in views:
                with self._blamed((FILE, view.line)):
                    self._view(view)
            for sink in sinks:
                with self._blamed((FILE, sink.line)):
                    self._sink(sink)
            for path in self._project.definitions():
                self._file(path)

    def _view(self, view: StreamView) -> None:
        spark, options = self._spark, self._reading(view)

        def read() -> DataFrame:
            reader: Any = spark.read if view.batch else spark.readStream
            frame: DataFrame = reader.format(FORMAT).options(**options).load()
            return parse_json_value(frame, view.value_schema, view.json_options) if view.value_schema else frame

        self._places[view.name] = (FILE, view.line)
        pipelines.temporary_view(name=quote(view.name))(read)

    def _reading(self, view: StreamView) -> dict[str, str]:
        """Return the options of a view: the stream of its name, from the beginning, unless they say otherwise."""
        said = {key.lower() for key in view.options}
        named = {} if said & {"stream", "streampattern", "path", "backup"} else {"stream": view.name}
        begins = view.batch or said & {"startingoffsets", "startingtimestamp", "ackmode"}
        begin = {} if begins else {"startingOffsets": "earliest"}
        server = {} if "backup" in said else self._server
        return {**server, **named, **begin, **view.options}

    def _sink(self, sink: StreamSink) -> None:
        spark = self._spark
        said = {key.lower() for key in sink.options}
        named = {} if "stream" in said else {"stream": sink.name}
        options = {key: value for key, value in {**named, **sink.options}.items() if value}
        pipelines.create_sink(quote(sink.name), FORMAT, {**self._server, **options})
        if not sink.source:
            return

        def feed() -> DataFrame:
            return spark.readStream.table(quote(sink.source))

        self._places[sink.name] = (FILE, sink.line)
        pipelines.append_flow(target=quote(sink.name), name=quote(sink.name))(feed)

    def _file(self, path: Path) -> None:
        shown = self._shown(str(path))
        with self._blamed((shown, 0)):
            if path.suffix == ".sql":
                sql = path.read_text(encoding="utf-8")
                for statement in statements(sql):
                    self._statements.setdefault(statement.name.lower(), (shown, statement))
                self._registry.register_sql(sql, Path(shown))
            elif path.suffix == ".py":
                self._python(path)
            else:
                self.faults.append(ProjectFault(shown, 0, "definitions are files in Python (.py) or SQL (.sql)"))

    def _python(self, path: Path) -> None:
        """Run a file of definitions; it finds the session as `spark` and must not change it, as in Spark."""
        module = ModuleType(path.stem)
        module.__dict__.update(__file__=str(path), spark=self._spark)
        code = compile(path.read_bytes(), str(path), "exec")
        analysis = add_pipeline_analysis_context(spark=self._spark, dataflow_graph_id=self.id, flow_name=None)
        with analysis, block_session_mutations():
            exec(code, module.__dict__)  # nosec B102 # the user's own file, as Spark runs it

    @contextlib.contextmanager
    def _blamed(self, place: Place) -> Iterator[None]:
        """Make what fails a fault at that place, or at a better one that the failure names."""
        try:
            yield
        except Exception as failure:  # a project's code may raise anything
            self.faults.append(self._fault(failure, place))

    def _fault(self, failure: Exception, place: Place) -> ProjectFault:
        file, line = place
        condition, text = readable_error(str(failure)) if isinstance(failure, PySparkException) else ("", "")
        if isinstance(failure, SyntaxError) and failure.filename:
            return ProjectFault(self._shown(failure.filename), failure.lineno or 0, f"syntax: {failure.msg}")
        if file.endswith(".sql"):
            sql = (self._project.folder / file).read_text(encoding="utf-8")
            line = line_of_syntax(sql, str(failure))
        else:
            frames = (frame for frame in traceback.extract_tb(failure.__traceback__) if self._is_own(frame.filename))
            for frame in frames:
                file, line = self._shown(frame.filename), frame.lineno or 0
        kind = "" if condition else f"{type(failure).__name__}: "
        return ProjectFault(file, line, text or f"{kind}{failure}")

    def fault_of(self, event: Event) -> ProjectFault:
        """Return Spark's failure of a flow as a fault with the flow's place."""
        sql = self._statements.get(event.flow.lower())
        hint = self._hint(event)
        if event.flow not in self._places and sql is not None:
            file, statement = sql
            return ProjectFault(file, line_of_failure(statement, event.position), f"{event.flow}: {event.error}", hint)
        file, line = self._places.get(event.flow, ("", 0))
        return ProjectFault(self._shown(file), line, f"{event.flow}: {event.error}", hint)

    def _hint(self, event: Event) -> str:
        if event.condition == "TABLE_OR_VIEW_NOT_FOUND":
            return f"a stream becomes a view by its name below streams in {FILE}"
        if event.condition == "INCOMPATIBLE_STREAMING_VIEW_READ":
            return f"write FROM STREAM, or make it a batch view: batch: true in {FILE}"
        return ""

    def _is_own(self, filename: str) -> bool:
        return Path(filename).is_relative_to(self._project.folder.resolve()) or Path(filename).is_relative_to(
            self._project.folder
        )

    def _shown(self, filename: str) -> str:
        """Return a file as seen from the project's folder."""
        for folder in (self._project.folder, self._project.folder.resolve()):
            if filename and Path(filename).is_relative_to(folder):
                return str(Path(filename).relative_to(folder))
        return filename


def _runtime(spark: SparkSession, configuration: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the settings that may still be made once Spark runs; the others were given to it at its start."""
    for key, value in configuration.items():
        if key.startswith("spark.sql.") and not spark.conf.isModifiable(key):
            continue
        yield key, value
