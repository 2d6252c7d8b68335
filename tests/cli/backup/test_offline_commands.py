"""Backups without a server: `verify`, `ls`, `inspect`, `cat` and `edit` on any form, and backups of the nats tool.

The folders below nats/ are named after the tool: 0.1.6 and 0.2.4 saved them from nats-server 2.10.26 (version 1), 0.4.0
from 2.15.1 (version 2 under the older name) and 0.5.1 from 2.15.2. Each ORDERS has messages 1, 2, 4, 5 and 6, and a
consumer that has had the first two of them acknowledged.
"""

import gzip
import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.archive.s2 import FrameReader
from tests.support.commands import Run

DATA = Path(__file__).parents[2] / "jetstream" / "data"


def _v1(folder: Path) -> Path:
    folder.mkdir(parents=True)
    shutil.copy(DATA / "reference_v1_S.s2", folder / "stream.tar.s2")
    said = json.loads((DATA / "reference_v1_S.json").read_text())
    (folder / "backup.json").write_text(json.dumps({"config": said["config"], "state": said["state"]}))
    return folder


def test_checksums_find_what_the_archive_can_not_tell(offline: Run, tmp_path: Path) -> None:
    source = str(_v1(tmp_path / "b"))
    made = tmp_path / "made"
    assert offline("backup", "edit", source, str(made)).code == 0
    assert offline("backup", "verify", str(made)).code == 0
    meta = made / "backup.json"
    meta.write_text(meta.read_text().replace('"max_age": 0', '"max_age": 1'))
    assert "remove manifest.json" in offline("backup", "cat", str(made), "-j").error["hint"]
    verdict = offline("backup", "verify", str(made), "-j")
    assert verdict.code == 1
    assert [check["detail"] for check in verdict.json["backups"][0]["checks"] if not check["ok"]] == [
        "the checksum of backup.json does not match the manifest"
    ]


def test_a_backup_that_lacks_messages_is_not_whole(offline: Run, tmp_path: Path) -> None:
    path = _v1(tmp_path / "b")
    said = json.loads((path / "backup.json").read_text())
    said["state"]["messages"] += 1
    (path / "backup.json").write_text(json.dumps(said))
    done = offline("backup", "verify", str(path))
    assert (done.code, "the state says" in done.out, "not complete" in done.err) == (1, True, True)


def test_a_tar_of_a_servers_own_files_is_a_backup_too(offline: Run, tmp_path: Path) -> None:
    tar = b"".join(FrameReader().read((DATA / "reference_v1_S.s2").read_bytes()))
    path = tmp_path / "ORDERS.tgz"
    path.write_bytes(gzip.compress(tar))
    found = offline("backup", "ls", str(tmp_path), "-j").json
    assert [(one["form"], one["archive"], one["stream"]) for one in found] == [("server files", 1, "S")]
    meta = json.loads((DATA / "reference_v1_S.json").read_text())
    assert found[0]["messages"] == meta["state"]["messages"]
    assert offline("backup", "verify", str(path)).code == 0


def test_every_form_below_a_folder_is_listed(offline: Run, tmp_path: Path) -> None:
    source = _v1(tmp_path / "top" / "deep" / "S")
    assert offline("backup", "edit", str(source), str(tmp_path / "top" / "S.tgz")).code == 0
    (tmp_path / "top" / "broken.tgz").write_bytes(b"no tar")
    (tmp_path / "top" / "notes.txt").write_text("no backup")
    found = offline("backup", "ls", str(tmp_path / "top"), "-j").json
    assert [(Path(one["path"]).name, one["form"], one["archive"]) for one in found] == [
        ("S.tgz", "file", 2),
        ("broken.tgz", "", 0),
        ("S", "directory", 1),
    ]
    assert "cannot read the backup" in found[1]["error"]
    names = offline("backup", "ls", str(tmp_path / "top"), "-n").out.splitlines()
    assert [Path(name).name for name in names] == ["S.tgz", "broken.tgz", "S"]
    assert "unreadable" in offline("backup", "ls", str(tmp_path / "top")).out
    assert offline("backup", "ls", str(tmp_path / "none")).code == 2


def test_messages_are_picked_by_subject_time_and_sequence(offline: Run, tmp_path: Path) -> None:
    path = str(_v1(tmp_path / "b"))

    def picked(*flags: str) -> list[Any]:
        return [json.loads(line) for line in offline("backup", "cat", path, "-j", *flags).out.splitlines()]

    every = picked()
    seqs = [one["seq"] for one in every]
    assert [one["seq"] for one in picked("--seq", f"{seqs[1]}-{seqs[3]}")] == seqs[1:4]
    assert [one["seq"] for one in picked("--seq", str(seqs[2]))] == [seqs[2]]
    assert [one["seq"] for one in picked("--seq", f"{seqs[-2]}-")] == seqs[-2:]
    assert picked("--since", every[2]["time"], "--until", every[2]["time"])[0]["seq"] == seqs[2]
    subject = every[0]["subject"]
    assert {one["subject"] for one in picked("--subject", subject)} == {subject}
    assert len(picked("--count", "2")) == 2
    assert offline("backup", "cat", path, "--seq", "x").code == 2
    assert offline("backup", "cat", path, "--since", "yesterday-ish").code == 2


def test_names_and_bodies_can_not_drive_a_terminal(offline: Run, tmp_path: Path) -> None:
    path = _v1(tmp_path / "b")
    said = json.loads((path / "backup.json").read_text())
    said["config"]["description"] = "\x1b[2Jgone"
    (path / "backup.json").write_text(json.dumps(said))
    assert "\x1b" not in offline("backup", "inspect", str(path)).out


SAVED = Path(__file__).parent / "nats"
TOOL_RELEASES = ["0.1.6", "0.2.4", "0.4.0", "0.5.1"]
SEQUENCES = [1, 2, 4, 5, 6]


def _nats(*words: str) -> str:
    done = subprocess.run(["nats", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("release", TOOL_RELEASES)
def test_backups_of_each_release_of_the_tool_are_read(offline: Run, release: str) -> None:
    folder = SAVED / release
    verdict = offline("backup", "verify", str(folder), "-j")
    assert (verdict.code, verdict.json["whole"]) == (0, True)
    assert verdict.json["backups"][0]["checks"][0]["detail"] == "none: it was not made by natsctl"
    listed = offline("backup", "ls", str(folder), "-j")
    version = 1 if release in ("0.1.6", "0.2.4") else 2
    assert (listed.code, {one["archive"] for one in listed.json}) == (0, {version})
    orders = str(folder / "ORDERS")
    assert [one["seq"] for one in offline("backup", "cat", orders, "-j").lines] == SEQUENCES
    assert offline("backup", "cat", orders, "--seq", "4", "--raw").out.strip() == "order 4 of the day"
    (consumer,) = offline("backup", "inspect", orders, "-j").json["consumers"]
    assert (consumer["name"], consumer["ack_floor"], consumer["pending"]) == ("NEW", 2, 0)


@pytest.mark.parametrize("release", TOOL_RELEASES)
def test_backups_of_each_release_of_the_tool_are_restored(natsctl: Run, release: str) -> None:
    if release == "0.1.6":
        assert natsctl("str", "restore", str(SAVED / release / "ORDERS"), "-j").code == 0
    else:
        assert natsctl("account", "restore", str(SAVED / release), "-j").code == 0
        assert natsctl("kv", "get", "CONFIG", "a", "--raw").out.strip() == "b"
    state = natsctl("str", "info", "ORDERS", "-j").json["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (5, 1, 6)
    assert natsctl("con", "next", "ORDERS", "NEW", "--raw").out.strip() == "order 4 of the day"


@pytest.mark.reference("nats")
def test_the_tool_validates_and_restores_what_was_saved_here(natsctl: Run, tmp_path: Path) -> None:
    assert natsctl("str", "restore", str(SAVED / "0.5.1" / "ORDERS"), "-j").code == 0
    target = tmp_path / "ORDERS"
    assert natsctl("str", "backup", "ORDERS", str(target)).code == 0
    assert (target / "stream.arc.s2").exists()

    assert "OK: 8 entries, 1 consumers, 5 messages" in _nats("backup", "validate", str(target))
    assert "First Sequence: 1" in _nats("backup", "info", str(target))
    assert natsctl("str", "rm", "ORDERS", "-f").code == 0
    _nats("backup", "restore", "stream", str(target), "--no-progress")
    assert natsctl("str", "info", "ORDERS", "-j").json["state"]["messages"] == 5


def test_an_edited_backup_is_valid_for_the_tool(offline: Run, tmp_path: Path) -> None:
    target = tmp_path / "FEW"
    edit = ("backup", "edit", str(SAVED / "0.2.4" / "ORDERS"), str(target), "--seq", "2-4")
    assert [offline(*edit).code for _ in range(2)] == [0, 2], "a backup that exists is not replaced"
    assert json.loads((target / "manifest.json").read_text())["files"][1]["name"] == "stream.arc.s2"
    assert offline("backup", "verify", str(target)).code == 0
    said = offline("backup", "info", str(target), "--subjects", "-j").json
    assert (said["consumers"], said["messages"], said["subjects"]) == (["NEW"], 2, {"ORDERS.new": 2})
    assert said["edit"]["options"] == ["first-seq=2", "last-seq=4"]
    assert "Source Digest: sha256:" in offline("backup", "info", str(target), "--subjects").out
    valid = offline("backup", "validate", str(target))
    assert (valid.code, valid.out) == (0, "OK: 5 entries, 1 consumers, 2 messages, 1 subjects, sequences 2 to 4\n")
    (target / "stream.arc.s2").write_bytes((target / "stream.arc.s2").read_bytes()[:-9])
    assert offline("backup", "validate", str(target)).code == 1


FILTERS = {
    "": [1, 2, 4, 5, 6],
    "--first-seq 2 --last-seq 5": [2, 4, 5],
    "--exclude-subject ORDERS.*": [],
    "--after 2026-11-23T03:43:04.465134005Z --before 2026-11-23T03:43:04.80362175Z": [2],
    "--header kind": [1, 2, 4, 5, 6],
    "--header Kind:large --header Other": [],
    "--exclude-header KIND": [],
    "--payload-match 'order [125]' --exclude-payload-match 2": [1, 5],
    "--last-per-subject 2 --last-seq 5": [4, 5],
    "--subject ORDERS.new --renumber --first-seq 3": [1, 2, 3],
}


@pytest.mark.parametrize("flags", FILTERS)
def test_an_edit_keeps_what_its_flags_say(offline: Run, tmp_path: Path, flags: str) -> None:
    source, target = str(SAVED / "0.5.1" / "ORDERS"), str(tmp_path / "made")
    done = offline("backup", "edit", source, target, *shlex.split(flags), "-j")
    assert (done.code, done.json["messages"]) == (0, len(FILTERS[flags])), done
    assert [one["seq"] for one in offline("backup", "cat", target, "-j").lines] == FILTERS[flags]


@pytest.mark.reference("nats")
def test_an_edit_keeps_what_the_tool_keeps(offline: Run, tmp_path: Path) -> None:
    source = str(SAVED / "0.5.1" / "ORDERS")
    for number, flags in enumerate(FILTERS):
        ours, theirs = str(tmp_path / f"ours{number}"), str(tmp_path / f"theirs{number}")
        valid = offline("backup", "edit", source, ours, *shlex.split(flags), "-j")
        _nats("backup", "edit", source, theirs, *shlex.split(flags), "--no-progress")
        known = [offline("backup", "info", path, "--subjects", "-j").json for path in (ours, theirs)]
        for one in known:
            one["declared"], one["edit"]["version"] = {}, ""  # an edit of the tool counts there what it likes
        assert known[0] == known[1], (flags, valid)
        assert _nats("backup", "validate", ours, "--no-progress") == offline("backup", "validate", ours).out


def test_a_bucket_is_compacted_to_its_newest_values(natsctl: Run, tmp_path: Path) -> None:
    for line in ("kv add B --history 5", "kv put B a 1", "kv put B a 2", "kv put B b x", "kv del B b -f"):
        assert natsctl(*line.split()).code == 0, line
    source, target = str(tmp_path / "B"), str(tmp_path / "small")
    assert natsctl("backup", "stream", "KV_B", source).code == 0
    dry = natsctl("backup", "edit", source, target, "--kv-compact", "--dry-run")
    assert ("Dry Run, Nothing Was Written" in dry.out, Path(target).exists()) == (True, False)
    done = natsctl("backup", "edit", source, target, "--kv-compact", "-j").json
    assert (done["picked"]["source_messages"], done["picked"]["dropped"]["kv_compact"], done["messages"]) == (4, 3, 1)
    assert [one["seq"] for one in natsctl("backup", "cat", target, "-j").lines] == [2]
    lost = natsctl("backup", "edit", source, f"{target}2", "--payload-match", "^x$", "-j").json
    assert (lost["picked"]["tombstones_dropped"], lost["picked"]["dropped"]["payload"]) == (1, 3)
