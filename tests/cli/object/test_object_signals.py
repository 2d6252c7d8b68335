"""An upload that is ended from outside clears away what it has stored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from natsctl.testing.process import ServerProcess

Run = Callable[..., Any]
WITHIN_S = 60
CHUNK_BYTES = 128 * 1024


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_no_chunk_behind(
    natsctl: Run, shared_server: ServerProcess, number: signal.Signals, status: int
) -> None:
    natsctl("obj", "add", "F")
    words = [sys.executable, "-m", "natsctl", "obj", "put", "F", "-", "--name", "f"]
    environment = {**os.environ, "NATS_URL": shared_server.url}
    with subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        process.stdin.write(bytes(3 * CHUNK_BYTES))
        process.stdin.flush()
        until_s = time.monotonic() + WITHIN_S
        while natsctl("obj", "info", "F", "-j").json["stream_info"]["state"]["messages"] < 2:
            assert time.monotonic() < until_s, "nothing was stored"
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(WITHIN_S) == status
    assert natsctl("obj", "info", "F", "-j").json["stream_info"]["state"]["messages"] == 0
