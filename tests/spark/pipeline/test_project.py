"""What a pipeline's two files say, and what is wrong with them, by line."""

from pathlib import Path

import pytest

from natsctl.spark.pipeline.project import (
    PipelineError,
    PipelineNotFoundError,
    Project,
    StreamSink,
    StreamView,
    find_project,
    load_own_settings,
    write_project,
)
from natsctl.spark.pipeline.run_record import Recorder, only_run, read_record
from natsctl.spark.sql_tables import literal

SPECIFICATION = "name: shop\nstorage: storage\nlibraries:\n  - glob:\n      include: transformations/**\n"


def project(folder: Path, own: str = "", specification: str = SPECIFICATION) -> Project:
    (folder / "spark-pipeline.yml").write_text(specification)
    (folder / "natsctl.yml").write_text(own)
    return find_project(folder)


def faults(folder: Path, own: str = "", specification: str = SPECIFICATION) -> list[str]:
    with pytest.raises(PipelineError) as raised:
        project(folder, own, specification)
    return [str(fault) for fault in raised.value.faults]


def test_streams_are_views_by_name_with_options_as_texts(tmp_path: Path) -> None:
    own = "streams:\n  ORDERS:\n  EU: {stream: ORDERS, subject: [a.>, b.>], batch: true, maxOffsetsPerTrigger: 10}\n"
    streams = project(tmp_path, own).own.streams
    options = {"stream": "ORDERS", "subject": "a.>,b.>", "maxOffsetsPerTrigger": "10"}
    assert streams == (StreamView("ORDERS", {}, line=2), StreamView("EU", options, batch=True, line=3))
    own = project(tmp_path, "streams: [ORDERS, 'KV_*']\ninterval: 1m30s\n").own
    assert ([view.name for view in own.streams], own.patterns, own.interval_s) == (["ORDERS"], ("KV_*",), 90.0)
    sinks = project(tmp_path, "sinks:\n  BIG: {from: large, window: 10}\n  OTHER:\n").own.sinks
    assert sinks == (StreamSink("BIG", {"window": "10"}, "large", 2), StreamSink("OTHER", line=3))


def test_every_fault_of_both_files_is_told_with_its_line(tmp_path: Path) -> None:
    own = "stream: ORDERS\ninterval: soon\nstreams:\n  A:\n  a:\n  B: text\nsinks: [X]\n"
    said = faults(tmp_path, own, "name: shop\nstreams: {}\nlibraries:\n  - glob: {include: 'a*/**'}\n")
    assert [text.rsplit(":", text.count(":") - 1)[0] for text in said] == [
        "natsctl.yml:1", "natsctl.yml:2", "natsctl.yml:5", "natsctl.yml:6", "natsctl.yml:7",
        "spark-pipeline.yml:1", "spark-pipeline.yml:2", "spark-pipeline.yml:3",
    ]  # fmt: skip
    assert "'a' and 'A' are one name for Spark" in said[2]
    assert "storage is missing" in said[5]
    assert "natsctl's additions" in said[6]
    assert faults(tmp_path, "streams:\n  A: [\n")[0].startswith("natsctl.yml:3: not YAML")


def test_a_storage_without_a_scheme_is_in_the_folder(tmp_path: Path) -> None:
    found = project(tmp_path)
    assert found.storage == f"file://{tmp_path}/storage"
    assert found.checkpoints == tmp_path / "storage" / "_checkpoints"
    elsewhere = project(tmp_path, "", SPECIFICATION.replace("storage: storage", "storage: s3a://bucket/x"))
    assert elsewhere.storage == "s3a://bucket/x"
    assert elsewhere.checkpoints is None


def test_definitions_are_files_of_the_folders_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PipelineNotFoundError):
        find_project(tmp_path)
    found = project(tmp_path)
    for name in ("b.sql", "a.py", "below/c.sql", "__pycache__/a.pyc", ".hidden.sql"):
        path = tmp_path / "transformations" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert [path.name for path in found.definitions()] == ["a.py", "b.sql", "c.sql"]
    monkeypatch.chdir(tmp_path / "transformations")
    assert find_project().folder == tmp_path


@pytest.mark.parametrize(
    ("name", "stream"), [("sh: op #1", "a'b\\c"), ("zażółć", "日本"), ("123", "456"), ("no", "ON"), ('a"b', "x$y{z}")]
)
def test_a_new_project_is_a_right_one_whatever_it_and_its_stream_are_called(
    tmp_path: Path, name: str, stream: str
) -> None:
    assert load_own_settings(tmp_path).streams == ()
    files = write_project(tmp_path / name, stream)
    assert all(path.is_file() for path in files)
    with pytest.raises(FileExistsError):
        write_project(tmp_path / name, stream)
    found = find_project(tmp_path / name)
    assert [path.name for path in found.definitions()] == ["by_subject.py", "messages.sql"]
    assert found.name == name
    assert [view.name for view in found.own.streams] == [stream]
    assert [sink.name for sink in found.own.sinks] == [f"BIG_{stream}"]
    made = (tmp_path / name / "transformations/messages.sql").read_text()
    assert f"FROM STREAM `{stream}`" in made
    assert f"concat({literal(f'{stream}:')}, seq)" in made


def test_a_run_is_checked_once_its_flows_are_known(tmp_path: Path) -> None:
    def is_checked() -> bool:
        record = read_record(shop)
        return record is not None and record.is_checked

    shop = project(tmp_path)
    with only_run(shop):
        recorder = Recorder(shop, 0.0)
        recorder.state("updating")
        assert not is_checked()
        recorder.flow("messages", "QUEUED")
        assert is_checked()
