import os
import signal
from pathlib import Path

import pytest

from natsctl.server.process import process
from natsctl.server.process.flags import FlagError


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: found.append((pid, number)))
    monkeypatch.setattr(process, "_running", lambda: iter((120, 121, 999)))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("reload=5", [(5, signal.SIGHUP)]),
        ("stop=5", [(5, signal.SIGKILL)]),
        ("quit=5", [(5, signal.SIGINT)]),
        ("term=5", [(5, signal.SIGTERM)]),
        ("reopen=5", [(5, signal.SIGUSR1)]),
        ("ldm=5", [(5, signal.SIGUSR2)]),
        ("ldm=12*", [(120, signal.SIGUSR2), (121, signal.SIGUSR2)]),
        ("reload=*", [(120, signal.SIGHUP), (121, signal.SIGHUP), (999, signal.SIGHUP)]),
    ],
)
def test_each_command_is_a_signal(sent: list[tuple[int, int]], text: str, expected: list[tuple[int, int]]) -> None:
    process.send_signal(text)
    assert sent == expected


def test_a_pid_file_names_the_process(sent: list[tuple[int, int]], tmp_path: Path) -> None:
    (tmp_path / "pid").write_text("77\n")
    process.send_signal(f"reload={tmp_path / 'pid'}")
    assert sent == [(77, signal.SIGHUP)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("wake=5", 'unknown signal "wake"'),
        ("reload=/no/such/file", "invalid pid: /no/such/file"),
        ("reload=7*", "no natsctl server processes running"),
        ("reload", "multiple natsctl server processes running:\n120\n121\n999"),
    ],
)
def test_what_can_not_be_told_is_an_error(sent: list[tuple[int, int]], text: str, reason: str) -> None:
    with pytest.raises(FlagError) as caught:
        process.send_signal(text)
    assert str(caught.value) == reason
    assert sent == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("/venv/bin/python /venv/bin/natsctl server run -js", True),
        ("natsctl server run", True),
        ("python -m natsctl.server -p 4222", True),
        ("natsctl server run --signal reload", False),
        ("natsctl stream ls", False),
        ("vim natsctl", False),
        ("nats-server -js", False),
    ],
)
def test_servers_are_known_by_their_command_line(line: str, found: bool) -> None:
    assert process.is_server([word.encode() for word in line.split(" ")]) is found
