"""What a broker says of when it is to look at its clocks again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from natsctl.broker.auth.static_auth import StaticAuthenticator, User
from natsctl.broker.options import BrokerOptions
from natsctl.broker.timers import NEVER_NS

SECOND = 1_000_000_000
NewHouse = Callable[[BrokerOptions | None], Any]


def test_pings_alone_are_no_reason_to_look_in_time(house: Any) -> None:
    house.client()
    assert house.broker.tick() == NEVER_NS


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
    assert house.broker.tick() == NEVER_NS


def test_the_end_of_credentials_is_told(house: Any) -> None:
    talker = house.client()
    talker.session.timers.expire_at(house.clock.now_ns() + 90 * SECOND)
    assert house.broker.tick() == house.clock.monotonic_ns() + 90 * SECOND


def test_others_have_their_say(house: Any) -> None:
    house.broker.alarms += [lambda: 7 * SECOND, lambda: 5 * SECOND]
    assert house.broker.tick() == 5 * SECOND
