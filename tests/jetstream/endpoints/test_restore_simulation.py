"""Whatever was done to a stream: its backup, restored, is the same stream."""

from typing import Any

import pytest

from natsctl.jetstream.engine_options import JetStreamOptions
from tests.support import tiers
from tests.support.jet import Jet, ok
from tests.support.machine import Machine

STEPS = 120


def do_something(jet: Jet, delivered: list[Any]) -> None:
    rng = jet.machine.rng
    last = jet.api("STREAM.INFO.S")["state"]["last_seq"]
    kind = rng.choice(["publish"] * 6 + ["delete", "delete", "purge", "filter", "pull", "pull", "ack", "ack", "time"])
    if kind == "publish":
        header = b"NATS/1.0\r\nA: b\r\n\r\n" if rng.random() < 0.3 else b""
        jet.wire.publish(f"s.{rng.randrange(4)}", rng.randbytes(rng.randrange(200)), header=header)
    elif kind == "delete" and last:
        seq = last if rng.random() < 0.3 else rng.randint(1, last)
        jet.api("STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": rng.random() < 0.5})
    elif kind == "purge" and rng.random() < 0.4:
        jet.api("STREAM.PURGE.S", {"seq": rng.randint(1, last + 1)})
    elif kind == "filter" and rng.random() < 0.4:
        jet.api("STREAM.PURGE.S", {"filter": "s.1"})
    elif kind == "pull":
        asked = {"batch": rng.randint(1, 4), "no_wait": True}
        delivered += [message for message in jet.pull(asked) if message.reply]
    elif kind == "ack" and delivered:
        message = delivered.pop(rng.randrange(len(delivered)))
        jet.ack(message, rng.choice([b"+ACK", b"+ACK", b"-NAK", b"+TERM"]))
    elif kind == "time":
        jet.advance(rng.random() * 4)


def everything(jet: Jet) -> tuple[Any, ...]:
    state = jet.api("STREAM.INFO.S", {"deleted_details": True, "subjects_filter": ">"})["state"]
    stored = [jet.api("STREAM.MSG.GET.S", {"seq": seq}).get("message") for seq in range(1, state["last_seq"] + 1)]
    return state, stored, jet.counts()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", tiers.seeds(4, 12))
def test_a_restored_stream_is_the_stream_that_was_saved(seed: int, version: int) -> None:
    jet = Jet(Machine(seed=seed, options=JetStreamOptions(archive_version=version)))
    jet.stream(max_msgs=40 if seed % 3 == 0 else -1)
    jet.consumer(ack_wait=5_000_000_000)
    delivered: list[Any] = []
    for _ in range(STEPS):
        do_something(jet, delivered)
    before = everything(jet)
    document, archive = jet.backup(chunk_size=4096)
    ok(jet.api("STREAM.DELETE.S"))
    to = ok(jet.api("STREAM.RESTORE.S", document))["deliver_subject"]
    for at in range(0, len(archive), 999):
        assert jet.wire.request(to, archive[at : at + 999]).payload == b""
    ok(jet.wire.request(to))
    after = everything(jet)
    assert after == before
    assert everything(Jet(jet.machine.restarted())) == after
