"""Random lives of a consumer on natsctl's engine and on the reference server: the same numbers after every step.

Nothing here waits for time to pass, so that a life is the same however slow the machine is. Left out is what wakes the
reference's deliveries only at their next occasion (a purge that makes room below max_ack_pending), and what it counts
wrongly there: num_pending of a consumer with last_per_subject is one per subject whenever it is counted anew, and the
ack floor passes what is still pending when a purge is narrower than the consumer's filters.
"""

import random
from typing import Any, Final

from tests.support.differential import Scenario, Talk, empty_stream
from tests.support.jet import SECOND
from tests.support.machine import Message

STEPS: Final = 40
SUBJECTS: Final = ("s.a", "s.b", "s.c.1", "s.c.2")
CONFIGS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"filter_subject": "s.c.*", "max_deliver": 2},
    {"filter_subjects": ["s.a", "s.c.>"], "max_ack_pending": 4},
    {"ack_policy": "all"},
    {"ack_policy": "all", "filter_subject": "s.a", "max_ack_pending": 6},
    {"ack_policy": "none"},
    {"deliver_policy": "last_per_subject", "filter_subject": "s.>"},
    {"deliver_policy": "by_start_sequence", "opt_start_seq": 5, "max_deliver": 1},
)
PAYLOADS: Final = (b"", b"", b"+ACK", b"+ACK", b"-NAK", b"+WPI", b"+TERM", b"+TERM bad", b"-NAK 1h", b"what")
PURGES: Final[tuple[dict[str, Any], ...]] = ({}, {"keep": 3}, {"seq": 9})
FILTERED: Final[tuple[dict[str, Any], ...]] = ({"filter": "s.a"}, {"filter": "s.c.>"}, {"filter": "s.c.*", "keep": 1})


def life(t: Talk, seed: int) -> None:
    rng = random.Random(seed)
    empty_stream(t)
    for subject in SUBJECTS:
        t.jet.publish("first", subject=subject)
    config = CONFIGS[seed % len(CONFIGS)]
    if config.get("ack_policy") != "none":
        config = {"ack_wait": 3600 * SECOND, **config}
    t.create(**config)
    unacked: list[Message] = []
    for _ in range(STEPS):
        step(t, rng, unacked, config)
        t.info()


def step(t: Talk, rng: random.Random, unacked: list[Message], config: dict[str, Any]) -> None:
    action = rng.choice(("publish", "publish", "pull", "pull", "ack", "ack", "ack", "delete", "purge", "filter"))
    if config.get("deliver_policy") == "last_per_subject" and action in ("purge", "filter"):
        return
    if action == "publish":
        for _ in range(rng.randint(1, 5)):
            t.jet.publish("x", subject=rng.choice(SUBJECTS))
    elif action == "pull":
        unacked += t.pull({"batch": rng.randint(1, 6), "no_wait": True})
    elif action == "ack" and unacked:
        message = unacked.pop(rng.randrange(len(unacked)))
        t.note(t.jet.double_ack(message, rng.choice(PAYLOADS)))
    elif action == "delete":
        t.jet.api("STREAM.MSG.DELETE.S", {"seq": rng.randint(1, 40)})
    elif action == "purge" and rng.random() < 0.15 and "max_ack_pending" not in config:
        narrow = "filter_subject" in config and "ack_policy" not in config
        t.ask("STREAM.PURGE.S", rng.choice(PURGES + FILTERED if narrow else PURGES))
    elif action == "filter" and "filter_subject" in config and rng.random() < 0.3:
        t.jet.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": changed(rng, config)})


def changed(rng: random.Random, config: dict[str, Any]) -> dict[str, Any]:
    plain = {"durable_name": "C", "ack_policy": "explicit", **config}
    return {**plain, "filter_subject": rng.choice((config["filter_subject"], "s.>", "s.a"))}


def life_of(seed: int) -> Scenario:
    def run(t: Talk) -> None:
        life(t, seed)

    run.__name__ = f"the_life_of_seed_{seed}"
    return run


scenario = [life_of(seed) for seed in range(8)]
