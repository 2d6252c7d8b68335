"""Static authentication."""

from __future__ import annotations

import bcrypt
import pytest

from natsctl.broker.auth.connect_options import ConnectOptions, parse_connect
from natsctl.broker.auth.grant import Credentials, Grant, Pending, Refusal
from natsctl.broker.auth.static_auth import StaticAuthenticator, User

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()


def grant(auth: StaticAuthenticator, **given: str) -> Grant | None:
    answer = auth.authenticate(Credentials(ConnectOptions(**given)))
    if isinstance(answer, Pending):
        answer = answer.work()
    return None if isinstance(answer, Refusal) else answer


@pytest.mark.parametrize("token", ["secret", HASH], ids=["plain", "hashed"])
def test_tokens(token: str) -> None:
    auth = StaticAuthenticator(token=token)
    assert grant(auth, auth_token="secret") == Grant("", "$G")
    assert grant(auth, auth_token="other") is None
    assert grant(auth) is None
    assert grant(auth, user="secret") is None


@pytest.mark.parametrize("password", ["secret", HASH], ids=["plain", "hashed"])
def test_users(password: str) -> None:
    auth = StaticAuthenticator(users=[User("a", password, "A")])
    assert grant(auth, user="a", password="secret") == Grant("a", "A")
    assert grant(auth, user="a", password="") is None
    assert grant(auth, user="b", password="secret") is None
    assert grant(auth, password="secret") is None
    assert grant(auth) is None and auth.required


def test_a_user_for_those_without_credentials() -> None:
    auth = StaticAuthenticator(users=[User("a", "x", "A"), User("guest", "y", "B")], no_auth_user="guest")
    assert grant(auth) == Grant("guest", "B") == auth.default
    assert not auth.required
    assert grant(auth, user="a", password="wrong") is None


def test_a_broken_hash_or_endless_password_is_a_refusal() -> None:
    assert grant(StaticAuthenticator(token="$2a$nonsense"), auth_token="x") is None
    assert grant(StaticAuthenticator(token=HASH), auth_token="x" * 5000) is None


def test_passwords_beyond_ascii_are_compared() -> None:
    assert grant(StaticAuthenticator(users=[User("ü", "pässword")]), user="ü", password="pässword")


@pytest.mark.parametrize("body", [b"", b"[]", b"1", b"{", b'{"verbose":1}', b'{"user":5}', b'{"user":"\xff"}'])
def test_bodies_that_are_not_connect_options(body: bytes) -> None:
    assert parse_connect(body) is None


def test_unknown_keys_are_ignored_and_nulls_are_absent() -> None:
    options = parse_connect(b'{"xyz":[1],"user":null,"pass":"p","echo":false}')
    assert options is not None and (options.user, options.password, options.echo) == ("", "p", False)


@pytest.mark.parametrize(
    "body",
    [b'{"verbose":' + b"[" * 100_000, b'{"name":' + b'{"a":' * 100_000, b"[]", b'{"lang":1}'],
    ids=["deep-lists", "deep-objects", "no-object", "wrong-type"],
)
def test_a_hostile_connect_is_refused_without_a_fault(body: bytes) -> None:
    assert parse_connect(body) is None


def test_a_connect_of_null_says_nothing() -> None:
    assert parse_connect(b"null") == ConnectOptions()
