"""Documents come from pull requests: what they may make natsctl read, wait for, repeat and show."""

import json
import os
from pathlib import Path

import pytest
import yaml

from natsctl.api.errors import UsageError
from natsctl.cli.main import run as run_main
from natsctl.desired.assets import DocumentError
from natsctl.desired.documents import load_documents, read_documents
from natsctl.desired.documents.files import json_text, yaml_text

STREAM = "streams: [{name: %s, subjects: [%s.x]}]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout, next to a document and a secret outside of it."""
    (tmp_path / "outside.yaml").write_text(STREAM % ("OUT", "out"))
    (tmp_path / "secret").write_text("password: hunter2\n")
    inside = tmp_path / "checkout"
    (inside / "teams").mkdir(parents=True)
    (inside / "teams" / "a.yaml").write_text(STREAM % ("A", "a"))
    return inside


@pytest.mark.parametrize(
    "include", ["../outside.yaml", "/etc/hostname", "../*.yaml", "teams/../../outside.yaml", "..", "link.yaml", "links"]
)
def test_an_include_stays_below_the_folder_of_the_named_document(folder: Path, include: str) -> None:
    (folder / "link.yaml").symlink_to(folder.parent / "outside.yaml")
    (folder / "links").symlink_to(folder.parent)
    (folder / "main.yaml").write_text(f"include: ['{include}']\n")
    documents, faults = read_documents([str(folder / "main.yaml")], {})
    assert [fault.place.path for fault in faults] == ["$.include[0]"]
    assert "outside" in faults[0].reason
    assert documents.wanted == {}


def test_files_below_the_named_folder_may_include_each_other(folder: Path) -> None:
    (folder / "teams" / "b.yaml").write_text("include: [../common.yaml]\n")
    (folder / "common.yaml").write_text(STREAM % ("C", "c"))
    (folder / "teams" / "linked.yaml").symlink_to("../common.yaml")
    assert {key.stream for key in load_documents([str(folder)], {}).wanted} == {"A", "C"}


def test_a_link_in_a_named_folder_stays_below_it(folder: Path) -> None:
    (folder / "teams" / "x.yaml").symlink_to(folder.parent / "outside.yaml")
    with pytest.raises(UsageError, match="links to a file outside"):
        load_documents([str(folder)], {})
    assert {key.stream for key in load_documents([str(folder)], {}, outside=True).wanted} == {"A", "OUT"}


def test_a_flag_allows_more(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "main.yaml").write_text("include: [../outside.yaml]\n")
    assert run_main(["validate", str(folder / "main.yaml")]) == 2
    assert "--include-outside" in capsys.readouterr().out
    assert run_main(["validate", str(folder / "main.yaml"), "--include-outside"]) == 0


@pytest.mark.parametrize(
    "text", ["hunter2: x\n", '{"hunter2": 1}', "hunter2", "[hunter2]", "*hunter2\n", "a: *hunter2\n"]
)
def test_a_message_about_a_file_that_is_no_document_repeats_nothing_of_it(folder: Path, text: str) -> None:
    (folder / "main.yaml").write_text("include: [secret]\n")
    (folder / "secret").write_text(text)
    with pytest.raises(DocumentError) as failure:
        load_documents([str(folder / "main.yaml")], {})
    assert "hunter2" not in f"{failure.value} {failure.value.faults}"


@pytest.mark.parametrize("command", [["validate", "pipe"], ["stream", "add", "S", "--config", "pipe"]])
def test_a_named_pipe_is_refused_instead_of_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    assert run_main(command) == 2
    assert "a named pipe, not a file" in "".join(capsys.readouterr())


@pytest.mark.parametrize("mark", ["\u202e", "\u2066", "\u200f", "\u061c", "\u200b", "\u2028", "\ufeff", "\U000e0041"])
def test_what_reorders_or_hides_text_is_written_as_an_escape(mark: str) -> None:
    document = {"streams": [{"name": "A", "description": f"one{mark}two\nthree", "metadata": {f"k{mark}": mark}}]}
    for text, read in ((yaml_text([document]), yaml.safe_load), (json_text(document), json.loads)):
        assert mark not in text
        assert read(text) == document
