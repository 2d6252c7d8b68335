"""Sessions of Spark, opened and followed: one that is there, a server's, or our own on this machine or a cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, cast
from weakref import WeakSet

from natsctl.spark.session.connect import register_by_value, remote_for, remote_session
from natsctl.spark.session.failures import quieten, quieten_interrupts
from natsctl.spark.session.installation import compiled_imports, pyspark_folder
from natsctl.spark.session.spark_options import SparkOptions, application_settings, python_program, session_settings
from natsctl.spark.session.virtual_machine import Launch, VirtualMachine, launch_of, running_machine
from natsctl.spark.source.outages import LOG_EVERY_S, PREFIX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S: Final = 0.5
_MAX_READ_BYTES: Final = 1 << 20
"""Bytes of output that are read at once; a warning in the middle of more is not passed on."""


class _WarningFollower:
    """Reads the new output; tasks that wait for the same server warn with the same text."""

    def __init__(self, log: IO[bytes]) -> None:
        self._log = log
        self._position = os.fstat(log.fileno()).st_size
        self._logger = logging.getLogger("natsctl.spark.jetstream")
        self._shown: dict[str, float] = {}

    def pass_on(self) -> None:
        data = os.pread(self._log.fileno(), _MAX_READ_BYTES, self._position)
        end = data.rfind(b"\n") + 1 or (len(data) if len(data) == _MAX_READ_BYTES else 0)
        self._position += end
        now = time.monotonic()
        for line in data[:end].decode(errors="replace").splitlines():
            beginning = line.partition(";")[0]
            if line.startswith(PREFIX) and now - self._shown.get(beginning, -LOG_EVERY_S) >= LOG_EVERY_S / 2:
                self._shown[beginning] = now
                self._logger.warning("%s", line)


@contextlib.contextmanager
def warnings_passed_on(log: IO[bytes]) -> Iterator[None]:
    """Log the source's warnings that Spark writes to its output until the end of the block."""
    ended, follower = threading.Event(), _WarningFollower(log)

    def follow() -> None:
        while not ended.wait(LOOK_S):
            follower.pass_on()

    thread = threading.Thread(target=follow, name="natsctl-source-warnings", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        follower.pass_on()


class Tasks(NamedTuple):
    """The tasks of all stages so far: finished and total."""

    done: int
    total: int


def is_remote(session: SparkSession) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect")


def activate(session: SparkSession) -> None:
    """Make the session the thread's session: Spark finds the data source for a write in no other."""
    if not is_remote(session):
        machine = cast(Any, session)._jvm
        machine.org.apache.spark.sql.classic.SparkSession.setActiveSession(cast(Any, session)._jsparkSession)


@contextlib.contextmanager
def job_status(session: SparkSession) -> Iterator[Callable[[], Tasks]]:
    """Yield a function that returns the progress of all jobs of a session since."""
    if is_remote(session):
        reported = _ReportedJobs()
        session.registerProgressHandler(reported.hear)  # type: ignore[arg-type]  # a function works like its class
        try:
            yield reported.tasks
        finally:
            session.removeProgressHandler(reported.hear)  # type: ignore[arg-type]  # the same function
    else:
        yield _TrackedJobs(session).tasks


def cancel_jobs(session: SparkSession) -> None:
    """End everything that runs in a session: streaming queries between two batches if possible, then all jobs."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    with contextlib.suppress(PySparkException, Py4JError, OSError):
        for query in session.streams.active:
            query.stop()
        if is_remote(session):
            session.interruptAll()
        else:
            session.sparkContext.cancelAllJobs()


class _TrackedJobs:
    """Jobs of a Spark with a local driver; a stage that is no longer active counts as done."""

    def __init__(self, session: SparkSession) -> None:
        self._tracker = cast(Any, session.sparkContext).statusTracker()
        self._over = 0
        self._active: dict[int, Tasks] = {}

    def tasks(self) -> Tasks:
        """Return the progress, at the price of one call to Spark and one more for each active stage."""
        active = set(self._tracker.getActiveStageIds())
        for stage in self._active.keys() - active:
            self._over += self._active.pop(stage).total
        for stage in active:
            if info := self._tracker.getStageInfo(stage):
                self._active[stage] = Tasks(info.numCompletedTasks, info.numTasks)
        return _sum([Tasks(self._over, self._over), *self._active.values()])


class _ReportedJobs:
    """Jobs of a Spark Connect server: it reports each query's stages while the client waits for the answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, Tasks] = {}

    def hear(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        seen = _sum(Tasks(stage.num_completed_tasks, stage.num_tasks) for stage in stages or ())
        with self._lock:
            self._queries[operation_id or ""] = seen

    def tasks(self) -> Tasks:
        with self._lock:
            return _sum(self._queries.values())


def _sum(stages: Iterable[Tasks]) -> Tasks:
    seen = list(stages)
    return Tasks(sum(stage.done for stage in seen), sum(stage.total for stage in seen))


@contextlib.contextmanager
def open_session(options: SparkOptions | None = None) -> Iterator[SparkSession]:
    """Open a session that knows the format `jetstream`; it is stopped at the end unless it was there before.

    Within spark-submit, or if a session is active, that is the session, and the format is registered in it.
    Raises UsageError, ExtraMissingError, JavaUnsuitableError, SparkStartError.
    """
    options = options or SparkOptions()
    options.check()
    pyspark_folder()
    if (there := _active_session()) is not None:
        _register_source(there)
        with settings_applied(there, session_settings(options)):
            yield there
        return
    if remote := remote_for(options):
        with remote_session(remote, options) as session:
            _with_source.add(session)
            yield session
    elif "PYSPARK_GATEWAY_PORT" in os.environ:
        with _session_of(application_settings(options) if options.master else session_settings(options)) as session:
            _register_source(session)
            _with_source.add(session.sparkContext)
            yield session
    else:
        with own_session(options) as session:
            yield session


@contextlib.contextmanager
def settings_applied(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply settings to another owner's session, for a while."""
    before = {key: session.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, old)


def _active_session() -> SparkSession | None:
    if "pyspark.sql.session" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


@contextlib.contextmanager
def own_session(
    options: SparkOptions, launch: Launch | None = None, log: IO[bytes] | None = None
) -> Iterator[SparkSession]:
    """Start a Spark as `launch` says and open a session in it. Raises JavaUnsuitableError, SparkStartError."""
    launch = launch or launch_of(options)
    with running_machine(launch, log) as machine:
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(warnings_passed_on(machine.log))
                with _environment(machine, options):
                    session = stack.enter_context(_session_of({}))
                    if not options.is_local:
                        register_by_value(session)
                _with_source.add(session.sparkContext)
                with texts_kept():
                    yield session
        except Exception as failure:  # of whatever kind: it is raised on, with what Spark wrote
            if said := machine.logged():
                failure.spark_log = said  # type: ignore[attr-defined]  # for the report of it
            raise


@contextlib.contextmanager
def texts_kept() -> Iterator[None]:
    """Keep the texts of Spark's failures as notes: PySpark asks the Java for them, but it may have ended."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as failure:
        failure.add_note(str(failure))
        raise


@contextlib.contextmanager
def _environment(machine: VirtualMachine, options: SparkOptions) -> Iterator[None]:
    """Set the variables that locate PySpark's Java temporarily, so that programs started later do not inherit them."""
    wanted = {
        "PYSPARK_GATEWAY_PORT": str(machine.port),
        "PYSPARK_GATEWAY_SECRET": machine.secret,
        "PYSPARK_PYTHON": python_program(options, os.environ),
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_with_source: WeakSet[Any] = WeakSet()
"""Contexts, and sessions of Connect, that know the format."""


def _register_source(session: SparkSession) -> None:
    """Register the format in another owner's session: Spark looks for it in a Python that may be the executors'."""
    if (session if is_remote(session) else session.sparkContext) not in _with_source:
        register_by_value(session)


@contextlib.contextmanager
def _session_of(settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Open a session in the Java that the environment names; PySpark forgets that Java afterwards."""
    with compiled_imports(os.environ):
        from py4j.protocol import Py4JError
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

    on_interrupt = signal.getsignal(signal.SIGINT)
    quieten_interrupts()
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = None
    try:
        with texts_kept():
            session = builder.getOrCreate()
        quieten()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, on_interrupt)  # PySpark's would talk to Spark within the handler
        yield session
    finally:
        with contextlib.suppress(Py4JError, OSError):  # a Spark that has died cannot be stopped
            if session is not None:
                session.stop()
        if (gateway := SparkContext._gateway) is not None:
            with contextlib.suppress(Py4JError, OSError):
                gateway.shutdown()
            SparkContext._gateway = SparkContext._jvm = None
