"""A standalone cluster of Spark on this machine: a master and two workers, processes of PySpark's own jars.

Executors are processes below the workers. They run a Python with pyspark and pyarrow and without natsctl. All processes
listen on free ports of the loopback.

`Gate` stands between tasks and a NATS server: it holds back everything after a number of bytes, so that a worker is
killed while its task waits for the rest, whatever the pace of the machine.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import venv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal, Self

from natsctl.spark.session.installation import choose_java, installed_spark, java_home, quick_home
from natsctl.spark.session.virtual_machine import Launch
from tests.support import spark_starts
from tests.support.relay import Relay, Way
from tests.support.spark_kills import command_line, descendants

START_WITHIN_S: Final = 240.0
REACH_WITHIN_S: Final = 240.0
"""The time until a job has read or written its first messages, on a busy machine."""
END_WITHIN_S: Final = 20.0
POLL_S: Final = 0.02
PACKAGES: Final = ("pyspark", "pyarrow", "py4j")
"""All that a Python of executors has."""
WORKER_MIB: Final = 1024
_MASTER_URL: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = re.compile(r"Successfully registered with master")
_SERVING: Final = re.compile(r"Spark Connect server started at: \S*?:(\d+)$", re.MULTILINE)


def make_python(folder: Path) -> Path:
    """Create a virtual environment with links to the installed pyspark and pyarrow, and return its Python."""
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        (site / package).symlink_to(next(iter(spec.submodule_search_locations)))
    # Neither a PYTHONPATH of the tests nor the folder in which they run leads to natsctl.
    program = folder / "bin" / "executor-python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH= PYTHONSAFEPATH=1 exec {folder}/bin/python "$@"\n')
    program.chmod(0o755)
    return program


class StandaloneCluster:
    """A running cluster, as a context manager; its processes have ended when the block has."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self.python = make_python(folder / "python")
        self.url = ""
        self._workers = workers
        self._started = 0
        self._java = choose_java()
        self._spark = installed_spark()
        self.home = self._spark.folder
        self._master: _Daemon | None = None
        self._running: list[_Daemon] = []

    def __enter__(self) -> Self:
        try:
            self._master = self._start("master", "Master")
            self.url = self._master.said(_MASTER_URL)
            self.fill_up()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        self._close()

    def environment(self) -> dict[str, str]:
        """Return the environment of drivers: PYSPARK_PYTHON is the executors', without natsctl."""
        return {**self._environment(), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}

    def fill_up(self) -> None:
        """Start workers instead of the killed ones, and wait until they all have registered."""
        while len(self._running) < self._workers:
            self._started += 1
            name = f"worker-{self._started}"
            resources = ["--cores", "1", "--memory", f"{WORKER_MIB}M", "--work-dir", str(self.folder / name)]
            self._running.append(self._start(name, "Worker", *resources, self.url))
        for worker in self._running:
            worker.said(_REGISTERED)

    def kill_worker_at(self, gate: Gate, job: subprocess.Popen[bytes]) -> None:
        """Kill the worker of a task that waits at the gate, with all processes below it, as if a machine was lost."""
        until_s = time.monotonic() + REACH_WITHIN_S
        while (worker := self._waiting_at(gate)) is None:
            if job.poll() is not None or time.monotonic() > until_s:
                raise RuntimeError(f"no task came to the gate:\n{self.log()}")
            time.sleep(POLL_S)
        for pid in [worker.process.pid, *descendants(worker.process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        worker.process.wait()
        self._running.remove(worker)

    def _waiting_at(self, gate: Gate) -> _Daemon | None:
        for worker in self._running if gate.waiting else ():
            below = descendants(worker.process.pid)
            for pid in filter(None, (process_of(port, gate.port, below) for port in gate.waiting)):
                if not command_line(pid).startswith(bytes(self.folder)):
                    raise RuntimeError(f"a task runs another Python: {command_line(pid)!r}")
                return worker
        return None

    @contextlib.contextmanager
    def connect_server(self, *settings: str) -> Iterator[str]:
        """Run PySpark's own start-connect-server.sh on this cluster, and yield the server's URL."""
        conf = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0"}
        words = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        script = self.home / "sbin" / "start-connect-server.sh"
        environment = {**self._environment(), "SPARK_NO_DAEMONIZE": "1", "SPARK_LOG_DIR": str(self.folder)}
        server = _Daemon(
            [str(script), "--master", self.url, *words, *settings], environment, self.folder / "connect.log"
        )
        try:
            yield f"sc://127.0.0.1:{server.said(_SERVING)}"
        finally:
            server.end()

    def log(self) -> str:
        """Return the ends of all logs: of master, workers and executors."""
        paths = [*self.folder.glob("*.log"), *self.folder.glob("worker-*/app-*/*/stderr")]
        return "\n".join(f"== {path}\n{path.read_text(errors='replace')[-4000:]}" for path in sorted(paths))

    def processes(self) -> list[int]:
        """Return all processes that have ever been started here and still run, wherever they hang now."""
        mark = f"SPARK_LOCAL_DIRS={self.folder}".encode()
        return [int(each.name) for each in Path("/proc").glob("[0-9]*") if mark in environment_of(each)]

    def _start(self, name: str, kind: Literal["Master", "Worker"], *words: str) -> _Daemon:
        entry = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        main = [entry, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *words]
        options = ["-Xmx256m", *spark_starts.java_options()]
        launch = Launch(self._java, quick_home(self._spark), options, {}, self._environment())
        return _Daemon(launch.command(main), self._environment(), self.folder / f"{name}.log")

    def _environment(self) -> dict[str, str]:
        left_out = ("NATS", "SPARK", "PYSPARK", "PYTHONPATH")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        return {
            **kept,
            "JAVA_HOME": str(java_home(self._java)),
            "PYSPARK_PYTHON": str(self.python),
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_DIRS": str(self.folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SCALA_VERSION": self._spark.scala,  # which Spark's scripts would look for in its folders
            "XDG_CACHE_HOME": str(spark_starts.CACHE_HOME),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
        }

    def _close(self) -> None:
        for daemon in (*self._running, self._master):
            if daemon is not None:
                daemon.end()
        self._running.clear()
        until_s = time.monotonic() + END_WITHIN_S
        while left := self.processes():  # an executor whose worker has gone ends by itself, but not at once
            for pid in left if time.monotonic() > until_s else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(POLL_S)
        for path in self.folder.glob("spark-*"):
            shutil.rmtree(path, ignore_errors=True)


class _Daemon:
    """A process with a log that says when it is ready."""

    def __init__(self, command: list[str], environment: dict[str, str], log_path: Path) -> None:
        self._log_path = log_path
        with log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=environment, cwd=log_path.parent, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def said(self, pattern: re.Pattern[str]) -> str:
        """Wait until the log has the pattern, and return its first group."""
        until_s = time.monotonic() + START_WITHIN_S
        while not (match := pattern.search(log := self._log_path.read_text(errors="replace"))):
            if self.process.poll() is not None or time.monotonic() > until_s:
                raise RuntimeError(f"{self._log_path.stem} did not start:\n{log[-4000:]}")
            time.sleep(POLL_S)
        return match[match.re.groups]

    def end(self) -> None:
        """End the process and all below it: a script does not pass signals on."""
        for pid in [*descendants(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        try:
            self.process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Gate(Relay):
    """A relay to a NATS server: each connection waits after `hold_after` bytes in one direction until `open()`."""

    def __init__(self, url: str, direction: Literal["read", "written"], hold_after: int) -> None:
        self._held: Way = "to_client" if direction == "read" else "to_server"
        self._hold_after = hold_after
        self._opened = threading.Event()
        self.waiting: list[int] = []
        """The ports of the clients that wait."""
        super().__init__(url)

    def close(self) -> None:
        self.open()
        super().close()
        for thread in self.threads:
            thread.join()

    def open(self) -> None:
        self._opened.set()

    def _pass_on(self, source: socket.socket, sink: socket.socket, way: Way, port: int) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while way == self._held and not self._opened.is_set() and (chunk := source.recv(65_536)):
                passed += len(chunk)
                if passed > self._hold_after:
                    self.waiting.append(port)
                    self._opened.wait()
                sink.sendall(chunk)
        super()._pass_on(source, sink, way, port)


def process_of(port: int, peer: int, among: Iterable[int]) -> int | None:
    """Return the process whose connection from `port` to `peer` this is."""
    ends = f":{port:04X}", f":{peer:04X}"
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    sockets = {f"socket:[{line[9]}]" for line in lines if line[1].endswith(ends[0]) and line[2].endswith(ends[1])}
    return next((pid for pid in among if sockets & set(_open_files(pid))), None)


def _open_files(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(path.readlink())


def environment_of(process: Path) -> list[bytes]:
    with contextlib.suppress(OSError):
        return (process / "environ").read_bytes().split(b"\0")
    return []
