"""Commands without a server share the embedded one, and outlive the command that owns it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

NATSCTL = [sys.executable, "-m", "natsctl"]


class Subscriber:
    """`natsctl sub SUBJECT` in a process of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.out = folder / name
        environment = {**os.environ, "NATSCTL_DATA": str(folder / "data")}
        with self.out.open("wb") as out:
            self.process = subprocess.Popen([*NATSCTL, "sub", "demo"], stdout=out, stderr=out, env=environment)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 60
        while text not in self.out.read_text():
            assert time.monotonic() < deadline, self.out.read_text()
            assert self.process.poll() is None, self.out.read_text()
            time.sleep(0.02)

    def end(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(60)


def publish(folder: Path, text: str) -> None:
    environment = {**os.environ, "NATSCTL_DATA": str(folder / "data")}
    subprocess.run([*NATSCTL, "pub", "demo", text], check=True, capture_output=True, env=environment, timeout=60)


@pytest.mark.live
@pytest.mark.timeout(400)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_long_running_command_goes_on_when_the_owner_of_its_server_ends(
    tmp_path: Path, number: signal.Signals
) -> None:
    owner = Subscriber(tmp_path, "owner")
    guest = None
    try:
        owner.wait_for("Subscribing")
        guest = Subscriber(tmp_path, "guest")
        guest.wait_for("Subscribing")
        publish(tmp_path, "before")
        owner.wait_for("before")
        guest.wait_for("before")
        owner.end(number)
        deadline = time.monotonic() + 60
        while "after" not in guest.out.read_text() and time.monotonic() < deadline:
            publish(tmp_path, "after")
            time.sleep(0.1)
        guest.wait_for("after")
    finally:
        owner.end(signal.SIGKILL)
        if guest is not None:
            guest.end(signal.SIGINT)
