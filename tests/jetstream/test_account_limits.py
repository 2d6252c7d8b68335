"""Limits of an account hold for what it makes and stores, are shown, and are right again after a restart."""

from typing import Any

import msgspec
import pytest

from natsctl.api.account import UNLIMITED
from natsctl.jetstream.engine_options import JetStreamOptions
from tests.support.jet import Jet, ok
from tests.support.machine import Machine
from tests.support.simdisk import SimDisk


def limited(**limits: Any) -> Jet:
    account = msgspec.structs.replace(UNLIMITED, **limits)
    return Jet(Machine(options=JetStreamOptions(accounts={"$G": account})))


def publish(jet: Jet, size: int, subject: str = "s.a") -> Any:
    return jet.wire.request(subject, bytes(size))


def code(answer: Any) -> int:
    return int(answer["error"]["err_code"]) if "error" in answer else 0


def test_a_run_of_messages_stops_at_the_limit_exactly() -> None:
    jet = limited(max_storage=10 * (22 + 3 + 1 + 8))
    jet.stream()
    jet.publish_many(9)
    jet.publish_many(9)
    assert ok(jet.api("STREAM.INFO.S"))["state"]["messages"] == 10


@pytest.mark.parametrize("crash", [SimDisk.kill, SimDisk.power_loss])
def test_what_is_stored_counts_after_a_restart(crash: Any) -> None:
    jet = limited(max_storage=500, max_streams=1, max_consumers=1)
    jet.stream()
    jet.consumer()
    publish(jet, 400)
    again = Jet(jet.machine.restarted(crash))
    assert code(publish(again, 100)) == 10002
    assert code(again.api("STREAM.CREATE.T", {"name": "T"})) == 10027
    wish = {"stream_name": "S", "config": {"durable_name": "D"}}
    assert code(again.api("CONSUMER.DURABLE.CREATE.S.D", wish)) == 10026
    assert code(again.api("CONSUMER.DURABLE.CREATE.S.C", {**wish, "config": {"durable_name": "C"}})) != 10026
    assert again.api("INFO")["storage"] == 400 + 33


def test_limits_that_an_update_tightens_give_room() -> None:
    jet = limited(max_storage=1000)
    jet.stream()
    publish(jet, 900)
    ok(jet.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "max_bytes": 100}))
    jet.stream("T", "t")
    assert publish(jet, 900, "t")["seq"] == 1


def test_a_restore_beyond_the_account_is_refused() -> None:
    source = Jet()
    source.stream()
    for _ in range(5):
        publish(source, 500)
    document, archive = source.backup()
    jet = limited(max_storage=1000)
    to = ok(jet.api("STREAM.RESTORE.S", document))["deliver_subject"]
    jet.wire.request(to, archive)
    assert "error" in jet.wire.request(to)
    assert jet.api("INFO")["storage"] == 0
    assert jet.api("STREAM.NAMES")["streams"] is None


def test_streams_have_a_thousand_consumers_unless_somebody_says_otherwise() -> None:
    jet = Jet(Machine(options=JetStreamOptions(default_max_consumers=2)))
    jet.stream()
    jet.stream("T", "t", max_consumers=3)
    for name in ("A", "B"):
        jet.consumer(name)
        jet.consumer(name, "T")
    jet.consumer("C", "T")
    wish = {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}
    assert code(jet.api("CONSUMER.DURABLE.CREATE.S.C", wish)) == 10026
    assert JetStreamOptions().default_max_consumers == 1000


# Without JetStream


@pytest.mark.parametrize(
    ("verb", "body", "expected"),
    [
        ("INFO", b"", 10039),
        ("STREAM.CREATE.S", b"{", 10039),
        ("STREAM.DELETE.S", b"x", 10039),
        ("STREAM.TEMPLATE.NAMES", b"", 10039),
        ("CONSUMER.PAUSE.S.C", b"", 10039),
        ("STREAM.LEADER.STEPDOWN.S", b"", 10010),
    ],
)
def test_an_account_without_jetstream_is_told_so(verb: str, body: bytes, expected: int) -> None:
    jet = Jet(Machine(options=JetStreamOptions(accounts={})))
    assert code(jet.api(verb, body)) == expected


def test_an_account_without_jetstream_has_no_objects() -> None:
    jet = Jet(Machine(options=JetStreamOptions(accounts={})))
    assert jet.wire.request("$JS.API.CONSUMER.MSG.NEXT.S.C").status == b"503"
    assert jet.wire.request("$JS.API.DIRECT.GET.S").status == b"503"
    sid = jet.listen("in")
    jet.wire.publish("$JS.API.CONSUMER.RESET.S.C", b"", "in")
    jet.wire.publish("$JS.API.FOO", b"", "in")
    assert jet.heard(sid) == []


def test_streams_of_an_account_that_lost_jetstream_are_kept_and_not_served(jet: Jet) -> None:
    jet.stream()
    publish(jet, 10)
    SimDisk.kill(jet.machine.disk)
    without = Jet(Machine(jet.machine.disk, options=JetStreamOptions(accounts={})))
    assert without.machine.store.healthy and code(without.api("STREAM.INFO.S")) == 10039
    assert without.wire.request("s.a", b"x").status == b"503"
    again = Jet(without.machine.restarted())
    assert code(again.api("INFO")) == 10039
    SimDisk.kill(again.machine.disk)
    assert Jet(Machine(again.machine.disk)).api("STREAM.INFO.S")["state"]["messages"] == 1
