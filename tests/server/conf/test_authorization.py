"""The block `authorization` and the users of accounts."""

from __future__ import annotations

import pytest

from natsctl.broker.auth.permissions import Permissions, ResponseRule, SubjectRules
from natsctl.broker.auth.static_auth import User
from natsctl.server.conf.config import apply
from natsctl.server.conf.syntax import load_text
from natsctl.server.options import ServerOptions

NKEY = "UBEAOWSZPZZBUFLOFYDZTXS4YDCTETOG47VPDTOUMJIINDWFGIK52DYE"
MINUTE = 60 * 1_000_000_000


def options(text: str) -> ServerOptions:
    return apply(load_text(text, {}), ServerOptions())


def user(text: str) -> User:
    (found,) = options(f"authorization {{ users: [ {{ {text} }} ] }}").users
    return found


def permissions(text: str) -> Permissions:
    found = user(f"user: a, permissions: {{ {text} }}").permissions
    assert found is not None
    return found


def test_one_user_a_token_and_a_timeout() -> None:
    one = options("authorization { username: a, pass: b, timeout: 3 }")
    assert (one.user, one.password, one.auth_timeout_s) == ("a", "b", 3)
    assert options('authorization { token: "t", timeout: "500ms" }').auth_timeout_s == 0.5


def test_users_with_passwords_and_nkeys() -> None:
    assert user("user: a, password: b") == User("a", "b") == user("username: a, pass: b")
    assert user(f"nkey: {NKEY}") == User("", "", nkey=NKEY)
    hashed = "$2a$04$igRjN11Z3BPB1hnNNL88YeQOqI52IWeyoa6itve8ho4ksh1AyBrVa"
    assert user(f"user: a, password: {hashed}").password == hashed


def test_connection_types_without_regard_to_case() -> None:
    for key in ("allowed_connection_types", "connection_types", "clients"):
        assert user(f"user: a, {key}: [standard, WebSocket]").connection_types == {"STANDARD", "WEBSOCKET"}


@pytest.mark.parametrize("key", ["publish", "pub", "import"])
def test_forms_of_publish_rules(key: str) -> None:
    assert permissions(f"{key}: a").publish == SubjectRules(("a",))
    assert permissions(f'{key}: [a, "b.>"]').publish == SubjectRules(("a", "b.>"))
    assert permissions(f"{key}: {{ allow: a, deny: [b, c] }}").publish == SubjectRules(("a",), ("b", "c"))
    assert permissions(f"{key}: {{ deny: b }}").publish == SubjectRules(None, ("b",))
    assert permissions(f"{key}: {{}}").publish == permissions(f"{key}: []").publish == SubjectRules()


@pytest.mark.parametrize("key", ["subscribe", "sub", "export"])
def test_forms_of_subscribe_rules(key: str) -> None:
    assert permissions(f'{key}: ["a", "b q", "c v1.*"]').subscribe == SubjectRules(("a", "b q", "c v1.*"))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("allow_responses: true", ResponseRule()),
        ("publish_allow_responses: true", ResponseRule(1, 2 * MINUTE)),
        ("allow_responses: false", None),
        ('allow_responses: { max: 5, expires: "1m" }', ResponseRule(5, MINUTE)),
        ('allow_responses: { max_msgs: -1, ttl: "-1m" }', ResponseRule(-1, -MINUTE)),
        ("allow_responses: { max: 0 }", ResponseRule()),
    ],
)
def test_forms_of_response_rules(text: str, rule: ResponseRule | None) -> None:
    assert permissions(text).responses == rule


@pytest.mark.parametrize("key", ["default_permissions", "default_permission", "permissions"])
def test_default_permissions_are_for_those_without_their_own(key: str) -> None:
    text = f"authorization {{ users: [{{user: a}}, {{user: b, permissions: {{pub: x}}}}], {key}: {{sub: y}} }}"
    first, second = options(text).users
    assert first.permissions == Permissions(subscribe=SubjectRules(("y",)))
    assert second.permissions == Permissions(publish=SubjectRules(("x",)))


def test_a_variable_in_the_block_is_no_unknown_field() -> None:
    given = options("authorization { P: {pub: a}, users: [{user: a, permissions: $P}] }")
    assert given.users[0].permissions == Permissions(SubjectRules(("a",)))
