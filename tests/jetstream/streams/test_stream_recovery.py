"""What a stream is after a restart, and after a disk failed it."""

import errno
from typing import Any

import msgspec
import pytest

from natsctl.store.stream import StreamStore
from tests.support.jet import SECOND, Jet, ok
from tests.support.simdisk import DiskFault, SimDisk, no_faults

CRASHES = pytest.mark.parametrize("crash", [SimDisk.kill, SimDisk.power_loss])


def publish(jet: Jet, msg_id: str = "", subject: str = "s.a") -> Any:
    return jet.wire.request(subject, b"x", f"NATS/1.0\r\nNats-Msg-Id: {msg_id}\r\n\r\n".encode() if msg_id else b"")


@CRASHES
def test_a_blank_behind_an_id_belongs_to_it(jet: Jet, crash: Any) -> None:
    jet.stream()
    publish(jet, "one ")
    again = Jet(jet.machine.restarted(crash))
    assert publish(again, "one ")["duplicate"]
    assert "duplicate" not in publish(again, "one")


def test_ids_older_than_the_window_do_not_come_back(jet: Jet) -> None:
    jet.stream(duplicate_window=10 * SECOND)
    publish(jet, "old")
    jet.advance(8)
    publish(jet, "young")
    jet.machine.clock.advance(5 * SECOND)
    again = Jet(jet.machine.restarted())
    assert not publish(again, "old").get("duplicate")
    assert publish(again, "young").get("duplicate")


def test_ids_survive_a_rewritten_journal(jet: Jet) -> None:
    jet.stream()
    jet.consumer()
    publish(jet, "one")
    publish(jet, "two")
    ok(jet.api("STREAM.MSG.DELETE.S", {"seq": 1}))
    stream = jet.machine.streams["S"]
    stream.consumer_set.rewrite()
    stream.store.request_sync()
    jet.machine.settle()
    again = Jet(jet.machine.restarted())
    assert publish(again, "one").get("duplicate")
    assert publish(again, "two").get("duplicate")
    assert again.counts()["pending"] == 1


def test_the_last_id_survives(jet: Jet) -> None:
    jet.stream()
    publish(jet, "one")
    again = Jet(jet.machine.restarted())
    header = b"NATS/1.0\r\nNats-Expected-Last-Msg-Id: one\r\n\r\n"
    assert again.wire.request("s.a", b"x", header)["seq"] == 2


def test_a_stream_that_never_saw_an_id_reads_no_messages_at_recovery(jet: Jet, monkeypatch: pytest.MonkeyPatch) -> None:
    jet.stream()
    publish(jet)

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("messages were read")

    monkeypatch.setattr(StreamStore, "read_from", refuse)
    assert Jet(jet.machine.restarted()).api("STREAM.INFO.S")["state"]["messages"] == 1


def test_memory_streams_are_gone_after_a_restart(jet: Jet) -> None:
    jet.stream(storage="memory")
    publish(jet)
    again = Jet(jet.machine.restarted())
    assert again.api("STREAM.NAMES")["streams"] is None


# A disk that fails


def failing(error: int, *calls: str) -> Any:
    return lambda call, path: DiskFault(error=error) if call in calls else None


def test_a_failed_sync_refuses_publishers_and_never_acks(jet: Jet) -> None:
    jet.stream()
    assert publish(jet)["seq"] == 1
    jet.machine.disk.plan = failing(errno.EIO, "sync")
    refused = publish(jet, "one")
    assert (refused["error"]["code"], refused["error"]["err_code"], refused["seq"]) == (503, 10077, 0)
    jet.machine.disk.plan = no_faults
    assert publish(jet)["error"]["err_code"] == 10077
    assert not jet.machine.store.healthy
    assert jet.api("STREAM.INFO.S")["config"]["name"] == "S"
    assert jet.api("STREAM.MSG.GET.S", {"seq": 1})["message"]["seq"] == 1
    assert jet.api("STREAM.MSG.GET.S", {"seq": 2})["error"]["err_code"] == 10037
    assert jet.api("STREAM.PURGE.S")["error"]["err_code"] == 10077
    assert jet.api("STREAM.MSG.DELETE.S", {"seq": 1})["error"]["err_code"] == 10077


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
def test_consumers_of_a_failed_stream_break_nothing(jet: Jet, retention: str) -> None:
    jet.stream(retention=retention)
    jet.consumer()
    jet.publish("1", "2")
    (message,) = jet.pull({"batch": 1})
    jet.machine.disk.plan = failing(errno.EIO, "sync")
    publish(jet)
    jet.ack(message)
    assert jet.double_ack(message) == []
    jet.advance(120)
    assert jet.api("STREAM.INFO.S")["state"]["consumer_count"] == 1
    jet.machine.disk.plan = no_faults
    again = Jet(jet.machine.restarted())
    assert again.counts()["pending"] >= 1


def test_a_message_is_acknowledged_that_is_on_the_disk_while_the_journal_finds_no_room(jet: Jet) -> None:
    jet.stream()
    jet.consumer()
    publish(jet, "one")
    disk, full = jet.machine.disk, DiskFault(error=errno.ENOSPC)
    disk.unlink("RESERVE")
    disk.plan = lambda call, path: full if call in ("pwrite", "open") and "journal" in path else None
    jet.ack(jet.pull(b"1")[0])
    assert publish(jet, "two") == {"stream": "S", "seq": 2}
    assert jet.api("STREAM.PURGE.S")["error"]["err_code"] == 10047
    assert publish(jet, "three") == {"stream": "S", "seq": 3}
    disk.plan = no_faults
    again = Jet(jet.machine.restarted())
    assert again.api("STREAM.INFO.S")["state"]["last_seq"] == 3


def test_acks_deletes_and_updates_are_answered_although_publishes_next_to_them_are_refused(jet: Jet) -> None:
    config = ok(jet.stream())["config"]
    jet.consumer()
    publish(jet)
    publish(jet)
    delivered = jet.pull(b"1")[0]
    disk, full = jet.machine.disk, DiskFault(error=errno.ENOSPC)
    disk.plan = lambda call, path: full if call == "pwrite" and disk.exists("RESERVE") else None
    jet.machine.hold_commits = True
    requests = {"s.a": b"refused", delivered.reply.decode(): b"+ACK", "$JS.API.STREAM.MSG.DELETE.S": b'{"seq":2}'}
    sids = [jet.listen(f"_R.{number}") for number in range(3)]
    for number, (subject, body) in enumerate(requests.items()):
        jet.wire.publish(subject, body, f"_R.{number}", b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n")
    jet.machine.release_commits()
    refusal, ack, delete = (jet.heard(sid)[0].payload for sid in sids)
    assert (msgspec.json.decode(refusal)["error"]["err_code"], ack) == (10047, b"")
    assert msgspec.json.decode(delete)["success"]
    assert jet.api("STREAM.UPDATE.S", {**config, "subjects": ["t.>"]})["error"]["err_code"] == 10047
    again = Jet(jet.machine.restarted(SimDisk.power_loss))
    assert again.api("STREAM.INFO.S")["state"]["messages"] == 1
    assert again.api("CONSUMER.INFO.S.C")["ack_floor"]["stream_seq"] == 1
    again.machine.disk.plan = no_faults
    assert publish(again, "one") == {"stream": "S", "seq": 3}
    assert publish(again, "one").get("duplicate")


def test_a_full_disk_is_told_to_the_system_account_once_a_minute(jet: Jet) -> None:
    jet.stream()
    heard: list[Any] = []
    system = jet.machine.broker.system_account
    system.subscribe(b"$JS.EVENT.>", lambda subject, reply, header, payload, origin: heard.append((subject, payload)))
    disk, full = jet.machine.disk, DiskFault(error=errno.ENOSPC)
    disk.plan = lambda call, path: full if call == "pwrite" and disk.exists("RESERVE") else None
    assert publish(jet)["error"]["err_code"] == 10047
    jet.machine.engine.disk_full.report("S")
    assert [subject for subject, _ in heard] == [b"$JS.EVENT.ADVISORY.SERVER.OUT_OF_STORAGE"]
    event = msgspec.json.decode(heard[0][1])
    assert list(event) == ["type", "id", "timestamp", "server", "server_id", "stream", "cluster"]
    assert (event["type"], event["stream"]) == ("io.nats.jetstream.advisory.v1.server_out_of_space", "S")
    jet.advance(60)
    jet.machine.engine.disk_full.report("S")
    assert len(heard) == 2


def test_a_stream_that_can_not_be_made_durable_is_not_there(jet: Jet) -> None:
    jet.machine.disk.plan = failing(errno.ENOSPC, "mkdir", "create", "write", "pwrite")
    answer = jet.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    assert answer["error"]["err_code"] == 10047
    assert jet.api("STREAM.NAMES")["streams"] is None
    assert jet.wire.request("s.a", b"x").status == b"503"
    jet.machine.disk.plan = no_faults
    jet.stream()
    assert publish(jet)["seq"] == 1


def test_an_update_that_can_not_be_kept_is_taken_back(jet: Jet) -> None:
    config = ok(jet.stream())["config"]
    jet.machine.disk.plan = failing(errno.ENOSPC, "create", "write", "pwrite")
    answer = jet.api("STREAM.UPDATE.S", {**config, "subjects": ["t.>"]})
    assert answer["error"]["err_code"] == 10047
    jet.machine.disk.plan = no_faults
    assert jet.api("STREAM.INFO.S")["config"] == config
    assert publish(jet)["seq"] == 1


# What this version can not read


def test_a_stream_with_an_unknown_journal_is_offline_and_untouched(jet: Jet) -> None:
    jet.stream()
    jet.stream("T", "t")
    publish(jet)
    store = jet.machine.streams["S"].store
    store.append_record(0x20, b"not a consumer")
    store.request_sync()
    jet.machine.settle()
    again = Jet(jet.machine.restarted())
    assert again.api("STREAM.NAMES")["streams"] == ["S", "T"]
    assert not again.machine.store.healthy
    listed = again.api("STREAM.LIST")
    assert (listed["total"], list(listed["offline"]), listed["missing"]) == (2, ["S"], ["S"])
    assert again.api("STREAM.NAMES", {"subject": "s.a"})["total"] == 0
    for verb in ("STREAM.INFO.S", "STREAM.PURGE.S", "CONSUMER.NAMES.S", "CONSUMER.INFO.S.C"):
        refusal = again.api(verb)["error"]
        assert refusal["err_code"] == 10194 and refusal["description"].startswith("stream is offline: "), verb
    assert again.api("STREAM.INFO.X")["error"]["err_code"] == 10059
    assert again.wire.request("s.a", b"x").status == b"503"
    answer = again.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    assert answer["error"]["err_code"] == 10194
    assert again.machine.store.streams["$G/S"].messages == 1


def test_a_stream_that_can_not_be_read_is_deleted_on_request(jet: Jet) -> None:
    jet.stream()
    publish(jet)
    store = jet.machine.streams["S"].store
    store.append_record(0x20, b"not a consumer")
    store.request_sync()
    jet.machine.settle()
    again = Jet(jet.machine.restarted())
    assert ok(again.api("STREAM.DELETE.S"))["success"]
    assert again.machine.store.healthy
    assert again.api("STREAM.INFO.S")["error"]["err_code"] == 10059
    again.stream()
    assert publish(again)["seq"] == 1
    assert Jet(again.machine.restarted()).api("STREAM.INFO.S")["state"]["messages"] == 1


@pytest.mark.parametrize("loss", ["a damaged meta", "no meta", "no folder", "another stream's journal"])
def test_a_refused_stream_keeps_its_name_until_it_is_deleted(jet: Jet, loss: str) -> None:
    for name in ("S", "T"):
        jet.stream(name, f"{name.lower()}.>")
        jet.consumer(f"C{name}", stream=name)
        publish(jet, subject=f"{name.lower()}.a")
    jet.machine.settle()
    jet.machine.store.close()
    disk, folder = jet.machine.disk, "streams/s000001"
    if loss == "a damaged meta":
        disk.open(f"{folder}/meta").pwrite(b"x", 3)
    elif loss == "no meta":
        disk.unlink(f"{folder}/meta")
    elif loss == "no folder":
        for name in disk.listdir(folder):
            disk.unlink(f"{folder}/{name}")
        disk.rmdir(folder)
    else:
        foreign = disk.open_read("streams/s000002/journal-0.log")
        disk.unlink(f"{folder}/journal-0.log")
        disk.open(f"{folder}/journal-0.log", create=True).pwrite(foreign.pread(foreign.size(), 0), 0)
    again = Jet(jet.machine.restarted())
    assert not again.machine.store.healthy and list(again.machine.engine.offline) == ["$G/S"]
    assert again.api("STREAM.NAMES")["streams"] == ["S", "T"]
    assert list(again.api("STREAM.LIST")["offline"]) == ["S"]
    config = {"name": "S", "subjects": ["s.>"]}
    refusals = [again.api(verb, config)["error"] for verb in ("STREAM.CREATE.S", "STREAM.UPDATE.S")]
    refusals += [again.api("STREAM.RESTORE.S", {"config": config, "state": {}})["error"]]
    refusals += [again.api(verb)["error"] for verb in ("STREAM.INFO.S", "STREAM.PURGE.S", "CONSUMER.NAMES.S")]
    for refusal in refusals:
        assert refusal["err_code"] == 10194 and "s000001" in refusal["description"], refusal
    again.api("STREAM.CREATE.S", {**config, "storage": "memory"})
    assert list(again.machine.store.streams) == ["$G/T"]
    assert ok(again.api("STREAM.DELETE.S"))["success"]
    assert again.machine.store.healthy and again.api("STREAM.NAMES")["streams"] == ["T"]
    again.stream("S", "s.>")
    assert publish(again)["seq"] == 1
    last = Jet(again.machine.restarted())
    assert last.machine.store.healthy and last.api("CONSUMER.NAMES.S")["consumers"] in (None, [])
    assert last.api("CONSUMER.NAMES.T")["consumers"] == ["CT"]
