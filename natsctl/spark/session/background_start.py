"""Starting Spark in background: one at a time, and warm when it is told of, so that the first command is quick too.

The server listens on the loopback address only and answers who knows its token. Spark's own ports ask for a secret too.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import IO

from natsctl.client.whole_file import PRIVATE
from natsctl.spark.session.background import (
    HOST,
    BackgroundServer,
    beginning_of,
    log_file,
    record,
    running_server,
    spark_version,
    state_file,
    stop_server,
)
from natsctl.spark.session.failures import INSTALL_PIPELINES, ExtraMissing
from natsctl.spark.session.launches import launch_of
from natsctl.spark.session.options import LOCAL, SparkOptions
from natsctl.spark.session.practice import has_source, practise
from natsctl.spark.session.remote import Remote, remote_session
from natsctl.spark.session.serving import MODULE, PLUGIN, Order
from natsctl.spark.session.source_code import source_code
from natsctl.spark.session.virtual_machine import Launch, wait_until

try:
    import fcntl
except ImportError:  # Windows, where two who start one at once are not kept apart
    fcntl = None  # type: ignore[assignment]  # what is asked before it is used

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"


def start_server(options: SparkOptions, idle_stop_s: float = 0.0) -> BackgroundServer:
    """Start a server that outlives this process, and wait until it is warm; one that runs is returned as it is.

    Raises ExtraMissing, JavaUnsuitable, SparkStartFailed, what Spark raises, OSError.
    """
    state_file().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _alone():
        if (running := running_server()) is not None:
            return running
        code = source_code()
        server = _started(options, idle_stop_s)
        record(server)
        try:
            if _warmed(server, options):
                server = replace(server, source_code=code)
                record(server)
        except BaseException:
            stop_server(server)
            raise
        return server


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Wait until nobody else starts a server."""
    with state_file().with_name("server.lock").open("ab") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _started(options: SparkOptions, idle_stop_s: float) -> BackgroundServer:
    port, token = _free_port(), secrets.token_urlsafe(32)
    launch = _serving(launch_of(options), port, token)
    with _log() as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE],
            env=dict(launch.environment),
            cwd=state_file().parent,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            assert process.stdin is not None
            # Of a process that has ended wait_until tells why.
            with contextlib.suppress(BrokenPipeError), process.stdin as order:
                pickle.dump(Order(options, launch, idle_stop_s), order)
            wait_until(lambda: _listens(port), process, log)
        except BaseException:
            process.kill()
            process.wait()
            raise
    return BackgroundServer(
        port,
        token,
        process.pid,
        beginning_of(process.pid),
        spark_version(),
        options.master or LOCAL,
        f"{launch.java.version} ({launch.java.program})",
        time.time(),
        idle_stop_s,
    )


def _serving(launch: Launch, port: int, token: str) -> Launch:
    """The same Spark as a server, which has its token in the environment."""
    if not any(launch.home.jars.glob("spark-connect_*.jar")):
        raise ExtraMissing("Spark in background", "pyspark[connect]", INSTALL_PIPELINES)
    plugins = launch.conf.get("spark.plugins", "")
    conf = {
        **launch.conf,
        "spark.plugins": f"{PLUGIN},{plugins}" if plugins else PLUGIN,
        "spark.authenticate": "true",
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
    }
    return replace(launch, conf=conf, environment={**launch.environment, TOKEN: token})


def _warmed(server: BackgroundServer, options: SparkOptions) -> bool:
    """Make the server quick for what comes; returns whether it knows the data source."""
    with remote_session(Remote(server.url, has_source=True), SparkOptions()) as session:
        known = has_source(session)
        if known and options.is_local:
            practise(session)
        return known


@contextlib.contextmanager
def _log() -> Iterator[IO[bytes]]:
    handle = os.open(log_file(), os.O_RDWR | os.O_CREAT | os.O_TRUNC, PRIVATE)
    with os.fdopen(handle, "r+b") as log:
        yield log


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        return int(free.getsockname()[1])


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 1.0).close()
    except OSError:
        return False
    return True
