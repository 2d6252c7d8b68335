"""Static authentication."""

import bcrypt
import pytest

from natsctl.broker.auth.credentials import ConnectOptions, Credentials, Grant, LoginRefusal, Pending, parse_connect
from natsctl.broker.auth.static_auth import StaticAuthenticator, User

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()


def grant(auth: StaticAuthenticator, **given: str) -> Grant | None:
    answer = auth.authenticate(Credentials(ConnectOptions(**given)))
    if isinstance(answer, Pending):
        answer = answer.work()
    return None if isinstance(answer, LoginRefusal) else answer


def test_a_broken_hash_or_endless_password_is_a_refusal() -> None:
    assert grant(StaticAuthenticator(token="$2a$nonsense"), auth_token="x") is None
    assert grant(StaticAuthenticator(token=HASH), auth_token="x" * 5000) is None


def test_passwords_beyond_ascii_are_compared() -> None:
    assert grant(StaticAuthenticator(users=[User("ü", "pässword")]), user="ü", password="pässword")


def test_unknown_keys_are_ignored_and_nulls_are_absent() -> None:
    options = parse_connect(b'{"xyz":[1],"user":null,"pass":"p","echo":false}')
    assert options is not None and (options.user, options.password, options.echo) == ("", "p", False)
    assert parse_connect(b"null") == ConnectOptions()


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"1", b"{", b'{"lang":1}', b'{"user":"\xff"}', b'{"a":' + b"[" * 100_000, b'{"name":' * 100_000],
    ids=lambda body: body[:9],
)
def test_a_hostile_connect_is_refused_without_a_fault(body: bytes) -> None:
    assert parse_connect(body) is None


def hashed(password: str, cost: int) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


def work_of_a_refusal(monkeypatch: pytest.MonkeyPatch, auth: StaticAuthenticator, kind: str, **shown: str) -> int:
    """Return how much hashing a refused login takes, in rounds of bcrypt."""
    rounds = 0
    checkpw = bcrypt.checkpw

    def counted(password: bytes, against: bytes) -> bool:
        nonlocal rounds
        matches = checkpw(password, against)
        rounds += 1 << int(against[4:6])
        return matches

    monkeypatch.setattr(bcrypt, "checkpw", counted)
    answer = auth.authenticate(Credentials(ConnectOptions(**shown), connection_type=kind))
    answer = answer.work() if isinstance(answer, Pending) else answer
    monkeypatch.setattr(bcrypt, "checkpw", checkpw)
    assert isinstance(answer, LoginRefusal)
    return rounds


@pytest.mark.parametrize("kind", ["STANDARD", "WEBSOCKET", "LEAFNODE"])
def test_every_refusal_costs_as_much_as_the_most_costly_hash(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    users = [
        User("plain", "p"),
        User("cheap", hashed("c", 4)),
        User("dear", hashed("d", 6)),
        User("broken", "$2a$99$no"),
        User("broken too", "$2a$05$no"),
        User("mqtt", hashed("m", 5), connection_types=frozenset({"MQTT"})),
        User("plain mqtt", "m", connection_types=frozenset({"MQTT"})),
    ]
    auth = StaticAuthenticator(users=users)
    for name in ("nobody", "plain", "cheap", "dear", "broken", "broken too", "mqtt", "plain mqtt"):
        for password in ("wrong", "", "w" * 100):
            assert work_of_a_refusal(monkeypatch, auth, kind, user=name, password=password) == 1 << 6, name
    assert work_of_a_refusal(monkeypatch, auth, kind, auth_token="wrong") == 1 << 6
    tokens = StaticAuthenticator(hashed("t", 5))
    assert work_of_a_refusal(monkeypatch, tokens, kind, auth_token="wrong") == 1 << 5
    plain = StaticAuthenticator(users=users[:1])
    assert work_of_a_refusal(monkeypatch, plain, kind, user="nobody", password="x") == 0


def test_a_password_that_was_right_does_not_make_a_wrong_one_cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    auth = StaticAuthenticator(users=[User("a", hashed("right", 4)), User("b", hashed("x", 6)), User("c", "plain")])
    for name, password in (("a", "right"), ("c", "plain")):
        answer = auth.authenticate(Credentials(ConnectOptions(user=name, password=password)))
        assert isinstance(answer.work() if isinstance(answer, Pending) else answer, Grant)
    assert work_of_a_refusal(monkeypatch, auth, "STANDARD", user="a", password="wrong") == 1 << 6
