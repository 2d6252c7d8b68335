"""`natsctl pipeline` as far as it needs no Spark, and once as a whole."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from natsctl.spark.pipeline.project import find_project
from natsctl.spark.pipeline.run_record import log_path
from natsctl.testing.process import ServerProcess
from tests.support.commands import Run

pytestmark = pytest.mark.ours("files of a project")


def checkpoint(folder: Path, **position: Any) -> Path:
    position["v"] = 1
    for name, text in (("offsets", f"v1\n{{}}\n{json.dumps(position)}"), ("commits", "v1\n{}")):
        (folder / name).mkdir(parents=True)
        (folder / name / "0").write_text(text)
    return folder


def test_init_makes_a_project_that_is_known_by_name(natsctl: Run, tmp_path: Path) -> None:
    made = natsctl("pipeline", "init", str(tmp_path / "shop"), "--stream", "SALES", "-j").json
    assert made["pipeline"] == "shop"
    assert "spark-pipeline.yml" in made["files"]
    (known,) = natsctl("pipeline", "ls", "-j").json
    assert (known["pipeline"], known["state"], known["folder"]) == ("shop", "new", str(tmp_path / "shop"))
    assert natsctl("pipeline", "stop", "shop", "-j").json == {"pipeline": "shop", "pid": 0, "stopped": False}
    assert natsctl("pipeline", "init", str(tmp_path / "shop")).code == 2


@pytest.mark.both
def test_status_tells_how_far_behind_any_checkpoint_is(natsctl: Run, tmp_path: Path) -> None:
    info = natsctl("stream", "add", "ORDERS", "--subjects", "ORDERS.>", "--defaults", "-j").json
    for number in range(5):
        natsctl("pub", "ORDERS.new", str(number), "--wait")
    folder = checkpoint(tmp_path / "query", streams={"ORDERS": {"seq": 2, "created": info["created"]}})
    status = natsctl("pipeline", "status", "--checkpoint", str(folder), "-j").json
    (stream,) = status["flows"][0]["streams"]
    assert (stream["stream"], stream["seq"], stream["last_seq"]) == ("ORDERS", 2, 5)
    assert (stream["sequences"], stream["messages"], stream["trouble"]) == (3, 3, "")
    assert stream["bytes"] > 0
    assert "ORDERS" in natsctl("pipeline", "status", "--checkpoint", str(folder)).out


@pytest.mark.both
def test_status_of_an_acknowledging_query_is_that_of_its_durable(natsctl: Run, tmp_path: Path) -> None:
    natsctl("stream", "add", "JOBS", "--subjects", "JOBS.>", "--retention", "work", "--defaults")
    natsctl("consumer", "add", "JOBS", "SPARK", "--pull", "--ack", "explicit", "--defaults")
    for number in range(5):
        natsctl("pub", "JOBS.new", str(number), "--wait")
    natsctl("consumer", "next", "JOBS", "SPARK", "--count", "2", "--no-ack")
    folder = checkpoint(tmp_path / "query", acked={"JOBS": {"consumer": "SPARK", "taken": 9, "again": 1}})
    (flow,) = natsctl("pipeline", "status", "--checkpoint", str(folder), "-j").json["flows"]
    known = {"pending": 3, "ack_pending": 2, "redelivered": 0, "trouble": ""}
    assert flow["streams"] == []
    assert flow["consumers"] == [{"stream": "JOBS", "consumer": "SPARK", "taken": 9, "again": 1, **known}]
    shown = natsctl("pipeline", "status", "--checkpoint", str(folder)).out
    assert ["Ack Pending" in shown, "Redelivered" in shown, "Behind" in shown] == [True, True, False]
    natsctl("consumer", "rm", "JOBS", "SPARK", "--force")
    (flow,) = natsctl("pipeline", "status", "--checkpoint", str(folder), "-j").json["flows"]
    assert flow["consumers"][0]["trouble"] == "the consumer was deleted"


def test_status_of_a_pipeline_is_that_of_its_flows(natsctl: Run, tmp_path: Path) -> None:
    info = natsctl("stream", "add", "ORDERS", "--subjects", "ORDERS.>", "--defaults", "-j").json
    shop = tmp_path / "shop"
    natsctl("pipeline", "init", str(shop))
    position = {"ORDERS": {"seq": 0, "created": info["created"]}}
    checkpoint(shop / "storage/_checkpoints/spark_catalog/default/messages/messages/0", streams=position)
    status = natsctl("pipeline", "status", "shop", "-j").json
    assert (status["state"], [flow["flow"] for flow in status["flows"]]) == ("new", ["messages"])
    assert natsctl("pipeline", "status", str(tmp_path)).code == 3


@pytest.mark.parametrize("detached", [(), pytest.param(("-d",), marks=pytest.mark.live)])
def test_faults_in_files_are_told_before_spark_starts(natsctl: Run, tmp_path: Path, detached: list[str]) -> None:
    shop = tmp_path / "shop"
    natsctl("pipeline", "init", str(shop), "--stream", "NOWHERE")
    (shop / "natsctl.yml").write_text("streams:\n  NOWHERE: {maxOffsetPerTrigger: 3}\nsinks:\n  GONE: {from: x}\n")
    checked = natsctl("pipeline", "validate", "shop", "-j")
    assert checked.code == 2
    faults = checked.json["faults"]
    assert [(fault["file"], fault["line"]) for fault in faults] == [("natsctl.yml", line) for line in (2, 2, 4)]
    assert "maxOffsetsPerTrigger" in faults[0]["text"] + faults[1]["text"]
    ended = natsctl("pipeline", "run", "shop", "--once", *detached)
    assert ended.code == 2
    assert "natsctl.yml:4: there is no stream 'GONE'" in ended.err
    assert sum(line.strip().startswith("natsctl.yml:") for line in ended.err.splitlines()) == 3
    assert "runs in process" not in ended.out


_RUN = """#!/bin/sh
[ -e {shop}/sound ] || {{ echo '{{"error": {{"description": "a.sql:3: no column x", "hint": ""}}}}'; exit 2; }}
echo '{{"pid": '$$', "state": "updating", "flows": {{"a": {{"state": "FAILED", "error": "of its first batch"}}}}}}' \\
    > {shop}/.natsctl/run.json
exec sleep 100
"""
"""A run that finds its pipeline unsound, or else one whose first batch fails."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Popen's, of a process that runs on
def test_a_run_in_the_background_is_reported_once_its_pipeline_is_sound(
    natsctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = tmp_path / "shop"
    natsctl("pipeline", "init", str(shop))
    program = tmp_path / "python"
    program.write_text(_RUN.format(shop=shop))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    ended = natsctl("pipeline", "run", str(shop), "-d")
    assert (ended.code, ended.out) == (2, "")
    assert "the run ended: a.sql:3: no column x" in ended.err
    (shop / "sound").touch()
    started = natsctl("pipeline", "run", str(shop), "-d", "-j")
    assert started.code == 0
    os.kill(started.json["pid"], signal.SIGKILL)


@pytest.mark.parametrize(
    "words", [("--once", "--interval", "5s"), ("--full-refresh", "a", "--full-refresh-all"), ("--interval", "never")]
)
def test_flags_that_cannot_be_meant_are_refused(natsctl: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    natsctl("pipeline", "init", str(tmp_path / "shop"))
    ended = natsctl("pipeline", "run", "shop", *words)
    assert (ended.code, "--" in ended.err) == (2, True)


def _readme_lines() -> list[list[str]]:
    """The words of the README's lines about pipelines, which are run as they stand."""
    text = (Path(__file__).parents[3] / "README.md").read_text()
    (block,) = re.findall(r"^```console\n(?:natsctl stream .*\n)*natsctl pipeline [^`]*", text, re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in block.splitlines()[1:]]


def _run(
    words: list[str], server: ServerProcess, home: Path, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, as Spark wants one session in each."""
    environment = {**os.environ, "NATS_URL": server.url, "HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-m", "natsctl", *words], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=500, check=False, cwd=folder,
    )  # fmt: skip


_FAULTS = '''
import sys
from pathlib import Path
from natsctl.spark.pipeline.project import PipelineError
from natsctl.spark.pipeline.project import find_project
from natsctl.spark.pipeline.pipeline_session import session_for
from natsctl.spark.pipeline.update import restore_tables
from natsctl.spark.pipeline.update import Updates
from natsctl.spark.session.spark_options import SparkOptions

folder, url = sys.argv[1:]
second = """from pyspark import pipelines as dp

@dp.append_flow(target="orders_kept")
def second():
    return spark.readStream.table("ORDERS")
"""
project = find_project(Path(folder))
with session_for(project)(SparkOptions(master="local[2]")) as spark:
    restore_tables(spark, project)
    updates = Updates(spark, project, {"servers": url}, print)
    for dry in (False, True):
        try:
            updates.run(dry=dry)
        except PipelineError as failure:
            print(failure)
        (project.folder / "transformations" / "second.py").write_text(second)
'''
"""An update and a check of a project in one Spark, each after another change of its files."""


@pytest.mark.spark
@pytest.mark.own_start
@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("pyspark") is None or find_spec("grpc") is None, reason="`pipelines` is not installed")
def test_the_example_fills_its_table_and_its_stream_and_goes_on_where_it_stood(
    server: ServerProcess, own_home: Path, tmp_path: Path
) -> None:
    add_line, run_line, status_line = _readme_lines()
    home, shop = own_home, tmp_path / "examples" / "pipelines" / "orders"
    example = Path(__file__).parents[3] / "examples" / "pipelines" / "orders"
    (shop / "transformations").mkdir(parents=True)
    for file in example.glob("**/*"):
        if file.suffix in (".yml", ".sql", ".py"):
            (shop / file.relative_to(example)).write_text(file.read_text())
    orders = ["stream", "add", "ORDERS", "--subjects", "ORDERS.>", "--defaults"]
    assert [_run(words, server, home).returncode for words in (orders, add_line)] == [0, 0]
    for amount in (5, 250, 99.5):
        body = json.dumps({"customer": "ann", "amount": amount})
        assert _run(["pub", "ORDERS.new", body, "--wait"], server, home).returncode == 0
    done = _run([*run_line, "-j", "--master", "local[2]"], server, home, tmp_path)
    assert done.returncode == 0, done.stderr
    events: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1]["message"] == "Run is COMPLETED."
    status = json.loads(_run([*status_line, "-j"], server, home, tmp_path).stdout)
    flows = {flow["flow"]: flow for flow in status["flows"]}
    assert flows["orders_kept"]["streams"][0]["seq"] == 3
    assert {flow["state"] for flow in flows.values()} == {"COMPLETED"}
    got = _run(["stream", "get", "LARGE", "1", "-j"], server, home).stdout
    assert json.loads(got)["subject"] == "LARGE.ann"
    tables = json.loads((shop / ".natsctl" / "tables.json").read_text())["tables"]
    assert {*tables} == {"orders_kept", "customers"}

    checkpoint = shop / "storage" / "_checkpoints" / "spark_catalog" / "default" / "orders_kept" / "orders_kept"
    checkpoint.rename(checkpoint.with_name("before"))
    command = [sys.executable, "-c", _FAULTS, str(shop), server.url]
    told = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert told.stdout.count("\n") == 2, told
    gone, second = told.stdout.splitlines()
    assert "orders_kept has batches that this flow has not made" in gone
    assert "second: orders_kept has the flow orders_kept" in second


def test_logs_are_the_events_of_the_last_run_and_what_else_it_said(natsctl: Run, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    natsctl("pipeline", "init", str(shop))
    assert natsctl("pipeline", "logs", str(shop), "-j").out == ""
    event = {"time": "2026-11-21T10:00:00.000Z", "flow": "messages", "state": "COMPLETED", "message": "", "error": "x"}
    log = log_path(find_project(shop))
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"{json.dumps(event)}\nsomething else\n")
    first, second = natsctl("pipeline", "logs", str(shop), "-j").lines
    assert first == {**event, "read": {}}
    assert (second["flow"], second["message"]) == ("", "something else")
    assert natsctl("pipeline", "logs", str(shop), "--lines", "1").out.endswith("something else\n")
