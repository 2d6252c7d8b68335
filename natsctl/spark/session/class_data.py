"""Spark's classes as one Java process left them in memory: an archive that later ones map in place of loading them."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from natsctl.spark.session.caches import cache_folder, key_of
from natsctl.spark.session.failures import SparkStartFailed
from natsctl.spark.session.java import Java
from natsctl.spark.session.local_settings import QUICK
from natsctl.spark.session.spark_home import SparkHome
from natsctl.spark.session.virtual_machine import Launch

UNUSED_S: Final = 30 * 86_400.0
"""After that long without use an archive is removed when another one is made."""
DUMP_WAIT_S: Final = 900.0
COLLECTOR: Final = "-XX:+UseG1GC"
"""The one of Java's collectors that can write objects into an archive; all can read them."""


def archive_path(java: Java, home: SparkHome, caches: Path | None = None) -> Path:
    """Where the archive of this Java and these jars is, or would be: another Java, jar or flag is another archive."""
    jars = sorted((jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in home.jars.iterdir())
    key = key_of(java.home, java.version, java.vendor, home.folder, jars, QUICK)
    return (caches or cache_folder()) / f"classes-{home.version}-java{java.major}-{key}.jsa"


def class_data_options(java: Java, home: SparkHome, before: Sequence[str] = ()) -> list[str]:
    """The options by which a Java takes the archive, none where there is none; what does not fit it ignores."""
    archive = archive_path(java, home)
    if before or not archive.is_file():
        return []
    os.utime(archive)
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]


def recording(launch: Launch, classes: Path) -> Launch:
    """The same start without an archive, which writes the names of what it loads to `classes`."""
    options = [word for word in launch.options if not word.startswith(("-XX:SharedArchiveFile", "-Xshare"))]
    return replace(launch, options=[*options, f"-XX:DumpLoadedClassList={classes}"])


def make_archive(launch: Launch, classes: Path) -> Path:
    """The archive of the classes that a `recording` start has loaded. Raises SparkStartFailed, OSError."""
    archive = archive_path(launch.java, launch.home)
    remove_unused(archive.parent)
    handle, building = tempfile.mkstemp(prefix=".classes-", suffix=".jsa", dir=archive.parent)
    os.close(handle)
    Path(building).unlink()  # Java makes it itself
    options = [word for word in launch.options if word not in QUICK and not word.startswith("-X")]
    dump = ["-Xshare:dump", COLLECTOR, f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={building}"]
    try:
        done = subprocess.run(
            replace(launch, options=[*options, *dump]).command([]),
            env=dict(launch.environment),
            capture_output=True,
            text=True,
            timeout=DUMP_WAIT_S,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode or not Path(building).is_file():
            raise SparkStartFailed(
                f"Java made no archive of classes (exit code {done.returncode})", done.stdout + done.stderr
            )
        Path(building).replace(archive)
    except subprocess.TimeoutExpired as failure:
        raise SparkStartFailed(f"Java made no archive of classes within {DUMP_WAIT_S:.0f} s") from failure
    finally:
        Path(building).unlink(missing_ok=True)
    return archive


def remove_unused(caches: Path) -> None:
    """Remove the archives that nobody has used for UNUSED_S."""
    for old in caches.glob("classes-*.jsa"):
        if time.time() - old.stat().st_mtime > UNUSED_S:
            old.unlink(missing_ok=True)
