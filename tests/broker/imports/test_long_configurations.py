"""What accounts with many exports, imports or mappings cost: not much more for each, in calls of functions."""

import random
import re
from collections.abc import Callable
from typing import Any, Final

import pytest

from natsctl.api.jwt_claims import AccountClaims, decode
from natsctl.api.jwt_validation import account_faults
from natsctl.api.subject_index import finish
from natsctl.broker.broker import Broker
from natsctl.broker.imports.account_config import AccountConfig
from natsctl.broker.jwt.account_registry import ActiveAccount
from natsctl.broker.jwt.account_setup import account_config, imports_in_effect
from natsctl.broker.jwt.claim_requests import ClaimRequests
from tests.broker.jwt.conftest import Operated
from tests.support.call_counts import CallCounter, calls_of
from tests.support.clock import VirtualClock
from tests.support.operators import Operator, OperatorAccount

FEW: Final = 100
MANY: Final = 1_000
GROWTH: Final = 1.5
"""By how much an item may cost more among ten times as many: n log n, and what grows in steps."""
TURN_CALLS: Final = 10_000
"""Calls that a turn of checking a JWT may make: about 4 ms."""

OPERATOR: Final = Operator(random.Random(1))


def exports(count: int) -> list[dict[str, Any]]:
    return [{"name": f"{n}", "subject": f"s.{n}" if n % 2 else f"t.{n}", "type": kind(n)} for n in range(count)]


def imports(account: OperatorAccount, count: int) -> list[dict[str, Any]]:
    common = {"account": account.public}
    return [{**common, "name": f"{n}", "subject": each["subject"], "type": kind(n), "local_subject": f"l.{n}"}
            for n, each in enumerate(exports(count))]  # fmt: skip


def kind(number: int) -> str:
    return "service" if number % 2 else "stream"


def claims(account: OperatorAccount) -> AccountClaims:
    return decode(account.jwt(OPERATOR.key), AccountClaims)


def pair(count: int) -> tuple[AccountClaims, AccountClaims]:
    """Return an account with many exports, and one that imports them."""
    exporter = OPERATOR.account("E", exports=exports(count))
    return claims(exporter), claims(OPERATOR.account("I", imports=imports(exporter, count)))


def validated(count: int) -> Callable[[], object]:
    both = pair(count)
    return lambda: [fault for each in both for fault in account_faults(each)]


def chosen(count: int) -> Callable[[], object]:
    exporter, importer = pair(count)
    held = ActiveAccount(exporter, "", strict=False, now_s=0)
    return lambda: finish(imports_in_effect(importer, lambda name: held, 0, {}))


def planned(count: int) -> Callable[[], object]:
    broker, configs = Broker(VirtualClock(), random.Random(1)), configured(*pair(count))
    return lambda: broker.configure(configs)


def configured(*accounts: AccountClaims) -> list[AccountConfig]:
    return [finish(account_config(each, each.nats.imports)) for each in accounts]


def mapped(count: int) -> Callable[[], object]:
    """Configure mappings, some of them with first tokens of their own, and look each of the others up."""
    mappings = {f"m{n}.x" if n % 2 else f"m.{n}": [{"subject": f"n.{n}"}] for n in range(count)}
    broker, configs = (
        Broker(VirtualClock(), random.Random(1)),
        configured(claims(OPERATOR.account("M", mappings=mappings))),
    )

    def act() -> None:
        broker.configure(configs)
        account = broker.account(configs[0].name)
        assert [account.mapped(b"m.%d" % n) for n in range(0, count, 2)] == [b"n.%d" % n for n in range(0, count, 2)]

    return act


@pytest.mark.parametrize("prepared", [validated, chosen, planned, mapped])
def test_an_item_costs_no_more_among_many(prepared: Callable[[int], Callable[[], object]]) -> None:
    few, many = calls_of(prepared(FEW)), calls_of(prepared(MANY))
    assert many / MANY <= GROWTH * few / FEW


def test_imports_of_everything_are_in_effect() -> None:
    exporter, importer = pair(MANY)
    held = ActiveAccount(exporter, "", strict=False, now_s=0)
    found, _ = finish(imports_in_effect(importer, lambda name: held, 0, {}))
    assert found == importer.nats.imports
    broker = Broker(VirtualClock(), random.Random(1))
    broker.configure(configured(exporter, importer))
    assert len(broker.account(importer.sub).imports.services) == MANY // 2


def test_a_long_jwt_is_checked_in_turns_and_applied_at_once() -> None:
    account, town = OPERATOR.account("A"), Operated(OPERATOR)
    broker, book, counter, system = (
        town.broker,
        town.auth.book,
        CallCounter(),
        town.guest(OPERATOR.user(OPERATOR.system)),
    )
    before, subject = finish(book.look_up(account.public, 0)), f"$SYS.REQ.ACCOUNT.{account.public}.CLAIMS.UPDATE"
    ClaimRequests(broker, book, None, str).listen()
    system.say(b"SUB r.* 1\r\n")
    account.nats["exports"] = exports(MANY)
    turn, long = counter.noting(lambda: broker.do_long_work(0)), account.jwt(OPERATOR.key)
    with counter:
        for number, token in enumerate((long, "x", long)):
            assert system.say(f"PUB {subject} r.{number} {len(token)}\r\n{token}\r\n".encode()) == b""
        while book.get(account.public) is before:
            assert broker.account(account.public).config.exports == ()
            turn()
    assert len(broker.account(account.public).config.exports) == MANY
    while broker.long_work:
        broker.do_long_work(0)
    assert re.findall(rb'MSG (r.\d) .*\r\n.*"(data|error)"', system.heard()) == [
        (b"r.0", b"data"), (b"r.1", b"error"), (b"r.2", b"data")]  # fmt: skip
    assert len(counter.turns) > MANY // 64
    assert max(counter.turns) <= TURN_CALLS
