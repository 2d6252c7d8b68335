"""Opening a session of Spark: one that is there, a server's, or one of our own, on this machine or a cluster."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING

from natsctl.spark.session.launches import launch_of
from natsctl.spark.session.local_settings import application_settings, python_program, session_settings
from natsctl.spark.session.options import SparkOptions
from natsctl.spark.session.quick_python import ask_numpy_of_numpy_only, compiled_imports
from natsctl.spark.session.quiet import quieten, quieten_interrupts
from natsctl.spark.session.remote import remote_for, remote_session
from natsctl.spark.session.spark_home import pyspark_folder
from natsctl.spark.session.virtual_machine import Launch, VirtualMachine, running_machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def open_session(options: SparkOptions | None = None) -> Iterator[SparkSession]:
    """A session in which the format `jetstream` is known, ended in the end unless it was there before.

    Within spark-submit, or where a session is active, that is the session. Raises UsageError, ExtraMissing,
    JavaUnsuitable, SparkStartFailed.
    """
    options = options or SparkOptions()
    options.check()
    pyspark_folder()
    if (there := _active_session()) is not None:
        with settings_applied(there, session_settings(options)):
            yield there
        return
    if remote := remote_for(options):
        with remote_session(remote, options) as session:
            yield session
    elif "PYSPARK_GATEWAY_PORT" in os.environ:
        with _session_of(application_settings(options) if options.master else session_settings(options)) as session:
            yield session
    else:
        with own_session(options) as session:
            yield session


@contextlib.contextmanager
def settings_applied(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session that is somebody else's, for a while."""
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
    """A session that runs in this process already."""
    if "pyspark.sql.session" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


@contextlib.contextmanager
def own_session(
    options: SparkOptions, launch: Launch | None = None, log: IO[bytes] | None = None
) -> Iterator[SparkSession]:
    """A session in a Spark that is started here, as `launch` says. Raises JavaUnsuitable, SparkStartFailed."""
    launch = launch or launch_of(options)
    with running_machine(launch, log) as machine:
        try:
            with contextlib.ExitStack() as stack:
                with _environment(machine, options):
                    session = stack.enter_context(_session_of({}))
                with texts_kept():
                    yield session
        except Exception as failure:  # of whatever kind: it is raised on, with what Spark wrote
            if said := machine.logged():
                failure.spark_log = said  # type: ignore[attr-defined]  # for whoever tells of it
            raise


@contextlib.contextmanager
def texts_kept() -> Iterator[None]:
    """Have failures of Spark tell their text also when their Java, which it asks for it, has ended: as a note."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as failure:
        failure.add_note(str(failure))
        raise


@contextlib.contextmanager
def _environment(machine: VirtualMachine, options: SparkOptions) -> Iterator[None]:
    """What PySpark reads in the environment when it looks for its Java; programs that are started later must not."""
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


@contextlib.contextmanager
def _session_of(settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session in the Java that the environment names; PySpark forgets that Java afterwards."""
    with compiled_imports(os.environ):
        from py4j.protocol import Py4JError
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

    on_interrupt = signal.getsignal(signal.SIGINT)
    ask_numpy_of_numpy_only()
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
        with contextlib.suppress(Py4JError, OSError):  # a Spark that has died can not be told to stop
            if session is not None:
                session.stop()
        if (gateway := SparkContext._gateway) is not None:
            with contextlib.suppress(Py4JError, OSError):
                gateway.shutdown()
            SparkContext._gateway = SparkContext._jvm = None
