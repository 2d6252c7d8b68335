"""The block `authorization` and the users of accounts."""

from __future__ import annotations

import pytest

from natsctl.broker.auth.permissions import Permissions, ResponseRule, SubjectRules
from natsctl.broker.auth.static_auth import User
from natsctl.server.conf.config import apply
from natsctl.server.conf.syntax import ConfError, load_text
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


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("authorization { user: a, password: b, token: c }", "Cannot have a user/pass and token"),
        ("authorization { user: a, users: [] }", "Can not have a single user/pass and a users array"),
        ("authorization { token: a, users: [{user: b}] }", "Can not have a token and a users array"),
        ("authorization { users: [{user: a}, {user: a}] }", 'Duplicate user "a" detected'),
        (f"authorization {{ users: [{{nkey: {NKEY}}}, {{nkey: {NKEY}}}] }}", f'Duplicate nkey "{NKEY}" detected'),
        ("authorization { users: {user: a} }", "Expected users field to be an array"),
        ("authorization { users: [a] }", "Expected user entry to be a map/struct"),
        ("authorization { users: [{password: a}] }", "User entry requires a user"),
        ("authorization { users: [{nkey: UABC}] }", "Not a valid public nkey for a user"),
        (f"authorization {{ users: [{{nkey: A{NKEY[1:]}}}] }}", "Not a valid public nkey for a user"),
        (f"authorization {{ users: [{{nkey: {NKEY}, user: a}}] }}", "Nkey users do not take usernames or passwords"),
        (f"authorization {{ users: [{{nkey: {NKEY}, pass: a}}] }}", "Nkey users do not take usernames or passwords"),
        ("authorization { users: [{user: a, usr: b}] }", 'unknown field "usr"'),
        ("authorization { usr: a }", 'unknown field "usr"'),
        ("authorization { users: [{user: a, clients: [X, STANDARD]}] }", 'invalid connection types ["X"]'),
        ("authorization { users: [{user: a, permissions: x}] }", "Expected permissions to be a map/struct"),
        ("authorization { users: [{user: a, permissions: {x: y}}] }", 'Unknown field "x" parsing permissions'),
        ("authorization { users: [{user: a, permissions: {pub: {x: y}}}] }", 'Unknown field name "x" parsing subject'),
        ("authorization { users: [{user: a, permissions: {pub: 1}}] }", "Expected subject permissions to be a subject"),
        ("authorization { users: [{user: a, permissions: {pub: a..b}}] }", 'subject "a..b" is not a valid subject'),
        ('authorization { users: [{user: a, permissions: {pub: "a q"}}] }', 'subject "a q" is not a valid subject'),
        ('authorization { users: [{user: a, permissions: {sub: "a b c"}}] }', 'subject "a b c" is not a valid subject'),
        ('authorization { users: [{user: a, permissions: {sub: "a b..c"}}] }', 'queue "b..c" is not a valid queue'),
        ("authorization { users: [{user: a, permissions: {allow_responses: 1}}] }", "expected a boolean or a map"),
        ("authorization { users: [{user: a, permissions: {allow_responses: {ttl: 1}}}] }", "not a duration string"),
        ("authorization { users: [{user: a, permissions: {allow_responses: {ttl: x}}}] }", "error parsing expires"),
        ("authorization { auth_callout: {} }", "Authorization callouts require an issuer to be specified"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, fault: str) -> None:
    with pytest.raises(ConfError) as error:
        options("# a comment\n" + text)
    assert str(error.value).startswith("nats.conf:2: ") and fault in str(error.value)


def test_secrets_are_in_no_error() -> None:
    for text in ("[{password: geheim}]", "[{user: a, password: geheim, x: 1}]", "{password: geheim}", "geheim"):
        with pytest.raises(ConfError) as error:
            options(f"authorization {{ users: {text} }}")
        assert "geheim" not in str(error.value)


def test_a_variable_in_the_block_is_no_unknown_field() -> None:
    given = options("authorization { P: {pub: a}, users: [{user: a, permissions: $P}] }")
    assert given.users[0].permissions == Permissions(SubjectRules(("a",)))
