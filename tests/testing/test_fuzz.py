"""Each kind of spoilt input finds no fault in what reads it, and the checks can fail."""

from __future__ import annotations

import random
from importlib import import_module

import pytest

from natsctl.broker.auth.login import Login
from natsctl.wire.framing import Framing
from tests.support import tiers
from tests.support.fuzz import connect, leaf, protocol, websocket


@pytest.mark.parametrize("kind", ["connect", "leaf", "protocol", "websocket"])
def test_spoilt_inputs_find_no_fault(kind: str) -> None:
    module = import_module(f"tests.support.fuzz.{kind}")
    for number in range(tiers.sized(300, 2000)):
        chance = random.Random(f"suite:{number}")
        module.check(module.make(chance), chance)


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
