"""Processes that are forked instead of started tell, take and end as those that Python starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from natsctl.testing.process import ServerProcess
from tests.support import commands, forkserver

NATSCTL = [sys.executable, "-m", "natsctl"]
WITHIN_S = 30

Ended = tuple[int, bytes, bytes]


def both(run: Callable[[], Ended]) -> tuple[Ended, Ended]:
    """What a run tells when its process is forked, and when it is started."""
    forked = run()
    with forkserver.left_alone():
        return forked, run()


def ran(*words: str | bytes, stdin: bytes = b"", **environment: str) -> Ended:
    done = subprocess.run(
        [*NATSCTL, *words], input=stdin, capture_output=True, env={**os.environ, **environment}, timeout=WITHIN_S
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    [["--help"], ["frob"], ["pub"], ["str", "ls", "-s", "127.0.0.1:1"], ["pub", b"\xe9", "x", "-s", "127.0.0.1:1"]],
    ids=repr,
)
def test_a_forked_command_ends_and_tells_as_one_that_was_started(words: list[str | bytes]) -> None:
    forked, started = both(lambda: ran(*words))
    assert forked == started
    assert forked[1] or forked[2]


def test_nothing_is_started_where_a_command_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*given: object) -> None:
        raise AssertionError("a process was started")

    forkserver.fork_server()
    monkeypatch.setattr(forkserver._Popen, "_execute_child", never)
    assert ran("--version")[0] == 0
    with pytest.raises(AssertionError), forkserver.left_alone():
        ran("--version")


@pytest.mark.parametrize("name", ["PYTHONIOENCODING", "LC_ALL", "LANG"])
def test_an_environment_that_python_reads_when_it_starts_is_left_to_python(name: str) -> None:
    assert forkserver.fork_server().takes([*NATSCTL, "str"], os.environ)
    assert not forkserver.fork_server().takes([*NATSCTL, "str"], {**os.environ, name: "C.ascii"})
    assert not forkserver.fork_server().takes([sys.executable, "-X", "dev", "-m", "natsctl"], os.environ)
    assert not forkserver.fork_server().takes(["sh", "-c", "natsctl"], os.environ)


def test_environment_folder_and_standard_input_are_its_own(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    url = {**os.environ, "NATS_URL": server.url}
    for words, stdin, folder in (
        (["str", "add", "S", "--subjects", "s"], b"", None),
        (["pub", "s", "-J", "--quiet"], b"from a pipe", None),
        (["backup", "saved"], b"", tmp_path / "here"),
    ):
        done = subprocess.run([*NATSCTL, *words], input=stdin, env=url, cwd=folder, capture_output=True)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "here" / "saved" / "stream_S.json").exists()
    raw = subprocess.run([*NATSCTL, "str", "get", "S", "1", "--raw"], env=url, capture_output=True)
    assert raw.stdout == b"from a pipe"
    with pytest.raises(FileNotFoundError):
        subprocess.run([*NATSCTL, "str", "ls"], cwd=tmp_path / "nowhere")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_a_forked_command_as_one_that_was_started(server: ServerProcess, number: int) -> None:
    def run() -> Ended:
        words = [*NATSCTL, "sub", "a", "-s", server.url]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            assert b"Subscribing" in process.stderr.readline()
            assert process.stdout is not None
            process.send_signal(number)
            err, out = process.stderr.read(), process.stdout.read()  # `communicate` would pass over what is read ahead
        return process.returncode, out, err

    forked, started = both(run)
    assert forked == started


def test_a_full_disk_is_a_failure_of_both(server: ServerProcess) -> None:
    def run() -> Ended:
        with open("/dev/full", "wb") as full:  # noqa: PTH123  # a device, not a file
            words = [*NATSCTL, "account", "info", "-j", "-s", server.url]
            done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, timeout=WITHIN_S)
        return done.returncode, b"", done.stderr

    forked, started = both(run)
    assert forked == started
    assert forked[0] == 1


def test_a_command_at_a_terminal_sees_its_size_and_a_signal_from_its_keys(server: ServerProcess) -> None:
    def run() -> tuple[bytes, int]:
        words = [*NATSCTL, "sub", "a", "-s", server.url]
        child = commands.spawn(words, env={**os.environ, "TERM": "xterm"}, dimensions=(7, 61), timeout=WITHIN_S)
        child.expect("Subscribing")
        assert os.tcgetpgrp(child.child_fd) == child.pid
        child.sendintr()
        child.expect(commands.ended())
        child.close()
        return child.before, child.exitstatus

    def page() -> str:
        child = commands.spawn([*NATSCTL, "str", "--help"], env={**os.environ, "TERM": "xterm"}, dimensions=(7, 61))
        child.expect(commands.ended(), timeout=WITHIN_S)
        child.close()
        return str(child.before)

    for show in (run, page):
        forked = show()
        with forkserver.left_alone():
            assert show() == forked
    assert max(map(len, page().splitlines())) in range(50, 62)


def test_nothing_is_started_where_a_command_is_forked_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ptyprocess = pytest.importorskip("ptyprocess")
    monkeypatch.setattr(ptyprocess.PtyProcess, "spawn", None)
    commands.spawn([*NATSCTL, "--version"], env=dict(os.environ)).close()
    with pytest.raises(TypeError), forkserver.left_alone():
        commands.spawn([*NATSCTL, "--version"], env=dict(os.environ))
