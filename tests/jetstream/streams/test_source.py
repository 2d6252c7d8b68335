"""Sources on a server in memory: what is taken, once each, and where a source goes on."""

import errno
import json
from typing import Any

import pytest

from natsctl.api.headers import get as header_of
from natsctl.jetstream.engine import Engine
from natsctl.jetstream.engine_options import JetStreamOptions
from natsctl.jetstream.streams.source import Source
from natsctl.jetstream.streams.upstream import CONNECT_COST, Upstream
from natsctl.store.stream import StreamStore
from tests.support.jet import SECOND, Jet, ok
from tests.support.machine import TURN_BUDGET, Machine
from tests.support.simdisk import DiskFault, no_faults
from tests.support.stored_messages import stored_rows

PATIENCE_S = 25
"""Longer than it takes to notice that an origin is gone and to try again."""

MANY = 1500
"""Sources that connect in very many turns."""


def sourcing(jet: Jet, *sources: Any, name: str = "X", **config: Any) -> Any:
    wanted = [source if isinstance(source, dict) else {"name": source} for source in sources]
    return ok(jet.api(f"STREAM.CREATE.{name}", {"name": name, "sources": wanted, **config}))


def info(jet: Jet, name: str = "X") -> Any:
    return ok(jet.api(f"STREAM.INFO.{name}", {"deleted_details": True}))


def texts(jet: Jet, name: str = "X") -> list[str]:
    return [row.payload.decode() for row in stored_rows(jet, name)]


def test_duplicates_are_left_out_only_with_a_window(jet: Jet) -> None:
    jet.stream("S")
    jet.stream("T", "t.>")
    sourcing(jet, "S", "T", name="WITH", duplicate_window=60 * SECOND)
    sourcing(jet, "S", "T", name="WITHOUT")
    for subject in ("s.a", "t.a"):
        jet.wire.publish(subject, b"m", header=b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n")
    jet.publish("last")
    assert texts(jet, "WITH") == ["m", "last"]
    assert texts(jet, "WITHOUT") == ["m", "m", "last"]


def killed(jet: Jet) -> Jet:
    return Jet(jet.machine.restarted())


@pytest.mark.parametrize("verb", ["PURGE", "MSG.DELETE"])
def test_a_source_goes_on_when_its_newest_messages_are_gone(jet: Jet, verb: str) -> None:
    jet.stream("S")
    sourcing(jet, "S")
    jet.publish("a", "b", "c")
    if verb == "PURGE":
        ok(jet.api("STREAM.PURGE.X"))
    else:
        for seq in (2, 3):
            ok(jet.api("STREAM.MSG.DELETE.X", {"seq": seq}))
    again = killed(killed(jet))
    again.publish("d")
    assert texts(again) == (["d"] if verb == "PURGE" else ["a", "d"])


def test_a_source_goes_on_when_everything_expired(jet: Jet) -> None:
    jet.stream("S")
    sourcing(jet, "S", max_age=SECOND)
    jet.publish("a", "b")
    jet.advance(3)
    again = killed(jet)
    again.advance(3)
    again.publish("c")
    assert texts(again) == ["c"]


def test_positions_survive_a_rewritten_journal(jet: Jet) -> None:
    jet.stream("S")
    sourcing(jet, "S")
    jet.publish("a")
    ok(jet.api("STREAM.PURGE.X"))
    stream = jet.machine.streams["X"]
    stream.consumer_set.rewrite()
    jet.machine.settle()
    again = killed(jet)
    again.publish("b")
    assert texts(again) == ["b"]


def test_a_source_that_was_away_goes_on_where_it_was(jet: Jet) -> None:
    jet.stream("S")
    sourcing(jet, "S", subjects=["x"])
    jet.publish("a")
    ok(jet.api("STREAM.UPDATE.X", {"name": "X", "subjects": ["x"]}))
    jet.publish("b")
    assert texts(jet) == ["a"]
    ok(jet.api("STREAM.UPDATE.X", {"name": "X", "subjects": ["x"], "sources": [{"name": "S"}]}))
    jet.advance(3)
    jet.publish("c")
    assert texts(jet) == ["a", "b", "c"]


def test_a_new_source_of_a_stream_that_lost_messages_begins_at_its_newest(jet: Jet) -> None:
    jet.stream("S")
    jet.publish("old")
    sourcing(jet, subjects=["x"])
    jet.advance(1)
    for n in range(2):
        jet.publish(str(n), subject="x")
    ok(jet.api("STREAM.PURGE.X", {"keep": 1}))
    ok(jet.api("STREAM.UPDATE.X", {"name": "X", "subjects": ["x"], "sources": [{"name": "S"}]}))
    jet.advance(1)
    assert "seq" not in info(jet)["sources"][0]
    again = killed(jet)
    again.publish("2", subject="x")  # what comes behind the first connection is taken, whatever else is stored
    ok(again.api("STREAM.PURGE.X", {"keep": 1}))
    again = killed(again)
    again.publish("new")
    assert texts(again) == ["2", "new"]


def test_an_origin_made_anew_is_taken_from_its_beginning(jet: Jet) -> None:
    jet.stream("S")
    sourcing(jet, "S")
    jet.publish("a", "b", "c")
    ok(jet.api("STREAM.DELETE.S"))
    jet.advance(PATIENCE_S)
    assert info(jet)["sources"][0]["error"]["err_code"] == 10059
    jet.stream("S")
    jet.publish("x", "y")
    jet.advance(PATIENCE_S)
    assert texts(jet) == ["a", "b", "c", "x", "y"]
    assert "error" not in info(jet)["sources"][0]
    again = killed(jet)
    again.publish("z")
    assert texts(again) == ["a", "b", "c", "x", "y", "z"]


def test_a_full_stream_with_discard_new_takes_the_rest_when_there_is_room(jet: Jet) -> None:
    jet.stream("S")
    sourcing(jet, "S", max_msgs=2, discard="new")
    jet.publish("a", "b", "c", "d")
    jet.advance(PATIENCE_S)
    assert texts(jet) == ["a", "b"]
    ok(jet.api("STREAM.PURGE.X"))
    jet.advance(PATIENCE_S)
    assert texts(jet) == ["c", "d"]


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_sourcing_consumes_from_streams_that_keep_what_is_wanted(jet: Jet, retention: str) -> None:
    jet.stream("S", retention=retention)
    sourcing(jet, "S")
    jet.publish("a", "b", "c")
    assert texts(jet) == ["a", "b", "c"]
    jet.advance(5)
    assert info(jet, "S")["state"]["messages"] == 0
    again = killed(jet)
    again.advance(3)
    again.publish("d")
    again.advance(5)
    assert texts(again) == ["a", "b", "c", "d"]
    assert info(again, "S")["state"]["messages"] == 0


def test_nothing_leaves_a_work_queue_before_it_is_durable_where_it_goes(
    jet: Jet, monkeypatch: pytest.MonkeyPatch
) -> None:
    jet.stream("S", retention="workqueue")
    sourcing(jet, "S", name="X")
    target = jet.machine.streams["X"].store
    begin = StreamStore.begin_commit
    monkeypatch.setattr(StreamStore, "begin_commit", lambda store: None if store is target else begin(store))
    jet.publish("a", "b")
    jet.advance(5)
    assert target.last_seq == 2
    assert info(jet, "S")["state"]["messages"] == 2
    monkeypatch.undo()  # its disk has written
    jet.machine.settle()
    jet.advance(5)
    assert info(jet, "S")["state"]["messages"] == 0
    assert texts(jet) == ["a", "b"]


def test_a_restored_stream_finds_its_place_by_reading_backwards(jet: Jet) -> None:
    jet.stream("S")
    sourcing(jet, "S", subjects=["x"])
    jet.publish("a", "b")
    for _ in range(3):
        jet.publish("own", subject="x")
    kept, archive = jet.backup("X")
    ok(jet.api("STREAM.DELETE.X"))
    answer = ok(jet.api("STREAM.RESTORE.X", kept))
    to = answer["deliver_subject"]
    for at in range(0, len(archive), 4096):
        jet.wire.request(to, archive[at : at + 4096])
    ok(jet.wire.request(to, b""))
    jet.publish("c")
    jet.advance(3)
    assert texts(jet) == ["a", "b", "own", "own", "own", "c"]


def test_very_many_sources_connect_by_the_budget_of_one_part(jet: Jet, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update gives a stream with messages many sources: the turns of everybody else stay short and frequent."""
    engine, waiting, connected = jet.machine.engine, list[int](), [0]
    run_ready, connect = Engine.run_ready, Upstream.connect

    def counting_turns(self: Engine, budget: int) -> bool:
        connected.append(0)
        more = run_ready(self, budget)
        waiting.append(len(engine._ready))
        return more

    def counting(self: Upstream) -> None:
        connected[-1] += 1
        connect(self)

    jet.stream("X", "x")
    jet.publish("own", subject="x")
    monkeypatch.setattr(Engine, "run_ready", counting_turns)
    monkeypatch.setattr(Upstream, "connect", counting)
    sources = [{"name": f"O{number}"} for number in range(MANY)]
    ok(jet.api("STREAM.UPDATE.X", {"name": "X", "subjects": ["x"], "sources": sources}))
    jet.machine.settle()
    assert sum(connected) == MANY
    assert max(connected) <= TURN_BUDGET // CONNECT_COST + 1
    assert max(waiting) <= 4
    for source in sources[:3]:
        jet.stream(source["name"], f"{source['name']}.x")
        jet.publish(source["name"], subject=f"{source['name']}.x")
    jet.advance(PATIENCE_S)
    assert sorted(texts(jet)) == ["O0", "O1", "O2", "own"]


def test_a_search_looks_for_all_sources_of_a_stream_once(jet: Jet) -> None:
    """Headers without an index, as of old servers, and each names a source."""

    class Counting(dict[str, Source]):
        walks = 0

        def values(self) -> Any:
            self.walks += 1
            return super().values()

    jet.stream("X", "x")
    stream = jet.machine.engine.accounts["$G"].streams["X"]
    for number in range(200):
        header = b"NATS/1.0\r\nNats-Stream-Source: O%d %d\r\n\r\n" % (number % 100, number + 1)
        assert stream.pipeline.store_sourced(b"x", header, b"x")
    jet.machine.settle()
    searching = Counting()
    stream.upstreams.sources._searching = searching
    ok(jet.api("STREAM.UPDATE.X", {"name": "X", "subjects": ["x"], "sources": [{"name": f"O{n}"} for n in range(150)]}))
    jet.machine.settle()
    found = [source.position.seq for source in stream.upstreams.sources.sources.values()]
    assert found == [n + 101 for n in range(100)] + [0] * 50
    assert searching.walks <= 10, "once in each turn that ends a search"


def test_a_source_that_goes_takes_its_consumer_off_a_work_queue(jet: Jet) -> None:
    jet.stream("S", retention="workqueue")
    sourcing(jet, "S", subjects=["x"])
    assert ok(jet.api("CONSUMER.NAMES.S"))["total"] == 1
    ok(jet.api("STREAM.UPDATE.X", {"name": "X", "subjects": ["x"]}))
    assert ok(jet.api("CONSUMER.NAMES.S"))["total"] == 0
    jet.publish("a")
    ok(jet.api("STREAM.UPDATE.X", {"name": "X", "subjects": ["x"], "sources": [{"name": "S"}]}))
    assert texts(jet) == ["a"]
    ok(jet.api("STREAM.DELETE.X"))
    assert ok(jet.api("CONSUMER.NAMES.S"))["total"] == 0


def test_an_origin_can_be_reached_by_the_prefix_of_its_domain() -> None:
    jet = Jet(Machine(options=JetStreamOptions(domain="D")))
    jet.stream("S")
    external = {"api": "$JS.D.API", "deliver": "over.there"}
    sourcing(jet, {"name": "S", "external": external})
    ok(jet.api("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S", "external": external}}))
    jet.publish("a", "b")
    assert texts(jet) == texts(jet, "M") == ["a", "b"]
    assert info(jet)["sources"][0]["external"] == external
    consumers = jet.machine.streams["S"].consumers.values()
    assert sorted(c.config.deliver_subject[:13] for c in consumers) == ["over.there.M.", "over.there.S."]


def test_an_older_server_is_asked_for_less(jet: Jet) -> None:
    jet.stream("S")
    asked = []

    def refuse(subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: object) -> None:
        asked.append((header, json.loads(payload)["config"]))
        jet.machine.engine.accounts["$G"].account.publish(reply, b"", b"", b'{"error":{"code":412,"err_code":10185}}')

    jet.machine.engine.accounts["$G"].account.subscribe(b"$JS.OLD.API.CONSUMER.CREATE.S", refuse)
    sourcing(jet, {"name": "S", "external": {"api": "$JS.OLD.API", "deliver": ""}})
    assert [header_of(header, b"Nats-Required-Api-Level") for header, _ in asked] == [b"5", b"4", None]
    assert [config.get("sourcing", False) for _, config in asked] == [True, True, False]
    assert len({config["name"] for _, config in asked}) == 2


def test_an_answer_that_does_not_reach_the_origin_is_an_error(jet: Jet) -> None:
    jet.stream("S")
    sourcing(jet, "S")
    stream = jet.machine.streams["X"]
    (source,) = stream.upstreams.sources.sources.values()
    (consumer,) = jet.machine.streams["S"].consumers.values()
    to = consumer.config.deliver_subject
    beat = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Consumer-Stalled: $JS.FC.gone\r\n\r\n"
    answered = jet.listen("$JS.FC.gone")
    for _ in range(3):
        jet.wire.publish(to, b"", header=beat)
    assert len(jet.heard(answered)) == 3
    assert info(jet)["sources"][0]["error"]["err_code"] == 10228
    jet.publish("a")
    assert "error" not in info(jet)["sources"][0]
    assert source.position.seq == 1


def test_what_clients_send_to_a_deliver_subject_is_left_out(jet: Jet) -> None:
    jet.stream("S")
    sourcing(jet, "S")
    jet.publish("a")
    (consumer,) = jet.machine.streams["S"].consumers.values()
    for reply in ("", "x", "$JS.ACK.S", "$JS.ACK.S.other.1.9.9.9.0", f"$JS.ACK.S.{consumer.name}.1.x.2.3.0"):
        jet.wire.publish(consumer.config.deliver_subject, b"forged", reply)
    jet.publish("b")
    assert texts(jet) == ["a", "b"]


def test_a_full_disk_makes_a_source_take_again_what_was_lost(jet: Jet) -> None:
    jet.stream("S", storage="memory")
    sourcing(jet, "S")
    jet.publish("a")
    machine = jet.machine

    writes = 0

    def full(call: str, path: str) -> DiskFault | None:
        nonlocal writes
        writes += call == "pwrite" and path.endswith(".seg")
        return DiskFault(error=errno.ENOSPC) if call == "pwrite" and writes % 2 else None  # the records alone find room

    machine.disk.plan = full
    jet.publish("b", "c")
    assert texts(jet) == ["a"]
    machine.disk.plan = no_faults
    jet.advance(PATIENCE_S)
    jet.publish("d")
    assert texts(jet) == ["a", "b", "c", "d"]
    assert "error" not in info(jet)["sources"][0]
