"""A crash at every disk call of a commit that takes out what it, or an earlier one, brought: no promise is broken.

The journal is written behind the log. Between the two a message can be gone whose header was all that told of a
source's position, of an id in the duplicate window, or of a schedule that has fired.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import pytest

from natsctl.api.times import parse_time
from natsctl.store.options import StoreOptions
from tests.support.jet import SECOND, Jet, ok
from tests.support.machine import Machine
from tests.support.simdisk import Crash, SimDisk, crash_at, no_faults

PATIENCE_S = 25
SMALL = StoreOptions(segment_bytes=4096)

CRASHES = pytest.mark.parametrize("crash", [SimDisk.kill, SimDisk.power_loss])
SEEDS = pytest.mark.parametrize(
    "seeds", [range(5), pytest.param(range(5, 20), marks=pytest.mark.fuzz)], ids=["few", "more"]
)
"""They say how much of a write gets in."""


def crashed(
    build: Callable[[], Jet],
    act: Callable[[Jet], object],
    crash: Callable[[SimDisk], None],
    again: int = 0,
    seeds: Iterable[int] = range(2),
) -> Iterator[Jet]:
    """Yield what comes up after a crash at each disk call of `act`, and at once behind its last one.

    With `again` the machine also crashes at that disk call of its start, and comes up after that.
    """
    for seed in seeds:
        call_number, done = 0, False
        while not done:
            call_number += 1
            jet = build()
            jet.machine.rng.seed(seed)
            disk = jet.machine.disk
            disk.plan = crash_at(call_number)
            try:
                act(jet)
                done = True
            except (Crash, AssertionError):  # an answer that did not come any more
                pass
            if again:
                crash(disk)
                disk.plan = crash_at(again)
                with suppress(Crash):
                    jet.machine.restarted(SimDisk.kill)
            disk.plan = no_faults
            yield Jet(jet.machine.restarted(crash))


def last_seq(jet: Jet, name: str) -> int:
    number: int = ok(jet.api(f"STREAM.INFO.{name}"))["state"]["last_seq"]
    return number


# Sources


def two_origins() -> Jet:
    """Return a client where a stream that keeps one message takes from two others."""
    jet = Jet(Machine(store_options=SMALL))
    jet.stream("A", "a")
    jet.stream("B", "b")
    ok(jet.api("STREAM.CREATE.X", {"name": "X", "sources": [{"name": "A"}, {"name": "B"}], "max_msgs": 1}))
    return jet


def publish_to_both(jet: Jet, number: int = 2) -> None:
    """Publish to both origins at once, so that one commit takes what comes of it."""
    jet.wire.send(b"PUB a 1\r\nx\r\n" * number + b"PUB b 1\r\nx\r\n" * number)


@CRASHES
@pytest.mark.parametrize("before", [0, 30])
def test_each_message_of_two_sources_comes_once(before: int, crash: Callable[[SimDisk], None]) -> None:
    def build() -> Jet:
        jet = two_origins()
        for _ in range(before):
            publish_to_both(jet, 1)
        return jet

    for jet in crashed(build, publish_to_both, crash):
        jet.advance(PATIENCE_S)
        wanted = last_seq(jet, "A") + last_seq(jet, "B")
        assert last_seq(jet, "X") == wanted >= 2 * before


# The duplicate window


def publish(jet: Jet, msg_id: str) -> dict[str, object]:
    header = b"NATS/1.0\r\nNats-Msg-Id: " + msg_id.encode() + b"\r\n\r\n"
    answer: dict[str, object] = jet.wire.request("s.a", b"x" * 100, header)
    return answer


def ids(number: int, **config: object) -> Callable[[], Jet]:
    def build() -> Jet:
        jet = Jet(Machine(store_options=SMALL))
        jet.stream("S", "s.>", **config)
        for n in range(number):
            assert publish(jet, f"id{n}")["seq"] == n + 1
        return jet

    return build


TAKING_OUT: dict[str, tuple[Callable[[], Jet], Callable[[Jet], object]]] = {
    "limit": (ids(3, max_msgs=3), lambda jet: publish(jet, "new")),
    "segment": (ids(25, max_msgs_per_subject=1), lambda jet: [publish(jet, f"new{n}") for n in range(5)]),
    "purge": (ids(40), lambda jet: ok(jet.api("STREAM.PURGE.S"))),
    "delete": (ids(3), lambda jet: ok(jet.api("STREAM.MSG.DELETE.S", {"seq": 2, "no_erase": True}))),
    "erase": (ids(3), lambda jet: ok(jet.api("STREAM.MSG.DELETE.S", {"seq": 2}))),
    "erase the newest": (ids(3), lambda jet: ok(jet.api("STREAM.MSG.DELETE.S", {"seq": 3}))),
}


@CRASHES
@pytest.mark.parametrize("again", [0, 20])
@pytest.mark.parametrize("how", TAKING_OUT)
def test_an_id_outlives_its_message(how: str, again: int, crash: Callable[[SimDisk], None]) -> None:
    build, act = TAKING_OUT[how]
    known = last_seq(build(), "S")
    for jet in crashed(build, act, crash, again, seeds=[0]):
        for n in range(known):
            answer = publish(jet, f"id{n}")
            assert answer.get("duplicate") and answer["seq"] == n + 1, (n, answer)


@CRASHES
def test_the_first_id_of_a_stream_is_known_once_its_message_is_stored(crash: Callable[[SimDisk], None]) -> None:
    stored = [jet for jet in crashed(ids(0), lambda jet: publish(jet, "one"), crash) if last_seq(jet, "S")]
    assert stored and all(publish(Jet(jet.machine.restarted(crash)), "one").get("duplicate") for jet in stored)


@pytest.mark.parametrize("seed", range(8))
def test_an_id_that_a_start_read_from_a_removed_message_outlives_its_bytes(seed: int) -> None:
    jet = Jet(Machine(seed=seed, store_options=StoreOptions(segment_bytes=1024, reserve_bytes=0)))
    jet.stream(max_msgs_per_subject=1)
    publish(jet, "one")
    jet.publish("second")  # takes its place, of which the journal may say nothing after a power loss
    jet = Jet(jet.machine.restarted(SimDisk.power_loss))
    jet.publish(*["x" * 100] * 30)  # the segment of the first message goes
    jet = Jet(jet.machine.restarted())
    assert publish(jet, "one")["duplicate"]


# Limits and rollups


@CRASHES
@SEEDS
@pytest.mark.parametrize("limit", ["max_msgs", "max_msgs_per_subject"])
def test_a_limit_holds_wherever_the_commit_was_interrupted(
    limit: str, seeds: Iterable[int], crash: Callable[[SimDisk], None]
) -> None:
    after = crashed(ids(1, **{limit: 1}), lambda jet: jet.publish("x"), crash, seeds=seeds)
    states = [ok(jet.api("STREAM.INFO.S"))["state"] for jet in after]
    assert {(state["messages"], state["last_seq"]) for state in states} == {(1, 1), (1, 2)}


@CRASHES
@SEEDS
@pytest.mark.parametrize("rollup", ["sub", "all"])
def test_a_rollup_is_whole_wherever_its_commit_was_interrupted(
    rollup: str, seeds: Iterable[int], crash: Callable[[SimDisk], None]
) -> None:
    header = f"NATS/1.0\r\nNats-Rollup: {rollup}\r\n\r\n".encode()
    build = ids(2, allow_rollup_hdrs=True)
    after = crashed(build, lambda jet: jet.wire.publish("s.a", b"x", header=header), crash, seeds=seeds)
    states = [ok(jet.api("STREAM.INFO.S"))["state"] for jet in after]
    assert {(state["messages"], state["last_seq"]) for state in states} == {(2, 2), (1, 3)}


# Schedules


def two_schedules(pattern: str) -> Callable[[], Jet]:
    def build() -> Jet:
        jet = Jet()
        jet.stream("S", "s.>", "t", allow_msg_schedules=True, allow_msg_ttl=True, max_msgs_per_subject=1)
        header = b"NATS/1.0\r\nNats-Schedule: " + pattern.encode() + b"\r\nNats-Schedule-Target: t\r\n\r\n"
        for name in ("s.1", "s.2"):
            assert jet.wire.request(name, b"x", header)["stream"] == "S"
        return jet

    return build


@CRASHES
def test_schedules_fire_once_whose_products_replace_each_other(crash: Callable[[SimDisk], None]) -> None:
    build = two_schedules("@at 2026-01-01T00:00:10Z")
    for jet in crashed(build, lambda jet: jet.advance(11), crash):
        jet.advance(30)
        assert last_seq(jet, "S") == 4


@CRASHES
def test_schedules_that_repeat_fire_once_at_each_moment(crash: Callable[[SimDisk], None]) -> None:
    build = two_schedules("0 * * * * *")
    for jet in crashed(build, lambda jet: jet.advance(61), crash):
        jet.machine.advance(parse_time("2026-01-01T00:01:30Z") - jet.machine.clock.now_ns())
        assert last_seq(jet, "S") == 4


def test_age_goes_by_the_time_of_what_was_not_erased() -> None:
    jet = Jet()
    jet.stream("S", max_age=20 * SECOND)
    for n in range(10):
        jet.publish(str(n))
        jet.advance(1)
    ok(jet.api("STREAM.MSG.DELETE.S", {"seq": 6}))
    jet.advance(11)
    state = ok(jet.api("STREAM.INFO.S"))["state"]
    assert (state["first_seq"], state["messages"]) == (3, 7)
