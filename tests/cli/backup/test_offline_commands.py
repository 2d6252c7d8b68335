"""`backup verify`, `ls`, `inspect`, `cat` and `edit`: what backups of any form tell without a server."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.archive.s2 import FrameReader
from tests.support.commands import Done

Run = Callable[..., Done]

DATA = Path(__file__).parents[2] / "jetstream" / "data"
RELEASES = ["2.9.25", "2.10.29", "2.11.12", "2.12.4", "2.15.2"]


def _directory(folder: Path, archive: Path, meta: Path) -> Path:
    folder.mkdir(parents=True)
    shutil.copy(archive, folder / "stream.tar.s2")
    said = json.loads(meta.read_text())
    (folder / "backup.json").write_text(json.dumps({"config": said["config"], "state": said["state"]}))
    return folder


def _release(folder: Path, version: str) -> Path:
    return _directory(folder, DATA / "releases" / f"{version}.s2", DATA / "releases" / f"{version}.json")


def _v1(folder: Path) -> Path:
    return _directory(folder, DATA / "reference_v1_S.s2", DATA / "reference_v1_S.json")


@pytest.mark.parametrize("version", RELEASES)
def test_backups_of_every_release_are_read(offline: Run, tmp_path: Path, version: str) -> None:
    path = str(_release(tmp_path / "b", version))
    verdict = offline("backup", "verify", path, "-j")
    assert verdict.code == 0, verdict.out
    found = offline("backup", "inspect", path, "-j").json
    assert found["messages"] == found["state"]["messages"] > 0
    assert sum(one["messages"] for one in found["subjects"]) == found["messages"]
    lines = [json.loads(line) for line in offline("backup", "cat", path, "-j").out.splitlines()]
    assert [lines[0]["seq"], lines[-1]["seq"]] == [
        found["state"]["first_seq"],
        max(line["seq"] for line in lines),
    ]
    assert len(lines) == found["messages"]


def test_consumers_are_told_with_what_they_wait_for(offline: Run, tmp_path: Path) -> None:
    consumers = offline("backup", "inspect", str(_v1(tmp_path / "b")), "-j").json["consumers"]
    assert all(one["delivered"] >= one["ack_floor"] and one["config"] for one in consumers)
    page = offline("backup", "inspect", str(tmp_path / "b")).out
    assert all(f"{one['name']}: delivered" in page for one in consumers)


def test_checksums_find_what_the_archive_can_not_tell(offline: Run, tmp_path: Path) -> None:
    source = str(_v1(tmp_path / "b"))
    made = tmp_path / "made"
    assert offline("backup", "edit", source, str(made)).code == 0
    assert offline("backup", "verify", str(made)).code == 0
    meta = made / "backup.json"
    meta.write_text(meta.read_text().replace('"max_age": 0', '"max_age": 1'))
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


def test_an_edited_backup_has_what_was_picked_under_the_other_name(offline: Run, tmp_path: Path) -> None:
    path = str(_v1(tmp_path / "b"))
    lines = [json.loads(line) for line in offline("backup", "cat", path, "-j").out.splitlines()]
    subject = lines[0]["subject"]
    wanted = [line for line in lines if line["subject"] == subject]
    for archive in ("1", "2"):
        target = str(tmp_path / f"made{archive}")
        made = offline(
            "backup", "edit", path, target, "--name", "OTHER", "--subject", subject, "--archive", archive, "-j"
        )
        assert made.code == 0, made.err
        assert (made.json["stream"], made.json["messages"]) == ("OTHER", len(wanted))
        got = [json.loads(line) for line in offline("backup", "cat", target, "-j").out.splitlines()]
        assert got == wanted
        assert offline("backup", "verify", target).code == 0
    planned = offline("backup", "edit", path, str(tmp_path / "not"), "--subject", subject, "--dry-run", "-j")
    assert (planned.json["effect"]["messages"], (tmp_path / "not").exists()) == (len(wanted), False)
    assert offline("backup", "edit", path, str(tmp_path / "made1")).code == 2


def test_names_and_bodies_can_not_drive_a_terminal(offline: Run, tmp_path: Path) -> None:
    path = _v1(tmp_path / "b")
    said = json.loads((path / "backup.json").read_text())
    said["config"]["description"] = "\x1b[2Jgone"
    (path / "backup.json").write_text(json.dumps(said))
    assert "\x1b" not in offline("backup", "inspect", str(path)).out
