"""Starting a Java process: what it tells, how it fails, and that it ends with whoever started it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from natsctl.spark.session.failures import SparkStartFailed
from natsctl.spark.session.java import Java
from natsctl.spark.session.spark_home import SparkHome
from natsctl.spark.session.virtual_machine import Launch, end, running_machine
from tests.spark.session.fakes import spark

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
    with pytest.raises(SparkStartFailed) as failed, running_machine(launch(tmp_path, program)):
        pass
    assert failed.value.text == "Spark does not start: Error: Could not create the Java Virtual Machine."
    assert failed.value.log.splitlines()[0] == "warning"
    assert "natsctl spark doctor" in failed.value.hint


def test_a_java_that_can_not_be_run_is_told(tmp_path: Path) -> None:
    broken = launch(tmp_path, "")
    broken.java.program.chmod(0o644)
    with pytest.raises(SparkStartFailed, match="does not run: Permission denied"), running_machine(broken):
        pass


def test_it_ends_when_who_started_it_is_killed(tmp_path: Path) -> None:
    launch(tmp_path, _LISTENS)
    code = (
        "import subprocess, sys, time\n"
        f"java = subprocess.Popen([{str(tmp_path / 'java')!r}], stdin=subprocess.PIPE)\n"
        "print(java.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    environment = {**os.environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(tmp_path / "told")}
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    with starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        while not (tmp_path / "told").exists():
            time.sleep(0.01)
        starter.kill()
    while _is_there(pid):
        time.sleep(0.01)


def test_one_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("natsctl.spark.session.virtual_machine.END_WAIT_S", 0.1)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdin=subprocess.PIPE)
    end(process)
    assert process.returncode == -9


def _is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
