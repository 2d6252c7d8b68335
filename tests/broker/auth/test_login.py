"""Logging in: users, their limits and their end, and answers that take long."""

import random
from collections.abc import Callable
from typing import Any

import bcrypt
import pytest

from natsctl.broker.auth.credentials import ConnectOptions, Credentials, Grant, LoginRefusal, Pending, parse_connect
from natsctl.broker.auth.permissions import ResponseRule, SubjectPermissions, SubjectRules
from natsctl.broker.auth.static_auth import StaticAuthenticator, User
from natsctl.broker.broker import Broker
from natsctl.broker.broker_options import BrokerOptions
from natsctl.broker.imports.account_config import AccountConfig, ConnectionLimits
from natsctl.broker.info import user_info_json
from natsctl.broker.refusals import CloseReason
from tests.support.clock import VirtualClock

VIOLATION = b"-ERR 'Authorization Violation'\r\n"
NewHarness = Callable[[BrokerOptions | None], Any]


def hashed() -> str:
    """A hash of `x` that nobody has shown the password of yet."""
    return bcrypt.hashpw(b"x", bcrypt.gensalt(4)).decode()


class Door:
    """An authenticator that gives whatever it is told to."""

    required, wants_nonce, default = True, False, None

    def __init__(self, answer: Grant | LoginRefusal | Pending) -> None:
        self.answer = answer

    def authenticate(self, credentials: Credentials) -> Grant | LoginRefusal | Pending:
        return self.answer

    def still_holds(self, grant: Grant, credentials: Credentials) -> bool:
        return True


def hello(**fields: str) -> bytes:
    text = "".join(f',"{key}":"{value}"' for key, value in fields.items())
    return b'CONNECT {"verbose":false,"pedantic":false,"headers":true' + text.encode() + b"}\r\n"


def harness_with(new_harness: NewHarness, *users: User, **options: Any) -> Any:
    harness = new_harness(BrokerOptions(auth=StaticAuthenticator(users=users, **options)))
    harness.told = []
    harness.broker.notice = lambda session, text: harness.told.append(text)
    return harness


def test_what_follows_a_slow_login_waits_in_its_order(new_harness: NewHarness) -> None:
    harness = harness_with(new_harness, User("slow", hashed()), User("quick", "x"))
    slow = harness.client(b"")
    assert slow.say(hello(user="slow", **{"pass": "x"}) + b"SUB a 1\r\nPUB a 1\r\n") == b""
    assert slow.say(b"1\r\nPUB a 1\r\n2\r\nPI") == b"" == slow.say(b"NG\r\n")
    assert harness.client(hello(user="quick", **{"pass": "x"})).say(b"PING\r\n") == b"PONG\r\n"
    (session,) = harness.broker.pending_logins
    session.login.decide(session.login.pending.work())
    assert slow.heard() == b"MSG a 1 1\r\n1\r\nMSG a 1 1\r\n2\r\nPONG\r\n"


def test_a_slow_login_that_fails_carries_nothing_out(new_harness: NewHarness) -> None:
    harness = harness_with(new_harness, User("slow", hashed()))
    client = harness.client(b"")
    client.say(hello(user="slow", **{"pass": "wrong"}) + b"SUB a 1\r\nPING\r\n")
    session = client.session
    session.login.decide(session.login.pending.work())
    assert client.heard() == VIOLATION and session.close_reason is CloseReason.AUTHENTICATION_VIOLATION
    assert harness.told == ['authentication error - User "slow"'] and not session.subs


def test_the_wait_for_an_answer_is_not_the_clients_delay(new_harness: NewHarness) -> None:
    harness = harness_with(new_harness, User("slow", hashed()))
    client = harness.client(b"")
    client.say(hello(user="slow", **{"pass": "x"}))
    harness.wait(30)
    assert client.heard() == b"" and client.session.close_reason is None
    client.session.login.decide(client.session.login.pending.work())
    assert client.say(b"PING\r\n") == b"PONG\r\n"


def test_a_connection_that_ended_meanwhile_is_not_let_in(new_harness: NewHarness) -> None:
    harness = harness_with(new_harness, User("slow", hashed()))
    client = harness.client(b"")
    client.say(hello(user="slow", **{"pass": "x"}) + b"SUB a 1\r\n")
    pending = client.session.login.pending
    client.session.closed()
    client.session.login.decide(pending.work())
    assert not harness.account.sessions and harness.account.has_interest(b"a") is False


def test_what_waits_for_an_answer_is_bounded(new_harness: NewHarness) -> None:
    harness = harness_with(new_harness, User("slow", hashed()))
    client = harness.client(b"")
    client.say(hello(user="slow", **{"pass": "x"}))
    for _ in range(9):
        client.say(b"x" * (1 << 20))
    assert client.session.close_reason is CloseReason.AUTHENTICATION_VIOLATION


def test_a_second_slow_connect_holds_what_came_with_it(new_harness: NewHarness) -> None:
    harness = harness_with(new_harness, User("quick", "x"), User("slow", hashed()))
    client = harness.client(hello(user="quick", **{"pass": "x"}))
    assert client.say(b"SUB a 1\r\n" + hello(user="slow") + b"SUB b 2\r\nPING\r\n") == b""
    assert client.say(b"PING\r\n") == b""
    client.session.login.decide(client.session.login.pending.work())
    assert client.heard() == b"PONG\r\nPONG\r\n"
    assert list(client.session.subs) == [b"2"] and client.session.user == "slow"


def test_a_password_that_was_right_costs_nothing_again(new_harness: NewHarness) -> None:
    secret = bcrypt.hashpw(b"p", bcrypt.gensalt(4)).decode()
    harness = harness_with(new_harness, User("a", secret))
    client = harness.client(b"")
    client.say(hello(user="a", **{"pass": "p"}))
    client.session.login.decide(client.session.login.pending.work())
    assert harness.client(hello(user="a", **{"pass": "p"})).say(b"PING\r\n") == b"PONG\r\n"
    again = harness.client(b"")
    again.say(hello(user="a", **{"pass": "q"}))
    assert again.session.login.pending is not None


def test_an_unknown_user_takes_as_long_as_a_known_one() -> None:
    auth = StaticAuthenticator(users=[User("a", hashed())])
    answer = auth.authenticate(Credentials(ConnectOptions(user="b", password="x")))
    assert isinstance(answer, Pending) and isinstance(answer.work(), LoginRefusal)


def test_credentials_end_when_the_grant_says(new_harness: NewHarness) -> None:
    harness = new_harness(None)
    harness.broker.options.auth = Door(Grant("a", "$G", expires_ns=harness.clock.now_ns() + 90_500_000_000))
    client = harness.client(hello())
    client.say(b"SUB i 1\r\nPUB $SYS.REQ.USER.INFO i 0\r\n\r\n")
    assert b'"expires":90000000000' in user_info_json(harness.broker, client.session)
    harness.wait(90)
    assert b"Expired" not in client.heard()
    harness.wait(1)
    assert b"-ERR 'User Authentication Expired'\r\n" in client.heard()
    assert client.session.close_reason is CloseReason.AUTHENTICATION_EXPIRED


def test_an_expired_grant_ends_at_once(new_harness: NewHarness) -> None:
    harness = new_harness(None)
    harness.broker.options.auth = Door(Grant("a", "$G", expires_ns=harness.clock.now_ns() - 1))
    client = harness.client(hello())
    harness.wait(0)
    assert client.heard() == b"-ERR 'User Authentication Expired'\r\n"


@pytest.mark.parametrize(
    ("grant", "limits", "ours", "least"),
    [(3, -1, 0, 3), (-1, 2, 0, 2), (-1, -1, 4, 4), (5, 4, 3, 3)],
)
def test_the_least_limit_of_subscriptions_counts(
    new_harness: NewHarness, grant: int, limits: int, ours: int, least: int
) -> None:
    harness = new_harness(BrokerOptions(max_subscriptions=ours, auth=Door(Grant("a", "A", max_subscriptions=grant))))
    harness.broker.configure([AccountConfig("A", limits=ConnectionLimits(max_subscriptions=limits))])
    heard = harness.client(b"").say(hello() + b"".join(b"SUB a %d\r\n" % number for number in range(7)))
    refused = 7 - least if least else 1  # who may have none is closed
    assert heard == b"-ERR 'maximum subscriptions exceeded'\r\n" * refused


@pytest.mark.parametrize("limit", [0, -2])
def test_a_user_that_may_have_no_subscription_is_closed_at_its_login(new_harness: NewHarness, limit: int) -> None:
    client = new_harness(BrokerOptions(auth=Door(Grant("a", "A", max_subscriptions=limit)))).client(b"")
    assert client.say(hello()) == b"-ERR 'maximum subscriptions exceeded'\r\n"
    assert client.session.close_reason is CloseReason.MAX_SUBSCRIPTIONS_EXCEEDED


def test_the_least_limit_of_payloads_counts_from_the_first_message_on(new_harness: NewHarness) -> None:
    harness = new_harness(BrokerOptions(auth=Door(Grant("a", "A", max_payload=100))))
    harness.broker.configure([AccountConfig("A", limits=ConnectionLimits(max_payload=5))])
    client = harness.client(b"")
    assert b'"max_payload":1048576' in client.info
    assert client.say(hello() + b"PUB a 5\r\n12345\r\nPING\r\n") == b"PONG\r\n"
    assert client.session.max_payload == 5
    late = harness.client(b"")
    assert late.say(hello() + b"PUB a 6\r\n123456\r\nPING\r\n") == b"-ERR 'Maximum Payload Violation'\r\n"


def test_a_users_permissions_are_told_to_it(new_harness: NewHarness) -> None:
    permissions = SubjectPermissions(SubjectRules(("a",)), SubjectRules(None, ("b q",)), ResponseRule(2, 3))
    harness = harness_with(new_harness, User("u", "x", permissions=permissions))
    client = harness.client(hello(user="u", **{"pass": "x"}))
    assert user_info_json(harness.broker, client.session).endswith(
        b'"permissions":{"publish":{"allow":["a"]},"subscribe":{"deny":["b q"]},"responses":{"max":2,"ttl":3}}}}'
    )


def test_a_guarded_request_without_responders_is_told_so(new_harness: NewHarness) -> None:
    permissions = SubjectPermissions(subscribe=SubjectRules(None, ("inbox.no",)))
    harness = harness_with(new_harness, User("u", "x", permissions=permissions))
    connect = (
        b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"user":"u","pass":"x"}\r\n'
    )
    client = harness.client(connect)
    heard = client.say(b"SUB inbox.* 1\r\nPUB nobody inbox.a 0\r\n\r\n")
    assert heard.startswith(b"HMSG inbox.a 1 ") and b"503" in heard


def test_a_guard_ends_with_its_subscription(new_harness: NewHarness) -> None:
    permissions = SubjectPermissions(subscribe=SubjectRules(None, ("a.no",)))
    harness = harness_with(new_harness, User("u", "x", permissions=permissions))
    client = harness.client(hello(user="u", **{"pass": "x"}))
    before = harness.account.subscriptions
    client.say(b"SUB a.* 1\r\nSUB a.* q 2\r\n")
    assert harness.account.subscriptions == before + 2
    client.say(b"UNSUB 1\r\n")
    client.session.closed()
    assert harness.account.subscriptions == before and not harness.account.has_interest(b"a.b")


def test_others_pay_nothing_for_a_guard(new_harness: NewHarness) -> None:
    permissions = SubjectPermissions(subscribe=SubjectRules(None, ("a.no",)))
    harness = harness_with(new_harness, User("u", "x", permissions=permissions), User("v", "x"))
    harness.client(hello(user="u", **{"pass": "x"})).say(b"SUB a.* 1\r\n")
    harness.client(hello(user="v", **{"pass": "x"})).say(b"SUB b.* 1\r\n")
    clients, _, handlers = harness.account.routes.find(b"b.x")
    assert len(clients) == 1 and not handlers


def test_a_name_can_not_write_lines_of_its_own_into_the_log(new_harness: NewHarness) -> None:
    harness = harness_with(new_harness, User("a", "x"))
    harness.client(b"").say(b'CONNECT {"user":"a\\n[1] [INF] \\"b\\u001b","pass":"y"}\r\n')
    assert harness.told == ['authentication error - User "a\\n[1] [INF] \\"b\\x1b"']


def test_a_subscription_that_is_forbidden_later_ends(new_harness: NewHarness) -> None:
    harness = harness_with(new_harness, User("u", "x", permissions=SubjectPermissions()))
    lines: list[str] = []
    harness.broker.log_info = lines.append
    client = harness.client(hello(user="u", **{"pass": "x"}))
    client.say(b"SUB a 1\r\nSUB a.* q 2\r\nSUB b 3\r\n")
    permissions = SubjectPermissions(subscribe=SubjectRules(None, ("a", "a.no")))
    client.session.apply_permissions(Grant("u", "$G", permissions), harness.account)
    client.session.review_subscriptions()
    assert client.heard() == b'-ERR \'Permissions Violation for Subscription to "a" (sid "1")\'\r\n'
    assert lines == ['Removed sub "a" (sid "1") for User "u" - not authorized']
    assert client.say(b"PUB a.no 0\r\n\r\nPUB a.b 0\r\n\r\nPUB b 0\r\n\r\n") == b"MSG a.b 2 0\r\n\r\nMSG b 3 0\r\n\r\n"


def test_secrets_are_in_no_repr() -> None:
    assert "geheim" not in repr(User("a", "geheim"))
    assert "geheim" not in repr(
        Credentials(ConnectOptions(user="a", password="geheim", auth_token="geheim", jwt="geheim"))
    )


def test_a_nonce_is_drawn_from_what_nobody_can_guess() -> None:
    class Foreseen(random.Random):
        def getrandbits(self, k: int, /) -> int:
            return (1 << k) - 1

    door = Door(LoginRefusal())
    door.wants_nonce = True
    broker = Broker(VirtualClock(), random.Random(1), BrokerOptions(auth=door), Foreseen())
    assert broker.connect("h", 1).login.nonce == b"_" * 14 + b"8"


@pytest.mark.parametrize(
    ("body", "user", "password"),
    [
        (b'{"User":"a","PASS":"b"}', "a", "b"),
        (b'{"user":"x","USER":"a","pass":"b","Pass":null}', "a", "b"),
        (b'{"pass":"x","Pass":"y","pass":"b","u\xc5\xbfer":"a"}', "a", "b"),
    ],
)
def test_connect_is_read_in_any_case(body: bytes, user: str, password: str) -> None:
    options = parse_connect(body)
    assert options is not None and (options.user, options.password) == (user, password)
