"""Limits: what is dropped, what is refused, and when messages are too old."""

from typing import Any

import pytest

from natsctl.api.times import format_time
from tests.support.jet import SECOND, Jet, ok


def state(jet: Jet) -> dict[str, Any]:
    found: dict[str, Any] = jet.api("STREAM.INFO.S", {"deleted_details": True, "subjects_filter": ">"})["state"]
    return found


def publish(jet: Jet, payload: bytes = b"x", subject: str = "s.a") -> Any:
    return jet.wire.request(subject, payload)


@pytest.mark.parametrize(("storage", "size"), [("file", 22 + 3 + 20 + 8), ("memory", 3 + 20 + 16)])
def test_max_bytes_counts_as_the_reference_does(jet: Jet, storage: str, size: int) -> None:
    jet.stream(max_bytes=2 * size, storage=storage)
    jet.publish(*("x" * 20 for _ in range(4)))
    found = state(jet)
    assert (found["messages"], found["bytes"], found["first_seq"]) == (2, 2 * size, 3)


def test_a_message_larger_than_max_bytes_empties_the_stream(jet: Jet) -> None:
    jet.stream(max_bytes=100)
    jet.publish("1", "x" * 200)
    found = state(jet)
    assert (found["messages"], found["first_seq"], found["last_seq"]) == (0, 3, 2)


def test_messages_expire_at_max_age(jet: Jet) -> None:
    jet.stream(max_age=10 * SECOND, duplicate_window=SECOND)
    jet.publish("1")
    jet.advance(6)
    jet.publish("2")
    jet.advance(3.9)
    assert state(jet)["messages"] == 2
    jet.advance(0.4)
    assert (state(jet)["messages"], state(jet)["first_seq"]) == (1, 2)
    jet.advance(6)
    assert (state(jet)["messages"], state(jet)["last_seq"]) == (0, 2)


def test_many_messages_expire_as_one_purge(jet: Jet) -> None:
    jet.stream(max_age=10 * SECOND)
    jet.consumer()
    jet.publish_many(1500)
    jet.advance(11)
    assert state(jet)["messages"] == 0
    assert jet.counts()["pending"] == 0


def test_a_shorter_max_age_applies_to_what_is_stored(jet: Jet) -> None:
    config = ok(jet.stream())["config"]
    jet.publish("1")
    jet.advance(60)
    ok(jet.api("STREAM.UPDATE.S", {**config, "max_age": 30 * SECOND, "duplicate_window": SECOND}))
    jet.advance(0.3)
    assert state(jet)["messages"] == 0


def test_expiry_at_start_needs_no_timer(jet: Jet) -> None:
    jet.stream(max_age=10 * SECOND)
    jet.publish("1", "2")
    jet.machine.clock.advance(20 * SECOND)
    again = Jet(jet.machine.restarted())
    found = state(again)
    assert (found["messages"], found["first_seq"], found["last_seq"]) == (0, 3, 2)


MINUTE = 60 * SECOND
HOUR = 3600 * SECOND


def test_a_clock_that_jumps_ahead_expires_nothing_before_it_could_be_put_right(jet: Jet) -> None:
    jet.stream(max_age=HOUR)
    jet.publish("1", "2")
    clock = jet.machine.clock
    clock.set_wall(clock.now_ns() + 10 * 365 * 24 * HOUR)
    jet.machine.advance(HOUR + 30 * SECOND)
    assert state(jet)["messages"] == 2
    clock.set_wall(clock.now_ns() - 10 * 365 * 24 * HOUR)
    jet.publish("3")
    jet.machine.advance(3 * 60 * SECOND)
    assert state(jet)["messages"] == 1


def test_a_clock_that_stays_ahead_expires_after_a_minute(jet: Jet) -> None:
    jet.stream(max_age=HOUR)
    jet.publish("1", "2")
    jet.machine.clock.set_wall(jet.machine.clock.now_ns() + HOUR)
    jet.machine.advance(HOUR + 90 * SECOND)
    assert state(jet)["messages"] == 0


def test_a_clock_that_is_put_back_loses_no_message_and_no_order(jet: Jet) -> None:
    jet.stream(max_age=HOUR)
    jet.publish("1")
    jet.machine.clock.set_wall(jet.machine.clock.now_ns() - 24 * HOUR)
    jet.publish("2")
    found = state(jet)
    assert (found["messages"], found["last_seq"]) == (2, 2)
    assert found["last_ts"] >= found["first_ts"]


DAY = 24 * HOUR


def ahead(jet: Jet) -> None:
    """Publish one message while the clock is a day ahead, then put the clock right."""
    clock = jet.machine.clock
    clock.set_wall(clock.now_ns() + DAY)
    jet.publish("ahead")
    clock.set_wall(clock.now_ns() - DAY)


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("restart", [False, True])
def test_a_day_ahead_ends_with_the_purge(jet: Jet, storage: str, restart: bool) -> None:
    jet.stream(storage=storage)
    ahead(jet)
    jet.publish("2")
    now = format_time(jet.machine.clock.now_ns())
    assert state(jet)["first_ts"] == state(jet)["last_ts"] > now
    ok(jet.api("STREAM.PURGE.S"))
    if restart and storage == "file":
        jet = Jet(jet.machine.restarted())
    jet.publish("3")
    assert state(jet)["first_ts"] == state(jet)["last_ts"] == now


@pytest.mark.parametrize("restart", [False, True])
def test_max_age_takes_what_came_while_the_clock_was_ahead(jet: Jet, restart: bool) -> None:
    jet.stream(max_age=HOUR)
    jet.publish("before")
    ahead(jet)
    jet.publish("behind")
    jet.machine.advance(HOUR // 2)
    jet.publish("later")
    assert state(jet)["messages"] == 4
    if restart:
        jet = Jet(jet.machine.restarted())
        jet.machine.advance(HOUR // 2 + MINUTE)  # what the server did before counts no more
        assert state(jet)["messages"] == 3
        jet.machine.advance(HOUR // 2)
    else:
        jet.machine.advance(HOUR // 2 - MINUTE)
        assert state(jet)["messages"] == 4
        jet.machine.advance(2 * MINUTE)
        assert state(jet)["messages"] == 1
        jet.machine.advance(HOUR // 2)
    assert state(jet)["messages"] == 0
    jet.publish("again")
    assert state(jet)["last_ts"] == format_time(jet.machine.clock.now_ns())


def test_max_age_is_not_cut_short_by_a_clock_that_was_behind(jet: Jet) -> None:
    jet.stream(max_age=HOUR)
    clock = jet.machine.clock
    jet.publish("1")
    clock.set_wall(clock.now_ns() - 365 * DAY)
    jet.publish("2")
    clock.set_wall(clock.now_ns() + 365 * DAY)
    jet.machine.advance(HOUR - MINUTE)
    assert state(jet)["messages"] == 2
    jet.machine.advance(2 * MINUTE)
    assert state(jet)["messages"] == 0


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_the_duplicate_window_is_as_long_as_it_is_when_the_clock_jumps(jet: Jet, jump: int) -> None:
    jet.stream(duplicate_window=10 * MINUTE)
    clock = jet.machine.clock

    def known(text: str) -> bool:
        answer = jet.wire.request("s.a", b"x", header=f"NATS/1.0\r\nNats-Msg-Id: {text}\r\n\r\n".encode())
        return bool(answer.get("duplicate"))

    assert not known("a")
    clock.set_wall(clock.now_ns() + jump)
    assert not known("b")
    jet.machine.advance(9 * MINUTE)
    clock.set_wall(clock.now_ns() - jump)
    assert known("a") and known("b")
    jet.machine = jet.machine.restarted()
    jet = Jet(jet.machine)
    assert known("b")
    jet.machine.advance(11 * MINUTE)
    assert not known("a") and not known("b")


@pytest.mark.parametrize("limit", [{"max_msgs": 5}, {"max_bytes": 5 * 34}])
def test_of_a_run_under_discard_new_exactly_what_fits_is_stored(jet: Jet, limit: dict[str, int]) -> None:
    jet.stream(discard="new", **limit)
    sid = jet.listen("in.>")
    jet.wire.send(b"".join(b"PUB s.a in.%d 1\r\nx\r\n" % number for number in range(8)))
    answers = [m.json() for m in jet.heard(sid)]
    assert [answer["seq"] for answer in answers if "error" not in answer] == [1, 2, 3, 4, 5]
    assert [answer["error"]["err_code"] for answer in answers if "error" in answer] == [10077] * 3


def test_a_run_leaves_what_the_limits_leave_of_its_messages_one_by_one(jet: Jet) -> None:
    jet.stream("A", "a.>", max_msgs=3)
    jet.stream("B", "b.>", max_msgs_per_subject=2)
    for subject in (b"a.x", b"b.x"):
        jet.wire.send(b"".join(b"PUB %b 1\r\n%d\r\n" % (subject, number) for number in range(8)))
    states = [ok(jet.api(f"STREAM.INFO.{name}"))["state"] for name in "AB"]
    assert [(state["messages"], state["first_seq"], state["last_seq"]) for state in states] == [(3, 6, 8), (2, 7, 8)]
