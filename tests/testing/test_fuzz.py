"""Each kind of spoilt input finds no fault in what reads it."""

import random
from importlib import import_module

import pytest


@pytest.mark.parametrize("kind", ["connect", "leaf", "protocol", "websocket"])
def test_spoilt_inputs_find_no_fault(kind: str) -> None:
    module = import_module(f"tests.support.fuzz.{kind}")
    for number in range(300):
        chance = random.Random(f"suite:{number}")
        module.check(module.make(chance), chance)
