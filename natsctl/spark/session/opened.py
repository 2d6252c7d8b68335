"""Opening a session of Spark: one that is there, a server's, or one of our own, on this machine or a cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from natsctl.api.errors import Unreachable
from natsctl.spark.session.background import running_server
from natsctl.spark.session.failures import INSTALL_PIPELINES, ExtraMissing
from natsctl.spark.session.launches import launch_of
from natsctl.spark.session.local_settings import application_settings, python_program, session_settings
from natsctl.spark.session.options import SparkOptions
from natsctl.spark.session.quick_python import ask_numpy_of_numpy_only, compiled_imports
from natsctl.spark.session.spark_home import pyspark_folder
from natsctl.spark.session.virtual_machine import Launch, VirtualMachine, running_machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_REMOTE = ("pandas", "grpc", "grpc_status", "google.protobuf", "zstandard")
"""What PySpark imports for sessions on a server."""
CONNECT_PORT = 15002
"""Where Spark Connect servers listen unless they are told otherwise."""
REACH_WAIT_S = 20.0
_REMOTE_MODE = "SPARK_CONNECT_MODE_ENABLED"
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


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
    if remote := _remote_url(options):
        with _remote_session(remote, options) as session:
            yield session
    elif "PYSPARK_GATEWAY_PORT" in os.environ:
        with _session_of(application_settings(options) if options.master else session_settings(options)) as session:
            yield session
    else:
        with own_session(options) as session:
            yield session


def _remote_url(options: SparkOptions) -> str:
    """The Spark Connect server to use: what was named, else the one in background where it can do what is asked."""
    if options.remote or options.master:
        return options.remote
    if named := os.environ.get("SPARK_REMOTE", ""):
        return named
    if "PYSPARK_GATEWAY_PORT" in os.environ or options.java:
        return ""
    if not all(key.startswith("spark.sql.") for key, value in options.conf):
        return ""
    found = running_server()
    return found.url if found else ""


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
def own_session(options: SparkOptions, launch: Launch | None = None) -> Iterator[SparkSession]:
    """A session in a Spark that is started here, as `launch` says. Raises JavaUnsuitable, SparkStartFailed."""
    launch = launch or launch_of(options)
    with running_machine(launch) as machine:
        try:
            with contextlib.ExitStack() as stack:
                with _environment(machine, options):
                    session = stack.enter_context(_session_of({}))
                yield session
        except Exception as failure:  # of whatever kind: it is raised on, with what Spark wrote
            if log := machine.logged():
                failure.spark_log = log  # type: ignore[attr-defined]  # for whoever tells of it
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


def _quieten() -> None:
    """Keep PySpark from logging each failure on stderr beside raising it."""
    from pyspark.logger import PySparkLogger

    for name in _LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


@contextlib.contextmanager
def _session_of(settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session in the Java that the environment names; PySpark forgets that Java afterwards."""
    with compiled_imports(os.environ):
        from py4j.protocol import Py4JError
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

    on_interrupt = signal.getsignal(signal.SIGINT)
    ask_numpy_of_numpy_only()
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = None
    try:
        session = builder.getOrCreate()
        _quieten()
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


@contextlib.contextmanager
def _remote_session(url: str, options: SparkOptions) -> Iterator[SparkSession]:
    """A session on a Spark Connect server, which gets the data source by value. Raises ExtraMissing."""
    from importlib.util import find_spec

    for package in _OF_REMOTE:
        if find_spec(package) is None:
            raise ExtraMissing("a session on a Spark server", package.partition(".")[0], INSTALL_PIPELINES)
    check_reachable(url)
    before = os.environ.get(_REMOTE_MODE)
    session = None
    try:
        with compiled_imports(os.environ):
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.remote(url)
            for key, value in session_settings(options).items():
                builder = builder.config(key, value)
            session = builder.create()
            register_by_value(session)
        _quieten()
        yield session
    finally:
        if session is not None:
            session.stop()
        if before is None:
            os.environ.pop(_REMOTE_MODE, None)


def check_reachable(url: str) -> None:
    """Raises Unreachable where nobody listens at a Spark Connect URL: PySpark would try again for ten minutes."""
    place = urlsplit(url)
    try:
        address = place.hostname or "", place.port or CONNECT_PORT
        socket.create_connection(address, REACH_WAIT_S).close()
    except (OSError, ValueError) as failure:
        why = getattr(failure, "strerror", None) or str(failure)
        raise Unreachable(
            f"no Spark Connect server at sc://{place.netloc}: {why}", hint="is it running? See --remote"
        ) from failure


def register_by_value(session: SparkSession) -> None:
    """Make the data source known where natsctl is not installed: its code travels with its name."""
    from natsctl.spark.registered import DefaultSource

    session.dataSource.register(DefaultSource)
