"""The browser at a pseudo-terminal: it leaves the terminal as it was, whatever ends it."""

import os
import signal
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.support.commands import Run

pytestmark = pytest.mark.ours("the terminal is the same on any server")
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
"""What switches a terminal to its second screen, and back."""


@pytest.fixture
def browser(shop: str, spawn: Run, tmp_path: Path) -> Run:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/^# description:/description: edited/" "$1"\n')
    editor.chmod(0o755)
    environment = {**os.environ, "NATS_URL": shop, "TERM": "xterm-256color", "EDITOR": str(editor)}
    environment.pop("COLUMNS", None)

    def start(*words: str, **variables: str) -> Any:
        child = spawn(["browse", *words], {**environment, **variables}, timeout=60, dimensions=(24, 80))
        child.expect_exact(ENTER)
        child.expect_exact("PAYMENTS")
        return child

    return start


def end(child: Any) -> int:
    child.expect_exact(LEAVE)
    child.expect(pexpect.EOF)
    child.close()
    return child.exitstatus if child.exitstatus is not None else -child.signalstatus


@pytest.mark.parametrize(("key", "status"), [("q", 0), ("\x03", 0)])
def test_a_key_ends_it_and_restores_the_terminal(browser: Run, key: str, status: int) -> None:
    child = browser()
    child.send(key)
    assert end(child) == status


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_restores_the_terminal(browser: Run, number: signal.Signals) -> None:
    child = browser()
    child.kill(number)
    assert end(child) == 128 + number


def test_a_crash_restores_the_terminal_and_shows_the_reason(browser: Run, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "from natsctl.cli.browse import app\n\n\ndef crash(self):\n    raise ZeroDivisionError('planted')\n\n\n"
        "app.BrowseApp.action_follow = crash\n"
    )
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    child = browser(PYTHONPATH=path)
    child.send("f")
    child.expect_exact(LEAVE)
    child.expect_exact("planted")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1


def test_an_edit_in_the_editor_shows_its_differences(browser: Run, natsctl: Any) -> None:
    child = browser()
    child.send("e")
    child.expect_exact(LEAVE)
    child.expect_exact("Differences in Stream ORDERS")
    child.expect_exact("Really edit Stream ORDERS")
    child.send("y\r")
    child.expect_exact("exit status 0")
    child.send("\r")
    child.expect_exact(ENTER)
    child.send("q")
    assert end(child) == 0
    assert natsctl("stream", "info", "ORDERS", "-j").json["config"]["description"] == "edited"


def test_without_a_terminal_it_is_a_usage_error(natsctl: Any) -> None:
    done = natsctl("browse")
    assert done.code == 2
    assert "browse needs a terminal" in done.err
