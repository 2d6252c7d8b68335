"""A NATS server as a child process: natsctl's own or `nats-server`, started and stopped in the same way.

Both take the same flags and write the same ports file, so the same test can run with either. The process that is
started is the server itself and not a wrapper, so `kill` sends SIGKILL to the server.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Literal

Kind = Literal["natsctl", "reference"]

READY_WITHIN_S = 60.0
STOP_WITHIN_S = 30.0


def reference_binary() -> str | None:
    """Return the path of `nats-server`, or None.

    PATH is preferred to the program that the extra `dev` installs next to Python: this one may be older.
    """
    return _reference_in(tuple(os.get_exec_path()))


@functools.cache
def _reference_in(folders: tuple[str, ...]) -> str | None:
    own = Path(sysconfig.get_path("scripts")).resolve()
    others = os.pathsep.join(folder for folder in folders if Path(folder).resolve() != own)
    return shutil.which("nats-server", path=others) or shutil.which("nats-server", path=str(own))


@functools.cache
def reference_version() -> str:
    """Return the version of nats-server, or ""."""
    binary = reference_binary()
    if binary is None:
        return ""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=READY_WITHIN_S, check=True)
    return said.stdout.strip().rpartition("v")[2]


class ServerProcess:
    """One server with a store folder and a port that the system chooses; usable as a context manager."""

    def __init__(self, store_dir: Path, kind: Kind = "natsctl", *flags: str) -> None:
        self.store_dir = store_dir
        self.kind = kind
        self.flags = flags
        self.url = ""
        self.log_path = store_dir / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def _command(self) -> list[str]:
        if self.kind == "reference":
            binary = reference_binary()
            if binary is None:
                raise FileNotFoundError("nats-server is not on PATH")
            start = [binary]
        else:
            start = [sys.executable, "-m", "natsctl", "server", "run"]
        folder = str(self.store_dir)
        listen = ["-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", folder]
        return [*start, "-js", "-sd", folder, *listen, *self.flags]

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    def start(self) -> ServerProcess:
        """Start the server and wait until its ports file names its URL."""
        self.store_dir.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        ports = self.store_dir / f"nats-server_{self._process.pid}.ports"
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            if ports.exists() and (text := ports.read_text()):
                self.url = json.loads(text)["nats"][0]
                return self
            time.sleep(0.01)
        self.kill()
        raise RuntimeError(f"{self.kind} server did not start:\n{self.log()}")

    def log(self) -> str:
        """Return the text of the log so far."""
        return self.log_path.read_text(errors="replace")

    def await_removals(self) -> None:
        """Wait until no file of a deleted stream is left.

        nats-server 2.15 removes them after its answer. If a stream of the same name is deleted before that is done, it
        answers with success and leaves the files, and the next stream of that name continues after the last sequence.
        """
        deadline = time.monotonic() + READY_WITHIN_S
        while self._is_removing():
            if time.monotonic() > deadline:
                raise TimeoutError(f"files of deleted streams stay in {self.store_dir}")
            time.sleep(0.005)

    def _is_removing(self) -> bool:
        try:
            return any(self.store_dir.glob("jetstream/*/streams/.*"))
        except FileNotFoundError:  # a folder went while it was read
            return True

    def stop(self) -> int:
        """Ask the server to stop (SIGTERM) and return its exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """Kill the server (SIGKILL) and return its exit status."""
        return self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def __enter__(self) -> ServerProcess:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()
