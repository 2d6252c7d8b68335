"""Spark's Java process: its options, its archive of classes, its start and its end.

It is started without the scripts and the second Java of spark-submit. It listens for PySpark on a port with a secret,
and ends when its stdin does: with the command, however that ends. Its output, and that of the Python processes below
it, goes to a file that is shown when something fails.

The archive holds Spark's classes as one Java process left them in memory; later ones map it instead of loading them.
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

from natsctl.spark.session.failures import SparkStartError
from natsctl.spark.session.installation import (
    Java,
    SparkHome,
    cache_folder,
    choose_java,
    installed_spark,
    java_options,
    key_of,
    python_environment,
    quick_home,
)
from natsctl.spark.session.spark_options import (
    MANY_MESSAGES,
    QUICK,
    SparkOptions,
    application_settings,
    memory_option,
    process_environment,
)

START_WAIT_S = 180.0
"""The time a Java may take until it listens, on a busy machine."""
END_WAIT_S = 20.0
"""The time it may take to end and to remove its folders; then it is killed."""
POLL_S = 0.01
LOG_SHOWN_BYTES = 64 << 10
_CONNECTION_FILE = "_PYSPARK_DRIVER_CONN_INFO_PATH"


@dataclass(frozen=True)
class Launch:
    """The command of a Spark: the class path is `before`, then Spark's jars; `options` are for the Java.

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
        """Return the command line of the Java that runs the class `main`, with its arguments."""
        path = os.pathsep.join([*self.before, f"{self.home.jars}/*"])
        return [str(self.java.program), *self.options, *java_options(self.home, self.java), "-cp", path, *main]

    def submit(self, *what: str) -> list[str]:
        """Return the command line of Spark's own entry, with all settings."""
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
        return read_log(self.log)


@contextlib.contextmanager
def running_machine(launch: Launch, log: IO[bytes] | None = None) -> Iterator[VirtualMachine]:
    """Run a Spark for PySpark until the end of the block; `log` gets its output. Raises SparkStartError."""
    with contextlib.ExitStack() as stack:
        log = log or stack.enter_context(tempfile.TemporaryFile())
        process, port, secret = _started(launch, log)
        try:
            yield VirtualMachine(process, log, port, secret)
        finally:
            end(process, launch.end_wait_s)


def read_log(log: IO[bytes]) -> str:
    """Return the last LOG_SHOWN_BYTES of a file that another process writes."""
    size = os.fstat(log.fileno()).st_size
    first = max(0, size - LOG_SHOWN_BYTES)
    return os.pread(log.fileno(), size - first, first).decode("utf-8", "replace")


def end(process: subprocess.Popen[bytes], wait_s: float = END_WAIT_S) -> None:
    """Close a process's stdin and wait until it ends; kill it if it does not."""
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
        connection = folder / "connection"
        environment = {**launch.environment, _CONNECTION_FILE: str(connection), "SPARK_CONNECT_MODE": "0"}
        try:
            # A separate group: Ctrl-C is for the command, and that ends jobs before it ends Spark.
            process = subprocess.Popen(
                launch.submit("pyspark-shell"),
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                process_group=None if sys.platform == "win32" else 0,
            )
        except OSError as failure:
            raise SparkStartError(f"{launch.java.program} does not run: {failure.strerror}") from failure
        try:
            wait_until(connection.exists, process, log)
        except BaseException:
            end(process)
            raise
        return process, *_connection(connection.read_bytes())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    """Wait until `ready()`. Raises SparkStartError where the process ends, or takes longer than START_WAIT_S."""
    until_s = time.monotonic() + START_WAIT_S
    while not ready():
        if process.poll() is not None:
            raise start_failed(process.returncode, read_log(log))
        if time.monotonic() > until_s:
            raise SparkStartError(f"Spark did not start within {START_WAIT_S:.0f} s", read_log(log))
        time.sleep(POLL_S)


def start_failed(code: int, log: str) -> SparkStartError:
    """Return the failure of a Spark that ended at its start, with the line of its log that says why."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if any(word in line for word in ("Error", "Exception", "error:", "Could not"))]
    why = (errors or lines or [f"exit code {code}"])[0]
    return SparkStartError(f"Spark does not start: {why}", log, hint="natsctl spark doctor looks for the reason")


def _connection(connection: bytes) -> tuple[int, str]:
    """Parse port and secret as Spark writes them: a number of four bytes, then a text after its length."""
    port, length = struct.unpack(">ii", connection[:8])
    return port, connection[8 : 8 + length].decode()


UNUSED_S: Final = 30 * 86_400.0
"""After that long without use an archive is removed when another one is made."""
DUMP_WAIT_S: Final = 900.0
_KIND: Final = "at exit"
"""The way archives are made; another way is another archive."""


def archive_path(java: Java, home: SparkHome, caches: Path | None = None) -> Path:
    """Return the path of the archive for this Java and these jars: another Java, jar or flag is another archive."""
    jars = sorted((jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in home.jars.iterdir())
    key = key_of(java.home, java.version, java.vendor, home.folder, jars, QUICK, _KIND)
    return (caches or cache_folder()) / f"classes-{home.version}-java{java.major}-{key}.jsa"


def class_data_options(
    java: Java, home: SparkHome, before: Sequence[str] = (), caches: Path | None = None
) -> list[str]:
    """Return the Java options for the archive, if there is one; Java ignores one that does not fit."""
    archive = archive_path(java, home, caches)
    if before or not archive.is_file():
        return []
    base = base_path(java, caches)
    used = [path for path in (base, archive) if path.is_file()]
    for path in used:
        os.utime(path)
    return [f"-XX:SharedArchiveFile={os.pathsep.join(map(str, used))}", "-Xshare:auto"]


def recording(launch: Launch, archive: Path) -> Launch:
    """Return the same launch without an archive; at its end it writes its loaded classes to one."""
    options = [word for word in launch.options if not word.startswith(("-XX:SharedArchiveFile", "-Xshare"))]
    base = base_path(launch.java)
    below = [f"-XX:SharedArchiveFile={base}"] if base.is_file() else []
    options = [*options, *below, f"-XX:ArchiveClassesAtExit={archive}"]
    return replace(launch, options=options, end_wait_s=DUMP_WAIT_S)


def base_path(java: Java, caches: Path | None = None) -> Path:
    """Return the path of the archive of Java's own classes, for a Java that comes without one."""
    key = key_of(java.home, java.version, java.vendor)
    return (caches or cache_folder()) / f"classes-java{java.major}-{key}.jsa"


def make_base(java: Java) -> None:
    """Create the archive of Java's own classes if missing: the archive of Spark's classes builds on it.

    Raises SparkStartError, OSError.
    """
    base = base_path(java)
    if base.is_file() or any(java.home.glob("*/server/classes*.jsa")):
        return
    with being_made(base) as building:
        command = [str(java.program), "-Xshare:dump", f"-XX:SharedArchiveFile={building}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=DUMP_WAIT_S, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired as failure:
            raise no_archive(f"within {DUMP_WAIT_S:.0f} s") from failure
        if done.returncode:
            raise no_archive(f"(exit code {done.returncode})", done.stdout + done.stderr)


@contextlib.contextmanager
def being_made(archive: Path) -> Iterator[Path]:
    """Yield a path to write an archive to; it becomes the archive on success.

    Raises SparkStartError if nothing was written, OSError.
    """
    remove_unused(archive.parent)
    handle, name = tempfile.mkstemp(prefix=".classes-", suffix=".jsa", dir=archive.parent)
    os.close(handle)
    building = Path(name)
    building.unlink()  # Java makes it itself
    try:
        yield building
        if not building.is_file():
            raise no_archive()
        building.replace(archive)
    finally:
        building.unlink(missing_ok=True)


def no_archive(why: str = "", log: str = "") -> SparkStartError:
    return SparkStartError(f"Java made no archive of classes {why}".strip(), log)


def remove_unused(caches: Path) -> None:
    """Remove the archives that have not been used for UNUSED_S."""
    for old in caches.glob("classes-*.jsa"):
        if time.time() - old.stat().st_mtime > UNUSED_S:
            old.unlink(missing_ok=True)


def launch_of(options: SparkOptions, environment: Mapping[str, str] | None = None) -> Launch:
    """Return the launch of a session: one that answers soon, unless it has much to read.

    It uses the archive of classes if there is one. So does the driver of a cluster: it only plans and waits. The user's
    settings of the JIT win. Raises JavaUnsuitableError, ExtraMissingError, OSError.
    """
    environment = os.environ if environment is None else environment
    java = choose_java(options.java, environment)
    home = quick_home(installed_spark(environment))
    settings = application_settings(options)
    before = class_path(options, environment)
    users = settings.get("spark.driver.extraJavaOptions", "").split()
    compilers = () if options.is_local and options.messages >= MANY_MESSAGES else QUICK
    flags = [*compilers, memory_option(settings), *users, *class_data_options(java, home, before)]
    for_python = python_environment(environment) if options.is_local else dict(environment)
    return Launch(java, home, flags, settings, process_environment(options, home.folder, for_python), before)


def class_path(options: SparkOptions, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders of settings before Spark's jars: the user's own, and Hadoop's for a cluster."""
    names = ["SPARK_CONF_DIR", *(() if options.is_local else ("HADOOP_CONF_DIR", "YARN_CONF_DIR"))]
    folders = [environment[name] for name in names if environment.get(name)]
    if not environment.get("SPARK_CONF_DIR") and (home := environment.get("SPARK_HOME")):
        folders.insert(0, os.path.join(home, "conf"))  # noqa: PTH118  # a word of a class path
    return tuple(folder for folder in folders if os.path.isdir(folder))  # noqa: PTH112
