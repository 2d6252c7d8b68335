"""Spark's Java process: started by itself, without the scripts and the second Java of spark-submit.

It listens for PySpark on a port with a secret, and ends when its stdin does: with the command, however that ends. What
it and the Python processes below it write goes to a file, which is shown when something fails.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from natsctl.spark.session.failures import SparkStartFailed
from natsctl.spark.session.java import Java
from natsctl.spark.session.spark_home import SparkHome, java_options

START_WAIT_S = 180.0
"""How long a Java may take until it listens, on a machine with much else to do."""
END_WAIT_S = 20.0
"""How long it may take to end, with the folders that it made; then it is killed."""
POLL_S = 0.01
LOG_SHOWN_BYTES = 64 << 10
_CONNECTION_FILE = "_PYSPARK_DRIVER_CONN_INFO_PATH"


@dataclass(frozen=True)
class Launch:
    """What to start: the class path is Spark's jars behind `before`, `options` are for the Java.

    It is killed when it takes longer than `end_wait_s` to end.
    """

    java: Java
    home: SparkHome
    options: Sequence[str]
    conf: Mapping[str, str]
    environment: Mapping[str, str]
    before: Sequence[str] = ()
    end_wait_s: float = END_WAIT_S

    def command(self, main: Sequence[str]) -> list[str]:
        """The command line of the Java that runs the class `main`, with the words behind it."""
        path = os.pathsep.join([*self.before, f"{self.home.jars}/*"])
        return [str(self.java.program), *self.options, *java_options(self.home, self.java), "-cp", path, *main]

    def submit(self, *what: str) -> list[str]:
        """The command line of Spark's own entry, with all settings."""
        settings = [word for key, value in self.conf.items() for word in ("--conf", f"{key}={value}")]
        return self.command(["org.apache.spark.deploy.SparkSubmit", *settings, *what])


@dataclass
class VirtualMachine:
    """A running Spark that waits for PySpark at `port`."""

    process: subprocess.Popen[bytes]
    log: IO[bytes]
    port: int
    secret: str

    def logged(self) -> str:
        """The end of what it has written."""
        return read_log(self.log)


@contextlib.contextmanager
def running_machine(launch: Launch, log: IO[bytes] | None = None) -> Iterator[VirtualMachine]:
    """A Spark for PySpark, ended in the end; `log` gets what it writes. Raises SparkStartFailed."""
    with contextlib.ExitStack() as stack:
        log = log or stack.enter_context(tempfile.TemporaryFile())
        process, port, secret = _started(launch, log)
        try:
            yield VirtualMachine(process, log, port, secret)
        finally:
            end(process, launch.end_wait_s)


def read_log(log: IO[bytes]) -> str:
    """The last LOG_SHOWN_BYTES of a file that another process writes."""
    size = os.fstat(log.fileno()).st_size
    first = max(0, size - LOG_SHOWN_BYTES)
    return os.pread(log.fileno(), size - first, first).decode("utf-8", "replace")


def end(process: subprocess.Popen[bytes], wait_s: float = END_WAIT_S) -> None:
    """Let a process end by itself, as its stdin has ended; one that does not is killed."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _started(launch: Launch, log: IO[bytes]) -> tuple[subprocess.Popen[bytes], int, str]:
    folder = Path(tempfile.mkdtemp(prefix="natsctl-spark-"))
    try:
        told = folder / "connection"
        environment = {**launch.environment, _CONNECTION_FILE: str(told), "SPARK_CONNECT_MODE": "0"}
        try:
            # A group of its own: Ctrl-C is for the command, which ends jobs before it ends Spark.
            process = subprocess.Popen(
                launch.submit("pyspark-shell"),
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                process_group=None if sys.platform == "win32" else 0,
            )
        except OSError as failure:
            raise SparkStartFailed(f"{launch.java.program} does not run: {failure.strerror}") from failure
        try:
            wait_until(told.exists, process, log)
        except BaseException:
            end(process)
            raise
        return process, *_connection(told.read_bytes())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    """Wait until `ready()`. Raises SparkStartFailed where the process ends, or takes longer than START_WAIT_S."""
    until_s = time.monotonic() + START_WAIT_S
    while not ready():
        if process.poll() is not None:
            raise start_failed(process.returncode, read_log(log))
        if time.monotonic() > until_s:
            raise SparkStartFailed(f"Spark did not start within {START_WAIT_S:.0f} s", read_log(log))
        time.sleep(POLL_S)


def start_failed(code: int, log: str) -> SparkStartFailed:
    """A Spark that ended at its start, with the line of its log that says why."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if any(word in line for word in ("Error", "Exception", "error:", "Could not"))]
    why = (telling or lines or [f"exit code {code}"])[0]
    return SparkStartFailed(f"Spark does not start: {why}", log, hint="natsctl spark doctor looks for the reason")


def _connection(told: bytes) -> tuple[int, str]:
    """Port and secret as Spark writes them: a number of four bytes, then a text behind its length."""
    port, length = struct.unpack(">ii", told[:8])
    return port, told[8 : 8 + length].decode()
