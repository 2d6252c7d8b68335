"""Spark in background: a Spark Connect server on this machine, whose sessions begin at once.

It listens on the loopback address only and answers who knows its token; address and token are in a file that nobody
else may read. Spark's own ports ask for a secret too.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from natsctl.client.whole_file import PRIVATE, whole_file
from natsctl.spark.session.caches import cache_folder
from natsctl.spark.session.failures import INSTALL_PIPELINES, ExtraMissing, SparkStartFailed
from natsctl.spark.session.options import LOCAL, SparkOptions
from natsctl.spark.session.spark_home import pyspark_folder
from natsctl.spark.session.virtual_machine import END_WAIT_S, wait_until

CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
CONNECT_WAIT_S = 5.0
_HOST = "127.0.0.1"


@dataclass(frozen=True)
class BackgroundServer:
    """A server that was started: `began` is when its process did, as the system says it, so that no other is meant."""

    port: int
    token: str
    pid: int
    began: str
    version: str
    master: str
    java: str
    started_s: float

    @property
    def url(self) -> str:
        """Where clients connect, with the token in it."""
        return f"sc://localhost:{self.port}/;token={self.token}"

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return bool(self.began) and _began(self.pid) == self.began


def state_file() -> Path:
    """Where the running server is told of; nobody else may read it."""
    return cache_folder() / "server.json"


def log_file() -> Path:
    """What the server writes."""
    return cache_folder() / "server.log"


def running_server() -> BackgroundServer | None:
    """The server that runs, of the Spark that is installed; None where there is none."""
    server = recorded_server()
    if server is None or not server.runs or server.version != _version():
        return None
    try:
        socket.create_connection((_HOST, server.port), CONNECT_WAIT_S).close()
    except OSError:
        return None
    return server


def recorded_server() -> BackgroundServer | None:
    """The last server that was started, whether it still runs or not."""
    try:
        return BackgroundServer(**json.loads(state_file().read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def start_server(options: SparkOptions) -> BackgroundServer:
    """Start a server that outlives this process, and wait until it listens.

    Raises ExtraMissing, JavaUnsuitable, SparkStartFailed, OSError.
    """
    from natsctl.spark.session.launches import lasting_launch

    launch = lasting_launch(options)
    if not any(launch.home.jars.glob("spark-connect_*.jar")):
        raise ExtraMissing("Spark in background", "pyspark[connect]", INSTALL_PIPELINES)
    port, token = _free_port(), secrets.token_urlsafe(32)
    conf = {
        **launch.conf,
        "spark.authenticate": "true",
        "spark.connect.grpc.binding.address": _HOST,
        "spark.connect.grpc.binding.port": str(port),
    }
    launch = replace(launch, conf=conf)
    state_file().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _log() as log:
        process = subprocess.Popen(
            launch.submit("--class", CLASS, "spark-internal"),
            env={**launch.environment, TOKEN: token, "SPARK_CONNECT_MODE": "0"},
            cwd=state_file().parent,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            wait_until(lambda: _listens(port), process, log)
        except BaseException:
            process.kill()
            process.wait()
            raise
    server = BackgroundServer(
        port,
        token,
        process.pid,
        _began(process.pid),
        _version(),
        options.master or LOCAL,
        f"{launch.java.version} ({launch.java.program})",
        time.time(),
    )
    with whole_file(state_file(), PRIVATE) as file:
        file.write(json.dumps(asdict(server)).encode())
    return server


def stop_server(server: BackgroundServer) -> None:
    """End a server, and forget it. Raises SparkStartFailed where its process does not end."""
    until_s = time.monotonic() + END_WAIT_S
    how = signal.SIGTERM
    while server.runs:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.pid, how)
        if time.monotonic() > until_s:
            if how == signal.SIGKILL:
                raise SparkStartFailed(f"Spark's process {server.pid} does not end")
            how, until_s = signal.SIGKILL, time.monotonic() + END_WAIT_S
        time.sleep(0.1)
    state_file().unlink(missing_ok=True)


def memory_bytes(server: BackgroundServer) -> int | None:
    """The memory that the server has at the moment; None where the system does not say."""
    said = _ps(server.pid, "rss")
    return int(said) * 1024 if said.isdigit() else None


@contextlib.contextmanager
def _log() -> Iterator[IO[bytes]]:
    handle = os.open(log_file(), os.O_RDWR | os.O_CREAT | os.O_TRUNC, PRIVATE)
    with os.fdopen(handle, "r+b") as log:
        yield log


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((_HOST, 0))
        return int(free.getsockname()[1])


def _listens(port: int) -> bool:
    try:
        socket.create_connection((_HOST, port), 1.0).close()
    except OSError:
        return False
    return True


def _version() -> str:
    """The version of the PySpark that is installed, and where: a client's Python is the server's."""
    from importlib.metadata import version

    return f"{version('pyspark')} {pyspark_folder()}"


def _began(pid: int) -> str:
    """When a process began, as the system says; "" where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return _ps(pid, "lstart") if not Path("/proc/self").exists() else ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def _ps(pid: int, what: str) -> str:
    try:
        done = subprocess.run(["ps", "-p", str(pid), "-o", f"{what}="], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
