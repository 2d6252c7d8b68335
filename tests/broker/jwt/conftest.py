"""A broker in operator mode under a clock that the test turns."""

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from natsctl.api.jwt_claims import OperatorClaims, decode
from natsctl.api.subject_index import finish
from natsctl.broker.broker import Broker
from natsctl.broker.broker_options import BrokerOptions
from natsctl.broker.jwt.account_registry import MemoryResolver, trust_of
from natsctl.broker.jwt.authenticator import BrokerAccountSink, JwtAuthenticator
from natsctl.broker.session import Session
from tests.broker.conftest import TurnedClock
from tests.support.operators import Operator, OperatorAccount, UserLogin

SECOND = 1_000_000_000


class Guest:
    def __init__(self, session: Session, user: UserLogin) -> None:
        self.session = session
        info = json.loads(self.heard().removeprefix(b"INFO "))
        shown = {"verbose": False, "pedantic": False, "protocol": 1, "headers": True}
        self.said = self.say(
            b"CONNECT " + json.dumps({**shown, **user.connect_options(info["nonce"])}).encode() + b"\r\n"
        )

    def heard(self) -> bytes:
        return b"".join(self.session.take_output())

    def say(self, data: bytes) -> bytes:
        self.session.receive(data)
        return self.heard()

    @property
    def reason(self) -> str:
        return self.session.close_reason.value if self.session.close_reason is not None else ""


class Operated:
    def __init__(self, operator: Operator, preload: Mapping[str, str] | None = None, **trust: Any) -> None:
        self.operator = operator
        self.clock = TurnedClock()
        self.resolver = MemoryResolver(operator.preload() if preload is None else preload)
        claims = decode(operator.jwt(), OperatorClaims)
        self.auth = JwtAuthenticator(trust_of([claims], system_account=operator.system.public, **trust), self.resolver)
        options = BrokerOptions(auth=self.auth, system_account=operator.system.public)
        self.broker = Broker(self.clock, random.Random(7), options)
        BrokerAccountSink(self.broker, self.auth)

    def guest(self, user: UserLogin, host: str = "127.0.0.1") -> Guest:
        return Guest(self.broker.connect(host, 5555), user)

    def wait(self, seconds: float) -> None:
        self.clock.ns += int(seconds * SECOND)
        self.broker.tick()

    def push(self, account: OperatorAccount) -> None:
        token = account.jwt(self.operator.signer)
        finish(self.auth.book.update(account.public, token, self.clock.now_ns()))


@pytest.fixture
def operator() -> Operator:
    return Operator()


@pytest.fixture
def operate() -> Callable[..., Operated]:
    return Operated
