"""A broker under a clock that the test turns, and clients that talk to it in bytes."""

import random
from collections.abc import Callable

import pytest

from natsctl.broker.broker import Broker
from natsctl.broker.broker_options import BrokerOptions
from natsctl.broker.session import Session

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}\r\n'
SECOND = 1_000_000_000


class TurnedClock:
    def __init__(self) -> None:
        self.ns = 1_700_000_000 * SECOND

    def now_ns(self) -> int:
        return self.ns

    def monotonic_ns(self) -> int:
        return self.ns - 1_600_000_000 * SECOND


class SessionClient:
    """One connection: `say` sends bytes and returns what the server wrote since."""

    def __init__(self, session: Session, hello: bytes) -> None:
        self.session = session
        self.info = self.heard()
        if hello:
            assert self.say(hello) == b""

    def heard(self) -> bytes:
        return b"".join(self.session.take_output())

    def say(self, data: bytes) -> bytes:
        self.session.receive(data)
        return self.heard()


class BrokerHarness:
    def __init__(self, options: BrokerOptions | None = None) -> None:
        self.clock = TurnedClock()
        self.broker = Broker(self.clock, random.Random(5), options)
        self.account = self.broker.accounts["$G"]

    def client(self, hello: bytes = QUIET) -> SessionClient:
        return SessionClient(self.broker.connect("127.0.0.1", 5555), hello)

    def wait(self, seconds: float) -> None:
        self.clock.ns += int(seconds * SECOND)
        self.broker.tick()


@pytest.fixture
def harness() -> BrokerHarness:
    return BrokerHarness()


@pytest.fixture
def new_harness() -> Callable[[BrokerOptions | None], BrokerHarness]:
    return BrokerHarness
