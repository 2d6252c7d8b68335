"""What the server refuses is told at once, with the subject, by every command that publishes."""

import shlex
import time
from collections.abc import Iterator
from typing import Any

import pytest

from natsctl.testing.process import Kind, ServerProcess
from tests.support.commands import Done, Run

SOON_S, TIMEOUT_S = 80.0, 110
"""Well below the timeout, and enough for processes of a benchmark to start on a busy machine."""

CONFIG = """
accounts { A { jetstream: enabled, users: [
  {user: admin, password: p}
  {user: mute, password: p, permissions: {publish:
    {deny: ["s.*", "Big.Case", "$KV.B.>", "$O.>", "$SRV.>", "$JS.ACK.>"]}}}
  {user: deaf, password: p, permissions: {subscribe: {deny: ["_INBOX.>"]}}}
] } }
"""


@pytest.fixture(scope="module", params=["natsctl", "reference"])
def strict_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    kind: Kind = request.param
    folder = tmp_path_factory.mktemp("strict")
    (folder / "server.conf").write_text(CONFIG)
    with ServerProcess(folder, kind, "-c", str(folder / "server.conf")) as process:
        yield process


@pytest.fixture
def as_user(strict_server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> Run:
    from natsctl.cli.main import run as run_main

    def run(user: str, line: str) -> Any:
        capsys.readouterr()
        words = ["-s", strict_server.url, "--user", user, "--password", "p", "--timeout", f"{TIMEOUT_S}s"]
        words += [*shlex.split(line), "-j"]
        return Done(run_main(words), *capsys.readouterr())

    for line in ("str add S --subjects s.*", "con add S C --pull", "kv add B", "object add O", "pub s.a x -J"):
        run("admin", f"{line} --if-not-exists" if " add " in line else line)
    return run


@pytest.mark.parametrize(
    ("line", "subject"),
    [
        ("pub s.a x", "s.a"),
        ("pub s.a x --count 50", "s.a"),
        ("pub Big.Case x", "Big.Case"),
        ("pub s.a x -J", "s.a"),
        ("req s.a x", "s.a"),
        ("kv put B k v", "$KV.B.k"),
        ("con next S C", "$JS.ACK."),
        ("service ls", "$SRV.INFO"),
        ("bench pub s.a --msgs 5", "s.a"),
        ("bench js pub sync s.a --stream S --msgs 5", "s.a"),
        ("bench js pub async s.a --stream S --msgs 5", "s.a"),
        ("bench kv put --bucket B --msgs 5", "$KV.B."),
        ("bench service request s.a --msgs 5", "s.a"),
    ],
)
def test_a_refused_message_is_exit_6_with_its_subject_and_no_timeout(as_user: Run, line: str, subject: str) -> None:
    began_s = time.monotonic()
    done = as_user("mute", line)
    assert done.code == 6, done
    assert time.monotonic() - began_s < SOON_S
    assert done.error["subject"].startswith(subject)
    assert subject in done.error["description"]
    assert done.error["hint"]


@pytest.mark.parametrize("line", ["str info S", "kv put B k v", "req s.a x", "con next S C", "service ls"])
def test_a_refused_inbox_is_exit_6_and_no_timeout(as_user: Run, line: str) -> None:
    began_s = time.monotonic()
    done = as_user("deaf", line)
    assert done.code == 6, done
    assert time.monotonic() - began_s < SOON_S
    assert "_INBOX" in done.error["description"]


def test_core_messages_that_are_refused_are_never_reported_as_published(as_user: Run) -> None:
    """The server's PONG must answer for what was published before it, in every of several tries."""
    assert {as_user("mute", "pub s.a x").code for _ in range(12)} == {6}
