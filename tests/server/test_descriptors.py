"""Clients cannot take the descriptors that the store needs."""

import json
import resource
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from natsctl.server.resources import MAX_CLIENTS, MAX_OPEN_STREAMS, descriptor_shares

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
    assert server.stderr is not None
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
