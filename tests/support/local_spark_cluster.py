"""A cluster of Spark on this machine: one master and some workers, each a process of its own.

It is what a cluster is in everything but distance: executors are processes below the workers, they get code and data
over sockets, and each of them can be killed by itself. All processes listen on the loopback, on free ports.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

from natsctl.spark.session.failures import SparkStartError
from natsctl.spark.session.installation import Java, SparkHome, choose_java, installed_spark, java_home, quick_home
from natsctl.spark.session.spark_options import QUICK, SparkOptions, process_environment
from natsctl.spark.session.virtual_machine import Launch

START_WITHIN_S: Final = 120.0
END_WITHIN_S: Final = 20.0
POLL_S: Final = 0.05
"""Between two looks at processes that do not announce that they are ready."""
_PACKAGE: Final = "org.apache.spark.deploy"
_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = "Successfully registered with master"
_EXECUTOR: Final = b"CoarseGrainedExecutorBackend"
_DAEMON_HEAP: Final = "-Xmx256m"

Found = TypeVar("Found")


class LocalCluster:
    """A running cluster, as a context manager; all of its processes have ended when the block has."""

    def __init__(self, workers: int = 2, cores: int = 1, memory_mib: int = 1024, java: str = "") -> None:
        """Set the number of workers, and the resources that each gives to executors."""
        self.url = ""
        self.java: Java = choose_java(java)
        self._wanted = workers
        self._cores = cores
        self._memory_mib = memory_mib
        self._folder = Path()
        self._daemons: list[_Daemon] = []

    def __enter__(self) -> LocalCluster:
        self._folder = Path(tempfile.mkdtemp(prefix="natsctl-cluster-"))
        try:
            master = self._start("master", ["--port", "0"])
            self.url = master.told(_MASTER_URL.search)[1]
            for number in range(self._wanted):
                self._start_worker(number)
            for worker in self.workers:
                worker.told(lambda log: _REGISTERED in log)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def workers(self) -> list[_Daemon]:
        return self._daemons[1:]

    def executor_pids(self) -> list[int]:
        """Return the process ids of the running executors, oldest first."""
        return sorted(pid for worker in self.workers for pid in worker.children(_EXECUTOR))

    def kill_executor(self, within_s: float = START_WITHIN_S) -> int:
        """Kill the oldest executor, waiting for one, and return its process id; its worker starts another one."""
        until_s = time.monotonic() + within_s
        while not (pids := self.executor_pids()):
            if time.monotonic() > until_s:
                raise SparkStartError(f"no executor runs within {within_s:g} s", self.log())
            time.sleep(POLL_S)
        os.kill(pids[0], signal.SIGKILL)
        return pids[0]

    def kill_worker(self, number: int = 0) -> None:
        """Kill a worker and the executors below it, as when a machine is lost."""
        worker = self.workers[number]
        below = worker.children(_EXECUTOR)
        worker.end(signal.SIGKILL)
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def log(self) -> str:
        """Return the logs of master and workers, and the executors' stderr."""
        parts = [daemon.log_path for daemon in self._daemons]
        parts += sorted(self._folder.glob("worker-*/app-*/*/stderr"))
        return "\n".join(f"== {path}\n{path.read_text(errors='replace')[-8000:]}" for path in parts if path.exists())

    def close(self) -> None:
        """End workers, which end their executors, then the master, and remove the files that they wrote."""
        below = self.executor_pids() if self._daemons else []
        for daemon in reversed(self._daemons):
            daemon.end(signal.SIGTERM)
        for pid in below:  # an executor whose worker has gone ends by itself, but not always soon
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if _EXECUTOR in command_line(pid):
                    os.kill(pid, signal.SIGKILL)
        self._daemons.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start_worker(self, number: int) -> None:
        folder = self._folder / f"worker-{number}"
        resources = ["--cores", str(self._cores), "--memory", f"{self._memory_mib}M"]
        self._start("worker", ["--port", "0", *resources, "--work-dir", str(folder), self.url], f"worker-{number}")

    def _start(self, kind: str, words: list[str], name: str = "master") -> _Daemon:
        spark = quick_home(installed_spark())
        main = [f"{_PACKAGE}.{kind}.{kind.capitalize()}", "--host", "127.0.0.1", "--webui-port", "0", *words]
        launch = Launch(self.java, spark, [_DAEMON_HEAP, *QUICK], {}, self._environment(spark))
        daemon = _Daemon(launch.command(main), launch.environment, self._folder / f"{name}.log")
        self._daemons.append(daemon)
        return daemon

    def _environment(self, spark: SparkHome) -> dict[str, str]:
        """Return the environment of executors: a JAVA_HOME that takes all of Spark's options, and this Python first."""
        options = SparkOptions(master=self.url or "spark://127.0.0.1:0")
        found = process_environment(options, spark.folder, os.environ)
        found["JAVA_HOME"] = str(java_home(self.java))
        found["SPARK_SCALA_VERSION"] = spark.scala  # which Spark's scripts would look for in its folders
        found["SPARK_LOCAL_IP"] = "127.0.0.1"
        found["SPARK_LOCAL_DIRS"] = str(self._folder)
        return found


class _Daemon:
    """A master or worker."""

    def __init__(self, command: list[str], environment: Mapping[str, str], log_path: Path) -> None:
        self.log_path = log_path
        with log_path.open("ab") as log:
            # A group of its own: Ctrl-C is for the program that uses the cluster.
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=None if sys.platform == "win32" else 0,
            )

    def told(self, find: Callable[[str], Found | None]) -> Found:
        until_s = time.monotonic() + START_WITHIN_S
        while not (found := find(self.log_path.read_text(errors="replace"))):
            if self.process.poll() is not None or time.monotonic() > until_s:
                raise SparkStartError(f"Spark's {self.log_path.stem} did not start", self.log_path.read_text()[-4000:])
            time.sleep(POLL_S)
        return found

    def children(self, word: bytes) -> list[int]:
        """Return the processes that this one started and that have a word in their command line."""
        return [pid for pid in children_of(self.process.pid) if word in command_line(pid)]

    def end(self, number: signal.Signals) -> None:
        """Signal the process and wait for its end; one that does not end is killed."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def children_of(parent: int) -> list[int]:
    """Return the processes directly below another one (Linux)."""
    found: list[int] = []
    for path in Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(pid) for pid in path.read_text().split()]
    return found


def command_line(pid: int) -> bytes:
    """Return the command line of a process, empty for one that has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
