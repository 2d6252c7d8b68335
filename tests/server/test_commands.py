"""Processes that are started: their command line, their descriptors, and what they may use of the disk."""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from natsctl.server.resources import MAX_CLIENTS, MAX_OPEN_STREAMS, default_max_storage, descriptor_shares


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "natsctl", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [["server", "run", "-v"], ["srv", "run", "--version"]])
def test_flags_of_the_reference_server_reach_it(words: list[str]) -> None:
    done = run(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"nats-server: v2\.15\.2 \(natsctl [0-9.]+\)\n", done.stdout)


@pytest.mark.parametrize("module", ["typer", "typing_extensions"])
def test_the_server_does_not_load(module: str) -> None:
    """Who needs one of them afterwards gets it: msgspec looks for the second, and does without."""
    code = "import sys; from natsctl.cli.main import run; run(['server', 'run', '-v']); "
    code += f"assert 'msgspec' in sys.modules and {module!r} not in sys.modules; import {module}"
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


LIMIT = 128


@pytest.mark.parametrize("limit", [64, 1024, 20_000, 1_000_000, resource.RLIM_INFINITY])
def test_shares_leave_room_for_each_other(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    clients, streams = descriptor_shares()
    assert 0 < clients <= MAX_CLIENTS and 8 <= streams <= MAX_OPEN_STREAMS
    assert limit == resource.RLIM_INFINITY or clients + 2 * streams + 16 <= limit


def talk(sock: socket.socket, *lines: bytes) -> bytes:
    sock.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB i 1\r\n' + b"".join(lines))
    got = b""
    while b"}\r\n" not in got.partition(b"MSG i ")[2]:
        got += sock.recv(1 << 16)
    return got.partition(b"MSG i ")[2]


def test_streams_are_created_and_written_while_clients_take_every_connection(tmp_path: Path) -> None:
    flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(tmp_path), "--ports_file_dir", str(tmp_path)]
    start = f"import resource,sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT})); "
    start += "from natsctl.server.process.process import main; sys.exit(main(sys.argv[1:]))"
    server = subprocess.Popen([sys.executable, "-c", start, *flags], stderr=subprocess.PIPE)
    with ExitStack() as open_sockets:
        open_sockets.callback(server.stderr.close)
        open_sockets.callback(server.kill)
        while b"Server is ready" not in server.stderr.readline():
            assert server.poll() is None
        port = int(json.loads(next(tmp_path.glob("*.ports")).read_text())["nats"][0].rpartition(":")[2])
        socks = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(LIMIT)]
        for sock in socks:
            open_sockets.enter_context(sock)
            sock.recv(5)
        body = b'{"name":"A","subjects":["a"]}'
        created = talk(socks[0], b"PUB $JS.API.STREAM.CREATE.A i %d\r\n%s\r\n" % (len(body), body))
        assert b'"created"' in created
        assert b'"seq":1' in talk(socks[1], b"PUB a i 2\r\nhi\r\n")
        assert b"maximum connections exceeded" in socks[-1].recv(1 << 16)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


DISK_BYTES = 100 << 20


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk of 100 MiB that holds what is below the test's folder."""

    def statvfs(_: Path) -> SimpleNamespace:
        used = sum(path.stat().st_blocks * 512 for path in tmp_path.rglob("*") if path.is_file())
        return SimpleNamespace(f_bavail=DISK_BYTES - used, f_frsize=1)

    monkeypatch.setattr(os, "statvfs", statvfs)


@pytest.mark.usefixtures("small_disk")
def test_what_is_stored_does_not_lower_the_limit_at_a_restart(tmp_path: Path) -> None:
    segment = tmp_path / "store" / "jetstream" / "streams" / "s000001" / "1.seg"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(b"x" * (60 << 20))
    assert default_max_storage(tmp_path / "store" / "jetstream") == DISK_BYTES * 3 // 4


@pytest.mark.usefixtures("small_disk")
def test_what_others_store_on_the_disk_lowers_the_limit(tmp_path: Path) -> None:
    (tmp_path / "others").write_bytes(b"x" * (60 << 20))
    (tmp_path / "store").mkdir()
    others = (tmp_path / "others").stat().st_blocks * 512
    assert default_max_storage(tmp_path / "store") == (DISK_BYTES - others) * 3 // 4
