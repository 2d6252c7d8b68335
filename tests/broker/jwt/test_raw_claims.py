"""Claims as JSON says them: a list that is missing, null or empty, and numbers below zero."""

from typing import Any

import pytest

from natsctl.api.jwt_claims import UserClaims, decode
from natsctl.api.jwt_validation import time_faults
from natsctl.broker.auth.permissions import SessionPermissions
from natsctl.broker.jwt.user_grant import is_bare, permissions_of
from tests.support.machine import Machine
from tests.support.operators import Key, make_jwt

ACCOUNT = Key("account")


def claims(times: dict[str, Any] | None = None, /, **nats: Any) -> UserClaims:
    return decode(make_jwt("user", Key("user").public, ACCOUNT, times, **nats), UserClaims)


def may(nats: dict[str, Any]) -> tuple[bool, bool]:
    """Whether such a user may publish and subscribe on a subject that no list names."""
    permissions = permissions_of(claims(**nats).nats)
    if permissions is None:
        return True, True
    session = SessionPermissions(permissions, Machine().clock)
    return session.may_publish(b"other"), session.may_subscribe(b"other", b"")


@pytest.mark.parametrize(
    ("nats", "allowed"),
    [
        ({"pub": {"allow": [], "deny": ["x"]}}, (False, True)),
        ({"pub": {"allow": None, "deny": ["x"]}}, (True, True)),
        ({"pub": {"deny": ["x"]}}, (True, True)),
        ({"pub": {"allow": [], "deny": []}}, (True, True)),
        ({"pub": {"allow": []}, "sub": {"allow": ["y"]}}, (True, False)),
        ({"sub": {"allow": [], "deny": ["x"]}}, (True, True)),
        ({"pub": {"allow": []}, "resp": {"max": 1}}, (False, True)),
        ({"resp": {}}, (False, True)),
        ({"resp": None}, (True, True)),
    ],
)
def test_an_empty_list_of_what_may_be_published_allows_nothing_if_there_is_a_rule(
    nats: dict[str, Any], allowed: tuple[bool, bool]
) -> None:
    assert may(nats) == allowed


@pytest.mark.parametrize(
    ("nats", "bare"),
    [
        ({}, True),
        ({"pub": None, "resp": None, "src": None, "times": None}, True),
        ({"pub": {}, "sub": {"allow": None}}, True),
        *[({key: {"allow": []}}, False) for key in ("pub", "sub")],
        *[({key: {"deny": []}}, False) for key in ("pub", "sub")],
        *[({key: []}, False) for key in ("src", "times", "allowed_connection_types")],
        ({"resp": {}}, False),
        ({"src": ""}, False),
        ({"payload": -1}, False),
    ],
)
def test_a_user_with_an_empty_list_has_rules_of_its_own(nats: dict[str, Any], bare: bool) -> None:
    assert is_bare(claims(issuer_account=ACCOUNT.public, tags=["a:b"], **nats)) is bare


def test_an_end_before_the_epoch_is_an_end() -> None:
    assert list(time_faults(claims({"exp": -1}), 1)) == ["claim is expired"]
    assert list(time_faults(claims({"exp": 0}), 1)) == []
