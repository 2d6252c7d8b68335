"""What may be said about a session, and what natsctl says by itself."""

import re
import sys
import traceback

import pytest
from pyspark.errors import AnalysisException

from natsctl.api.errors import UsageError
from natsctl.spark import SOURCE_BY_NAME
from natsctl.spark.session import spark_options
from natsctl.spark.session.sessions import texts_kept
from natsctl.spark.session.spark_options import (
    BATCH_ROWS,
    SparkOptions,
    application_settings,
    memory_option,
    parse_conf,
    process_environment,
    session_settings,
)


def test_a_failure_tells_its_text_when_its_java_has_ended() -> None:
    class OfJava(AnalysisException):
        java: str | None = "there is no stream X"

        def __str__(self) -> str:
            assert self.java is not None
            return self.java

    with pytest.raises(OfJava) as failed, texts_kept():
        raise OfJava("of Java")
    failed.value.java = None
    assert "there is no stream X" in "".join(traceback.format_exception(failed.value))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (SparkOptions(master="local", remote="sc://h"), "exclude each other"),
        (SparkOptions(remote="spark://h:7077"), "expected sc://host:port"),
        (SparkOptions(master="sc://h:15002"), "is a Spark Connect server"),
        (SparkOptions(master="nonsense"), "is no master of Spark"),
    ],
)
def test_what_can_not_be_meant_is_refused(options: SparkOptions, text: str) -> None:
    with pytest.raises(UsageError, match=text) as failed:
        options.check()
    assert failed.value.hint


@pytest.mark.parametrize(
    "master", ["", "local", "local[4]", "local[*]", "spark://a:7077,b:7077", "yarn", "k8s://https://h"]
)
def test_masters_of_spark_are_taken(master: str) -> None:
    SparkOptions(master=master).check()
    assert SparkOptions(master=master).is_local == (not master or master.startswith("local"))


def test_conf_keeps_what_stands_behind_the_first_equals_sign() -> None:
    assert parse_conf(["spark.a=b=c", " spark.d = e"]) == (("spark.a", "b=c"), ("spark.d", " e"))
    with pytest.raises(UsageError, match=r"--conf spark\.a: expected KEY=VALUE"):
        parse_conf(["spark.a"])


def test_what_the_user_says_wins() -> None:
    conf = (("spark.sql.shuffle.partitions", "7"), ("spark.ui.enabled", "true"), ("spark.sql.session.timeZone", "CET"))
    settings = application_settings(SparkOptions(master="local[3]", conf=conf))
    assert {key: settings[key] for key, _ in conf} == dict(conf)
    assert settings["spark.default.parallelism"] == "3"
    assert settings["spark.sql.python.filterPushdown.enabled"] == "true"
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    assert application_settings(SparkOptions())[key] == session_settings(SparkOptions())[key] == str(BATCH_ROWS)
    assert session_settings(SparkOptions(conf=((key, "50"),)))[key] == "50"


def test_logins_are_kept_out_of_plans() -> None:
    hidden = re.compile(application_settings(SparkOptions())["spark.sql.redaction.options.regex"])
    for name in ("servers", "url", "user", "password", "token", "nkeyContent", "credentialsContent", "tlsKeyContent"):
        assert hidden.search(name), name
    assert not hidden.search("stream")


def test_a_cluster_elsewhere_reaches_the_driver_by_its_own_name() -> None:
    assert application_settings(SparkOptions())["spark.driver.host"] == "127.0.0.1"
    assert application_settings(SparkOptions(master="spark://127.0.0.1:7077"))["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in application_settings(SparkOptions(master="spark://cluster:7077"))
    assert "spark.sql.shuffle.partitions" not in application_settings(SparkOptions(master="spark://cluster:7077"))


def test_memory_is_a_quarter_of_the_machine_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for machine_gib, heap in ((0, "-Xmx1024m"), (2, "-Xmx1024m"), (8, "-Xmx2048m"), (64, "-Xmx4096m")):
        monkeypatch.setattr(spark_options, "machine_memory_bytes", lambda gib=machine_gib: gib << 30)
        assert memory_option({}) == heap
    assert memory_option({"spark.driver.memory": "3g"}) == "-Xmx3g"
    assert memory_option({"spark.driver.memory": "512"}) == "-Xmx512m"
    assert memory_option({"spark.driver.memory": "3gb"}) == "-Xmx3g"


def test_tasks_run_this_python_here_and_their_own_on_a_cluster(tmp_path: object) -> None:
    here = process_environment(SparkOptions(), tmp_path, {"PYSPARK_PYTHON": "/other", "PATH": "/bin"})  # type: ignore[arg-type]
    assert here["PYSPARK_PYTHON"] == sys.executable
    assert here[SOURCE_BY_NAME] == "1"
    there = SparkOptions(master="spark://cluster:7077")
    assert process_environment(there, tmp_path, {"PATH": "/bin"})["PYSPARK_PYTHON"] == "python3"  # type: ignore[arg-type]
    assert SOURCE_BY_NAME not in process_environment(there, tmp_path, {"PATH": "/bin"})  # type: ignore[arg-type]
    named = process_environment(there, tmp_path, {"PYSPARK_PYTHON": "/opt/python", "PATH": "/bin"})  # type: ignore[arg-type]
    assert named["PYSPARK_PYTHON"] == named["PYSPARK_DRIVER_PYTHON"] == "/opt/python"
    assert named["PATH"].endswith(":/bin")
