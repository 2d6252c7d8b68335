"""Long claims: no turn is long, accounts change all at once, and logins wait for them in order.

Costs are counted in calls of functions, so that they are the same on every machine. `python -m bench.inputs` has the
times.
"""

import itertools
import random
import re
from collections.abc import Callable
from typing import Any, Final

import pytest

from natsctl.api.jwt_claims import AccountClaims, decode
from natsctl.api.jwt_validation import MAX_FAULTS, account_faults
from natsctl.api.subject_index import finish
from natsctl.broker.auth.permissions import SubjectPermissions, SubjectRules
from natsctl.broker.auth.static_auth import StaticAuthenticator, User
from natsctl.broker.broker import Broker
from natsctl.broker.broker_options import BrokerOptions
from natsctl.broker.imports.service_imports import ServiceProxy
from natsctl.broker.jwt.account_registry import MemoryResolver
from tests.broker.imports.test_long_configurations import exports, imports
from tests.broker.jwt.conftest import Guest, Operated
from tests.broker.jwt.test_callout import Town
from tests.support.call_counts import CallCounter, calls_of
from tests.support.clock import VirtualClock
from tests.support.operators import Operator, OperatorAccount, UserLogin

MANY: Final = 1_000
TURN_CALLS: Final = 10_000
"""Calls that one step may make: about 4 ms."""
OPERATOR: Final = Operator(random.Random(1))
PERMISSIONS: Final = {"pub": {"allow": [f"p.{n}.*" for n in range(4 * MANY)]}, "sub": {}}


class Trade(Operated):
    """An account with many exports, one that is to import them, and a client of each."""

    def __init__(self) -> None:
        self.exporter = OPERATOR.account("E", exports=exports(MANY))
        self.importer = OPERATOR.account("I", imports=[])
        self.counter = CallCounter()
        super().__init__(OPERATOR)
        self.clients = [self.arrive(OPERATOR.user(account)) for account in (self.exporter, self.importer)]
        for number in range(MANY):
            self.clients[1].say(b"SUB l.%d %d\r\n" % (number, number))

    def arrive(self, user: UserLogin) -> Guest:
        guest = self.guest(user)
        self.work()
        return guest

    def work(self, each: Callable[[], object] = lambda: None) -> None:
        step = self.counter.noting(lambda: self.broker.do_long_work(0))
        while self.broker.long_work:
            step()
            each()

    def change(self, account: OperatorAccount, each: Callable[[], object] = lambda: None, /, **nats: Any) -> None:
        account.nats.update(nats)
        token = account.jwt(OPERATOR.key)
        with self.counter:
            self.broker.jobs.run(self.auth.book.update(account.public, token, self.clock.now_ns()))
            self.work(each)

    @property
    def services(self) -> int:
        return len(self.broker.account(self.importer.public).imports.services)

    @property
    def proxies(self) -> int:
        return sum(self.broker.account(account.public).subscriptions for account in (self.exporter, self.importer))

    def heard(self) -> list[bytes]:
        """Publish in one account what the other one imports, and ask for a service; return what each receives."""
        self.clients[0].session.receive(b"SUB s.1 service\r\nPUB t.4 1\r\nx\r\n")
        self.clients[1].session.receive(b"PUB l.1 1\r\ny\r\n")
        return [guest.heard()[:9] for guest in self.clients]


def test_imports_come_and_go_at_once_and_no_turn_is_long() -> None:
    town, seen = Trade(), set[tuple[int, int]]()
    before, account = town.proxies, town.broker.account(town.importer.public)
    town.change(town.importer, lambda: seen.add((town.services, len(account.config.imports))),
                imports=imports(town.exporter, MANY))  # fmt: skip
    assert seen == {(0, 0), (MANY // 2, MANY)}
    assert town.heard() == [b"HMSG s.1 ", b"MSG l.4 4"]
    town.change(town.exporter, exports=exports(MANY)[: MANY // 2])
    assert town.services == MANY // 4
    town.change(town.importer, imports=[])
    assert (town.services, town.proxies) == (0, before + 1)
    assert max(town.counter.turns) <= TURN_CALLS


def test_subscriptions_that_come_during_a_change_take_each_import_once() -> None:
    town, sids, steps = Trade(), itertools.count(MANY), itertools.count()

    def subscribe() -> None:
        if not next(steps) % 128:
            town.clients[1].session.receive(b"SUB l.* %d\r\n" % next(sids))

    town.change(town.importer, subscribe, imports=imports(town.exporter, MANY))
    town.clients[0].session.receive(b"PUB t.4 1\r\nx\r\nPUB t.998 1\r\ny\r\n")
    takers = re.findall(rb"MSG l\.(?:4|998) (\d+) ", town.clients[1].heard())
    assert sorted(map(int, takers)) == sorted([4, 998, *(2 * [*range(MANY, next(sids))])])


@pytest.mark.parametrize(
    "nats",
    [
        {"mappings": {f"m.{n}": [{"subject": f"n.{n}"}] for n in range(MANY)}},
        {"default_permissions": PERMISSIONS},
        {"revocations": {f"{n}": 1 for n in range(4 * MANY)}},
        {"authorization": {"auth_users": [OPERATOR.key.public] * MANY}},
        {"signing_keys": [{"kind": "user_scope", "key": OPERATOR.key.public}] * MANY},
    ],
    ids=lambda nats: next(iter(nats)),
)
def test_no_turn_is_long_for_other_claims(nats: dict[str, Any]) -> None:
    town = Trade()
    try:
        town.change(town.importer, **nats)
    except Exception as refused:
        assert str(refused) == "account validation failed"
    assert max(town.counter.turns) <= TURN_CALLS


def test_imports_that_cannot_be_made_leave_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    town, made = Trade(), []
    before, account = town.proxies, town.broker.account(town.importer.public)
    first = ServiceProxy.__init__

    def fail_late(self: ServiceProxy, *arguments: Any) -> None:
        made.append(self)
        if len(made) == MANY // 4:
            raise RuntimeError("planted")
        first(self, *arguments)

    monkeypatch.setattr(ServiceProxy, "__init__", fail_late)
    with pytest.raises(RuntimeError, match="planted"):
        town.change(town.importer, imports=imports(town.exporter, MANY))
    town.work()
    assert (town.services, town.proxies, account.config.imports) == (0, before, ())
    held = town.auth.book.get(town.importer.public)
    assert held is not None and held.claims.nats.imports == []
    town.change(town.importer)
    assert town.services == MANY // 2


def test_login_waits_for_its_account_with_what_it_has_sent() -> None:
    town = Trade()
    account = OPERATOR.account("L", imports=imports(town.exporter, MANY))
    town.resolver = MemoryResolver(OPERATOR.preload())
    finish(town.auth.book.replace_resolver(town.resolver, town.clock.now_ns()))
    session = town.broker.connect("127.0.0.1", 1)
    waits, gone = town.guest(OPERATOR.user(account)), town.guest(OPERATOR.user(account))
    assert waits.say(b"PING\r\nPUB x 1\r\n") == b"" and not waits.session.login.authenticated
    gone.session.closed()
    other = town.guest(OPERATOR.user(town.exporter))
    assert other.say(b"PING\r\n") == b"", "logins are decided in their order"
    waits.say(b"1\r\nPING\r\n")
    with town.counter:
        town.work()
    assert (waits.heard().count(b"PONG"), other.heard().count(b"PONG")) == (2, 1)
    assert waits.session.account.name == account.public and waits.session.in_msgs == 1
    assert not gone.session.login.authenticated and session.close_reason is None
    assert max(town.counter.turns) <= TURN_CALLS


def test_login_during_a_reload_gets_only_what_the_new_configuration_gives() -> None:
    town = Trade()
    town.change(town.importer, imports=imports(town.exporter, MANY))
    del OPERATOR.accounts["E"]
    town.importer.nats["default_permissions"] = {"pub": {"deny": ["x"]}, "sub": {}}
    resolver = MemoryResolver(OPERATOR.preload())
    town.broker.jobs.add(town.auth.book.replace_resolver(resolver, town.clock.now_ns()))
    late = [town.guest(OPERATOR.user(account)) for account in (town.exporter, town.importer)]
    assert [guest.say(b"PING\r\n") for guest in late] == [b"", b""]
    town.work()
    assert [guest.reason for guest in late] == ["Authentication Failure", ""]
    assert town.clients[0].reason == "Authentication Failure"
    for guest in (late[1], town.clients[1]):
        assert b"Permissions Violation" in guest.say(b"PUB x 1\r\n1\r\n")
    assert town.services == 0


def test_login_with_many_permissions_waits_and_the_next_one_shares_them() -> None:
    rules = SubjectPermissions(subscribe=SubjectRules(None, tuple(f"p.{n}.*" for n in range(10 * MANY))))
    auth = StaticAuthenticator(users=(User("u", "p", permissions=rules),))
    broker, counter = Broker(VirtualClock(), random.Random(1), BrokerOptions(auth=auth)), CallCounter()

    def arrive() -> list[bytes]:
        session = broker.connect("127.0.0.1", 1)
        session.take_output()
        session.receive(b'CONNECT {"verbose":false,"user":"u","pass":"p"}\r\nSUB p.7.x 1\r\nPING\r\n')
        heard = b"".join(session.take_output())
        while broker.long_work:
            counter.noting(lambda: broker.do_long_work(0))()
        return [heard[:4], b"".join(session.take_output())[:24]]

    with counter:
        assert arrive() == [b"", b"-ERR 'Permissions Violat"]
    assert max(counter.turns) <= TURN_CALLS
    assert arrive() == [b"-ERR", b""]


def test_long_response_of_a_callout_is_checked_in_steps() -> None:
    town, counter = Town(), CallCounter()
    session = town.come()
    town.answer(town.request().response(town.request().user(aud="FOO", nats=PERMISSIONS)))
    with counter:
        while town.broker.long_work:
            counter.noting(lambda: town.broker.do_long_work(0))()
    assert session.login.authenticated and max(counter.turns) <= TURN_CALLS


@pytest.mark.parametrize("local", ["same", "crossing"])
def test_faults_of_imports_are_bounded(local: str) -> None:
    def listed(count: int) -> list[str]:
        exporter = OPERATOR.account("E")
        common = {"account": exporter.public, "type": "service", "name": "n"}
        names = [("same" if local == "same" else f"s.*.{n}" if n % 2 else f"s.{n}.*") for n in range(count)]
        account = OPERATOR.account("I", imports=[{**common, "subject": name} for name in names])
        return list(account_faults(decode(account.jwt(OPERATOR.key), AccountClaims)))

    assert len(listed(MANY)) == (MAX_FAULTS if local == "same" else 0)
    if local == "same":
        assert calls_of(lambda: listed(MANY)) <= 20 * calls_of(lambda: listed(MANY // 10))
