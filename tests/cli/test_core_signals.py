"""What a signal leaves behind: nothing, and the right exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

INFO = b'INFO {"server_id":"F","version":"2.10.29","max_payload":1048576,"headers":true,"proto":1}\r\n'
SNAPSHOT = b'{"config":{"name":"ORDERS"},"state":{"bytes":1000}}'


@pytest.fixture
def stalled() -> Iterator[str]:
    """The address of a server that begins a snapshot and never sends a chunk of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener,), daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def _serve(listener: socket.socket) -> None:
    client, _ = listener.accept()
    sids: dict[bytes, bytes] = {}
    with contextlib.suppress(OSError), client, client.makefile("rb") as lines:  # whoever is interrupted hangs up
        client.sendall(INFO)
        for line in lines:
            words = line.split()
            if words[0] == b"PING":
                client.sendall(b"PONG\r\n")
            elif words[0] == b"SUB":
                sids[words[1].rstrip(b"*")] = words[-1]
            elif words[0] == b"PUB":
                lines.read(int(words[-1]) + 2)
                sid = next(sid for inbox, sid in sids.items() if words[2].startswith(inbox))
                client.sendall(b"MSG %b %b %d\r\n%b\r\n" % (words[2], sid, len(SNAPSHOT), SNAPSHOT))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_backup_that_is_interrupted_leaves_nothing(
    stalled: str, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    target = tmp_path / "out" / "ORDERS.tgz"
    process = subprocess.Popen(
        [sys.executable, "-m", "natsctl", "-s", stalled, "--timeout", "20s", "str", "backup", "ORDERS", str(target)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stderr is not None
    assert "Starting backup" in process.stderr.readline()
    while len(list(target.parent.glob("*"))) != 1:  # it is told before the file is there
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (code, "")
    assert "Traceback" not in err
    assert list(target.parent.iterdir()) == []
