"""STREAM.RESTORE: a stream comes back whole, durable and with its consumers, or not at all."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from natsctl.api.archive.archive import ArchivedConsumer, ArchivedStream, Progress
from natsctl.api.archive.archive_v2 import WriterV2
from natsctl.api.archive.s2 import FrameWriter
from natsctl.api.consumer import ConsumerConfig
from natsctl.api.stream import StorageType, StreamState
from natsctl.jetstream.engine_options import JetStreamOptions
from natsctl.jetstream.streams import dedupe
from natsctl.store.errors import StoreFullError
from natsctl.store.file_log import TRAILING_SEGMENTS
from natsctl.store.message import StoredMessage
from natsctl.store.options import StoreOptions
from tests.support import tiers
from tests.support.jet import SECOND, Jet, ok
from tests.support.machine import Machine
from tests.support.simdisk import Crash, SimDisk, crash_at, no_faults

CRASHES = [SimDisk.kill, SimDisk.power_loss]


def begin(jet: Jet, document: dict[str, Any], name: str = "S") -> str:
    answer: str = ok(jet.api(f"STREAM.RESTORE.{name}", document))["deliver_subject"]
    return answer


def send(jet: Jet, to: str, archive: bytes, step: int = 700) -> Any:
    for at in range(0, len(archive), step):
        answer = jet.wire.request(to, archive[at : at + step])
        if isinstance(answer, dict):
            return answer
        assert answer.payload == b""
    return jet.wire.request(to)


def restore(jet: Jet, document: dict[str, Any], archive: bytes, name: str = "S", step: int = 700) -> Any:
    return send(jet, begin(jet, document, name), archive, step)


def is_gone(jet: Jet, name: str = "S") -> bool:
    info = jet.api(f"STREAM.INFO.{name}")
    return info.get("error", {}).get("err_code") == 10059 and f"$G/{name}" not in jet.machine.store.streams


def filled(jet: Jet) -> None:
    """Make a stream with a gap, headers, and a consumer in the middle of its work."""
    jet.stream(duplicate_window=120 * SECOND)
    jet.publish("1", "2", "3", "4", "5", "6")
    jet.wire.publish("s.h", b"7", header=b"NATS/1.0\r\nNats-Msg-Id: seven\r\n\r\n")
    jet.api("STREAM.MSG.DELETE.S", {"seq": 3})
    jet.consumer(ack_wait=10 * SECOND)
    first, second, *_ = jet.pull(b"4")
    jet.double_ack(first)
    jet.double_ack(second, b"-NAK")
    jet.pull(b"1")


def moved(jet: Jet) -> tuple[dict[str, Any], bytes]:
    filled(jet)
    document, archive = jet.backup()
    ok(jet.api("STREAM.DELETE.S"))
    return document, archive


def test_a_transfer_syncs_at_its_end_and_leaves_little_in_memory() -> None:
    jet = Jet(Machine(store_options=StoreOptions(segment_bytes=300_000)))
    jet.stream()
    for _ in range(120):
        jet.wire.publish("s.a", jet.machine.rng.randbytes(10_000))
    assert jet.machine.store._cache.bytes > 1_100_000
    document, archive = jet.backup()
    assert jet.machine.store._cache.bytes < 650_000

    ok(jet.api("STREAM.DELETE.S"))
    jet.advance(600)  # later than the window for duplicates, whose messages are read
    calls: list[tuple[str, str]] = []
    jet.machine.disk.plan = lambda call, path: calls.append((call, path[-4:]))
    ok(restore(jet, document, archive, step=5000))
    assert calls.count(("pwrite", ".seg")) > 20
    assert calls.count(("sync", ".seg")) < 9
    assert jet.machine.store._cache.bytes < 350_000
    jet.machine.store._cache.close()
    assert len(jet.backup()[1]) == len(archive)
    assert jet.machine.store._cache.bytes == 0


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_stream_comes_back_as_it_was(version: int, storage: str) -> None:
    jet = Jet(Machine(options=JetStreamOptions(archive_version=version)))
    jet.stream(storage=storage)
    jet.publish("1", "2", "3")
    jet.api("STREAM.MSG.DELETE.S", {"seq": 3})
    before = jet.api("STREAM.INFO.S")
    document, archive = jet.backup()
    jet.api("STREAM.DELETE.S")
    jet.advance(5)
    answer = restore(jet, document, archive)
    assert answer["type"] == "io.nats.jetstream.api.v1.stream_create_response"
    after = jet.api("STREAM.INFO.S")
    assert (after["config"], after["state"]) == (before["config"], before["state"])
    assert (after["created"] == before["created"]) is (version == 1 and storage == "file")
    jet.publish("4")
    assert jet.api("STREAM.MSG.GET.S", {"seq": 4})["message"]["subject"] == "s.a"


@pytest.mark.parametrize("crash", CRASHES)
@pytest.mark.sized
def test_a_crash_in_any_call_to_the_disk_leaves_all_or_nothing(crash: Callable[[SimDisk], None]) -> None:
    jet = Jet()
    jet.stream()
    document, _ = jet.backup()
    messages = [(seq, seq, b"s.a", b"", jet.machine.rng.randbytes(2100)) for seq in range(1, 55)]
    document["state"] = {"first_seq": 1, "last_seq": 54}
    archive = forged(messages, [consumer()], first_seq=1, last_seq=54, consumer_count=1)
    number, answers = 1, 0
    while answers < 2:
        jet = Jet(Machine(seed=number, store_options=StoreOptions(segment_bytes=4000)))
        jet.machine.disk.plan = crash_at(number)
        answered = False
        try:
            ok(restore(jet, document, archive, step=4200))
            answered = True
        except (Crash, AssertionError):  # an answer that did not come any more
            number += tiers.sized(5, 1)
        jet.machine.disk.plan = no_faults
        answers += answered
        number += answered
        segments = [path for path in jet.machine.disk.files() if path.endswith(".seg")]
        after = Jet(jet.machine.restarted(crash))
        assert not after.machine.store.damaged
        if answered or not is_gone(after):
            assert len(segments) > TRAILING_SEGMENTS
            assert ok(after.api("STREAM.INFO.S"))["state"]["messages"] == len(messages)
            assert after.api("CONSUMER.NAMES.S")["consumers"] == ["C"]
    assert number > 80


def test_a_stream_that_an_earlier_version_was_restoring_is_removed(jet: Jet) -> None:
    jet.stream()
    jet.publish("1")
    stored = jet.machine.store.streams["$G/S"]
    stored.set_meta(stored.meta.replace(b'"restoring":false', b'"restoring":true'))
    stored.flush()
    jet.machine.settle()
    after = Jet(jet.machine.restarted())
    assert is_gone(after)
    assert is_gone(Jet(after.machine.restarted()))


def test_the_answer_waits_until_everything_is_durable(jet: Jet) -> None:
    document, archive = moved(jet)
    to = begin(jet, document)
    jet.wire.request(to, archive)
    inbox = jet.listen("end")
    jet.machine.hold_commits = True
    jet.wire.publish(to, b"", "end")
    assert not jet.heard(inbox)
    assert "S" not in jet.machine.streams
    jet.machine.release_commits()
    assert ok(jet.heard(inbox)[0].json())["state"]["messages"] == 6


def test_nothing_is_visible_before_the_end(jet: Jet) -> None:
    document, archive = moved(jet)
    to = begin(jet, document)
    jet.wire.request(to, archive)
    assert jet.api("STREAM.NAMES")["streams"] is None
    assert "error" in jet.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    assert ok(jet.wire.request(to))["state"]["messages"] == 6


def test_ids_far_from_the_end_of_what_is_restored_are_remembered(jet: Jet, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(jet)
    jet.publish("8", "9", "10", "11")
    document, archive = jet.backup()
    ok(jet.api("STREAM.DELETE.S"))
    monkeypatch.setattr(dedupe, "ONE_COMMIT", 2)
    ok(restore(jet, document, archive))
    ack = jet.wire.request("s.h", b"7", b"NATS/1.0\r\nNats-Msg-Id: seven\r\n\r\n")
    assert (ack["seq"], ack["duplicate"]) == (7, True)


def test_another_name_and_other_subjects_may_be_given(jet: Jet) -> None:
    filled(jet)
    document, archive = jet.backup()
    document["config"] |= {"name": "COPY", "subjects": ["copy.>"]}
    answer = ok(restore(jet, document, archive, "COPY"))
    assert (answer["config"]["name"], answer["state"]["messages"]) == ("COPY", 6)
    assert jet.counts(stream="COPY")["ack_pending"] == jet.counts()["ack_pending"]


def test_limits_of_the_new_configuration_hold_at_once(jet: Jet) -> None:
    document, archive = moved(jet)
    document["config"]["max_msgs"] = 2
    restore(jet, document, archive)
    assert jet.api("STREAM.INFO.S")["state"]["first_seq"] == 6


# Archives of released servers


# Refusals


@pytest.mark.parametrize(
    ("document", "err_code"),
    [
        ({"config": {"name": "OTHER"}}, 10056),
        ({"config": {"name": "S", "subjects": ["a..b"]}}, 10052),
        ({"config": {"name": "S", "num_replicas": 3}}, 10074),
        ({"config": {"name": "S", "subjects": ["taken.a"]}}, 10065),
        ({"config": {"name": "S", "mirror": {"name": "X"}, "subjects": ["s"]}}, 10034),
        ({"config": {"name": "S", "unknown": 1}}, 10025),
        ({"config": {"name": "S"}, "state": {"last_ts": "2026-01-01T00:00:00Z", "first_seq": -1}}, 10025),
        (b"", 10003),
    ],
)
def test_a_stream_that_can_not_be_is_refused_before_it_begins(jet: Jet, document: object, err_code: int) -> None:
    jet.stream("TAKEN", "taken.>")
    answer = jet.api("STREAM.RESTORE.S", document)
    assert (answer["error"]["err_code"], answer["deliver_subject"]) == (err_code, "")


def test_an_overlap_that_came_meanwhile_is_refused_at_the_end(jet: Jet) -> None:
    document, archive = moved(jet)
    to = begin(jet, document)
    jet.stream("OTHER", "s.a")
    assert send(jet, to, archive)["error"]["err_code"] == 10065
    assert is_gone(jet)


def test_a_stream_of_the_name_that_came_meanwhile_stays(jet: Jet) -> None:
    document, archive = moved(jet)
    to = begin(jet, document)
    jet.stream("S", "theirs")
    assert send(jet, to, archive)["error"]["err_code"] == 10130
    assert ok(jet.api("STREAM.INFO.S"))["config"]["subjects"] == ["theirs"]


def reason(answer: Any) -> str:
    assert answer["type"] == "io.nats.jetstream.api.v1.stream_create_response"
    assert (answer["error"]["code"], answer["error"]["err_code"]) == (500, 10062)
    text: str = answer["error"]["description"]
    return text.removeprefix("restore failed: ")


def forged(
    messages: list[tuple[int, int, bytes, bytes, bytes]] | None = None,
    consumers: list[ArchivedConsumer] | None = None,
    **state: Any,
) -> bytes:
    """Return an archive that holds what it is told to, sensible or not."""
    writer, frames = WriterV2(), FrameWriter()
    head = ArchivedStream(state=StreamState(**state))
    parts = [*writer.beginning(head, consumers or [])]
    for message in messages or []:
        parts += writer.messages([StoredMessage(*message)])
    return b"".join(frames.write(part) for part in [*parts, *writer.end(0, 0)] if part)


HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"


def consumer(name: str = "C", **progress: Any) -> ArchivedConsumer:
    config = msgspec.convert({"name": name, "durable_name": name, "ack_policy": "explicit"}, ConsumerConfig)
    return ArchivedConsumer(name, config, Progress(**progress))


@pytest.mark.parametrize(
    ("archive", "text"),
    [
        (b"garbage", "this is not an S2 or Snappy stream"),
        (b"", "EOF"),
        (forged([(2, 1, b"s.a", b"", b""), (1, 1, b"s.a", b"", b"")]), "message sequence 1 out of order"),
        (forged([(2, 1, b"s.a", b"", b""), (2, 1, b"s.a", b"", b"")]), "message sequence 2 out of order"),
        (forged([(1 << 63, 1, b"s.a", b"", b"")]), f"message sequence {1 << 63} out of order"),
        (forged([(1, 1, b"", b"", b"")]), "message 1 has no valid subject or time"),
        (forged([(1, 1, b"s a", b"", b"")]), "message 1 has no valid subject or time"),
        (forged([(1, 1, b"s.a\r\n", b"", b"")]), "message 1 has no valid subject or time"),
        (forged([(1, -5, b"s.a", b"", b"")]), "message 1 has no valid subject or time"),
        (forged([(1, 1, b"s.a", b"HTTP", b"")]), "message 1 has no valid header"),
        (forged(consumers=[consumer("a/../b")]), "consumer 'a/../b' can not be restored under its name"),
        (forged(consumers=[consumer(), consumer()]), "consumer 'C' can not be restored under its name"),
        (
            forged(consumers=[consumer(pending={5: (1, 1)})]),
            "message 5 is pending, but was never delivered",
        ),
        (
            forged(consumers=[consumer(delivered_cseq=2, delivered_sseq=9, pending={5: (2, 1), 6: (3, 1)})]),
            "message 6 is pending, but was never delivered",
        ),
    ],
)
def test_a_hostile_archive_changes_nothing(jet: Jet, archive: bytes, text: str) -> None:
    jet.stream("OTHER", "other")
    before = jet.api("STREAM.LIST")["total"]
    assert reason(restore(jet, {"config": {"name": "S", "subjects": ["s.>"]}}, archive)) == text
    assert is_gone(jet)
    assert jet.api("STREAM.LIST")["total"] == before
    assert not jet.machine.store.faults


def test_a_good_forgery_is_taken(jet: Jet) -> None:
    archive = forged([(7, 1, b"s.a", HEADER, b"x")], [consumer()], first_seq=7, last_seq=9)
    state = ok(restore(jet, {"config": {"name": "S"}}, archive))["state"]
    assert (state["first_seq"], state["last_seq"], state["messages"]) == (7, 9, 1)


def test_a_client_that_sends_on_after_a_fault_is_told_again(jet: Jet) -> None:
    to = begin(jet, {"config": {"name": "S"}})
    assert reason(jet.wire.request(to, b"garbage")) == "this is not an S2 or Snappy stream"
    assert reason(jet.wire.request(to, b"more")) == "this is not an S2 or Snappy stream"
    assert reason(jet.wire.request(to)) == "this is not an S2 or Snappy stream"
    jet.advance(5.1)
    assert jet.wire.request(to).status == b"503"


def test_a_restore_that_stalls_is_given_up(jet: Jet) -> None:
    document, archive = moved(jet)
    events = jet.listen("$JS.EVENT.ADVISORY.STREAM.RESTORE_COMPLETE.S")
    to = begin(jet, document)
    jet.advance(4.9)
    jet.wire.request(to, archive)
    jet.advance(4.9)
    assert "$G/S" in jet.machine.store.streams
    jet.advance(0.2)
    assert is_gone(jet)
    assert not jet.heard(events)
    assert jet.wire.request(to).status == b"503"


def test_a_chunk_without_a_reply_subject_ends_the_restore(jet: Jet) -> None:
    to = begin(jet, {"config": {"name": "S"}})
    jet.wire.publish(to, b"chunk")
    assert "reply subject" in reason(jet.wire.request(to))


def test_chunks_sent_without_waiting_are_answered_in_order(jet: Jet) -> None:
    jet.stream()
    jet.publish_many(3000)
    document, archive = jet.backup()
    ok(jet.api("STREAM.DELETE.S"))
    to = begin(jet, document).encode()
    sid = jet.listen("reply.*")
    parts = [archive[at : at + 500] for at in range(0, len(archive), 500)]
    lines = [b"PUB %b reply.%d %d\r\n%b\r\n" % (to, i, len(part), part) for i, part in enumerate([*parts, b""])]
    jet.wire.send(b"".join(lines))
    answers = jet.heard(sid)
    assert [m.subject for m in answers] == [b"reply.%d" % i for i in range(len(parts) + 1)]
    assert ok(answers[-1].json())["state"]["messages"] == 3000


def test_a_client_that_floods_is_refused(jet: Jet, monkeypatch: pytest.MonkeyPatch) -> None:
    document, archive = moved(jet)
    monkeypatch.setattr("natsctl.jetstream.endpoints.restore.MAX_QUEUED_BYTES", 10)
    assert "wait for their answers" in reason(restore(jet, document, archive))
    assert is_gone(jet)


@pytest.mark.parametrize("at_end", [False, True])
def test_messages_that_a_commit_could_not_keep_fail_the_restore(jet: Jet, at_end: bool) -> None:
    archive = forged([(seq, 1, b"s.a", b"", b"") for seq in range(1, 9)])
    to = begin(jet, {"config": {"name": "S"}})
    half = len(archive) if at_end else len(archive) * 2 // 3
    jet.wire.request(to, archive[:half])
    store = jet.machine.store.streams["$G/S"]
    store.refused(0, StoreFullError("no room on disk"))
    if not at_end:
        jet.wire.publish(to, archive[half:], "nobody")
    assert reason(jet.wire.request(to)) == "no room on disk"
    assert is_gone(jet)


def test_the_servers_limit_holds_for_what_is_restored() -> None:
    jet = Jet(Machine(options=JetStreamOptions(max_storage=20_000)))
    messages = [(seq, 1, b"s.a", b"", bytes(1000)) for seq in range(1, 40)]
    answer = restore(jet, {"config": {"name": "S"}}, forged(messages))
    assert answer["error"] == {
        "code": 500,
        "err_code": 10047,
        "description": "insufficient storage resources available",
    }
    assert jet.machine.engine.usage[StorageType.FILE].used == 0
    assert is_gone(jet)
    assert jet.api("INFO")["storage"] == 0


def test_more_pending_messages_than_memory_should_hold_are_refused(jet: Jet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("natsctl.jetstream.endpoints.restore.MAX_ENTRIES", 3)
    one = {"delivered_cseq": 9, "delivered_sseq": 9}
    waiting = [consumer("A", pending={1: (1, 1), 2: (2, 1)}, **one), consumer("B", redelivered={1: 1, 2: 1}, **one)]
    answer = restore(jet, {"config": {"name": "S"}}, forged(consumers=waiting))
    assert reason(answer) == "its consumers wait for more than 3 acks"
