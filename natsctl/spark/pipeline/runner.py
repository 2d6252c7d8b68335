"""A pipeline's run: updates in one session, once or repeatedly, with a record for other commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from natsctl.spark.pipeline.checkpoints import pipeline_progress
from natsctl.spark.pipeline.events import Event
from natsctl.spark.pipeline.project import Project
from natsctl.spark.pipeline.run_record import Recorder
from natsctl.spark.pipeline.update import Updates, remember_tables, restore_tables
from natsctl.spark.source.reading.offsets import Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class RunPlan:
    """The plan of a run; with `interval_s` 0 one update, else one each interval, from begin to begin."""

    interval_s: float = 0.0
    full_refresh: Sequence[str] = ()
    full_refresh_all: bool = False


class Run:
    """One run; `tell` is called with every event, also those of the run itself."""

    def __init__(
        self,
        spark: SparkSession,
        project: Project,
        server: Mapping[str, str],
        recorder: Recorder,
        tell: Callable[[Event], None],
    ) -> None:
        self._spark, self._project, self._recorder, self._tell = spark, project, recorder, tell
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
                self._say("FAILED", _told(failure))
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
                self._recorder.updated(_told(failure))
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
        self._tell(event)

    def _positions(self) -> dict[str, dict[str, Position]]:
        """Return the positions of each flow; none where the checkpoints are not on this machine."""
        folder = self._project.checkpoints
        return {each.flow: each.streams for each in pipeline_progress(folder)} if folder else {}

    def _read(self, flow: str) -> dict[str, int]:
        """Return by stream the number of sequences that a flow has read since the update began."""
        before, now = self._begun.get(flow, {}), self._positions().get(flow, {})
        begun = {name: before[name].seq if name in before else 0 for name in now}
        return {name: now[name].seq - begun[name] for name in now if now[name].seq > begun[name]}

    def _say(self, state: str, error: str) -> None:
        self._tell(Event(datetime.now(UTC), "", state, "Update has FAILED.", error))


def _told(failure: BaseException) -> str:
    from natsctl.spark.session.failures import translated

    return translated(failure).text
