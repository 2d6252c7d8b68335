"""Spark's classes as one Java process left them in memory: an archive that later ones map in place of loading them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
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
_KIND: Final = "at exit"
"""How archives are made; another way is another archive."""


def archive_path(java: Java, home: SparkHome, caches: Path | None = None) -> Path:
    """Where the archive of this Java and these jars is, or would be: another Java, jar or flag is another archive."""
    jars = sorted((jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in home.jars.iterdir())
    key = key_of(java.home, java.version, java.vendor, home.folder, jars, QUICK, _KIND)
    return (caches or cache_folder()) / f"classes-{home.version}-java{java.major}-{key}.jsa"


def class_data_options(java: Java, home: SparkHome, before: Sequence[str] = ()) -> list[str]:
    """The options by which a Java takes the archive, none where there is none; what does not fit it ignores."""
    archive = archive_path(java, home)
    if before or not archive.is_file():
        return []
    base = base_path(java)
    used = [path for path in (base, archive) if path.is_file()]
    for path in used:
        os.utime(path)
    return [f"-XX:SharedArchiveFile={os.pathsep.join(map(str, used))}", "-Xshare:auto"]


def recording(launch: Launch, archive: Path) -> Launch:
    """The same start without an archive, which writes the classes that it has loaded to one when it ends."""
    options = [word for word in launch.options if not word.startswith(("-XX:SharedArchiveFile", "-Xshare"))]
    base = base_path(launch.java)
    below = [f"-XX:SharedArchiveFile={base}"] if base.is_file() else []
    options = [*options, *below, f"-XX:ArchiveClassesAtExit={archive}"]
    return replace(launch, options=options, end_wait_s=DUMP_WAIT_S)


def base_path(java: Java, caches: Path | None = None) -> Path:
    """Where the archive of Java's own classes is, or would be, of a Java that has none of its own."""
    key = key_of(java.home, java.version, java.vendor)
    return (caches or cache_folder()) / f"classes-java{java.major}-{key}.jsa"


def make_base(java: Java) -> None:
    """Make the archive of Java's own classes where it has none: what a recording writes stands upon it.

    Raises SparkStartFailed, OSError.
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
    """A path to write an archive to, which becomes the archive when all goes well.

    Raises SparkStartFailed where nothing was written, OSError.
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


def no_archive(why: str = "", log: str = "") -> SparkStartFailed:
    """The failure to make an archive."""
    return SparkStartFailed(f"Java made no archive of classes {why}".strip(), log)


def remove_unused(caches: Path) -> None:
    """Remove the archives that nobody has used for UNUSED_S."""
    for old in caches.glob("classes-*.jsa"):
        if time.time() - old.stat().st_mtime > UNUSED_S:
            old.unlink(missing_ok=True)
