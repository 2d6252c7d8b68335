"""Random lives of consumers: counters stay exact, and a crash changes nothing that matters."""

import random

import pytest

from natsctl.api.consumer import AckPolicy
from tests.support import tiers
from tests.support.jet import SECOND, Jet, numbers
from tests.support.machine import Message
from tests.support.simdisk import SimDisk

SUBJECTS = ("s.a", "s.b", "s.c.1", "s.c.2")
CONFIGS = (
    {"ack_wait": 3 * SECOND},
    {"ack_wait": 3 * SECOND, "filter_subject": "s.c.*", "max_deliver": 3},
    {"filter_subjects": ["s.a", "s.c.>"], "backoff": [SECOND, 2 * SECOND], "max_ack_pending": 5},
    {"ack_policy": "all", "ack_wait": 2 * SECOND},
    {"ack_policy": "none"},
    {"deliver_policy": "last_per_subject", "filter_subject": "s.>", "ack_wait": 2 * SECOND},
)
PAYLOADS = (b"", b"+ACK", b"+ACK", b"-NAK", b"-NAK 1s", b"+WPI", b"+TERM")


class Life:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.jet = Jet()
        limits = self.rng.choice(({}, {"max_msgs": 40}, {"max_msgs_per_subject": 3}))
        self.jet.stream(**limits)
        self.jet.publish("0", "0", subject="s.c.1")
        self.names = [f"C{index}" for index in range(len(CONFIGS))]
        for name, config in zip(self.names, CONFIGS, strict=True):
            self.jet.consumer(name, **config)
        self.unacked: list[tuple[str, Message]] = []

    def step(self) -> None:
        rng, jet = self.rng, self.jet
        often = ("publish", "pull", "ack")
        action = rng.choice((*often, *often, "ack", "time", "delete", "purge", "hold"))
        name = rng.choice(self.names)
        if action == "publish":
            for _ in range(rng.randint(1, 6)):
                jet.publish("x", subject=rng.choice(SUBJECTS))
        elif action == "pull":
            got = jet.pull({"batch": rng.randint(1, 8), "no_wait": True}, name=name)
            self.unacked += [(name, m) for m in got if not m.status]
        elif action == "ack" and self.unacked:
            _, message = self.unacked.pop(rng.randrange(len(self.unacked)))
            assert len(jet.double_ack(message, rng.choice(PAYLOADS))) == 1
        elif action == "time":
            jet.advance(rng.random() * 2)
        elif action == "delete":
            jet.api("STREAM.MSG.DELETE.S", {"seq": rng.randint(1, 60)})
        elif action == "purge" and rng.random() < 0.2:
            jet.api("STREAM.PURGE.S", rng.choice(({}, {"filter": "s.a"}, {"keep": 2}, {"seq": 12})))
        elif action == "hold":
            jet.machine.hold_commits = True
            jet.publish(*"xyz", subject=rng.choice(SUBJECTS))
            jet.machine.release_commits()

    def check(self) -> None:
        stream = self.jet.machine.streams["S"]
        for name in self.names:
            consumer, counts = stream.consumers[name], self.jet.counts(name)
            pending = counts["pending"]
            consumer.undelivered.recount()
            assert pending == consumer.undelivered.count, name
            state = consumer.state
            assert counts["ack_pending"] == len(state.pending)
            oldest = next(iter(state.pending), state.delivered_sseq + 1)
            below = state.pending[oldest][0] - 1 if state.pending else state.delivered_cseq
            assert counts["floor"] == (state.floor_cseq, state.floor_sseq)
            assert state.floor_sseq < oldest
            if consumer.config.ack_policy is not AckPolicy.ALL:  # there the floor is whatever the latest ack named
                assert state.floor_cseq <= below
                assert state.stuck or state.floor_cseq == below
            assert list(state.pending) == sorted(state.pending)

    def crash(self) -> None:
        stream = self.jet.machine.streams["S"]
        before = {name: (self.jet.counts(name), stream.consumers[name].state.encode()) for name in self.names}
        self.jet = Jet(self.jet.machine.restarted())
        stream = self.jet.machine.streams["S"]
        for name in self.names:
            counts, state = before[name]
            assert self.jet.counts(name) == counts | {"waiting": 0}, name
            assert stream.consumers[name].state.encode() == state, name


@pytest.mark.parametrize("seed", tiers.seeds(4, 12))
def test_counters_are_exact_and_survive_crashes(seed: int) -> None:
    life = Life(seed)
    for index in range(120):
        life.step()
        if index % 3 == 0:
            life.check()
        if index % 40 == 39:
            life.crash()


@pytest.mark.parametrize("seed", tiers.seeds(3, 6))
def test_every_message_is_delivered_until_it_is_acked_and_never_after(seed: int) -> None:
    rng = random.Random(seed)
    jet = Jet()
    jet.stream()
    jet.consumer(ack_wait=SECOND, max_ack_pending=20)
    jet.publish_many(200)
    acked: set[int] = set()
    while len(acked) < 200:
        for message in jet.pull({"batch": 10, "no_wait": True}):
            if message.status:
                continue
            sseq = numbers(message)[1]
            assert sseq not in acked
            if rng.random() < 0.7:
                assert len(jet.double_ack(message)) == 1
                acked.add(sseq)
            elif rng.random() < 0.5:
                jet.ack(message, b"-NAK")
        if rng.random() < 0.1:
            jet = Jet(jet.machine.restarted(rng.choice((SimDisk.kill, SimDisk.power_loss))))
        jet.advance(0.4)
    assert jet.counts() | {"ack_pending": 0, "pending": 0} == jet.counts()
