"""The Spark that is started: PySpark's own, or that of SPARK_HOME where it is the same version.

It is started from a folder of links to it, in which Python's path leads to the installed PySpark in place of the zip
file that Spark puts first for every Python process: from the zip file each of them compiles PySpark anew.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from natsctl.spark.session.caches import cache_folder, key_of, made_once, temporary_folder
from natsctl.spark.session.failures import ExtraMissing, SparkStartFailed
from natsctl.spark.session.java import ASK_TIMEOUT_S, Java
from natsctl.spark.session.java_home import java_home

_CORE_JAR = re.compile(r"spark-core_([\d.]+)-(.+)\.jar")
_PARTS = ("jars", "bin", "sbin", "conf", "yarn", "kubernetes", "RELEASE")
"""What Spark looks for in its home, as far as it is there."""
_OPTIONS = "natsctl-java-options"
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"


@dataclass(frozen=True)
class SparkHome:
    """A folder with Spark's jars and scripts, and the version of what is in it."""

    folder: Path
    version: str
    scala: str
    origin: str

    @property
    def jars(self) -> Path:
        """The folder of the jars."""
        return self.folder / "jars"


def pyspark_folder() -> Path:
    """Where the package pyspark is. Raises ExtraMissing."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ExtraMissing("Spark", "pyspark")
    return Path(next(iter(spec.submodule_search_locations)))


def installed_spark(environment: Mapping[str, str] | None = None) -> SparkHome:
    """SPARK_HOME where its Spark has PySpark's version, else the Spark within PySpark.

    Raises ExtraMissing where PySpark is not there, or only its client for remote servers.
    """
    environment = os.environ if environment is None else environment
    package = pyspark_folder()
    within = _spark_in(package, "pyspark")
    named = _spark_in(Path(home), "SPARK_HOME") if (home := environment.get("SPARK_HOME")) else None
    if within is None:
        raise ExtraMissing("Spark on this machine", "pyspark with its jars")
    return named if named and named.version == within.version else within


def quick_home(spark: SparkHome, caches: Path | None = None) -> SparkHome:
    """The same Spark in a folder of links, whose Python processes start quickly.

    Where there can be no cache it is in the folder of temporary files. Raises OSError.
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
    """What Spark's own launcher tells a Java of this kind beside memory and class path; asked once for each home.

    Raises SparkStartFailed.
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
    from natsctl.client.whole_file import whole_file

    with whole_file(path) as file:
        file.write("\n".join(words).encode())


def _launcher_options(home: SparkHome, java: Java) -> list[str]:
    """The launcher's command line for a Spark without settings, reduced to options of the Java."""
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
        raise SparkStartFailed(f"{java.program} does not run: {failure}") from failure
    words = done.stdout.replace("\0", "\n").split("\n")
    if _SUBMIT not in words:
        raise SparkStartFailed(f"Spark's launcher fails on {java.program} (Java {java.version})", done.stderr)
    options = words[words.index("-cp") + 2 : words.index(_SUBMIT)]
    return [word for word in options if not word.startswith(("-Xmx", "-Xms"))]


def _spark_in(folder: Path, origin: str) -> SparkHome | None:
    """The Spark of a folder, where there is one."""
    cores = (_CORE_JAR.fullmatch(path.name) for path in (folder / "jars").glob("spark-core_*.jar"))
    core = next((found for found in cores if found), None)
    return SparkHome(folder.resolve(), core[2], core[1], origin) if core else None
