"""STREAM.SNAPSHOT: chunks, flow control, ends and advisories."""

from collections.abc import Sequence
from typing import Any

import pytest

from natsctl.api.archive.archive import ArchivedConsumer, ArchivedMessage
from natsctl.api.archive.archive_reader import ArchiveReader
from natsctl.jetstream.engine_options import JetStreamOptions
from tests.support.jet import Jet, ok
from tests.support.machine import Machine, Message

TO = "backup.in"


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def jet(request: pytest.FixtureRequest) -> Jet:
    jet = Jet(Machine(options=JetStreamOptions(archive_version=request.param)))
    jet.stream()
    return jet


def start(jet: Jet, **wish: Any) -> Any:
    return jet.api("STREAM.SNAPSHOT.S", {"deliver_subject": TO, **wish})


def receive(jet: Jet, sid: bytes) -> tuple[bytes, Message]:
    parts = []
    while True:
        messages = jet.heard(sid)
        assert messages, "the transfer has stopped"
        for message in messages:
            if message.header:
                return b"".join(parts), message
            parts.append(message.payload)
            if message.reply:
                jet.ack(message)


def snapshot(jet: Jet, **wish: Any) -> tuple[Any, bytes]:
    sid = jet.listen(TO)
    answer = ok(start(jet, **wish))
    archive, end = receive(jet, sid)
    assert end.status == b"204"
    jet.wire.unsubscribe(sid)
    return answer, archive


def contents(archive: bytes) -> list[Any]:
    reader, items = ArchiveReader(), list[Any]()
    for item in reader.read(archive):
        items.extend(item if isinstance(item, Sequence) else [item])
    reader.finish()
    return items


def noise(jet: Jet, messages: int, size: int = 1000) -> None:
    for _ in range(messages):
        jet.wire.publish("s.a", jet.machine.rng.randbytes(size))


def test_consumers_can_be_left_out(jet: Jet) -> None:
    jet.consumer("C")
    items = contents(snapshot(jet, no_consumers=True)[1])
    assert not [item for item in items if isinstance(item, ArchivedConsumer)]


def test_an_empty_stream_makes_an_archive_too(jet: Jet) -> None:
    assert len(contents(snapshot(jet)[1])) == 1


def test_what_many_consumers_have_in_common_is_compressed(jet: Jet) -> None:
    for number in range(100):
        jet.consumer(f"C{number}")
    archive = snapshot(jet)[1]
    assert len([item for item in contents(archive) if isinstance(item, ArchivedConsumer)]) == 100
    assert len(archive) < 100 * 250, "by itself each takes 300 bytes, in version 1 600"


def test_chunks_are_full_and_only_the_last_has_no_reply(jet: Jet) -> None:
    noise(jet, 20)
    sid = jet.listen(TO)
    start(jet, chunk_size=4096, window_size=1 << 20)
    *chunks, last, end = jet.heard(sid)
    assert [len(chunk.payload) for chunk in chunks] == [4096] * len(chunks)
    assert len(chunks) >= 4
    prefix = b".".join(chunks[0].reply.split(b".")[:5])
    assert prefix.startswith(b"$JS.SNAPSHOT.ACK.S.")
    assert [chunk.reply for chunk in chunks] == [b"%b.4096.%d" % (prefix, i + 1) for i in range(len(chunks))]
    assert (last.reply, 0 < len(last.payload) < 4096) == (b"", True)
    assert (end.status, end.payload, end.reply) == (b"204", b"", b"")


def test_no_more_chunks_are_on_their_way_than_the_window_allows(jet: Jet) -> None:
    noise(jet, 40)
    sid = jet.listen(TO)
    start(jet, chunk_size=1024, window_size=3 * 1024)
    first = jet.heard(sid)
    assert len(first) == 3
    jet.ack(first[1])
    jet.ack(first[1])
    (next_one,) = jet.heard(sid)
    assert next_one.reply.endswith(b".4")
    for message in (first[0], first[2], next_one):
        jet.ack(message)
    assert receive(jet, sid)[1].status == b"204"


@pytest.mark.parametrize(("asked", "sent"), [(1, 1024), (5000, 5000), (1 << 30, 1 << 20), (0, 128 << 10)])
def test_chunk_sizes_are_kept_within_limits(jet: Jet, asked: int, sent: int) -> None:
    noise(jet, 20, 60_000)
    sid = jet.listen(TO)
    start(jet, chunk_size=asked)
    assert len(jet.heard(sid)[0].payload) == sent


def test_a_snapshot_waits_two_seconds_for_somebody_to_listen(jet: Jet) -> None:
    events = jet.listen("$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_COMPLETE.S")
    start(jet)
    jet.advance(1.9)
    sid = jet.listen(TO)
    assert receive(jet, sid)[1].status == b"204"
    jet.wire.unsubscribe(sid)
    jet.heard(events)
    start(jet)
    jet.advance(2.1)
    (event,) = jet.heard(events)
    assert "error" not in event.json()
    sid = jet.listen(TO)
    assert not jet.heard(sid)


def test_a_long_snapshot_that_nobody_hears_ends_without_flow(jet: Jet) -> None:
    noise(jet, 40)
    events = jet.listen("$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_COMPLETE.S")
    start(jet, chunk_size=1024, window_size=1024)
    jet.advance(6.9)
    assert not jet.heard(events)
    jet.advance(0.2)
    (event,) = jet.heard(events)
    assert event.json()["error"] == "no flow response"


def test_a_receiver_that_goes_away_ends_it(jet: Jet) -> None:
    noise(jet, 40)
    events = jet.listen("$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_COMPLETE.S")
    sid = jet.listen(TO)
    start(jet, chunk_size=1024, window_size=1024)
    jet.wire.unsubscribe(sid)
    (event,) = jet.heard(events)
    assert event.json()["error"] == "no interest"


def test_five_seconds_without_an_ack_end_it(jet: Jet) -> None:
    noise(jet, 40)
    sid = jet.listen(TO)
    start(jet, chunk_size=1024, window_size=2048)
    first, _ = jet.heard(sid)
    jet.advance(4.9)
    jet.ack(first)
    jet.advance(4.9)
    assert [message.status for message in jet.heard(sid)] == [b""]
    jet.advance(0.2)
    (end,) = jet.heard(sid)
    assert (end.status, end.payload) == (b"408 No Flow Response", b"")
    jet.ack(first)
    assert not jet.heard(sid)


def test_a_stream_deleted_on_the_way_ends_it_with_a_fault(jet: Jet) -> None:
    noise(jet, 40)
    sid = jet.listen(TO)
    start(jet, chunk_size=1024, window_size=1024)
    (first,) = jet.heard(sid)
    ok(jet.api("STREAM.DELETE.S"))
    jet.ack(first)
    (end,) = jet.heard(sid)
    assert end.status == b"500 stream was deleted"


def test_messages_that_come_later_are_not_in_it(jet: Jet) -> None:
    noise(jet, 10)
    sid = jet.listen(TO)
    start(jet, chunk_size=1024, window_size=1024)
    jet.publish("later")
    archive, _ = receive(jet, sid)
    assert [item.seq for item in contents(archive) if isinstance(item, ArchivedMessage)] == list(range(1, 11))


def test_a_snapshot_waits_until_what_it_shows_is_durable(jet: Jet) -> None:
    sid = jet.listen(TO)
    jet.machine.hold_commits = True
    jet.publish("1")
    inbox = jet.listen("answer")
    jet.wire.publish("$JS.API.STREAM.SNAPSHOT.S", b'{"deliver_subject":"backup.in"}', "answer")
    assert not jet.heard(inbox)
    jet.machine.release_commits()
    assert jet.heard(inbox)[0].json()["state"]["messages"] == 1
    assert receive(jet, sid)[1].status == b"204"


def test_nothing_is_sent_to_a_wildcard_alone_until_the_wait_is_over(jet: Jet) -> None:
    """The `nats` tool names an inbox under its wildcard, and subscribes to it when it has read the answer."""
    jet.publish("1")
    wildcard = jet.listen("backup.*")
    ok(start(jet))
    assert not jet.heard(wildcard)
    sid = jet.listen(TO)
    archive, end = receive(jet, sid)
    assert (bool(archive), end.status) == (True, b"204")
    jet.wire.unsubscribe(sid)
    jet.heard(wildcard)
    ok(start(jet))
    jet.advance(2.1)
    assert jet.heard(wildcard)[0].payload
