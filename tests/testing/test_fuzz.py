"""Each kind of spoilt input finds no fault in what reads it, and the checks can fail."""

from __future__ import annotations

import random
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from natsctl.broker.auth.login import Login
from natsctl.wire.framing import Framing
from tests.support.fuzz import connect, leaf, protocol, websocket
from tests.support.fuzz.__main__ import KINDS


@pytest.mark.parametrize("kind", ["connect", "leaf", "protocol", "websocket"])
def test_two_thousand_inputs_find_no_fault(kind: str) -> None:
    module = import_module(f"tests.support.fuzz.{kind}")
    for number in range(2000):
        chance = random.Random(f"suite:{number}")
        module.check(module.make(chance), chance)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_runs_as_a_command(kind: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.support.fuzz", kind, "--inputs", "20", "--keep", str(tmp_path)]
    assert "no fault" in subprocess.run(words, check=True, capture_output=True, text=True).stdout


def test_a_parser_that_reads_pieces_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Framing, "buffered_bytes", property(lambda self: 1 << 20))
    for module in (protocol, leaf):
        with pytest.raises(AssertionError, match="bytes are kept"):
            module.check(b"PING\r\n", random.Random(1))


def test_a_client_that_is_let_in_without_its_secret_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Login, "refuse", lambda self, refusal: setattr(self, "authenticated", True))
    with pytest.raises(AssertionError, match="let in without"):
        connect.check(b'{"user":"alice","pass":"wrong"}', random.Random(1))


def test_frames_that_say_less_in_pieces_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "pieces", lambda data, chance: [data[:-1]])
    with pytest.raises(AssertionError, match="something else"):
        websocket.check(bytes((0x82, 0x81, 0, 0, 0, 0)) + b"x", random.Random(2))
