"""Files that are written whole or not at all, and what is no file."""

import os
import threading
from pathlib import Path

import pytest

from natsctl.client.atomic_file import atomic_write, is_special


def test_a_file_has_its_name_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")
    with atomic_write(path, 0o600) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)
    assert list(tmp_path.glob(".natsctl-*")) == []


def test_nothing_is_left_of_what_failed(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(ValueError, match="half"), atomic_write(path) as file:
        file.write(b"ha")
        raise ValueError("half of it")
    assert (path.exists(), list(tmp_path.glob(".natsctl-*"))) == (False, [])


def test_what_a_link_leads_to_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    target, link = tmp_path / "elsewhere.yaml", tmp_path / "link.yaml"
    target.write_text("old")
    link.symlink_to(target)
    with atomic_write(link) as file:
        file.write(b"new")
    assert (link.is_symlink(), target.read_text()) == (True, "new")


def test_a_pipe_gets_what_is_written_and_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_bytes()), daemon=True)
    reader.start()
    with atomic_write(pipe) as file:
        file.write(b"new")
    reader.join(10)
    assert (heard, is_special(pipe)) == ([b"new"], True)


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"), atomic_write(tmp_path) as file:
        file.write(b"new")
    assert tmp_path.is_dir()
