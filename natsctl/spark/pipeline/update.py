"""One update of a pipeline: the graph made anew from the files, checked, and run until everything is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.pipelines.spark_connect_pipeline import start_run

from natsctl.spark.pipeline.checkpoints import pipeline_progress
from natsctl.spark.pipeline.events import UNRESOLVED, Event, parse_event, short_name, without_counters
from natsctl.spark.pipeline.faults import Fault, PipelineFaults, check_tables
from natsctl.spark.pipeline.filling import Filling, left_by_others, shared
from natsctl.spark.pipeline.graph import Graph
from natsctl.spark.pipeline.named_streams import check_streams
from natsctl.spark.pipeline.project import Project, find_project
from natsctl.spark.pipeline.storage import named_storage
from natsctl.spark.pipeline.tables import tables_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[Event], None]


class Updates:
    """Updates of one project in one session."""

    def __init__(self, spark: SparkSession, project: Project, server: Mapping[str, str], tell: Tell) -> None:
        self._spark, self._project, self._server, self._tell = spark, project, server, tell

    def run(self, *, dry: bool = False, full_refresh: Sequence[str] = (), full_refresh_all: bool = False) -> None:
        """One update, or with `dry` its check alone; what the files say now counts.

        Raises PipelineFaults, NoTable, and what Spark raises where a flow fails.
        """
        project = self._project = find_project(self._project.specification)
        graph = Graph(self._spark, project, self._server)
        graph.declare(check_streams(project, self._server), project.own.sinks)
        if graph.faults:
            raise PipelineFaults(graph.faults)
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
        """Raises PipelineFaults where Spark would leave rows out of a table, or out of one that goes on."""
        faults = [*shared(fillings)]
        if (checkpoints := self._project.checkpoints) and not faults:
            kept = [each for each in fillings if goes_on(each.table[1])]
            tables = tables_folder(self._spark, self._project)
            faults = [*left_by_others(kept, tables, pipeline_progress(checkpoints))]
        if faults:
            raise PipelineFaults(faults)

    def _follow(self, graph: Graph, results: Iterator[dict[str, Any]]) -> None:
        """Tell of what happens until the update has ended. Raises PipelineFaults, and what Spark raises."""
        faults: list[Fault] = []
        try:
            for result in without_counters(results):
                if "pipeline_event_result" not in result:
                    continue
                said = result["pipeline_event_result"].event
                event = parse_event(said.message, _moment(said.timestamp))
                if event.state == UNRESOLVED:
                    faults.append(graph.fault_of(event))
                else:
                    self._tell(event)
        except PySparkException as failure:
            if faults:
                raise PipelineFaults(faults) from failure
            raise


def _moment(timestamp: object) -> datetime:
    found: datetime = timestamp.ToDatetime()  # type: ignore[attr-defined]  # of protobuf
    return found
