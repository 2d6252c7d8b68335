"""Sessions for pipelines: of Spark Connect, the only server with declarative pipelines.

Unless a server is named, it runs within the command's own Java, on a port of the loopback address, with a token that
is given to no other process.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, cast

from natsctl.spark.files.file_formats import spark_path
from natsctl.spark.pipeline.project import Project
from natsctl.spark.session.connect import register_by_value
from natsctl.spark.session.failures import PIPELINES_PACKAGES, ExtraMissingError
from natsctl.spark.session.sessions import is_remote, open_session
from natsctl.spark.session.spark_options import LOCAL, SparkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_MODE: Final = "SPARK_CONNECT_MODE_ENABLED"
"""The variable that selects Connect's functions such as `col`."""
_TOKEN: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_PACKAGES: Final = ("pyspark", "pandas", "grpc", "grpc_status", "google.protobuf", "zstandard")
_SETTINGS: Final = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.sql.connect.serverStacktrace.enabled": "false",
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
}


def session_for(project: Project) -> Callable[[SparkOptions], AbstractContextManager[SparkSession]]:
    """Return a function that opens a session for a project, instead of `open_session`."""

    @contextlib.contextmanager
    def opened(options: SparkOptions) -> Iterator[SparkSession]:
        for package in _PACKAGES:
            if find_spec(package.partition(".")[0]) is None:
                raise ExtraMissingError("a pipeline", package.partition(".")[0], PIPELINES_PACKAGES)
        if options.remote or (not options.master and os.environ.get("SPARK_REMOTE")):
            with open_session(options) as remote:
                yield remote
            return
        os.environ.setdefault(_TOKEN, secrets.token_urlsafe(24))
        tables = {"spark.sql.warehouse.dir": spark_path(project.tables)}
        conf = {**_SETTINGS, **tables, **project.configuration, **project.own.conf, **options.settings}
        own = replace(options, master=options.master or LOCAL, conf=tuple(conf.items()))
        with open_session(own) as session:
            if is_remote(session):
                yield session
                return
            with _served(session) as client:
                if not own.is_local:
                    register_by_value(client)
                yield client

    return opened


@contextlib.contextmanager
def _served(session: SparkSession) -> Iterator[SparkSession]:
    """Yield a client of the Connect server in the Spark of that session."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    packages = cast(Any, session.sparkContext)._jvm.org.apache.spark.sql.connect.service
    # An object of Scala, in Java's spelling.
    port = getattr(getattr(packages, "SparkConnectService$"), "MODULE$").localPort()
    before = os.environ.get(_MODE)
    os.environ[_MODE] = "1"
    # Only with this name a token is sent without TLS; PySpark reads it from the environment.
    remote = RemoteSession.builder.remote(f"sc://localhost:{port}").create()
    try:
        yield cast("SparkSession", remote)
    finally:
        remote.client.close()
        if before is None:
            os.environ.pop(_MODE)
        else:
            os.environ[_MODE] = before
