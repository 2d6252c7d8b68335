"""Atomic batches: nothing before the commit, everything after it, whatever happens in between."""

import random
from typing import Any

import pytest

from natsctl.jetstream.engine_options import BatchLimits, JetStreamOptions
from natsctl.store.options import StoreOptions
from tests.support import tiers
from tests.support.jet import Jet, ok
from tests.support.machine import Machine
from tests.support.simdisk import Crash, DiskFault, SimDisk
from tests.support.stored_messages import put

ADVISORY = "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.S"


def send(
    jet: Jet, batch: str, place: int, commit: str = "", subject: str = "s.a", body: bytes = b"", **more: str
) -> Any:
    more |= {"Nats_Batch_Commit": commit} if commit else {}
    own = {"Nats_Batch_Id": batch, "Nats_Batch_Sequence": str(place)}
    answer = put(jet, subject, body or f"{batch}{place}".encode(), **own, **more)
    return answer if isinstance(answer, dict) else None


def state(jet: Jet, stream: str = "S") -> tuple[int, int, int]:
    info = ok(jet.api(f"STREAM.INFO.{stream}"))["state"]
    return info["messages"], info["first_seq"], info["last_seq"]


def code(answer: Any) -> int:
    return int(answer["error"]["err_code"])


def test_consumers_see_a_batch_at_once(jet: Jet) -> None:
    jet.stream(allow_atomic=True)
    jet.consumer(deliver_subject="to", ack_policy="none")
    sid = jet.listen("to")
    send(jet, "b", 1)
    jet.publish("between")
    send(jet, "b", 2)
    assert [m.payload for m in jet.heard(sid)] == [b"between"]
    send(jet, "b", 3, "eob")
    assert [m.payload for m in jet.heard(sid)] == [b"b1", b"b2"]


def test_a_silent_batch_is_abandoned_after_ten_seconds(jet: Jet) -> None:
    jet.stream(allow_atomic=True)
    sid = jet.listen(ADVISORY)
    send(jet, "old", 1)
    jet.advance(6)
    send(jet, "young", 1)
    jet.advance(3)
    send(jet, "old", 2)
    jet.advance(8)
    assert [m.json()["batch"] for m in jet.heard(sid)] == ["young"]
    jet.advance(3)
    (event,) = [m.json() for m in jet.heard(sid)]
    assert (event["type"], event["batch"], event["reason"]) == (
        "io.nats.jetstream.advisory.v1.stream_batch_abandoned",
        "old",
        "timeout",
    )
    assert jet.machine.engine.open_batches.atomic == 0


def test_memory_for_staged_messages_is_bounded_and_given_back() -> None:
    limits = BatchLimits(staged_bytes_of_stream=10_000, staged_bytes_of_server=15_000)
    jet = Jet(Machine(options=JetStreamOptions(batches=limits)))
    jet.stream(allow_atomic=True)
    jet.stream("T", "t.>", allow_atomic=True)
    sid = jet.listen(ADVISORY)
    body = b"x" * 4000
    assert send(jet, "a", 1, body=body) is None
    assert send(jet, "a", 2, body=body) is None
    assert code(send(jet, "a", 3, body=body)) == 10023
    assert [m.json()["reason"] for m in jet.heard(sid)] == ["incomplete"]
    assert jet.machine.engine.open_batches.staged_bytes == 0
    assert send(jet, "b", 1, body=body) is None
    assert send(jet, "b", 2, body=body) is None
    assert send(jet, "c", 1, subject="t.a", body=body) is None
    assert code(send(jet, "c", 2, subject="t.a", body=body)) == 10023
    assert send(jet, "b", 3, "eob")["count"] == 2
    assert jet.machine.engine.open_batches.staged_bytes == 0


def test_batches_of_all_streams_together_are_limited() -> None:
    jet = Jet(Machine(options=JetStreamOptions(batches=BatchLimits(atomic_of_server=2))))
    jet.stream(allow_atomic=True)
    jet.stream("T", "t.>", allow_atomic=True)
    assert send(jet, "a", 1) is None
    assert send(jet, "b", 1, subject="t.a") is None
    assert code(send(jet, "c", 1)) == 10210
    ok(jet.api("STREAM.DELETE.T"))
    assert send(jet, "c", 1) is None


def test_a_deleted_stream_forgets_its_batches(jet: Jet) -> None:
    jet.stream(allow_atomic=True)
    send(jet, "b", 1)
    ok(jet.api("STREAM.DELETE.S"))
    jet.stream(allow_atomic=True)
    assert code(send(jet, "b", 2, "1")) == 10176
    jet.advance(20)
    assert jet.machine.engine.open_batches.staged_bytes == jet.machine.engine.open_batches.atomic == 0


def test_ids_of_a_batch_are_remembered_across_a_restart(jet: Jet) -> None:
    jet.stream(allow_atomic=True)
    send(jet, "b", 1, Nats_Msg_Id="x")
    send(jet, "b", 2, "1", Nats_Msg_Id="y")
    again = Jet(jet.machine.restarted())
    answer = again.wire.request("s.a", b"", b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n")
    assert answer == {"stream": "S", "seq": 1, "duplicate": True}


def test_a_batch_that_no_disk_takes_is_refused_as_a_whole(jet: Jet) -> None:
    jet.stream(allow_atomic=True)
    send(jet, "b", 1)
    jet.machine.disk.plan = lambda call, path: DiskFault(error=5) if call == "sync" else None
    assert code(send(jet, "b", 2, "1")) == 10077
    jet.machine.disk.plan = lambda call, path: None
    assert state(Jet(jet.machine.restarted(SimDisk.power_loss)))[2] in (0, 2)


# Crashes


class Work:
    """Batches and single messages of a random program, until the machine stops."""

    def __init__(self, jet: Jet, rng: random.Random) -> None:
        self.jet, self.rng = jet, rng
        self.sizes: dict[str, int] = {}
        self.acked: set[str] = set()
        self.single = 0
        self.commits = False

    def step(self) -> None:
        rng = self.rng
        if rng.random() < 0.4:
            self.single += 1
            self.jet.publish(f"single {self.single}", subject=f"s.{rng.randrange(3)}")
            return
        name = f"b{len(self.sizes)}"
        size = self.sizes[name] = rng.randint(1, 12)
        eob = rng.random() < 0.4
        for place in range(1, size + 1):
            commit = "1" if place == size and not eob else ""
            self.send(name, place, commit)
            if rng.random() < 0.2:
                self.jet.publish("between", subject="s.between")
        if eob:
            self.send(name, size + 1, "eob")

    def send(self, name: str, place: int, commit: str) -> None:
        body = f"{name} {place} ".encode() + self.rng.randbytes(self.rng.randrange(300))
        self.commits = bool(commit)
        answer = send(self.jet, name, place, commit, f"s.{self.rng.randrange(3)}", body, Nats_Msg_Id=f"{name}.{place}")
        self.commits = False
        if commit and answer and "error" not in answer:
            self.acked.add(name)


def stored_places(jet: Jet) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    stream = jet.machine.streams["S"]
    for message in stream.store.read_from(1, max_msgs=100_000):
        name, place, _ = (message.payload + b"  ").split(b" ", 2)
        if name.startswith(b"b") and place.isdigit():
            found.setdefault(name.decode(), []).append(int(place))
    return found


@pytest.mark.parametrize("crash", [SimDisk.kill, SimDisk.power_loss])
@pytest.mark.parametrize("seed", tiers.seeds(4, 15))
def test_after_a_crash_a_batch_is_there_whole_or_not_at_all(seed: int, crash: Any) -> None:
    rng = random.Random(seed)
    options = StoreOptions(segment_bytes=4096)
    jet = Jet(Machine(seed=seed, store_options=options))
    jet.stream(allow_atomic=True)
    disk = jet.machine.disk
    left = rng.randint(0, 50)
    work = Work(jet, rng)

    def plan(call: str, path: str) -> DiskFault | None:
        nonlocal left
        left -= work.commits and call in ("pwrite", "sync", "rename", "fsync_dir")
        return DiskFault(crash=True) if left < 0 else None

    disk.plan = plan
    with pytest.raises(Crash):
        while True:
            work.step()
    disk.plan = lambda call, path: None
    crash(disk)
    after = Jet(Machine(disk, jet.machine.clock, seed, options))
    found = stored_places(after)
    assert work.acked <= set(found)
    for name, places in found.items():
        assert places == list(range(1, work.sizes[name] + 1)), name
    send(after, "next", 1)
    assert send(after, "next", 2, "1")["count"] == 2
