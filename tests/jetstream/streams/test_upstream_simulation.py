"""Random lives of a mirror and a sourcing stream: crashes at any moment lose nothing of the origin and double nothing.

Every sourced message takes one sequence, so the last sequence of the sourcing stream counts them, whatever became of
the messages since. That is compared with what the origin has.
"""

import random

import pytest

from tests.support import tiers
from tests.support.jet import SECOND, Jet, ok
from tests.support.machine import Machine
from tests.support.simdisk import Crash, SimDisk, crash_at, no_faults

TARGETS = (
    {},
    {"max_msgs": 4},
    {"max_msgs_per_subject": 1},
    {"max_age": 2 * SECOND},
    {"retention": "workqueue"},
    {"discard": "new", "max_msgs": 30},
)
PATIENCE_S = 30


class Life:
    def __init__(self, seed: int, *, power_loss: bool) -> None:
        self.rng = random.Random(seed)
        self.jet = Jet(Machine(seed=seed))
        self.crash = SimDisk.power_loss if power_loss else SimDisk.kill
        origin = self.rng.choice(({}, {}, {"retention": "workqueue"}))
        self.jet.stream("S", **origin)
        self.keeps = not origin
        self.target = self.rng.choice(TARGETS)
        ok(self.jet.api("STREAM.CREATE.X", {"name": "X", "sources": [{"name": "S"}], **self.target}))
        if "retention" in self.target:
            self.jet.consumer("C", stream="X")
        if self.keeps:
            ok(self.jet.api("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S"}}))

    def step(self) -> None:
        rng, jet = self.rng, self.jet
        action = rng.choice(("publish", "publish", "publish", "take", "delete", "purge", "time", "crash", "crash"))
        if action == "publish":
            for _ in range(rng.randint(1, 5)):
                jet.publish("x", subject=rng.choice(("s.a", "s.b")))
        elif action == "take" and "retention" in self.target:
            for message in jet.pull({"batch": 10, "no_wait": True}, stream="X"):
                if not message.status:
                    jet.ack(message)
        elif action == "delete":
            last_seq = self.store("X").last_seq
            jet.api("STREAM.MSG.DELETE.X", {"seq": max(last_seq - rng.randint(0, 2), 1)})
        elif action == "purge" and rng.random() < 0.5:
            jet.api("STREAM.PURGE.X", rng.choice(({}, {"keep": 1}, {"filter": "s.a"})))
        elif action == "time":
            jet.advance(rng.random() * 4)
        elif action == "crash":
            self.die()

    def die(self) -> None:
        machine = self.jet.machine
        machine.disk.plan = crash_at(self.rng.randint(1, 14))
        try:
            for _ in range(self.rng.randint(0, 4)):
                self.jet.publish("x", subject=self.rng.choice(("s.a", "s.b")))
            if self.rng.random() < 0.3:
                self.jet.api("STREAM.PURGE.X", {})
        except (Crash, AssertionError):  # an answer that did not come any more
            pass
        machine.disk.plan = no_faults
        self.jet = Jet(machine.restarted(self.crash))

    def store(self, name: str) -> object:
        return self.jet.machine.streams[name].store

    def settle(self) -> None:
        jet = self.jet
        for _ in range(40):
            jet.advance(PATIENCE_S / 2)
            jet.api("STREAM.PURGE.X", {})  # makes room
            jet.advance(PATIENCE_S / 2)
            if self.store("X").last_seq >= self.store("S").last_seq:
                break
        assert self.store("X").last_seq == self.store("S").last_seq, self.target
        if self.keeps:
            mine, theirs = (self.store(name).read_from(1, max_msgs=10_000) for name in "SM")
            assert mine == theirs
        else:
            assert self.store("S").messages == 0


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power_loss"])
@pytest.mark.parametrize("seed", tiers.seeds(10, 40))
def test_a_crash_at_any_moment_loses_and_doubles_nothing(seed: int, power_loss: bool) -> None:
    life = Life(seed, power_loss=power_loss)
    for _ in range(25):
        life.step()
    life.settle()
