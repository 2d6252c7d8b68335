"""`stream backup` and `stream restore`: every form, another name, what is there already, and how they end."""

import base64
import json
import shutil
from pathlib import Path

import pytest

from tests.support.commands import Run

DATA = Path(__file__).parents[2] / "jetstream" / "data"


def _fill(natsctl: Run, *flags: str, stream: str = "S") -> None:
    assert natsctl("str", "add", stream, "--subjects", f"{stream}.*", "--defaults", *flags).code == 0
    assert natsctl("con", "add", stream, "C", "--pull", "--defaults").code == 0
    for body in ("one", "two", "three"):
        assert natsctl("pub", f"{stream}.a", body, "-H", "K:v", "-J").code == 0
    assert natsctl("str", "rmm", stream, "2", "-f").code == 0


def test_a_backup_says_what_it_holds(natsctl: Run, tmp_path: Path) -> None:
    _fill(natsctl)
    done = natsctl("str", "backup", "S", str(tmp_path / "b"), "-j").json
    assert (done["stream"], done["method"], done["messages"], done["consumers"]) == ("S", "snapshot", 2, 1)
    assert (done["first_seq"], done["last_seq"]) == (1, 3)
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    assert manifest["archive"] == done["archive"]
    assert [one["name"] for one in manifest["files"]] == ["backup.json", "stream.arc.s2"]
    assert manifest["server"]["version"].startswith("2.")


@pytest.mark.ours("files and messages on this side")
def test_an_older_backup_is_replaced_only_with_force(natsctl: Run, tmp_path: Path) -> None:
    _fill(natsctl)
    for target in (str(tmp_path / "b"), str(tmp_path / "b.tgz")):
        assert natsctl("str", "backup", "S", target).code == 0
        refused = natsctl("str", "backup", "S", target, "-j")
        assert (refused.code, "--force" in refused.error["hint"]) == (2, True)
        assert natsctl("str", "backup", "S", target, "--force").code == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith((".", "b"))) == ["b", "b.tgz"]


def test_a_stream_in_memory_comes_back(natsctl: Run, tmp_path: Path) -> None:
    _fill(natsctl, "--storage", "memory")
    assert natsctl("str", "backup", "S", str(tmp_path / "b"), "--replay", "-j").json["method"] == "replay"
    assert natsctl("str", "rm", "S", "-f").code == 0
    state = natsctl("str", "restore", str(tmp_path / "b"), "-j").json["state"]
    assert (state["messages"], state["last_seq"], state["consumer_count"]) == (2, 3, 1)
    message = natsctl("str", "get", "S", "3", "-j").json
    assert base64.b64decode(message["hdrs"]) == b"NATS/1.0\r\nK: v\r\n\r\n"


def test_what_exists_is_refused_skipped_or_replaced(natsctl: Run, tmp_path: Path) -> None:
    _fill(natsctl)
    target = str(tmp_path / "b")
    assert natsctl("str", "backup", "S", target).code == 0
    assert natsctl("str", "purge", "S", "-f").code == 0
    refused = natsctl("str", "restore", target, "-j")
    assert (refused.code, "--on-existing" in refused.error["hint"]) == (4, True)
    skipped = natsctl("str", "restore", target, "--on-existing", "skip")
    assert (skipped.code, "kept as it is" in skipped.err) == (0, True)
    assert natsctl("str", "info", "S", "-j").json["state"]["messages"] == 0
    planned = natsctl("str", "restore", target, "--on-existing", "replace", "--dry-run", "-j").json
    assert [one["subject"].rpartition(".STREAM.")[2] for one in planned["requests"]] == ["DELETE.S", "RESTORE.S"]
    assert natsctl("str", "restore", target, "--on-existing", "replace").code == 2
    replaced = natsctl("str", "restore", target, "--on-existing", "replace", "-f")
    assert (replaced.code, 'Replaced stream "S"' in replaced.err) == (0, True)
    assert natsctl("str", "info", "S", "-j").json["state"]["messages"] == 2
    wrong = natsctl("str", "restore", target, "--on-existing", "perhaps")
    assert (wrong.code, "fail, skip or replace" in wrong.err) == (2, True)


def test_a_directory_of_the_tool_and_a_server_since_2_15_is_restored(natsctl: Run, tmp_path: Path) -> None:
    folder = _directory(tmp_path, DATA / "reference_v1_S.s2")
    (folder / "stream.tar.s2").rename(folder / "stream.arc.s2")
    found = natsctl("str", "restore", str(folder), "-j")
    assert found.code == 0, found.err
    assert found.json["state"]["messages"] > 0
    shutil.copy(folder / "stream.arc.s2", folder / "stream.tar.s2")
    refused = natsctl("backup", "verify", str(folder))
    assert (refused.code, "holds both stream.tar.s2 and stream.arc.s2" in refused.out + refused.err) == (1, True)


def _directory(tmp_path: Path, archive: Path) -> Path:
    folder = tmp_path / "made"
    folder.mkdir()
    shutil.copy(archive, folder / "stream.tar.s2")
    meta = json.loads(archive.with_suffix(".json").read_text())
    (folder / "backup.json").write_text(json.dumps({"config": meta["config"], "state": meta["state"]}))
    return folder


@pytest.mark.ours("files and messages on this side")
def test_what_a_restored_stream_lacks_is_told_to_programs_and_people(natsctl: Run, tmp_path: Path) -> None:
    _fill(natsctl)
    assert natsctl("str", "backup", "S", str(tmp_path / "b")).code == 0
    assert natsctl("str", "rm", "S", "-f").code == 0
    limited = tmp_path / "limited.json"
    limited.write_text('{"max_msgs": 1}')
    for more in ((), ("-j",)):
        done = natsctl("str", "restore", str(tmp_path / "b"), "--config", str(limited), "--no-progress", *more)
        assert (done.code, "messages 1 instead of 2" in done.err) == (0, True)
        assert natsctl("str", "rm", "S", "-f").code == 0
