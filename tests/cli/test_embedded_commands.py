"""Commands that were told of no server: they share the embedded one on the user's data folder, whatever happens."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from natsctl.testing.process import ServerProcess

WITHIN_S = 40


class Alone:
    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.environment = {**os.environ, "NATSCTL_DATA": str(self.data)}
        self.running: list[subprocess.Popen[str]] = []

    def start(self, line: str, **environment: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [sys.executable, "-m", "natsctl", *shlex.split(line)],
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )
        self.running.append(process)
        return process

    def __call__(self, line: str, code: int = 0, **environment: str) -> tuple[str, str]:
        process = self.start(line, **environment)
        out, err = process.communicate(timeout=WITHIN_S)
        assert process.returncode == code, f"{line}\n{out}\n{err}"
        return out, err


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Alone]:
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", 4222)) == 0:
            pytest.skip("a server listens on the default port")
    one = Alone(tmp_path)
    yield one
    for process in one.running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _ready(process: subprocess.Popen[str], mark: str) -> None:
    assert process.stderr is not None
    while mark not in (line := process.stderr.readline()):
        assert line, "it ended"


def test_commands_one_after_the_other_share_the_data_and_say_where(alone: Alone) -> None:
    _, told = alone('str add ORDERS --subjects "ORDERS.*"')
    announced = f"using the embedded server on {alone.data}"
    assert told.splitlines().count(announced) == 1
    for line in (
        "pub ORDERS.new hello",
        "con add ORDERS C --pull",
        "con next ORDERS C",
        "str ls",
        "req ORDERS.new again",
    ):
        out, told = alone(line)
        assert told.splitlines().count(announced) == 1, told
        assert announced not in out
    out, told = alone("str info ORDERS -j")
    assert (json.loads(out)["state"]["messages"], told) == (2, "")
    out, told = alone("str info NOPE -j", code=3)
    assert (out, json.loads(told)["error"]["err_code"]) == ("", 10059)


@pytest.mark.live
def test_commands_at_once_share_one_server(alone: Alone) -> None:
    alone("str add S --subjects s -j")
    publishers = [alone.start("pub s x -J -q --count 20") for _ in range(4)]
    for process in publishers:
        _, err = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 0, err
    assert json.loads(alone("str info S -j")[0])["state"]["messages"] == 80


@pytest.mark.live
def test_who_listens_long_hears_commands_that_come_and_go(alone: Alone) -> None:
    listener = alone.start("sub s --count 3 --wait 30s --raw")
    time.sleep(0.1)
    alone("str add S --subjects s -j")
    while listener.poll() is None:
        alone("pub s heard -q")
    out, err = listener.communicate()
    assert (listener.returncode, out) == (0, "heard\n" * 3), err


@pytest.mark.live
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_listener_outlives_the_owner_and_no_stored_message_is_lost(alone: Alone, number: signal.Signals) -> None:
    alone("str add S --subjects s -j")
    owner = alone.start("sub other")
    _ready(owner, "Subscribing on other")
    listener = alone.start("sub s --wait 30s")
    _ready(listener, "Subscribing on s")
    alone("pub s before -J -q")
    owner.send_signal(number)
    owner.communicate()
    heard = threading.Event()

    def listen() -> None:
        assert listener.stdout is not None
        if "after\n" in iter(listener.stdout.readline, ""):
            heard.set()

    threading.Thread(target=listen, daemon=True).start()
    sent = 0
    while not heard.is_set():  # what is published before the listener is back is stored, not heard
        alone("pub s after -J -q")
        sent += 1
        assert listener.poll() is None
    listener.send_signal(signal.SIGINT)
    _, err = listener.communicate(timeout=WITHIN_S)
    assert listener.returncode == 130, err
    assert json.loads(alone("str info S -j")[0])["state"]["messages"] == 1 + sent


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address where nobody listens, and nobody can begin to."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def test_a_named_server_is_never_replaced(alone: Alone, nowhere: str) -> None:
    folder = Path(os.environ["XDG_CONFIG_HOME"]) / "nats"
    (folder / "context").mkdir(parents=True)
    (folder / "context" / "gone.json").write_text(json.dumps({"url": nowhere}))
    (folder / "context" / "plain.json").write_text("{}")
    for line, environment in (
        (f"str ls -s {nowhere}", {}),
        ("str ls", {"NATS_URL": nowhere}),
        ("str ls --context gone", {}),
        ("str ls --context plain", {}),
        ("str ls", {"NATS_CONTEXT": "gone"}),
    ):
        _, err = alone(line, code=5, **environment)
        assert "nothing listens" in err
    (folder / "context.txt").write_text("gone")
    assert "selected context gone" in alone("str ls", code=5)[1]
    assert not alone.data.exists()
    alone("str ls --no-context")
    assert alone.data.exists()


def test_flags_environment_and_contexts_in_their_order(alone: Alone, tmp_path: Path) -> None:
    folder = Path(os.environ["XDG_CONFIG_HOME"]) / "nats"
    (folder / "context").mkdir(parents=True)
    with (
        ServerProcess(tmp_path / "a", "natsctl", "--user", "app", "--pass", "secret") as a,
        ServerProcess(tmp_path / "b", "natsctl") as b,
    ):
        # Every key that the nats tool writes, most of them empty.
        keys = "description url socks_proxy token user password creds nkey cert key ca nsc jetstream_domain"
        keys += " jetstream_api_prefix jetstream_event_prefix inbox_prefix user_jwt user_seed color_scheme"
        context: dict[str, Any] = dict.fromkeys(keys.split(), "")
        context |= {"url": a.url, "user": "app", "password": "secret", "tls_first": False}
        (folder / "context" / "a.json").write_text(json.dumps(context))
        (folder / "context.txt").write_text("a\n")
        alone("str add A --subjects a -j")
        alone("str add B --subjects b -j", NATS_URL=b.url)
        for line, environment, found in (
            ("str ls -n", {}, "A"),
            ("str ls -n --context a", {}, "A"),
            ("str ls -n", {"NATS_CONTEXT": "a"}, "A"),
            ("str ls -n --no-context", {"NATS_URL": b.url}, "B"),
            ("str ls -n", {"NATS_URL": b.url}, "B"),
            (f"str ls -n -s {b.url}", {"NATS_URL": a.url, "NATS_CONTEXT": "a"}, "B"),
            (f"str ls -n --context {folder}/context/a.json", {}, "A"),
        ):
            assert alone(line, **environment)[0] == f"{found}\n", line
    assert not alone.data.exists()
