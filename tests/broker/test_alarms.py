"""What a broker says of when it is to look at its clocks again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from natsctl.broker.auth.static_auth import StaticAuthenticator, User
from natsctl.broker.broker_options import BrokerOptions
from natsctl.broker.timers import NEVER_NS

SECOND = 1_000_000_000
NewHouse = Callable[[BrokerOptions | None], Any]


def test_nobody_is_no_reason_to_look(house: Any) -> None:
    assert house.broker.tick() == NEVER_NS


@pytest.mark.parametrize("answers", [False, True])
def test_a_ping_may_be_late_by_a_tenth_of_its_interval(new_house: NewHouse, answers: bool) -> None:
    house = new_house(BrokerOptions(ping_interval_ns=SECOND // 10, ping_max=1000))
    start = house.clock.monotonic_ns()
    talker = house.client()
    sent = []
    while house.clock.monotonic_ns() < start + 2 * SECOND:
        house.clock.ns += max(house.broker.tick() - house.clock.monotonic_ns(), 1)
        house.broker.tick()
        pings = talker.heard().count(b"PING")
        sent += [house.clock.monotonic_ns() - start] * pings
        if pings and answers:
            house.clock.ns += SECOND // 1000
            talker.say(b"PONG\r\n")
    assert len(sent) == 20
    assert all(0 <= at - (number + 1) * SECOND // 10 <= SECOND // 100 for number, at in enumerate(sent))


def test_what_is_due_before_the_next_look_hurries_it(new_house: NewHouse) -> None:
    house = new_house(BrokerOptions(ping_interval_ns=SECOND // 10))
    hurried: list[int] = []
    house.broker.hurry = lambda: hurried.append(house.broker.look_ns - house.clock.monotonic_ns())
    house.client()
    assert hurried == [SECOND // 10 + SECOND // 100]
    house.client()
    house.wait(0)
    house.broker.tick_by(house.clock.monotonic_ns() + SECOND)
    assert len(hurried) == 1


def test_the_first_end_of_a_wait_for_connect_is_told_until_nobody_waits(new_house: NewHouse) -> None:
    auth = StaticAuthenticator(users=[User("a", "b")])
    house = new_house(BrokerOptions(auth=auth, auth_timeout_ns=2 * SECOND))
    start = house.clock.monotonic_ns()
    first = house.client(b"")
    house.wait(1)
    second = house.client(b"")
    assert house.broker.tick() == start + 2 * SECOND
    first.say(b'CONNECT {"verbose":false,"user":"a","pass":"b"}\r\n')
    assert house.broker.tick() == start + 3 * SECOND
    house.wait(2)
    assert second.session.close_reason is not None
    assert house.broker.tick() == house.broker.sessions[first.session.cid].timers.alarm_ns > start + 3 * SECOND


def test_the_end_of_credentials_is_told(house: Any) -> None:
    talker = house.client()
    talker.session.timers.expire_at(house.clock.now_ns() + 3 * SECOND)
    assert house.broker.tick() == house.clock.monotonic_ns() + 3 * SECOND


def test_others_have_their_say(house: Any) -> None:
    house.broker.alarms += [lambda: 7 * SECOND, lambda: 5 * SECOND]
    assert house.broker.tick() == 5 * SECOND
