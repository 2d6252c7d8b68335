"""Damaged backups of every form: truncated, with flipped bits, with bytes appended, and how commands end on them."""

import gzip
import json
import os
import random
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from natsctl.api.archive.s2 import FrameReader
from natsctl.testing.process import ServerProcess
from tests.support import tiers
from tests.support.commands import Done, Run

DATA = Path(__file__).parents[2] / "jetstream" / "data"
PLACES = 200
"""Truncations, and flipped bits, in all at full size; each form gets its share."""
RESTORED = int(os.environ.get("NATSCTL_DAMAGES", "1"))
"""Truncations, and flipped bits, of each form that are restored too; 34 makes the 200 of all forms."""
APPENDED = [
    b"\0", bytes(512), bytes(10240), b"x", b"\xfe\x04\x00\x00\0\0\0\0", b"\xff\x06\x00\x00sNaPpY", gzip.compress(b""),
]  # fmt: skip
"""Zeros, text, padding and the beginning of a stream as S2 frames them, and an empty member of gzip."""


class Form(NamedTuple):
    """A good backup: the path that commands are given, and the file in it that is damaged."""

    path: Path
    file: Path


def _of_nats(folder: Path, version: str, name: str) -> Form:
    folder.mkdir()
    meta = json.loads((DATA / "releases" / f"{version}.json").read_text())
    (folder / "backup.json").write_text(json.dumps({"config": meta["config"], "state": meta["state"]}))
    shutil.copy(DATA / "releases" / f"{version}.s2", folder / name)
    return Form(folder, folder / name)


def _of_a_server(folder: Path) -> Form:
    tar = b"".join(FrameReader().read((DATA / "reference_v1_S.s2").read_bytes()))
    path = folder / "files.tgz"
    path.write_bytes(gzip.compress(tar))
    return Form(path, path)


@pytest.fixture
def forms(offline: Run, tmp_path: Path) -> dict[str, Form]:
    """Good backups, by form: of the nats tool, of natsctl, and of a server's own files."""
    first = _of_nats(tmp_path / "v1", "2.10.29", "stream.tar.s2")
    made = {"v1": first, "v2": _of_nats(tmp_path / "v2", "2.15.2", "stream.arc.s2"), "server": _of_a_server(tmp_path)}
    for name in ("directory", "one.tgz", "one.tar"):
        path = tmp_path / name
        assert offline("backup", "edit", str(first.path), str(path)).code == 0
        made[name] = Form(path, path / "stream.arc.s2" if path.is_dir() else path)
    return made


def _damaged(form: Form, name: str, chance: random.Random, share: int) -> Iterator[tuple[str, bytes]]:
    whole = form.file.read_bytes()
    for at in chance.sample(range(len(whole)), share):
        yield f"{name}: cut at {at}", whole[:at]
    for at in chance.sample(range(len(whole)), share):
        yield (
            f"{name}: a bit flipped at {at}",
            whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :],
        )
    for more in APPENDED:
        yield f"{name}: {more[:12]!r} appended", whole + more


def _differs(whole: bytes, damaged: bytes) -> bool:
    """Tell whether damage changes what a file holds; gzip has bits without a meaning, such as its time."""
    try:
        return gzip.decompress(damaged) != gzip.decompress(whole) or len(damaged) != len(whole)
    except (OSError, EOFError, zlib.error):
        return True


@pytest.mark.sized
@pytest.mark.parametrize("name", ["v1", "v2", "server", "directory", "one.tgz", "one.tar"])
def test_damage_ends_neither_as_success_nor_as_an_interruption(offline: Run, forms: dict[str, Form], name: str) -> None:
    form = forms[name]
    whole = form.file.read_bytes()
    words = [("verify", str(form.path), "-j"), ("ls", str(form.path), "-j"), ("cat", str(form.path), "--raw")]
    assert [offline("backup", *each).code for each in words] == [0, 0, 0], name
    for what, damaged in _damaged(form, name, random.Random(name), -(-tiers.sized(40, PLACES) // len(forms))):
        form.file.write_bytes(damaged)
        wrong = _differs(whole, damaged)
        for each in words:
            done = offline("backup", *each)
            assert (done.code in (1, 2)) == wrong, (what, each, done)
            assert not wrong or done.err or any(one.get("error") or not one.get("whole", True) for one in _rows(done))


def _rows(done: Done) -> list[dict[str, object]]:
    return list(done.json["backups"] if isinstance(done.json, dict) else done.json)


def test_one_damaged_backup_does_not_silence_the_others(offline: Run, forms: dict[str, Form], tmp_path: Path) -> None:
    for name in ("v2", "one.tgz"):
        forms[name].file.write_bytes(forms[name].file.read_bytes()[:-40])
    done = offline("backup", "verify", str(tmp_path), "-j")
    assert done.code == 1
    assert {Path(one["path"]).name: one["whole"] for one in done.json["backups"]} == {
        "v1": True, "v2": False, "directory": True, "files.tgz": True, "one.tar": True, "one.tgz": False
    }  # fmt: skip
    page = offline("backup", "verify", str(tmp_path))
    assert (page.code, "incomplete" in page.out, page.out.count("WRONG")) == (1, True, 2)
    assert offline("backup", "ls", str(tmp_path)).code == 1


@pytest.fixture
def url(shared_server: ServerProcess) -> str:
    """Where the server is; the commands that made the forms ran where none is."""
    return shared_server.url


@pytest.mark.parametrize("name", ["v1", "v2", "server", "directory", "one.tgz", "one.tar"])
def test_restoring_what_is_damaged_makes_nothing(
    forms: dict[str, Form], natsctl: Run, monkeypatch: pytest.MonkeyPatch, url: str, name: str
) -> None:
    monkeypatch.setenv("NATS_URL", url)
    form = forms[name]
    whole = form.file.read_bytes()
    for what, damaged in _damaged(form, name, random.Random(f"restore {name}"), RESTORED):
        form.file.write_bytes(damaged)
        done = natsctl("str", "restore", str(form.path), "-j")
        if _differs(whole, damaged):
            assert (done.code in (1, 2), done.out) == (True, ""), (what, done)
            assert done.error["description"]
        else:
            assert done.code == 0, (what, done)
            assert natsctl("str", "rm", done.json["config"]["name"], "-f").code == 0
    assert natsctl("str", "ls", "-a", "-n").out == ""
    form.file.write_bytes(whole)
    assert natsctl("str", "restore", str(form.path), "-j").code == 0
