"""What a session is doing: how far its jobs are, and how they are ended."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Tasks(NamedTuple):
    """How many tasks of the stages so far are done, and how many there are."""

    done: int
    total: int


def is_remote(session: SparkSession) -> bool:
    """Whether the session is a client's of a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def activate(session: SparkSession) -> None:
    """Have this thread's work be the session's: Spark finds the data source for a write in no other."""
    if not is_remote(session):
        machine = cast(Any, session)._jvm
        machine.org.apache.spark.sql.classic.SparkSession.setActiveSession(cast(Any, session)._jsparkSession)


@contextlib.contextmanager
def job_status(session: SparkSession) -> Iterator[Callable[[], Tasks]]:
    """What tells how far the jobs of a session are, each time it is called; of all that ran since."""
    if is_remote(session):
        told = _Told()
        session.registerProgressHandler(told.hear)  # type: ignore[arg-type]  # a function is as good as its class
        try:
            yield told.tasks
        finally:
            session.removeProgressHandler(told.hear)  # type: ignore[arg-type]  # the same function
    else:
        yield _Looked(session).tasks


def cancel_jobs(session: SparkSession) -> None:
    """End everything that runs in a session: streaming queries between two batches where they can, then all jobs."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    with contextlib.suppress(PySparkException, Py4JError, OSError):
        for query in session.streams.active:
            query.stop()
        if is_remote(session):
            session.interruptAll()
        else:
            session.sparkContext.cancelAllJobs()


class _Looked:
    """Jobs of a Spark whose driver runs here; a stage that is no longer active counts as done."""

    def __init__(self, session: SparkSession) -> None:
        self._tracker = cast(Any, session.sparkContext).statusTracker()
        self._over = 0
        self._active: dict[int, Tasks] = {}

    def tasks(self) -> Tasks:
        """Ask Spark: one call, and one more for each active stage."""
        active = set(self._tracker.getActiveStageIds())
        for stage in self._active.keys() - active:
            self._over += self._active.pop(stage).total
        for stage in active:
            if info := self._tracker.getStageInfo(stage):
                self._active[stage] = Tasks(info.numCompletedTasks, info.numTasks)
        return _sum([Tasks(self._over, self._over), *self._active.values()])


class _Told:
    """Jobs of a Spark Connect server, which tells of each query's stages while it waits for the answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, Tasks] = {}

    def hear(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        """Keep what a query's stages are at."""
        seen = _sum(Tasks(stage.num_completed_tasks, stage.num_tasks) for stage in stages or ())
        with self._lock:
            self._queries[operation_id or ""] = seen

    def tasks(self) -> Tasks:
        """What was told so far."""
        with self._lock:
            return _sum(self._queries.values())


def _sum(stages: Iterable[Tasks]) -> Tasks:
    seen = list(stages)
    return Tasks(sum(stage.done for stage in seen), sum(stage.total for stage in seen))
