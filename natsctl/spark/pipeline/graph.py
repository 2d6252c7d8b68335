"""A pipeline's definitions given to Spark: streams as views and sinks, then the project's own files.

Where each flow is defined is kept, so that what Spark says of a flow can be told with file and line.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pyspark import pipelines
from pyspark.errors import PySparkException
from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
from pyspark.pipelines.block_session_mutations import block_session_mutations
from pyspark.pipelines.flow import Flow
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.pipelines.output import Output, StreamingTable, Table
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph

from natsctl.spark.pipeline.events import Event, name_parts, short_name, told_error
from natsctl.spark.pipeline.faults import Fault
from natsctl.spark.pipeline.filling import FILE_FORMATS, Filling, TableName, table_name
from natsctl.spark.pipeline.own_settings import FILE, StreamSink, StreamView
from natsctl.spark.pipeline.project import Project
from natsctl.spark.pipeline.sql_files import Statement, line_of_failure, line_of_syntax, statements
from natsctl.spark.sql.text import quote
from natsctl.spark.sql.views import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Place = tuple[str, int]


class _Registry(SparkConnectGraphElementRegistry):
    """Spark's own, which remembers where flows are defined."""

    def __init__(self, spark: SparkSession, graph_id: str, places: dict[str, Place]) -> None:
        super().__init__(spark, graph_id)
        self._places = places
        self.tables: set[str] = set()
        self.streaming: dict[str, str] = {}
        """The formats of streaming tables."""
        self.targets: list[tuple[str, str]] = []
        """Each flow and what it fills."""

    def register_output(self, output: Output) -> None:
        """Remember a table, which may be asked for anew."""
        if isinstance(output, Table):
            self.tables.add(short_name(output.name))
        if isinstance(output, StreamingTable):
            self.streaming[output.name] = output.format or ""
        super().register_output(output)

    def register_flow(self, flow: Flow) -> None:
        """Remember it first, as registering it may fail."""
        location = flow.source_code_location
        self._places.setdefault(short_name(flow.name), (location.filename, location.line_number or 0))
        self.targets.append((short_name(flow.name), flow.target))
        super().register_flow(flow)


class Graph:
    """What one update is made of; `faults` are those of files that Spark did not take."""

    def __init__(self, spark: SparkSession, project: Project, server: Mapping[str, str]) -> None:
        self._spark, self._project, self._server = spark, project, server
        self._places: dict[str, Place] = {}
        self._statements: dict[str, tuple[str, Statement]] = {}
        self.faults: list[Fault] = []
        self.id = create_dataflow_graph(
            spark,
            default_catalog=project.catalog,
            default_database=project.database,
            sql_conf=dict(_runtime(spark, project.configuration)),
        )
        self._registry = _Registry(spark, self.id, self._places)

    @property
    def tables(self) -> set[str]:
        """The names of tables."""
        return self._registry.tables | {made.name for _, made in self._statements.values() if made.is_table}

    def fillings(self) -> list[Filling]:
        """The flows into streaming tables that are files; none in a catalog of the project's own."""
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
        """Give Spark all definitions; what fails becomes faults, and the files behind it are still read."""
        out = contextlib.redirect_stdout(sys.stderr)  # what a file prints is for a person
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
            return frame

        self._places[view.name] = (FILE, view.line)
        pipelines.temporary_view(name=quote(view.name))(read)

    def _reading(self, view: StreamView) -> dict[str, str]:
        """The options of a view: the stream of its name, from the beginning, unless they say otherwise."""
        said = {key.lower() for key in view.options}
        named = {} if said & {"stream", "streampattern", "path", "backup"} else {"stream": view.name}
        begin = {} if said & {"startingoffsets", "startingtimestamp"} else {"startingOffsets": "earliest"}
        return {**self._server, **named, **begin, **view.options}

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
                self.faults.append(Fault(shown, 0, "definitions are files in Python (.py) or SQL (.sql)"))

    def _python(self, path: Path) -> None:
        """Run a file of definitions, which finds the session as `spark` and must not change it, as Spark has it."""
        module = ModuleType(path.stem)
        module.__dict__.update(__file__=str(path), spark=self._spark)
        code = compile(path.read_bytes(), str(path), "exec")
        analysis = add_pipeline_analysis_context(spark=self._spark, dataflow_graph_id=self.id, flow_name=None)
        with analysis, block_session_mutations():
            exec(code, module.__dict__)

    @contextlib.contextmanager
    def _blamed(self, place: Place) -> Iterator[None]:
        """Make what fails a fault at that place, or at a better one that the failure names."""
        try:
            yield
        except Exception as failure:  # a project's code may raise anything
            self.faults.append(self._fault(failure, place))

    def _fault(self, failure: Exception, place: Place) -> Fault:
        file, line = place
        condition, text = told_error(str(failure)) if isinstance(failure, PySparkException) else ("", "")
        if isinstance(failure, SyntaxError) and failure.filename:
            return Fault(self._shown(failure.filename), failure.lineno or 0, f"syntax: {failure.msg}")
        if file.endswith(".sql"):
            sql = (self._project.folder / file).read_text(encoding="utf-8")
            line = line_of_syntax(sql, str(failure))
        else:
            frames = (frame for frame in traceback.extract_tb(failure.__traceback__) if self._is_own(frame.filename))
            for frame in frames:
                file, line = self._shown(frame.filename), frame.lineno or 0
        kind = "" if condition else f"{type(failure).__name__}: "
        return Fault(file, line, text or f"{kind}{failure}")

    def fault_of(self, event: Event) -> Fault:
        """What Spark says of a flow that can not be, with the place of the flow."""
        sql = self._statements.get(event.flow.lower())
        hint = self._hint(event)
        if event.flow not in self._places and sql is not None:
            file, statement = sql
            return Fault(file, line_of_failure(statement, event.position), f"{event.flow}: {event.error}", hint)
        file, line = self._places.get(event.flow, ("", 0))
        return Fault(self._shown(file), line, f"{event.flow}: {event.error}", hint)

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
        """A file as seen from the project's folder."""
        for folder in (self._project.folder, self._project.folder.resolve()):
            if filename and Path(filename).is_relative_to(folder):
                return str(Path(filename).relative_to(folder))
        return filename


def _runtime(spark: SparkSession, configuration: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The settings that may still be made once Spark runs; the others were given to it at its start."""
    for key, value in configuration.items():
        if key.startswith("spark.sql.") and not spark.conf.isModifiable(key):
            continue
        yield key, value
