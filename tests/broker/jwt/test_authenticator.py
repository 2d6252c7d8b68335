"""Users of JWTs under a clock that is turned: who is let in, until when, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from natsctl.broker.jwt import token as token_module
from tests.support.jwts import Estate, Key, UserLogin, make_jwt

START_S = 1_700_000_000
VIOLATION = b"-ERR 'Authorization Violation'\r\n"
Operate = Callable[..., Any]


def test_user_becomes_who_its_jwt_says(estate: Estate, operate: Operate) -> None:
    account = estate.account("A")
    signing = Key("account")
    account.nats["signing_keys"] = [signing.public]
    user = estate.user(account, {"name": "alice"}, signer=signing, tags=["a:b"])
    grant = operate(estate).guest(user).session.login.grant
    assert (grant.user, grant.account, grant.issuer) == (user.key.public, account.public, signing.public)
    assert (grant.name_tag, grant.tags, grant.jwt) == ("alice", ("a:b",), user.jwt)


def test_account_that_signs_itself_is_the_issuer(estate: Estate, operate: Operate) -> None:
    account = estate.account("A")
    assert operate(estate).guest(estate.user(account)).session.login.grant.issuer == account.public


def test_connection_ends_when_its_jwt_does(estate: Estate, operate: Operate) -> None:
    account = estate.account("A")
    town = operate(estate)
    guest = town.guest(estate.user(account, {"exp": START_S + 10}))
    town.wait(9)
    assert guest.reason == ""
    town.wait(1)
    assert guest.heard().endswith(b"-ERR 'User Authentication Expired'\r\n")
    assert guest.reason == "Authentication Expired"


def test_connection_ends_with_its_hours(estate: Estate, operate: Operate) -> None:
    account = estate.account("A")
    town = operate(estate)  # it is 22:13:20 in UTC
    times = [{"start": "22:00:00", "end": "22:14:00"}]
    guest = town.guest(estate.user(account, times=times, times_location="UTC"))
    town.wait(39)
    assert guest.reason == ""
    town.wait(2)
    assert guest.reason == "Authentication Expired"
    assert town.guest(estate.user(account, times=times, times_location="UTC")).said == VIOLATION


def test_account_that_expires_closes_its_clients_and_lets_nobody_in(estate: Estate, operate: Operate) -> None:
    account = estate.account("A", {"exp": START_S + 60})
    town = operate(estate)
    user = estate.user(account)
    guest = town.guest(user)
    town.wait(59)
    assert guest.reason == ""
    town.wait(1)
    assert guest.heard().endswith(b"-ERR 'Account Authentication Expired'\r\n")
    assert guest.reason == "Authentication Expired"
    assert town.guest(user).said == VIOLATION


def test_expired_account_is_back_with_a_newer_jwt_of_the_resolver(estate: Estate, operate: Operate) -> None:
    account = estate.account("A", {"exp": START_S + 60})
    town = operate(estate)
    user = estate.user(account)
    town.guest(user)
    town.wait(61)
    account.claims["exp"] = START_S + 600
    town.resolver._preload[account.public] = account.jwt(estate.key)
    assert town.guest(user).said == b""


def test_strict_operator_signs_accounts_with_signing_keys_alone(operate: Operate) -> None:
    estate = Estate(strict_signing_key_usage=True)
    account = estate.account("A")
    signing = Key("account")
    account.nats["signing_keys"] = [signing.public]
    good = estate.preload()
    by_own_key = {account.public: account.jwt(estate.key)}
    assert operate(estate, good).guest(estate.user(account, signer=signing)).said == b""
    assert operate(estate, good).guest(estate.user(account)).said == VIOLATION
    assert operate(estate, by_own_key).guest(estate.user(account, signer=signing)).said == VIOLATION


def test_only_pinned_accounts_may_connect(estate: Estate, operate: Operate) -> None:
    pinned, other = estate.account("A"), estate.account("B")
    town = operate(estate, pinned=[pinned.public])
    assert town.guest(estate.user(pinned)).said == b""
    assert town.guest(estate.user(estate.system)).said == b""
    assert town.guest(estate.user(other)).said == VIOLATION


def test_sentinel_stands_in_for_who_brings_no_jwt(estate: Estate, operate: Operate) -> None:
    account = estate.account("A")
    sentinel = estate.user(account, bearer_token=True)
    guest = operate(estate, sentinel=sentinel.jwt).guest(UserLogin(Key("user"), ""))
    assert guest.session.login.grant.user == sentinel.key.public


def test_callout_account_lets_in_who_answers_callouts_alone(estate: Estate, operate: Operate) -> None:
    account = estate.account("A")
    service, other = estate.user(account), estate.user(account)
    account.nats["authorization"] = {"auth_users": [service.key.public]}
    town = operate(estate)
    assert town.guest(service).said == b""
    assert town.guest(other).said == VIOLATION


def test_reconnecting_user_costs_no_second_verification_of_its_jwt(estate: Estate, operate: Operate) -> None:
    account = estate.account("A")
    town = operate(estate)
    user = estate.user(account)
    with patch.object(token_module, "has_signed", wraps=token_module.has_signed) as verified:
        for _ in range(5):
            assert town.guest(user).said == b""
    assert verified.call_count == 2  # the user's JWT and the account's


def test_forged_jwt_does_not_profit_from_what_is_kept(estate: Estate, operate: Operate) -> None:
    account = estate.account("A")
    town = operate(estate)
    user = estate.user(account)
    assert town.guest(user).said == b""
    head, body, _ = user.jwt.split(".")
    forged = estate.user(account).jwt.split(".")[2]
    assert town.guest(UserLogin(user.key, f"{head}.{body}.{forged}")).said == VIOLATION


def test_secrets_are_in_no_repr(estate: Estate, operate: Operate) -> None:
    account = estate.account("A")
    user = estate.user(account)
    grant = operate(estate).guest(user).session.login.grant
    assert user.jwt not in repr(grant)
    assert user.jwt not in repr(user)


@pytest.mark.parametrize("claim", ["exp", "nbf"])
def test_times_of_a_user_are_looked_at_each_time(estate: Estate, operate: Operate, claim: str) -> None:
    account = estate.account("A")
    user = estate.user(account, {claim: START_S + 30})
    town = operate(estate)
    early = town.guest(user).said
    town.wait(31)
    late = town.guest(user).said
    assert (early, late) == ((b"", VIOLATION) if claim == "exp" else (VIOLATION, b""))


def test_account_jwt_under_another_name_is_refused(estate: Estate, operate: Operate) -> None:
    account, other = estate.account("A"), estate.account("B")
    town = operate(estate, {account.public: other.jwt(estate.key)})
    assert town.guest(estate.user(account)).said == VIOLATION


def test_self_signed_account_is_refused(estate: Estate, operate: Operate) -> None:
    account = estate.account("A")
    town = operate(estate, {account.public: make_jwt("account", account.public, account.key, **account.nats)})
    assert town.guest(estate.user(account)).said == VIOLATION
