"""`natsctl top` against servers with a system account, and without a login for it."""

import csv
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from natsctl.testing.process import ServerProcess
from tests.support.commands import Run

CONF = """
server_name: WATCHED
accounts {
  SYS { users: [{user: sys, password: pw}] }
  APP { users: [{user: app, password: pw}] }
}
system_account: SYS
no_auth_user: app
"""


@pytest.fixture(scope="module")
def watched(shared_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("top")
    conf = folder / "server.conf"
    conf.write_text(CONF)
    with ServerProcess(folder / "store", shared_server.kind, "-c", str(conf)) as process:
        yield process


@pytest.fixture
def top(natsctl: Run, watched: ServerProcess) -> Run:
    return lambda *words: natsctl("top", *words, "-s", watched.url, "--user", "sys", "--password", "pw")


def test_a_view_tells_the_server_and_its_connections(top: Run) -> None:
    done = top("WATCHED", "-j")
    assert done.code == 0, done.err
    (view,) = done.lines
    assert (view["server"], view["rates"]) == ("WATCHED", None)
    assert view["mem"] > 0
    assert any(one["name"].startswith("natsctl") for one in view["connections"])
    shown = top()
    assert "Server WATCHED" in shown.out
    assert "Connections" in shown.out


def test_rates_are_those_since_the_view_before(top: Run) -> None:
    first, second = top("-j", "-r", "2", "-d", "100ms", "--subs").lines
    assert first["rates"] is None
    assert second["rates"]["in_msgs"] > 0
    assert second["in_msgs"] > first["in_msgs"]
    assert second["connections"][0]["subscriptions_list"]


@pytest.fixture
def probe(watched: ServerProcess) -> Iterator[None]:
    """A client that has published two messages of ten bytes each."""
    with socket.create_connection(("127.0.0.1", int(watched.url.rpartition(":")[2])), 60) as client:
        client.sendall(b'CONNECT {"name":"probe","verbose":false}\r\n' + b"PUB a 10\r\n0123456789\r\n" * 2)
        for _ in range(2):  # what came before a PING is counted when the next one is read
            client.sendall(b"PING\r\n")
            said = b""
            while b"PONG" not in said:
                said += client.recv(65536)
        yield


@pytest.mark.ours("how a view is shown")
def test_a_view_is_written_in_the_form_that_the_files_name_says(top: Run, tmp_path: Path, probe: None) -> None:
    for name in ("view.json", "view.csv", "view.txt"):
        assert top("-o", str(tmp_path / name), "-b").code == 0
    assert json.loads((tmp_path / "view.json").read_text())["server"] == "WATCHED"
    rows = list(csv.DictReader((tmp_path / "view.csv").read_text().splitlines()))
    assert rows[0]["Host"].startswith("127.0.0.1:")
    (found,) = (one for one in rows if one["Name"] == "probe")
    assert (found["Msgs From"], found["Bytes From"]) == ("2", "20")
    assert "Server WATCHED" in (tmp_path / "view.txt").read_text()


@pytest.mark.ours("how a view is shown")
def test_lines_of_values_have_the_delimiter(top: Run) -> None:
    done = top("--delimiter", ";")
    assert "Host;CID;Name" in done.out
    assert top("--delimiter", "ab").code == 2


def test_addresses_are_looked_up_when_asked(top: Run) -> None:
    (view,) = top("-j", "--lookup").lines
    assert view["connections"][0]["host"]


@pytest.mark.ours("how a view is shown")
def test_a_server_of_another_name_is_not_found(top: Run) -> None:
    done = top("WATCHE", "-j")
    assert (done.code, done.out) == (3, "")
    assert "WATCHED" in done.error["hint"]


def test_without_the_system_account_it_says_what_is_missing(natsctl: Run, watched: ServerProcess) -> None:
    done = natsctl("top", "-s", watched.url, "-j", "--timeout", "20s")
    assert (done.code, done.out) == (6, "")
    assert "system account" in done.error["hint"]


@pytest.mark.ours("how a view is shown")
def test_a_live_view_ends_with_ctrl_c_and_stays_below(person: Run, watched: ServerProcess) -> None:
    view = person("top", "-d", "0.2", "-s", watched.url, "--user", "sys", "--password", "pw")
    view.sees("Server WATCHED")
    view.sees("messages/s")
    view.child.send("\x03")
    code, seen = view.end()
    assert code == 130
    assert "Connections" in seen.rpartition("Server WATCHED")[2]


@pytest.mark.ours("how a view is shown")
def test_keys_sort_turn_and_end_it_and_the_terminal_is_as_before(person: Run, watched: ServerProcess) -> None:
    import termios

    line = (
        f"{sys.executable} -m natsctl top -d 30s -s {watched.url} --user sys --password pw; echo ended with $?; read x"
    )
    view = person("-c", line, command="sh")
    view.sees("q ends")
    view.sees(" by cid")
    fd = view.child.child_fd
    assert termios.tcgetattr(fd)[3] & (termios.ECHO | termios.ICANON) == 0
    for key, title in ((">", " by start"), ("\x1b[D", " by cid"), ("<", " by rtt")):
        view.child.send(key)
        view.sees(title)
    view.child.send("s")
    view.sees("Subscriptions")
    view.child.send("xq")
    view.child.send("q")
    view.sees("ended with 0")
    assert termios.tcgetattr(fd)[3] & (termios.ECHO | termios.ICANON) == termios.ECHO | termios.ICANON
    view.child.send("\r")
    assert view.end()[0] == 0


def test_a_new_size_of_the_terminal_is_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import signal

    from natsctl.cli.framework.live import Keyboard
    from natsctl.cli.framework.output import console

    near, far = os.openpty()
    drawn: list[str] = []

    def draw() -> None:
        drawn.append("drawn")
        os.write(near, b"q")

    with open(far, "r+b", buffering=0) as terminal:  # noqa: PTH123  # a descriptor, not a path
        monkeypatch.setattr("sys.stdin", terminal)
        with Keyboard(console(live=True)) as keyboard:
            os.kill(os.getpid(), signal.SIGWINCH)
            assert keyboard.wait(60, None, draw) is False
    os.close(near)
    assert drawn == ["drawn"]


def test_keys_that_arrive_together_are_each_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    from natsctl.cli.framework.live import Keyboard
    from natsctl.cli.framework.output import console

    near, far = os.openpty()
    pressed: list[str] = []

    def press(key: str) -> bool:
        pressed.append(key)
        return key == "b"

    with open(far, "r+b", buffering=0) as terminal:  # noqa: PTH123  # a descriptor, not a path
        monkeypatch.setattr("sys.stdin", terminal)
        with Keyboard(console(live=True)) as keyboard:
            os.write(near, b"sb\x1b[C\x1bOD")
            assert keyboard.wait(60, press, lambda: None) is True
            os.write(near, b"sq>")
            assert keyboard.wait(60, press, lambda: None) is False
    os.close(near)
    assert pressed == ["s", "b", "\x1b[C", "\x1bOD", "s"]
