"""Users of JWTs under a clock that is turned: who is let in, until when, and what it costs."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from natsctl.api import jwt_token as token_module
from tests.support.operators import Key, Operator, UserLogin

START_S = 1_700_000_000
VIOLATION = b"-ERR 'Authorization Violation'\r\n"
Operate = Callable[..., Any]


def test_connection_ends_with_its_hours(operator: Operator, operate: Operate) -> None:
    account = operator.account("A")
    town = operate(operator)  # it is 22:13:20 in UTC
    times = [{"start": "22:00:00", "end": "22:14:00"}]
    guest = town.guest(operator.user(account, times=times, times_location="UTC"))
    town.wait(39)
    assert guest.reason == ""
    town.wait(2)
    assert guest.reason == "Authentication Expired"
    assert town.guest(operator.user(account, times=times, times_location="UTC")).said == VIOLATION


def test_expired_account_is_back_with_a_newer_jwt_of_the_resolver(operator: Operator, operate: Operate) -> None:
    account = operator.account("A", {"exp": START_S + 60})
    town = operate(operator)
    user = operator.user(account)
    town.guest(user)
    town.wait(61)
    account.claims["exp"] = START_S + 600
    town.resolver._preload[account.public] = account.jwt(operator.key)
    assert town.guest(user).said == b""


def test_strict_operator_signs_accounts_with_signing_keys_alone(operate: Operate) -> None:
    operator = Operator(strict_signing_key_usage=True)
    account = operator.account("A")
    signing = Key("account")
    account.nats["signing_keys"] = [signing.public]
    good = operator.preload()
    by_own_key = {account.public: account.jwt(operator.key)}
    assert operate(operator, good).guest(operator.user(account, signer=signing)).said == b""
    assert operate(operator, good).guest(operator.user(account)).said == VIOLATION
    assert operate(operator, by_own_key).guest(operator.user(account, signer=signing)).said == VIOLATION


def test_only_pinned_accounts_may_connect(operator: Operator, operate: Operate) -> None:
    pinned, other = operator.account("A"), operator.account("B")
    town = operate(operator, pinned=[pinned.public])
    assert town.guest(operator.user(pinned)).said == b""
    assert town.guest(operator.user(operator.system)).said == b""
    assert town.guest(operator.user(other)).said == VIOLATION


def test_reconnecting_user_costs_no_second_verification_of_its_jwt(operator: Operator, operate: Operate) -> None:
    account = operator.account("A")
    town = operate(operator)
    user = operator.user(account)
    with patch.object(token_module, "has_signed", wraps=token_module.has_signed) as verified:
        for _ in range(5):
            assert town.guest(user).said == b""
    assert verified.call_count == 2  # the user's JWT and the account's


def test_forged_jwt_does_not_profit_from_what_is_kept(operator: Operator, operate: Operate) -> None:
    account = operator.account("A")
    town = operate(operator)
    user = operator.user(account)
    assert town.guest(user).said == b""
    head, body, _ = user.jwt.split(".")
    forged = operator.user(account).jwt.split(".")[2]
    assert town.guest(UserLogin(user.key, f"{head}.{body}.{forged}")).said == VIOLATION


def test_secrets_are_in_no_repr(operator: Operator, operate: Operate) -> None:
    account = operator.account("A")
    user = operator.user(account)
    grant = operate(operator).guest(user).session.login.grant
    assert user.jwt not in repr(grant)
    assert user.jwt not in repr(user)


@pytest.mark.parametrize("claim", ["exp", "nbf"])
def test_times_of_a_user_are_looked_at_each_time(operator: Operator, operate: Operate, claim: str) -> None:
    account = operator.account("A")
    user = operator.user(account, {claim: START_S + 30})
    town = operate(operator)
    early = town.guest(user).said
    town.wait(31)
    late = town.guest(user).said
    assert (early, late) == ((b"", VIOLATION) if claim == "exp" else (VIOLATION, b""))


def test_callout_account_lets_in_who_answers_callouts_alone(operator: Operator, operate: Operate) -> None:
    account = operator.account("A")
    service, other = operator.user(account), operator.user(account)
    account.nats["authorization"] = {"auth_users": [service.key.public]}
    town = operate(operator)
    assert town.guest(service).said == b""
    assert town.guest(other).said == VIOLATION
