"""Work on Spark within a command: session, options for the command's server, progress and cancellation.

The work runs in a thread of its own, so that this one can read its progress, and cancel it on a signal: PySpark's own
handler of Ctrl-C sends requests in the middle of another one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, TypeVar

from natsctl.api.errors import NatsctlError
from natsctl.cli.framework import output
from natsctl.cli.framework.live import Tracker, progress
from natsctl.client.message import DryRunError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from natsctl.cli.framework.flags import SparkFlags
    from natsctl.cli.framework.session import Session
    from natsctl.client.manager import Manager
    from natsctl.client.servers import Target
    from natsctl.spark.session import SparkOptions

T = TypeVar("T")

LOOK_S = 0.5
"""Seconds between two readings of the jobs' progress: each costs Spark a millisecond or two."""
TASKS = "tasks"
CANCEL_WAIT_S = 15.0
"""Seconds that work may take to end after its jobs were cancelled."""


def run_on_spark(
    session: Session,
    spark: SparkFlags,
    work: Callable[[SparkSession, dict[str, str]], T],
    *,
    what: str = "Spark",
    bar: bool = True,
    needs_server: bool = True,
    messages: int = 0,
    opening: Callable[[SparkOptions], AbstractContextManager[SparkSession]] | None = None,
    stop: Callable[[], None] = lambda: None,
    measured: Callable[[], Measured | None] | None = None,
) -> T:
    """Return the result of `work(spark session, options of the data source for this command's server)`.

    The work runs in another thread, and must leave printing to its caller while there is a `bar`. Without
    `needs_server` no server is connected to, and the options are empty. `messages` is the number that it may read.
    Ctrl-C and SIGTERM cancel its jobs and stop its streaming queries, after `stop()` has been called. `opening`
    opens another session than `open_session` does. `measured` returns the progress if it is known
    better than by Spark's tasks.
    Raises UsageError, ExtraMissingError, JavaUnsuitableError, and Spark's failures as natsctl's.
    """
    from natsctl.spark.session import open_session
    from natsctl.spark.session.sessions import job_status

    options = replace(spark.options, messages=messages)
    server = server_options(session) if needs_server else {}
    quiet = session.json
    with (
        _TaskMeter(what, quiet=quiet or not bar, timed_tasks=measured is None) as meter,
        spark_failures(session),
        (opening or open_session)(options) as opened,
        job_status(opened) as status,
    ):
        running = _RunningWork(opened, lambda: work(opened, server), stop)
        while not running.over(LOOK_S):
            if bar and not quiet:
                meter.show((measured and measured()) or Measured(TASKS, *status()))
        return running.result()


@contextmanager
def spark_failures(session: Session) -> Iterator[None]:
    """Raise failures of Spark and of its data source as natsctl's; with --trace, write Spark's log to stderr."""
    from natsctl.spark.session.failures import translated

    try:
        yield
    except DryRunError:
        raise
    except NatsctlError as failure:
        _warn_all(session, failure)
        raise
    except Exception as failure:  # Spark's, of any type: no Java stack trace reaches the user
        ours = translated(failure, getattr(failure, "spark_log", ""))
        _warn_all(session, ours)
        raise ours from failure


class Measured(NamedTuple):
    """Amount done and total."""

    unit: str
    done: int
    total: int


class _TaskMeter:
    """A bar in the unit of the last measurement; another unit begins another bar."""

    def __init__(self, what: str, *, quiet: bool, timed_tasks: bool = True) -> None:
        """Create a meter; without `timed_tasks` tasks have no rate, because their work is measured in another way."""
        self._what, self._quiet, self._timed_tasks = what, quiet, timed_tasks
        self._stack = ExitStack()
        self._unit = TASKS

    def __enter__(self) -> Self:
        self._tracker = self._opened(TASKS)
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def show(self, now: Measured) -> None:
        """Move the bar; nothing is shown before there is anything to do."""
        if not now.total:
            return
        if now.unit != self._unit:
            self._stack.close()
            self._unit, self._tracker = now.unit, self._opened(now.unit)
        self._tracker.at(now.done, now.total)

    def _opened(self, unit: str) -> Tracker:
        timed = self._timed_tasks or unit != TASKS
        return self._stack.enter_context(progress(self._what, None, unit, quiet=self._quiet, timed=timed))


def server_options(session: Session) -> dict[str, str]:
    """Return the options of the data source for the server of a command: the one that it is connected to."""
    from natsctl.spark.contexts import source_options

    async def reached(manager: Manager) -> Target:
        return manager.connection.target

    return source_options(session.run(reached))


class _RunningWork(Generic[T]):
    """Work in its thread; a signal that ends waiting for it ends it first."""

    def __init__(self, spark: SparkSession, work: Callable[[], T], stop: Callable[[], None]) -> None:
        self._spark, self._work, self._stop = spark, work, stop
        self._results: list[T] = []
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="natsctl-spark", daemon=True)
        self._thread.start()

    def over(self, wait_s: float) -> bool:
        try:
            self._thread.join(wait_s)
        except (KeyboardInterrupt, SystemExit):
            self._cancel()
            raise
        return not self._thread.is_alive()

    def result(self) -> T:
        if self._failure is not None:
            raise self._failure
        return self._results[0]

    def _run(self) -> None:
        from natsctl.spark.session.failures import translated
        from natsctl.spark.session.sessions import activate

        try:
            activate(self._spark)
            self._results.append(self._work())
        except (NatsctlError, DryRunError) as failure:
            self._failure = failure
        except Exception as failure:  # reported while Spark runs, as it is needed for the texts
            self._failure = translated(failure)
            self._failure.__cause__ = failure

    def _cancel(self) -> None:
        from natsctl.spark.session.sessions import cancel_jobs

        self._stop()
        cancel_jobs(self._spark)
        self._thread.join(CANCEL_WAIT_S)


def _warn_all(session: Session, failure: NatsctlError) -> None:
    if session.options.trace:
        for text in (getattr(failure, "detail", ""), getattr(failure, "log", "")):
            if text:
                output.write_stderr(text)
