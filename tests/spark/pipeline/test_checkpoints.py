"""How far a checkpoint says that queries are, and how far behind that is."""

import json
from pathlib import Path

import pytest

from natsctl.api.errors import ConflictError
from natsctl.spark.pipeline.checkpoints import Behind, lags, pipeline_progress, read_progress
from natsctl.spark.pipeline.project import Project, find_project, write_project
from natsctl.spark.pipeline.run_record import Recorder, is_running, only_run, read_record, run_state
from natsctl.spark.source.jetstream_api import JetStreamApi
from tests.spark.source.streams import delete, make, purge, remake

CREATED = "2026-11-21T03:38:08.293843492Z"


def offsets(**streams: int) -> str:
    return json.dumps({"v": 1, "streams": {name: {"seq": seq, "created": CREATED} for name, seq in streams.items()}})


def checkpoint(folder: Path, *batches: str, commits: int) -> Path:
    """A checkpoint as Spark writes it, the first `commits` of its batches done."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    for number, text in enumerate(batches):
        (folder / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0,"conf":{{}}}}\n{text}')
        if number < commits:
            (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


OTHERS = "\n".join(['{"logOffset":0}', offsets(A=5, B=2), "-", offsets(A=3), "7"])
"""A batch of several sources: only ours count, and of one stream the source that is behind."""


@pytest.mark.parametrize(
    ("batches", "commits", "batch", "begun", "seqs"),
    [
        ([offsets(A=5), offsets(A=9)], 1, 0, 1, {"A": 5}),
        ([offsets(A=5)], 0, -1, 0, {}),
        ([OTHERS], 1, 0, 0, {"A": 3, "B": 2}),
    ],
)
def test_a_query_stands_where_its_last_finished_batch_ends(
    tmp_path: Path, batches: list[str], commits: int, batch: int, begun: int, seqs: dict[str, int]
) -> None:
    assert read_progress(tmp_path) is None
    found = read_progress(checkpoint(tmp_path / "q", *batches, commits=commits))
    assert (found.batch, found.begun, found.done_ns > 0) == (batch, begun, commits > 0)
    assert {name: position.seq for name, position in found.streams.items()} == seqs


def test_of_a_flow_that_began_anew_the_newest_checkpoint_counts(tmp_path: Path) -> None:
    flow = tmp_path / "spark_catalog" / "default" / "my%20table" / "my%20flow"
    checkpoint(flow / "2", offsets(A=5), commits=1)
    checkpoint(flow / "10", offsets(A=1), commits=1)
    (found,) = pipeline_progress(tmp_path)
    assert (found.flow, found.target, found.streams["A"].seq) == ("my flow", "my table", 1)


def behind(api: JetStreamApi, folder: Path, created: str, seq: int) -> Behind:
    text = offsets(ORDERS=seq).replace(CREATED, created)
    progress = read_progress(checkpoint(folder, text, commits=1))
    (one,) = lags({"servers": api.link.settings.urls[0]}, [progress])[str(folder)]
    return one


@pytest.mark.both
def test_what_is_behind_is_told_in_sequences_messages_and_bytes(api: JetStreamApi, tmp_path: Path) -> None:
    make(api, number=100, allow_direct=True)
    info = api.stream_info("ORDERS")
    found = behind(api, tmp_path / "a", info["created"], 60)
    mean = info["state"]["bytes"] / 100
    assert found == Behind("ORDERS", 60, 100, 40, 40, round(40 * mean))
    assert behind(api, tmp_path / "b", info["created"], 100).sequences == 0
    delete(api, 70, 71, 72)
    found = behind(api, tmp_path / "c", info["created"], 60)
    assert (found.sequences, found.messages, found.trouble) == (40, 37, "")


@pytest.mark.both
def test_what_a_query_will_meet_is_told_before(api: JetStreamApi, tmp_path: Path) -> None:
    make(api, number=100)
    created = api.stream_info("ORDERS")["created"]
    purge(api, below=81)
    found = behind(api, tmp_path / "gone", created, 60)
    assert (found.messages, found.trouble) == (20, "sequences 61 to 80 were removed")
    assert "older backup" in behind(api, tmp_path / "back", created, 200).trouble
    remake(api, number=10)
    made_again = behind(api, tmp_path / "again", created, 5)
    assert (made_again.seq, made_again.messages) == (0, 10)
    assert "recreated" in made_again.trouble
    api.ask("STREAM.DELETE.ORDERS")
    assert behind(api, tmp_path / "none", created, 5).trouble == "the stream was deleted"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    write_project(tmp_path / "shop", "ORDERS")
    return find_project(tmp_path / "shop")


def test_two_runs_of_a_pipeline_exclude_each_other(project: Project) -> None:
    assert run_state(project)[0] == "new"
    with only_run(project):
        Recorder(project, 30.0).flow("messages", "RUNNING")
        assert is_running(project)
        with pytest.raises(ConflictError), only_run(project):
            pass
        assert run_state(project)[0] == "running"
    assert run_state(project)[0] == "stopped"


def test_the_record_says_what_became_of_flows_and_updates(project: Project) -> None:
    with only_run(project):
        recorder = Recorder(project, 30.0)
        recorder.flow("messages", "COMPLETED")
        recorder.flow("BIG", "STARTING")
        recorder.completed()
        recorder.updated()
        recorder.updated("boom")
    record = read_record(project)
    assert {name: flow.state for name, flow in record.flows.items()} == {"messages": "COMPLETED", "BIG": "COMPLETED"}
    assert (record.updates, record.failed_updates, record.error) == (2, 1, "boom")
    assert run_state(project)[0] == "failed"
