"""`backup`, `restore` and those of an account: every stream in order, configuration files, what fails."""

import base64
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.support.commands import Run

pytestmark = pytest.mark.ours("files and messages on this side")


NAMES = ["COPY", "KV_config", "MEM", "ORIGIN"]


def _fill(natsctl: Run) -> None:
    """A mirror that sorts before its origin, a stream in memory, and one of a key-value bucket."""
    assert natsctl("str", "add", "ORIGIN", "--subjects", "o.*", "--defaults").code == 0
    assert natsctl("str", "add", "COPY", "--mirror", "ORIGIN", "--defaults").code == 0
    assert natsctl("str", "add", "MEM", "--subjects", "m.*", "--storage", "memory", "--defaults").code == 0
    assert natsctl("str", "add", "KV_config", "--subjects", "$KV.config.>", "--defaults").code == 0
    for subject in ("o.a", "o.b", "m.a", "$KV.config.x"):
        assert natsctl("pub", subject, "body", "-J").code == 0


def _remove(natsctl: Run) -> None:
    for name in NAMES:
        assert natsctl("str", "rm", name, "-f").code == 0


@pytest.mark.both
def test_every_stream_is_saved_and_comes_back(natsctl: Run, tmp_path: Path) -> None:
    _fill(natsctl)
    folder = str(tmp_path / "saved")
    shown = natsctl("backup", "account", folder)
    assert (shown.code, shown.err.count('Starting backup of Stream "')) == (0, len(NAMES))
    saved = natsctl("account", "backup", folder, "--parallel", "3", "-j", "-f")
    assert saved.code == 0, saved.err
    assert [(one["stream"], one["action"]) for one in saved.json["streams"]] == [(name, "saved") for name in NAMES]
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == NAMES
    _remove(natsctl)
    shown = natsctl("backup", "restore", "account", folder)
    assert (shown.code, "Restoring backup of all 4 streams in" in shown.err) == (0, True)
    _remove(natsctl)
    restored = natsctl("account", "restore", folder, "-j")
    assert restored.code == 0, restored.err
    counts = {one["stream"]: one["messages"] for one in restored.json["streams"]}
    assert {name: counts[name] for name in ("ORIGIN", "MEM", "KV_config")} == {"ORIGIN": 2, "MEM": 1, "KV_config": 1}
    names = [one["stream"] for one in restored.json["streams"]]
    assert names.index("ORIGIN") < names.index("COPY")
    assert natsctl("str", "ls", "-a", "-n").out.split() == NAMES


@pytest.mark.both
def test_nothing_is_restored_where_a_stream_exists(natsctl: Run, tmp_path: Path) -> None:
    _fill(natsctl)
    folder = str(tmp_path / "saved")
    assert natsctl("account", "backup", folder).code == 0
    assert natsctl("str", "rm", "MEM", "-f").code == 0
    refused = natsctl("account", "restore", folder, "-j")
    assert (refused.code, refused.error["description"]) == (4, "3 of 4 streams exist: COPY, KV_config, ORIGIN")
    assert "MEM" not in natsctl("str", "ls", "-a", "-n").out
    restoring = ("account", "restore", folder, "--on-existing", "skip", "-j")
    skipping = natsctl(*restoring).json
    actions = {one["stream"]: one["action"] for one in skipping["streams"]}
    assert actions == {**dict.fromkeys(NAMES, "skipped"), "MEM": "restored"}
    done = natsctl(*restoring[:-1])
    assert done.code == 0
    assert done.err.splitlines()[-1] == "Nothing was restored; 4 streams skipped, as they exist already"


def test_what_fails_is_told_and_the_rest_is_restored(natsctl: Run, tmp_path: Path) -> None:
    _fill(natsctl)
    assert natsctl("account", "backup", str(tmp_path / "saved")).code == 0
    _remove(natsctl)
    data = tmp_path / "saved" / "MEM" / "stream.arc.s2"
    data.write_bytes(data.read_bytes()[:-20])
    done = natsctl("account", "restore", str(tmp_path / "saved"))
    assert (done.code, "1 failed: MEM" in done.err) == (1, True)
    assert natsctl("str", "ls", "-a", "-n").out.split() == ["COPY", "KV_config", "ORIGIN"]


def test_a_stream_that_is_missing_in_the_folder_is_noticed(natsctl: Run, tmp_path: Path) -> None:
    _fill(natsctl)
    folder = tmp_path / "saved"
    assert natsctl("account", "backup", str(folder)).code == 0
    _remove(natsctl)
    shutil.rmtree(folder / "MEM")
    verdict = natsctl("backup", "verify", str(folder), "-j")
    assert verdict.code == 1
    assert verdict.json["missing"] == ["stream MEM was saved together with the others and is not there"]
    done = natsctl("account", "restore", str(folder), "--critical-warnings", "-j")
    assert (done.code, "MEM" in done.json["warnings"][0]) == (1, True)
    assert natsctl("str", "ls", "-a", "-n").out.split() == ["COPY", "KV_config", "ORIGIN"]


def test_a_folder_in_use_is_replaced_only_with_force(natsctl: Run, tmp_path: Path) -> None:
    _fill(natsctl)
    folder = tmp_path / "saved"
    assert natsctl("account", "backup", str(folder)).code == 0
    assert natsctl("account", "backup", str(folder)).code == 2
    assert natsctl("account", "backup", str(folder), "-f").code == 0
    (folder / "photos").mkdir()
    refused = natsctl("account", "backup", str(folder), "-f", "-j")
    assert (refused.code, "it holds photos" in refused.error["description"]) == (2, True)


def test_an_account_without_streams_is_saved_as_an_empty_folder(natsctl: Run, tmp_path: Path) -> None:
    assert natsctl("account", "backup", str(tmp_path / "saved")).code == 0
    assert list((tmp_path / "saved").iterdir()) == []
    assert natsctl("account", "restore", str(tmp_path / "saved")).code == 2


def _make(natsctl: Run) -> None:
    assert natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*", "--defaults").code == 0
    assert natsctl("con", "add", "ORDERS", "NEW", "--pull", "--filter", "ORDERS.received", "--defaults").code == 0


def _said(text: str) -> list[str]:
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in text.splitlines()]


def test_the_log_lines_are_those_of_the_specification(natsctl: Run, tmp_path: Path) -> None:
    _make(natsctl)
    folder = tmp_path / "js-backup"
    done = natsctl("backup", str(folder))
    assert (done.code, done.out) == (0, "")
    assert _said(done.err) == [
        f"Creating JetStream backup into {folder}",
        f"Stream ORDERS to {folder}/stream_ORDERS.json",
        f"Consumer ORDERS > NEW to {folder}/stream_ORDERS_consumer_NEW.json",
        "Configuration backup complete",
    ]
    done = natsctl("restore", str(folder), "--update-streams")
    assert done.code == 0
    assert _said(done.err) == [
        f"Reading file {folder}/stream_ORDERS.json",
        f"Reading file {folder}/stream_ORDERS_consumer_NEW.json",
        "Updating Stream ORDERS configuration",
        "Restoring Consumer ORDERS > NEW",
    ]


@pytest.mark.both
def test_restoring_onto_an_existing_stream_is_a_conflict(natsctl: Run, tmp_path: Path) -> None:
    _make(natsctl)
    assert natsctl("backup", str(tmp_path / "b")).code == 0
    done = natsctl("restore", str(tmp_path / "b"))
    assert (done.code, "--update-streams" in done.err) == (4, True)
    planned = natsctl("restore", str(tmp_path / "b"), "--update-streams", "--dry-run", "-j").json
    assert planned["effect"] == {"streams": 1, "consumers": 1, "updates": ["ORDERS"]}
    assert [one["subject"] for one in planned["requests"]] == ["$JS.API.STREAM.UPDATE.ORDERS"]


@pytest.mark.both
def test_data_is_saved_so_that_stream_restore_reads_it(natsctl: Run, tmp_path: Path) -> None:
    _make(natsctl)
    assert natsctl("pub", "ORDERS.received", "hello", "-J").code == 0
    folder = tmp_path / "b"
    assert natsctl("backup", str(folder), "--data", "-j").json["data"] == ["ORDERS"]
    listed = natsctl("backup", "ls", str(folder), "-j").json
    assert [(Path(one["path"]).name, one["form"], one["kind"]) for one in listed] == [
        ("stream_ORDERS.json", "configuration", "stream"),
        ("stream_ORDERS.tgz", "file", "stream"),
        ("stream_ORDERS_consumer_NEW.json", "configuration", "consumer"),
    ]
    assert natsctl("backup", "verify", str(folder)).code == 0
    assert natsctl("str", "rm", "ORDERS", "-f").code == 0
    restored = natsctl("str", "restore", "ORDERS", str(folder / "stream_ORDERS.tgz"), "-j")
    assert restored.json["state"]["messages"] == 1


def test_one_file_of_a_backup_can_be_restored_alone(natsctl: Run, tmp_path: Path) -> None:
    _make(natsctl)
    assert natsctl("backup", str(tmp_path / "b")).code == 0
    assert natsctl("con", "rm", "ORDERS", "NEW", "-f").code == 0
    file = str(tmp_path / "b" / "stream_ORDERS_consumer_NEW.json")
    assert natsctl("restore", "--file", file, "-j").json["consumers"] == ["ORDERS > NEW"]


def test_a_changed_file_is_found_before_anything_is_restored(natsctl: Run, tmp_path: Path) -> None:
    _make(natsctl)
    assert natsctl("backup", str(tmp_path / "b")).code == 0
    assert natsctl("str", "rm", "ORDERS", "-f").code == 0
    path = tmp_path / "b" / "stream_ORDERS.json"
    document = json.loads(path.read_text())
    document["configuration"] = base64.b64encode(b'{"name":"OTHER"}').decode()
    path.write_text(json.dumps(document))
    assert natsctl("restore", str(tmp_path / "b")).code == 1
    assert natsctl("str", "ls", "-n").out == ""
    assert natsctl("backup", "verify", str(tmp_path / "b")).code == 1


def test_templates_are_saved_and_come_back(natsctl: Run, tmp_path: Path) -> None:
    made = natsctl("str", "template", "add", "CLIENTS", "--subjects", "CLIENT.*", "--max-streams", "7")
    assert made.code == 0
    assert natsctl("backup", str(tmp_path / "b"), "-j").json["templates"] == ["CLIENTS"]
    assert natsctl("str", "template", "rm", "CLIENTS", "-f").code == 0
    assert natsctl("restore", str(tmp_path / "b"), "-j").json["templates"] == ["CLIENTS"]
    try:
        assert natsctl("str", "template", "info", "CLIENTS", "-j").json["config"]["max_streams"] == 7
    finally:
        assert natsctl("str", "template", "rm", "CLIENTS", "-f").code == 0
