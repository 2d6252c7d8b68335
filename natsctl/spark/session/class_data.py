"""Spark's classes as one Java process left them in memory: an archive that later ones map in place of loading them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from natsctl.spark.session.caches import cache_folder, key_of
from natsctl.spark.session.java import Java
from natsctl.spark.session.local_settings import QUICK
from natsctl.spark.session.spark_home import SparkHome


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
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]
