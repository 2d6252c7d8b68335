"""Sessions on a Spark Connect server: one that was named, or natsctl's own in the background.

The server in the background is a process of ours that starts Spark with Connect's plugin. Spark's own program for such
servers gives the Python processes of each session to no other; in ours they stay, with all that they have imported. It
listens on the loopback address only, and its address and token are in a file that only this user can read. Commands
hold a lock on another file while they use it: without one it is idle.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from natsctl.api.errors import NatsctlError, UnreachableError
from natsctl.client.atomic_file import PRIVATE, atomic_write
from natsctl.spark.session.failures import PIPELINES_PACKAGES, ExtraMissingError, SparkStartError, quieten
from natsctl.spark.session.installation import cache_folder, compiled_imports, key_of, pyspark_folder
from natsctl.spark.session.spark_options import LOCAL, SparkOptions, session_settings
from natsctl.spark.session.virtual_machine import END_WAIT_S, Launch, launch_of, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_NATSCTL = Path(__file__).parents[2]
_FOLDER = _NATSCTL / "spark" / "source"
_FILES = (
    _NATSCTL / "api" / "archive" / "s2_rewrite.py",
    _NATSCTL / "client" / "blocking.py",
    _NATSCTL / "hints.py",
    *(_NATSCTL / "wire" / name for name in ("client.py", "ed25519.py", "server_frames.py", "server_url.py")),
)


def source_code() -> str:
    """Return a digest of the data source's code: a server that has the same is not sent it."""
    files = [*sorted(_FOLDER.rglob("*.py")), *_FILES]
    return key_of(*(part for file in files for part in (file, file.read_bytes())))


try:
    import fcntl
except ImportError:  # on Windows a session that lasts longer than --idle-stop counts as idle
    fcntl = None  # type: ignore[assignment]  # checked before it is used

CONNECT_WAIT_S = 5.0
HOST = "127.0.0.1"


@dataclass(frozen=True)
class BackgroundServer:
    """A server that was started; `began` is the start time of its process: a later one may have its number."""

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
    """The digest of the data source's code that it has."""

    @property
    def url(self) -> str:
        return f"sc://localhost:{self.port}/;token={self.token}"

    @property
    def runs(self) -> bool:
        return bool(self.began) and beginning_of(self.pid) == self.began


def state_file() -> Path:
    """Return the path of the server's record; only this user may read it."""
    return cache_folder() / "server.json"


def use_file() -> Path:
    return cache_folder() / "server.use"


def log_file() -> Path:
    return cache_folder() / "server.log"


def last_use_s() -> float:
    """Return when a command last used the server, in seconds since 1970: now, while one does; 0 for never."""
    try:
        with use_file().open("ab") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return os.fstat(file.fileno()).st_mtime
    except BlockingIOError:
        return time.time()
    except OSError:
        return 0.0


@contextlib.contextmanager
def in_use() -> Iterator[None]:
    """Keep the server from counting as idle: the file is locked meanwhile, and touched before and after."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a folder that cannot be written to any more stops no query
            file = stack.enter_context(use_file().open("ab"))
            stack.callback(os.utime, use_file())
            os.utime(use_file())
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_SH)
        yield


def running_server() -> BackgroundServer | None:
    """Return the running server of the installed Spark, or None."""
    server = recorded_server()
    if server is None or not server.runs or server.version != spark_version():
        return None
    try:
        socket.create_connection((HOST, server.port), CONNECT_WAIT_S).close()
    except OSError:
        return None
    return server


def recorded_server() -> BackgroundServer | None:
    """Return the last server that was started, whether it still runs or not."""
    try:
        return BackgroundServer(**json.loads(state_file().read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def record(server: BackgroundServer) -> None:
    """Write the record for commands to find it. Raises OSError."""
    with atomic_write(state_file(), PRIVATE) as file:
        file.write(json.dumps(asdict(server)).encode())


def stop_server(server: BackgroundServer) -> None:
    """End a server and remove its record. Raises SparkStartError if its process does not end."""
    until_s = time.monotonic() + END_WAIT_S
    how = signal.SIGTERM
    while server.runs:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.pid, how)
        if time.monotonic() > until_s:
            if how == signal.SIGKILL:
                raise SparkStartError(f"Spark's process {server.pid} does not end")
            how, until_s = signal.SIGKILL, time.monotonic() + END_WAIT_S
        time.sleep(0.1)
    state_file().unlink(missing_ok=True)


def memory_bytes(server: BackgroundServer) -> int | None:
    """Return the memory of the server and its child processes; None if the system does not report it."""
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
    """Return version and folder of the installed PySpark: a client's Python is the server's."""
    folder = pyspark_folder()
    return f"{(folder / 'version.py').read_text().strip().splitlines()[-1]} {folder}"


def beginning_of(pid: int) -> str:
    """Return the start time of a process as the system writes it, or ""."""
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


CONNECT_PORT = 15002
REACH_WAIT_S = 20.0
_PACKAGES = ("pandas", "grpc", "grpc_status", "google.protobuf", "zstandard")
"""The packages that PySpark imports for sessions on a server."""
_REMOTE_MODE = "SPARK_CONNECT_MODE_ENABLED"


class Remote(NamedTuple):
    """A server: its URL, whether it knows this very data source, and whether it is ours in the background."""

    url: str
    has_source: bool = False
    in_background: bool = False


def remote_for(options: SparkOptions) -> Remote | None:
    """Return the server to use: the named one, else ours if it supports the request, else None."""
    if options.remote or options.master:
        return Remote(options.remote) if options.remote else None
    if named := os.environ.get("SPARK_REMOTE", ""):
        return Remote(named)
    if "PYSPARK_GATEWAY_PORT" in os.environ or options.java:
        return None
    if not all(key.startswith("spark.sql.") for key, value in options.conf):
        return None
    found = running_server()
    return Remote(found.url, found.source_code == source_code(), in_background=True) if found else None


@contextlib.contextmanager
def remote_session(remote: Remote, options: SparkOptions) -> Iterator[SparkSession]:
    """Open a session on a server, and send it the data source if it has a different one. Raises ExtraMissingError."""
    for package in _PACKAGES:
        if find_spec(package) is None:
            raise ExtraMissingError("a session on a Spark server", package.partition(".")[0], PIPELINES_PACKAGES)
    check_reachable(remote.url)
    before = os.environ.get(_REMOTE_MODE)
    session = None
    with in_use() if remote.in_background else contextlib.nullcontext():
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
    """Raise UnreachableError if nothing listens at a Spark Connect URL: PySpark would retry for ten minutes."""
    place = urlsplit(url)
    try:
        address = place.hostname or "", place.port or CONNECT_PORT
        socket.create_connection(address, REACH_WAIT_S).close()
    except (OSError, ValueError) as failure:
        why = getattr(failure, "strerror", None) or str(failure)
        raise UnreachableError(
            f"no Spark Connect server at sc://{place.netloc}: {why}", hint="is it running? See --remote"
        ) from failure


def register_by_value(session: SparkSession) -> None:
    """Register the data source where natsctl is not installed: its code is sent along."""
    from natsctl.spark.registered import DefaultSource

    session.dataSource.register(DefaultSource)


TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
MODULE = "natsctl.spark.session.connect"
PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"


def start_server(options: SparkOptions, idle_stop_s: float = 0.0) -> BackgroundServer:
    """Start a server that outlives this process, and wait until it answers; one that runs is returned as it is.

    Raises ExtraMissingError, JavaUnsuitableError, SparkStartError, what Spark raises, OSError.
    """
    state_file().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _alone():
        if (running := running_server()) is not None:
            return running
        code = source_code()
        server = _started(options, idle_stop_s)
        record(server)
        try:
            if _knows_source(server):
                server = replace(server, source_code=code)
                record(server)
        except BaseException:
            stop_server(server)
            raise
        return server


@contextlib.contextmanager
def _alone() -> Iterator[None]:
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
            # For a process that has ended wait_until has the reason.
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
    """Return the same launch as a server's, with its token in the environment."""
    if not any(launch.home.jars.glob("spark-connect_*.jar")):
        raise ExtraMissingError("Spark in background", "pyspark[connect]", PIPELINES_PACKAGES)
    plugins = launch.conf.get("spark.plugins", "")
    conf = {
        **launch.conf,
        "spark.plugins": f"{PLUGIN},{plugins}" if plugins else PLUGIN,
        "spark.authenticate": "true",
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
    }
    return replace(launch, conf=conf, environment={**launch.environment, TOKEN: token})


def _knows_source(server: BackgroundServer) -> bool:
    """Return whether a server that has started knows the data source. Raises what Spark raises."""
    with remote_session(Remote(server.url, has_source=True), SparkOptions()) as session:
        return has_source(session)


def has_source(session: SparkSession) -> bool:
    """Return whether Spark knows the data source without being given it."""
    from pyspark.errors import PySparkException

    try:
        return bool(session.read.format("jetstream").schema("seq bigint").load("ANY").columns)
    except PySparkException as failure:  # of several kinds; not all give their condition
        if "DATA_SOURCE_NOT_FOUND" in str(failure):
            return False
        raise


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


LOOK_S = 10.0
"""Seconds between two looks whether the server is in use, and whether its Java is there."""


@dataclass(frozen=True)
class Order:
    """The settings of a server, sent to its process on stdin, as they may be secret. `idle_stop_s` 0 is for never."""

    options: SparkOptions
    launch: Launch
    idle_stop_s: float


def main() -> None:
    """Serve the order on stdin and log to stderr, until SIGTERM, `idle_stop_s` without use, or the end of the Java."""
    from natsctl.spark.session.sessions import own_session

    signal.signal(signal.SIGTERM, _end)
    order: Order = pickle.load(sys.stdin.buffer)  # nosec B301 # of the parent process, through its pipe
    with ExitStack() as stack:
        log = stack.enter_context(os.fdopen(os.dup(sys.stderr.fileno()), "rb", buffering=0))
        try:
            session = stack.enter_context(own_session(order.options, order.launch, log))
        except NatsctlError as failure:
            sys.exit(str(failure))
        wait_until_idle(lambda: session.version, order.idle_stop_s)


def wait_until_idle(check: Callable[[], object], idle_stop_s: float) -> None:
    """Return when no command has used the server for so long. Raises the error of `check` if the Java has ended."""
    began_s = time.time()
    while not idle_stop_s or time.time() - max(began_s, last_use_s()) < idle_stop_s:
        time.sleep(min(LOOK_S, idle_stop_s or LOOK_S))
        check()


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    main()
