"""Spark in background as others see it: where it listens, whether it runs, how it is stopped.

Address and token are in a file that nobody else may read.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from natsctl.client.whole_file import PRIVATE, whole_file
from natsctl.spark.session.caches import cache_folder
from natsctl.spark.session.failures import SparkStartFailed
from natsctl.spark.session.spark_home import pyspark_folder
from natsctl.spark.session.virtual_machine import END_WAIT_S

CONNECT_WAIT_S = 5.0
HOST = "127.0.0.1"


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
    idle_stop_s: float = 0.0
    """After so long without a session it stops by itself; 0 for never."""
    source_code: str = ""
    """Of which code the data source is that it knows without being given it."""

    @property
    def url(self) -> str:
        """Where clients connect, with the token in it."""
        return f"sc://localhost:{self.port}/;token={self.token}"

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return bool(self.began) and beginning_of(self.pid) == self.began


def state_file() -> Path:
    """Where the running server is told of; nobody else may read it."""
    return cache_folder() / "server.json"


def log_file() -> Path:
    """What the server writes."""
    return cache_folder() / "server.log"


def running_server() -> BackgroundServer | None:
    """The server that runs, of the Spark that is installed; None where there is none."""
    server = recorded_server()
    if server is None or not server.runs or server.version != spark_version():
        return None
    try:
        socket.create_connection((HOST, server.port), CONNECT_WAIT_S).close()
    except OSError:
        return None
    return server


def recorded_server() -> BackgroundServer | None:
    """The last server that was started, whether it still runs or not."""
    try:
        return BackgroundServer(**json.loads(state_file().read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def record(server: BackgroundServer) -> None:
    """Have commands find it. Raises OSError."""
    with whole_file(state_file(), PRIVATE) as file:
        file.write(json.dumps(asdict(server)).encode())


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
    """The memory that the server and all processes below it have at the moment; None where the system does not say."""
    below: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    for line in _ps("-e", "-o", "pid=,ppid=,rss=").splitlines():
        pid, parent, size = map(int, line.split())
        below.setdefault(parent, []).append(pid)
        sizes[pid] = size
    family = [server.pid]
    for pid in family:
        family += below.get(pid, [])
    return 1024 * sum(sizes.get(pid, 0) for pid in family) or None


def spark_version() -> str:
    """The version of the PySpark that is installed, and where: a client's Python is the server's."""
    folder = pyspark_folder()
    return f"{(folder / 'version.py').read_text().strip().splitlines()[-1]} {folder}"


def beginning_of(pid: int) -> str:
    """When a process began, as the system says; "" where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return _ps("-p", str(pid), "-o", "lstart=") if not Path("/proc/self").exists() else ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def _ps(*words: str) -> str:
    try:
        done = subprocess.run(["ps", *words], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
