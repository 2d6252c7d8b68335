"""Opening a session of Spark: one that is there, a server's, or one of our own, on this machine or a cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from natsctl.spark.session.class_data import class_data_options
from natsctl.spark.session.failures import INSTALL_PIPELINES, ExtraMissing
from natsctl.spark.session.java import choose_java
from natsctl.spark.session.local_settings import (
    QUICK,
    application_settings,
    memory_option,
    process_environment,
    python_program,
    session_settings,
)
from natsctl.spark.session.options import SparkOptions
from natsctl.spark.session.quick_python import ask_numpy_of_numpy_only, compiled_imports, python_environment
from natsctl.spark.session.spark_home import installed_spark, pyspark_folder, quick_home
from natsctl.spark.session.virtual_machine import Launch, VirtualMachine, running_machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_REMOTE = ("pandas", "grpc", "grpc_status", "google.protobuf", "zstandard")
"""What PySpark imports for sessions on a server."""
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
    remote = options.remote or ("" if options.master else os.environ.get("SPARK_REMOTE", ""))
    if remote:
        with _remote_session(remote, options) as session:
            yield session
    elif "PYSPARK_GATEWAY_PORT" in os.environ:
        with _session_of(application_settings(options) if options.master else session_settings(options)) as session:
            yield session
    else:
        with _own_session(options) as session:
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


def launch_of(options: SparkOptions, environment: Mapping[str, str] | None = None) -> Launch:
    """The Java process that a session with these options runs in. Raises JavaUnsuitable, ExtraMissing, OSError."""
    environment = os.environ if environment is None else environment
    java = choose_java(options.java, environment)
    home = quick_home(installed_spark(environment))
    settings = application_settings(options)
    flags = [memory_option(settings), *settings.get("spark.driver.extraJavaOptions", "").split()]
    before = class_path(options, environment)
    for_python = python_environment(environment) if options.is_local else dict(environment)
    if options.is_local:
        flags += [*QUICK, *class_data_options(java, home, before)]
    return Launch(java, home, flags, settings, process_environment(options, home.folder, for_python), before)


def class_path(options: SparkOptions, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The folders of settings that stand before Spark's jars: the user's own, and those of Hadoop for a cluster."""
    names = ["SPARK_CONF_DIR", *(() if options.is_local else ("HADOOP_CONF_DIR", "YARN_CONF_DIR"))]
    folders = [environment[name] for name in names if environment.get(name)]
    if not environment.get("SPARK_CONF_DIR") and (home := environment.get("SPARK_HOME")):
        folders.insert(0, os.path.join(home, "conf"))  # noqa: PTH118  # a word of a class path
    return tuple(folder for folder in folders if os.path.isdir(folder))  # noqa: PTH112


def _active_session() -> SparkSession | None:
    """A session that runs in this process already."""
    if "pyspark.sql.session" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


@contextlib.contextmanager
def _own_session(options: SparkOptions) -> Iterator[SparkSession]:
    launch = launch_of(options)
    with running_machine(launch) as machine, _environment(machine, options):
        try:
            with _session_of({}) as session:
                yield session
        except Exception as failure:
            if log := machine.logged():
                failure.spark_log = log  # type: ignore[attr-defined]  # for whoever tells of it
            raise


@contextlib.contextmanager
def _environment(machine: VirtualMachine, options: SparkOptions) -> Iterator[None]:
    """What PySpark reads in the environment when it looks for its Java."""
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
        if session is not None:
            session.stop()
        if (gateway := SparkContext._gateway) is not None:
            gateway.shutdown()
            SparkContext._gateway = SparkContext._jvm = None


@contextlib.contextmanager
def _remote_session(url: str, options: SparkOptions) -> Iterator[SparkSession]:
    """A session on a Spark Connect server, which gets the data source by value. Raises ExtraMissing."""
    from importlib.util import find_spec

    for package in _OF_REMOTE:
        if find_spec(package) is None:
            raise ExtraMissing("a session on a Spark server", package.partition(".")[0], INSTALL_PIPELINES)
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    builder = RemoteSession.builder.remote(url)
    for key, value in session_settings(options).items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()  # type: ignore[assignment]  # the same methods
    try:
        yield session
    finally:
        session.stop()
