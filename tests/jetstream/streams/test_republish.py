"""Republish: once, in order, after the message is durable, and only where somebody listens."""

from tests.support.jet import Jet, ok
from tests.support.machine import Machine
from tests.support.simdisk import DiskFault


def lines(header: bytes) -> list[bytes]:
    return [line for line in header.split(b"\r\n")[1:-2] if not line.startswith(b"Nats-Time-Stamp")]


def test_it_comes_before_the_ack_and_after_the_sync(jet: Jet) -> None:
    jet.stream(republish={"src": "s.*", "dest": "r.$1"})
    sid = jet.listen("r.>")
    jet.machine.hold_commits = True
    jet.wire.publish("s.a", b"one", "r.ack")
    assert jet.heard(sid) == []
    jet.machine.release_commits()
    again, ack = jet.heard(sid)
    assert (again.subject, again.reply, again.payload) == (b"r.a", b"", b"one")
    assert ack.payload == b'{"stream":"S","seq":1}'


def test_nothing_is_kept_for_nobody(jet: Jet) -> None:
    jet.stream(republish={"src": ">", "dest": "r.>"})
    jet.machine.hold_commits = True
    jet.publish(*"abc")
    waiting = jet.machine.streams["S"].pipeline.republish
    assert not waiting._waiting
    jet.listen("r.>")
    jet.publish("d")
    assert len(waiting._waiting) == 1


def test_what_the_disk_does_not_keep_is_not_told(jet: Jet) -> None:
    jet.stream(republish={"src": ">", "dest": "r.>"})
    sid = jet.listen("r.>")
    jet.machine.disk.plan = lambda call, path: DiskFault(error=5) if call == "sync" else None
    jet.publish("lost")
    assert jet.heard(sid) == []


def test_every_way_into_a_stream_is_republished(jet: Jet) -> None:
    jet.stream("O", "o.>")
    ok(jet.api("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "O"}, "republish": {"src": ">", "dest": "m.>"}}))
    ok(jet.api("STREAM.CREATE.C", {"name": "C", "sources": [{"name": "O"}], "republish": {"src": ">", "dest": "c.>"}}))
    jet.stream(republish={"src": ">", "dest": "r.>"}, allow_atomic=True, allow_batched=True)
    sids = [jet.listen(f"{name}.>") for name in ("m", "c", "r")]
    jet.advance(1)
    jet.publish("x", subject="o.a")
    jet.advance(1)
    for place, commit in ((1, b""), (2, b"Nats-Batch-Commit: 1\r\n")):
        block = b"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: %d\r\n%b\r\n" % (place, commit)
        jet.wire.publish("s.a", b"batch", header=block)
    jet.wire.publish("s.a", b"fast", "in.f.1.ok.1.2.$FI")
    mirrored, sourced, published = (jet.heard(sid) for sid in sids)
    assert [m.subject for m in mirrored] == [b"m.o.a"]
    assert [m.subject for m in sourced] == [b"c.o.a"]
    assert [m.payload for m in published] == [b"batch", b"batch", b"fast"]
    last = [line for m in published for line in lines(m.header) if line.startswith(b"Nats-Last")]
    assert last == [b"Nats-Last-Sequence: 0", b"Nats-Last-Sequence: 1", b"Nats-Last-Sequence: 2"]


def test_it_goes_on_after_a_restart() -> None:
    jet = Jet(Machine())
    jet.stream(republish={"src": ">", "dest": "r.>"})
    jet.publish("1")
    again = Jet(jet.machine.restarted())
    sid = again.listen("r.>")
    again.publish("2")
    (message,) = again.heard(sid)
    assert lines(message.header)[-1] == b"Nats-Last-Sequence: 1"
