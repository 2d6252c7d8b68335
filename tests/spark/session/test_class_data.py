"""For what Java and Spark an archive of classes counts."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from natsctl.spark.session.class_data import UNUSED_S, archive_path, class_data_options, remove_unused
from natsctl.spark.session.java import Java, choose_java
from natsctl.spark.session.launches import launch_of
from natsctl.spark.session.local_settings import QUICK
from natsctl.spark.session.options import MANY_MESSAGES, SparkOptions
from natsctl.spark.session.spark_home import SparkHome
from tests.spark.session.fakes import java, spark


@pytest.fixture
def home(bare: Path) -> SparkHome:
    return SparkHome(spark(bare / "spark"), "4.3.0", "2.13", "pyspark")


@pytest.fixture
def chosen(bare: Path) -> Java:
    java(bare / "home", "21.0.1")
    return choose_java(str(bare / "home"), {})


def test_an_archive_is_used_once_it_is_there(chosen: Java, home: SparkHome) -> None:
    assert class_data_options(chosen, home) == []
    archive = archive_path(chosen, home)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"classes")
    assert class_data_options(chosen, home) == [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]


def test_another_class_path_is_not_the_archives(chosen: Java, home: SparkHome) -> None:
    archive = archive_path(chosen, home)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"classes")
    assert class_data_options(chosen, home, ("/etc/spark",)) == []


@pytest.mark.parametrize("master", ["", "spark://127.0.0.1:7077"])
def test_whoever_waits_for_an_answer_gets_a_quick_java_on_a_cluster_too(bare: Path, master: str) -> None:
    program = java(bare / "home", "21.0.1")
    launch = launch_of(SparkOptions(master, java=str(program)))
    archive = archive_path(launch.java, launch.home)
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(b"classes")
    options = launch_of(SparkOptions(master, java=str(program))).options
    assert {*QUICK, f"-XX:SharedArchiveFile={archive}"} <= {*options}


def test_a_java_that_has_much_to_read_compiles_thoroughly(bare: Path) -> None:
    program = str(java(bare / "home", "21.0.1"))
    much = launch_of(SparkOptions(java=program, messages=MANY_MESSAGES)).options
    elsewhere = launch_of(SparkOptions("spark://127.0.0.1:7077", java=program, messages=MANY_MESSAGES)).options
    assert not {*QUICK} & {*much}
    assert {*QUICK} <= {*elsewhere}


def test_another_java_or_jar_is_another_archive(chosen: Java, home: SparkHome) -> None:
    first = archive_path(chosen, home)
    assert archive_path(replace(chosen, version="21.0.2"), home) != first
    jar = home.jars / "other.jar"
    os.utime(jar, ns=(1, jar.stat().st_mtime_ns + 1))
    second = archive_path(chosen, home)
    assert second != first
    (home.jars / "more.jar").write_bytes(b"more")
    assert archive_path(chosen, home) not in (first, second)


def test_archives_that_nobody_uses_are_removed(tmp_path: Path) -> None:
    caches = tmp_path / "caches"
    caches.mkdir()
    old, used, other = (caches / name for name in ("classes-a.jsa", "classes-b.jsa", "server.json"))
    for path in (old, used, other):
        path.write_bytes(b"x")
    long_ago_s = time.time() - UNUSED_S - 60
    for path in (old, other):
        os.utime(path, (long_ago_s, long_ago_s))
    remove_unused(caches)
    assert sorted(path.name for path in caches.iterdir()) == ["classes-b.jsa", "server.json"]
