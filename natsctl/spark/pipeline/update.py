"""Updates of a pipeline, and its run: updates in one session, once or repeatedly, with a record for other commands.

An update builds the graph from the files each time, checks it, and runs until everything is read.

Storage. For a path with a space or another sign that URLs escape, Spark's pipelines create the escaped path, and would
write checkpoints to a folder next to the project. On this machine they get a link to it for the duration of the update.

Tables of earlier sessions. Spark's own catalog on one machine forgets them, while their files stay, and then refuses
to create a table over existing files. So the statement of each table is kept next to the project, and a new session
creates the tables again with their files moved aside for the moment. A metastore would do as well, for twelve more
seconds of CPU at each start, and with one process at a time.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark.errors import PySparkException
from pyspark.pipelines.spark_connect_pipeline import start_run

from natsctl.api.errors import StorageError
from natsctl.client.atomic_file import atomic_write
from natsctl.spark.files.file_formats import local_path, spark_path
from natsctl.spark.pipeline.checkpoints import pipeline_progress
from natsctl.spark.pipeline.graph import Filling, Graph, left_by_others, shared
from natsctl.spark.pipeline.project import (
    PipelineError,
    Project,
    ProjectFault,
    check_streams,
    check_tables,
    find_project,
)
from natsctl.spark.pipeline.run_record import UNRESOLVED, Event, Recorder, parse_event, short_name, without_counters
from natsctl.spark.session.failures import translated
from natsctl.spark.session.sessions import is_remote
from natsctl.spark.source.offsets import Position
from natsctl.spark.sql_tables import quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ESCAPED: Final = re.compile(r"[\s\x00-\x1f\x7f\"<>\[\]{}|\\^`%#?]")
_HERE: Final = ("localhost", "127.0.0.1")


@contextlib.contextmanager
def named_storage(spark: SparkSession, project: Project) -> Iterator[str]:
    """Yield the storage's URL for an update. Raises PipelineError if it cannot get such a name."""
    folder = local_path(project.storage)
    if folder is None or not _ESCAPED.search(project.storage):
        yield project.storage
        return
    if not _is_here(spark):
        text = f"storage: Spark elsewhere keeps no checkpoints in {folder}: its name has signs that URLs escape"
        raise PipelineError([ProjectFault(project.specification.name, 1, text)])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="natsctl-pipeline-") as place:
        link = Path(place) / "storage"
        link.symlink_to(folder, target_is_directory=True)
        yield spark_path(link)


def _is_here(spark: SparkSession) -> bool:
    """Return whether drivers and tasks of the session run on this machine."""
    if is_remote(spark) and cast(Any, spark).client.host not in _HERE:
        return False
    return (spark.conf.get("spark.master", "") or "").startswith("local")


_ASIDE: Final = ".aside-"
_WAREHOUSE: Final = "spark.sql.warehouse.dir"
_CATALOG: Final = "spark.sql.catalogImplementation"
TABLES_FORMAT: Final = "natsctl.pipeline-tables/1"


def remember_tables(spark: SparkSession, project: Project) -> None:
    """Keep the definition of each table of a catalog that ends with the session."""
    if not _forgets(spark, project):
        return
    found = {}
    for row in spark.sql("SHOW TABLES").collect():
        if not row["isTemporary"]:
            found[row["tableName"]] = spark.sql(f"SHOW CREATE TABLE {quote(row['tableName'])}").collect()[0][0]
    project.state_folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(_kept(project)) as file:
        file.write(json.dumps({"format": TABLES_FORMAT, "tables": found}, indent=1).encode())


def restore_tables(spark: SparkSession, project: Project) -> list[str]:
    """Recreate the tables of earlier sessions with local files, and return their names.

    Raises OSError, StorageError.
    """
    if not _forgets(spark, project):
        return []
    statements = kept_tables(_kept(project))
    warehouse = tables_folder(spark, project)
    there = {row["tableName"] for row in spark.sql("SHOW TABLES").collect()}
    _clear_away(warehouse, {*statements, *there})
    return [name for name, made in statements.items() if name not in there and _restored(spark, warehouse, name, made)]


def kept_tables(path: Path) -> dict[str, str]:
    """Return the statements of a file written by `remember_tables`, or none.

    Raises OSError, StorageError for another format. Until 24 November 2026 the file had only the statements.
    """
    tables: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if not isinstance(statements := tables.get("tables"), dict):
        return tables
    if tables.get("format") != TABLES_FORMAT:
        hint = "use the natsctl that wrote it, or a newer one"
        raise StorageError(f"{path} is of the unknown format {tables.get('format')!r}", hint=hint)
    return statements


def tables_folder(spark: SparkSession, project: Project) -> Path:
    """Return the folder of the session's tables, if that is on this machine, else that of the project."""
    return local_path(spark.conf.get(_WAREHOUSE) or "") or project.tables


def _restored(spark: SparkSession, warehouse: Path, name: str, statement: str) -> bool:
    """Recreate one table; return False if its files were removed, so that it has to be refilled."""
    folder, aside = warehouse / name, warehouse / f"{_ASIDE}{name}"
    if aside.is_dir():
        _back(aside, folder)  # of a session that was killed between two renames
    if not folder.is_dir():
        return False
    folder.rename(aside)
    try:
        spark.sql(statement)
    finally:
        _back(aside, folder)
    if "PARTITIONED BY" in statement:
        spark.sql(f"MSCK REPAIR TABLE {quote(name)}")
    return True


def _clear_away(warehouse: Path, known: set[str]) -> None:
    """Remove folders without data of tables that were made and not yet kept when a session was killed."""
    for folder in warehouse.iterdir() if warehouse.is_dir() else ():
        unknown = folder.is_dir() and folder.name not in known and not _is_hidden(folder)
        if unknown and all(_is_hidden(path) for path in folder.iterdir()):
            shutil.rmtree(folder)


def _is_hidden(path: Path) -> bool:
    return path.name.startswith((".", "_"))


def _back(aside: Path, folder: Path) -> None:
    if folder.is_dir():
        folder.rmdir()  # empty, as Spark has just made it
    aside.rename(folder)


def _kept(project: Project) -> Path:
    return project.state_folder / "tables.json"


def _forgets(spark: SparkSession, project: Project) -> bool:
    """Return whether tables are in a catalog that ends with this session, and their files on this machine."""
    in_memory = spark.conf.get(_CATALOG, "in-memory") == "in-memory"
    default = project.catalog in (None, "spark_catalog") and project.database in (None, "default")
    return in_memory and default and local_path(spark.conf.get(_WAREHOUSE) or "") is not None


EventHandler = Callable[[Event], None]


class Updates:
    def __init__(
        self, spark: SparkSession, project: Project, server: Mapping[str, str], on_event: EventHandler
    ) -> None:
        self._spark, self._project, self._server, self._on_event = spark, project, server, on_event

    def run(self, *, dry: bool = False, full_refresh: Sequence[str] = (), full_refresh_all: bool = False) -> None:
        """Run one update, or with `dry` only its check, with the present files.

        Raises PipelineError, NotFoundError, and Spark's errors if a flow fails.
        """
        project = self._project = find_project(self._project.specification)
        graph = Graph(self._spark, project, self._server)
        graph.declare(check_streams(project, self._server), project.own.sinks)
        if graph.faults:
            raise PipelineError(graph.faults)
        check_tables((short_name(name) for name in full_refresh), graph.tables)
        anew = {short_name(name).lower() for name in full_refresh}
        self._check_filling(graph.fillings(), lambda table: not dry and not full_refresh_all and table not in anew)
        with named_storage(self._spark, project) as storage:
            results = start_run(
                self._spark,
                graph.id,
                full_refresh=list(full_refresh),
                full_refresh_all=full_refresh_all,
                refresh=[],
                dry=dry,
                storage=storage,
            )
            self._follow(graph, results)

    def _check_filling(self, fillings: Sequence[Filling], goes_on: Callable[[str], bool]) -> None:
        """Raise PipelineError where Spark would leave rows out of a table, or out of one that goes on."""
        faults = [*shared(fillings)]
        if (checkpoints := self._project.checkpoints) and not faults:
            kept = [each for each in fillings if goes_on(each.table[1])]
            tables = tables_folder(self._spark, self._project)
            faults = [*left_by_others(kept, tables, pipeline_progress(checkpoints))]
        if faults:
            raise PipelineError(faults)

    def _follow(self, graph: Graph, results: Iterator[dict[str, Any]]) -> None:
        """Report events until the update has ended. Raises PipelineError, and what Spark raises."""
        faults: list[ProjectFault] = []
        try:
            for result in without_counters(results):
                if "pipeline_event_result" not in result:
                    continue
                said = result["pipeline_event_result"].event
                event = parse_event(said.message, _moment(said.timestamp))
                if event.state == UNRESOLVED:
                    faults.append(graph.fault_of(event))
                else:
                    self._on_event(event)
        except PySparkException as failure:
            if faults:
                raise PipelineError(faults) from failure
            raise


def _moment(timestamp: object) -> datetime:
    found: datetime = timestamp.ToDatetime()  # type: ignore[attr-defined]  # of protobuf
    return found


@dataclass(frozen=True)
class RunPlan:
    """The plan of a run; with `interval_s` 0 one update, else one each interval, from begin to begin."""

    interval_s: float = 0.0
    full_refresh: Sequence[str] = ()
    full_refresh_all: bool = False


class Run:
    """One run; `on_event` is called with every event, also those of the run itself."""

    def __init__(
        self,
        spark: SparkSession,
        project: Project,
        server: Mapping[str, str],
        recorder: Recorder,
        on_event: Callable[[Event], None],
    ) -> None:
        self._spark, self._project, self._recorder, self._on_event = spark, project, recorder, on_event
        self._updates = Updates(spark, project, server, self._hear)
        self._pause: Callable[[float], bool] = lambda seconds: False
        self._remembered = False
        self._begun: dict[str, dict[str, Position]] = {}

    def go(self, plan: RunPlan, pause: Callable[[float], bool]) -> None:
        """Update until the plan is done, or `pause(seconds)` returns that the run ends.

        A failed update is reported, and tried again by the next; the first one ends the run. Raises what ends it.
        """
        self._pause = pause
        restore_tables(self._spark, self._project)
        if plan.full_refresh or plan.full_refresh_all:
            self._update(plan.full_refresh, plan.full_refresh_all)
        first = True
        while True:
            began_s = time.monotonic()
            try:
                if not (first and plan.full_refresh_all):
                    self._update()
            except Exception as failure:  # of Spark, of the server, or of a file that is being edited
                if not plan.interval_s or first or pause(0.0):
                    raise
                self._say("FAILED", _reason_of(failure))
            first = False
            left_s = plan.interval_s - (time.monotonic() - began_s)
            if not plan.interval_s or pause(max(left_s, 0.0)):
                return

    def _update(self, full_refresh: Sequence[str] = (), full_refresh_all: bool = False) -> None:
        self._recorder.state("updating")
        self._remembered = False
        self._begun = self._positions()
        try:
            self._updates.run(full_refresh=full_refresh, full_refresh_all=full_refresh_all)
        except Exception as failure:  # whatever it is, who asks for the status is to see it
            if not self._pause(0.0):  # else it is the end that was asked for
                self._recorder.updated(_reason_of(failure))
            raise
        self._recorder.updated()

    def _hear(self, event: Event) -> None:
        if event.state == "STARTING" and not self._remembered:
            # All tables are made by now, and a killed run would leave nothing in them that is not recorded.
            remember_tables(self._spark, self._project)
            self._remembered = True
        if event.flow and event.state == "COMPLETED":
            event = replace(event, read=self._read(event.flow))
        if event.flow and event.state:
            self._recorder.flow(event.flow, event.state, event.error)
        elif event.state == "COMPLETED":
            self._recorder.completed()
        self._on_event(event)

    def _positions(self) -> dict[str, dict[str, Position]]:
        """Return the positions of each flow; none if the checkpoints are not on this machine."""
        folder = self._project.checkpoints
        return {each.flow: each.streams for each in pipeline_progress(folder)} if folder else {}

    def _read(self, flow: str) -> dict[str, int]:
        before, now = self._begun.get(flow, {}), self._positions().get(flow, {})
        begun = {name: before[name].seq if name in before else 0 for name in now}
        return {name: now[name].seq - begun[name] for name in now if now[name].seq > begun[name]}

    def _say(self, state: str, error: str) -> None:
        self._on_event(Event(datetime.now(UTC), "", state, "Update has FAILED.", error))


def _reason_of(failure: BaseException) -> str:
    return translated(failure).text
