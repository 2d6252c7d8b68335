"""Sessions on a Spark Connect server: one that was named, or the one that runs in background."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from natsctl.api.errors import Unreachable
from natsctl.spark.session.background import running_server
from natsctl.spark.session.failures import INSTALL_PIPELINES, ExtraMissing
from natsctl.spark.session.local_settings import session_settings
from natsctl.spark.session.options import SparkOptions
from natsctl.spark.session.quick_python import compiled_imports
from natsctl.spark.session.quiet import quieten
from natsctl.spark.session.source_code import source_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_PORT = 15002
"""Where Spark Connect servers listen unless they are told otherwise."""
REACH_WAIT_S = 20.0
_PACKAGES = ("pandas", "grpc", "grpc_status", "google.protobuf", "zstandard")
"""What PySpark imports for sessions on a server."""
_REMOTE_MODE = "SPARK_CONNECT_MODE_ENABLED"


class Remote(NamedTuple):
    """A server, and whether the data source as it is here is known there already."""

    url: str
    has_source: bool = False


def remote_for(options: SparkOptions) -> Remote | None:
    """The server to use: what was named, else the one in background where it can do what is asked; None for none."""
    if options.remote or options.master:
        return Remote(options.remote) if options.remote else None
    if named := os.environ.get("SPARK_REMOTE", ""):
        return Remote(named)
    if "PYSPARK_GATEWAY_PORT" in os.environ or options.java:
        return None
    if not all(key.startswith("spark.sql.") for key, value in options.conf):
        return None
    found = running_server()
    return Remote(found.url, found.source_code == source_code()) if found else None


@contextlib.contextmanager
def remote_session(remote: Remote, options: SparkOptions) -> Iterator[SparkSession]:
    """A session on a server, which gets the data source by value where it has it not. Raises ExtraMissing."""
    for package in _PACKAGES:
        if find_spec(package) is None:
            raise ExtraMissing("a session on a Spark server", package.partition(".")[0], INSTALL_PIPELINES)
    check_reachable(remote.url)
    before = os.environ.get(_REMOTE_MODE)
    session = None
    try:
        with compiled_imports(os.environ):
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.remote(remote.url)
            for key, value in session_settings(options).items():
                builder = builder.config(key, value)
            session = builder.create()
            if not remote.has_source:
                register_by_value(session)
        quieten()
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
