"""What a broker says of when it is to look at its clocks again."""

from collections.abc import Callable
from typing import Any

import pytest

from natsctl.broker.auth.static_auth import StaticAuthenticator, User
from natsctl.broker.broker_options import BrokerOptions
from natsctl.broker.timers import NEVER_NS, PINGS_A_LOOK

SECOND = 1_000_000_000
NewHarness = Callable[[BrokerOptions | None], Any]


def test_nobody_is_no_reason_to_look(harness: Any) -> None:
    assert harness.broker.tick() == NEVER_NS


@pytest.mark.parametrize("answers", [False, True])
def test_a_ping_may_be_late_by_a_tenth_of_its_interval(new_harness: NewHarness, answers: bool) -> None:
    harness = new_harness(BrokerOptions(ping_interval_ns=SECOND // 10, ping_max=1000))
    start = harness.clock.monotonic_ns()
    talker = harness.client()
    sent = []
    while harness.clock.monotonic_ns() < start + 2 * SECOND:
        harness.clock.ns += max(harness.broker.tick() - harness.clock.monotonic_ns(), 1)
        harness.broker.tick()
        pings = talker.heard().count(b"PING")
        sent += [harness.clock.monotonic_ns() - start] * pings
        if pings and answers:
            harness.clock.ns += SECOND // 1000
            talker.say(b"PONG\r\n")
    assert len(sent) == 20
    assert all(0 <= at - (number + 1) * SECOND // 10 <= SECOND // 100 for number, at in enumerate(sent))


def test_pings_that_are_due_together_leave_at_several_looks(new_harness: NewHarness) -> None:
    harness = new_harness(BrokerOptions(ping_interval_ns=SECOND, ping_max=2))
    clients = [harness.client() for _ in range(2 * PINGS_A_LOOK + 1)]
    harness.clock.ns += SECOND
    looks = []
    for _ in range(3):
        alarm_ns = harness.broker.tick()
        looks.append(
            (sum(client.heard() == b"PING\r\n" for client in clients), alarm_ns - harness.clock.monotonic_ns())
        )
    interval_ns = SECOND + SECOND // 10
    assert looks == [(PINGS_A_LOOK, 0), (PINGS_A_LOOK, 0), (1, interval_ns)]


def test_what_is_due_before_the_next_look_hurries_it(new_harness: NewHarness) -> None:
    harness = new_harness(BrokerOptions(ping_interval_ns=SECOND // 10))
    hurried: list[int] = []
    harness.broker.hurry = lambda: hurried.append(harness.broker.look_ns - harness.clock.monotonic_ns())
    harness.client()
    assert hurried == [SECOND // 10 + SECOND // 100]
    harness.client()
    harness.wait(0)
    harness.broker.tick_by(harness.clock.monotonic_ns() + SECOND)
    assert len(hurried) == 1


def test_the_first_end_of_a_wait_for_connect_is_told_until_nobody_waits(new_harness: NewHarness) -> None:
    auth = StaticAuthenticator(users=[User("a", "b")])
    harness = new_harness(BrokerOptions(auth=auth, auth_timeout_ns=2 * SECOND))
    start = harness.clock.monotonic_ns()
    first = harness.client(b"")
    harness.wait(1)
    second = harness.client(b"")
    assert harness.broker.tick() == start + 2 * SECOND
    first.say(b'CONNECT {"verbose":false,"user":"a","pass":"b"}\r\n')
    assert harness.broker.tick() == start + 3 * SECOND
    harness.wait(2)
    assert second.session.close_reason is not None
    assert harness.broker.tick() == harness.broker.sessions[first.session.cid].timers.alarm_ns > start + 3 * SECOND


def test_the_end_of_credentials_is_told(harness: Any) -> None:
    talker = harness.client()
    talker.session.timers.expire_at(harness.clock.now_ns() + 3 * SECOND)
    assert harness.broker.tick() == harness.clock.monotonic_ns() + 3 * SECOND


def test_others_have_their_say(harness: Any) -> None:
    harness.broker.alarms += [lambda: 7 * SECOND, lambda: 5 * SECOND]
    assert harness.broker.tick() == 5 * SECOND
