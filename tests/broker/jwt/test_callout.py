"""Authentication callouts without I/O: the life of a request, its bounds, and responses of every kind."""

import json
import random
import time
from collections.abc import Callable
from typing import Any

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.nkey_pairs import CurvePair, SigningPair
from natsctl.api.subject_index import finish
from natsctl.broker.auth.credentials import Delegation, Grant, Pending
from natsctl.broker.auth.static_auth import StaticAuthenticator, User
from natsctl.broker.broker import Broker
from natsctl.broker.broker_options import BrokerOptions
from natsctl.broker.imports.account_config import AccountConfig
from natsctl.broker.jwt import callout_requests
from natsctl.broker.jwt.callout import CalloutAuthenticator, CalloutSettings
from natsctl.broker.jwt.callout_requests import Callouts
from natsctl.broker.refusals import CloseReason
from natsctl.broker.session import Session
from tests.support import tiers
from tests.support.callouts import ISSUER, SUBJECT, Request, claims_of
from tests.support.clock import VirtualClock

SECOND = 1_000_000_000
VIOLATION = b"-ERR 'Authorization Violation'\r\n"


class Town:
    """A broker that asks a service about logins; the service is a handler that keeps what it is asked."""

    def __init__(self, *users: User, **more: Any) -> None:
        users = (User("auth", "pwd", "AUTH"), *users)
        callout = CalloutSettings(issuer=ISSUER.public, auth_users=("auth",), account="AUTH", **more)
        self.auth = CalloutAuthenticator(StaticAuthenticator(users=users), callout, {"AUTH", "FOO"}.__contains__)
        self.clock, rng = VirtualClock(), random.Random(7)
        # The times of JWTs are compared with those of this machine, as whose they are made.
        self.clock.set_wall(time.time_ns())
        key = SigningPair("server", bytes(range(32)))
        self.broker = Broker(self.clock, rng, BrokerOptions(auth=self.auth, server_id=key.public))
        self.broker.configure([AccountConfig("AUTH"), AccountConfig("FOO")])
        self.warned: list[str] = []
        self.broker.log_warning = self.warned.append
        self.callouts = Callouts(self.broker, key, CurvePair(bytes(range(32))))
        self.requests: list[tuple[bytes, bytes]] = []
        self.broker.accounts["AUTH"].subscribe(SUBJECT.encode(), self._asked)
        self.decided: list[Session] = []
        self.broker.login_decided = self.decided.append

    def _asked(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        self.requests.append((reply, payload))

    def come(self, more: bytes = b"", /, **shown: str) -> Session:
        """Return the session of a client that has sent CONNECT, and `more`."""
        session = self.broker.connect("127.0.0.1", 1)
        session.take_output()
        shown = {"user": "x", **shown}
        session.receive(b'CONNECT {"verbose":false,' + json.dumps(shown).encode()[1:] + b"\r\n" + more)
        return session

    def request(self, at: int = -1) -> Request:
        reply, payload = self.requests[at]
        return Request(payload.decode(), {}, claims_of(payload), reply.decode())

    def answer(self, payload: bytes, at: int = -1) -> int:
        return self.broker.accounts["AUTH"].publish(self.requests[at][0], b"", b"", payload)

    def run(self) -> None:
        while self.broker.long_work:
            self.broker.do_long_work(0)

    @property
    def subscriptions(self) -> int:
        return self.broker.accounts["AUTH"].subscriptions


def heard(session: Session) -> bytes:
    return b"".join(session.take_output())


def good(request: Request) -> bytes:
    return request.response(request.user(aud="FOO"))


def test_the_inbox_of_a_request_ends_with_its_response() -> None:
    town = Town()
    before = town.subscriptions
    town.come()
    assert (town.subscriptions, town.callouts.waiting) == (before + 1, 1)
    request = town.request()
    assert [town.answer(good(request)), town.answer(good(request))] == [1, 0]
    assert (town.subscriptions, town.callouts.waiting) == (before, 0)


def test_every_request_has_a_key_and_an_inbox_of_its_own() -> None:
    town = Town()
    for _ in range(50):
        town.come()
    assert len({reply for reply, _ in town.requests}) == 50
    assert len({town.request(at).key for at in range(50)}) == 50


def test_a_login_without_a_response_ends_after_the_authentication_timeout() -> None:
    town = Town()
    before = town.subscriptions
    session = town.come()
    town.clock.advance(town.broker.options.auth_timeout_ns - 1)
    assert town.broker.tick() - town.clock.monotonic_ns() <= 1 and session.close_reason is None
    town.clock.advance(1)
    town.broker.tick()
    assert (heard(session), session.close_reason) == (VIOLATION, CloseReason.AUTHENTICATION_VIOLATION)
    assert town.warned == ['Authorization callout response not received in time on account "AUTH"']
    assert (town.answer(good(town.request())), town.subscriptions) == (0, before)


def test_a_connection_that_ends_takes_its_request_with_it() -> None:
    town = Town()
    before = town.subscriptions
    sessions = [town.come() for _ in range(20)]
    for session in sessions:
        session.closed()
    assert (town.callouts.waiting, town.subscriptions) == (0, before)
    assert not any(session.login._held for session in sessions)
    town.clock.advance(10 * SECOND)
    town.broker.tick()
    assert town.warned == []


def test_a_connection_that_ends_before_its_response_is_judged_is_let_in_nowhere() -> None:
    town = Town()
    session = town.come()
    town.answer(good(town.request()))
    session.closed()
    town.run()
    assert (session.account.name, town.broker.accounts["FOO"].sessions) == ("$G", set())


def test_a_session_that_was_closed_meanwhile_stays_closed() -> None:
    town = Town()
    session = town.come()
    town.answer(good(town.request()))
    session.close(CloseReason.SERVER_SHUTDOWN)
    town.run()
    assert session.account.name == "$G" and not session.login.authenticated


def test_responses_are_judged_one_by_one_in_their_order() -> None:
    town = Town()
    sessions = [town.come() for _ in range(3)]
    for at in (2, 0, 1):
        town.answer(good(town.request(at)), at)
    town.run()
    assert town.decided == [sessions[at] for at in (2, 0, 1)]


def test_responses_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callout_requests, "MAX_QUEUED_BYTES", 100_000)
    town = Town()
    for _ in range(5):
        town.come()
    for at in range(5):
        town.answer(b"x" * 40_000, at)
    assert len(town.decided) == 3 and town.callouts._queued_bytes <= 100_000


def test_who_sends_too_much_before_the_response_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    from natsctl.broker.auth import login

    monkeypatch.setattr(login, "MAX_HELD_BYTES", 200_000)
    town = Town()
    session = town.come()
    session.receive(b"x" * 100_000)
    assert town.broker.pending_logins == [session] and session.close_reason is None
    session.receive(b"x" * 200_000)
    assert session.close_reason is CloseReason.AUTHENTICATION_VIOLATION
    session.closed()
    assert town.callouts.waiting == 0


def test_what_is_signed_and_asked_depends_on_nothing_but_clock_and_random_source() -> None:
    first, second = Town(), Town()
    second.clock.set_wall(first.clock.now_ns())
    for town in (first, second):
        town.come()
    assert first.requests == second.requests


# Which logins are delegated


def shown(**options: Any) -> Any:
    from natsctl.broker.auth.credentials import ConnectOptions, Credentials

    return Credentials(ConnectOptions(**options))


def test_nobody_waits_for_a_hash_whose_comparison_makes_no_difference() -> None:
    secret = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    town = Town(User("slow", secret, "FOO"), User("auth2", secret, "AUTH"))
    for user in ("slow", "nobody"):
        assert isinstance(town.auth.authenticate(shown(user=user, password="wrong")), Delegation)
    narrow = Town(User("slow", secret, "FOO"), allowed_accounts=("BAR",))
    pending = narrow.auth.authenticate(shown(user="slow", password="right"))
    assert isinstance(pending, Pending)
    answer = pending.work()
    assert isinstance(answer, Grant) and answer.account == "FOO"
    wrong = narrow.auth.authenticate(shown(user="slow", password="wrong"))
    assert isinstance(wrong, Pending) and isinstance(wrong.work(), Delegation)


def test_a_comparison_in_a_thread_may_lead_to_a_request() -> None:
    secret = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    town = Town(User("slow", secret, "FOO"), allowed_accounts=("BAR",))
    session = town.come(b"PING\r\n", user="slow", **{"pass": "wrong"})
    (waiting,) = town.broker.pending_logins
    pending = waiting.login.pending
    assert isinstance(pending, Pending) and town.requests == []
    waiting.login.decide(pending.work())
    assert isinstance(session.login.pending, Delegation) and len(town.requests) == 1 and town.decided == []
    town.answer(good(town.request()))
    town.run()
    assert heard(session) == b"PONG\r\n" and town.decided == [session]


def test_a_reload_keeps_whom_the_service_let_in() -> None:
    town = Town()
    session = town.come()
    town.answer(good(town.request()))
    town.run()
    finish(town.broker.reauthorize(set(), {"auth"}))
    assert session.close_reason is None and session.account.name == "FOO"


# Hostile responses

PIECES = [
    b"", b"e", b"eyJ", b"eyJhbGciOiJub25lIn0.e30.", b"..", b"a.b.c", b"xkv1", b"xkv1" + bytes(60), b"\xff\x00",
    b"eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.e30.AA", b"[" * 5000, b"." * 5000, "é".encode(),
]  # fmt: skip
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 70), 1 << 70), st.floats(allow_nan=False), st.text(max_size=8),
    st.lists(st.text(max_size=4), max_size=3), st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)  # fmt: skip
CLAIMS = ("aud", "exp", "nbf", "iat", "jti", "name", "sub")
RULES = (
    "pub", "sub", "resp", "src", "times", "times_location", "subs", "payload", "bearer_token", "proxy_required",
    "allowed_connection_types", "issuer_account", "tags",
)  # fmt: skip


def stays_out(town: Town, session: Session) -> None:
    """Assert that a client was let in properly, or refused with one line."""
    others = town.come(b"PING\r\n")
    town.answer(good(town.request()))
    town.run()
    assert heard(others) == b"PONG\r\n"
    if session.close_reason is None:
        assert session.account.name == "FOO" and session.login.grant.assigned is not None
        session.receive(b"SUB _INBOX.x 1\r\nPUB $SYS.REQ.USER.INFO _INBOX.x 0\r\n\r\n")
        town.broker.tick()
    else:
        assert heard(session).endswith(VIOLATION) and len(town.warned) == 1


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=40)), max_size=4))
@tiers.examples(200)
def test_no_bytes_of_a_service_are_an_exception(pieces: list[bytes]) -> None:
    town = Town(xkey=CurvePair(bytes(32)).public)
    town.auth._terms._settings = CalloutSettings(issuer=ISSUER.public, auth_users=("auth",), account="AUTH")
    session = town.come()
    town.answer(b"".join(pieces))
    town.run()
    stays_out(town, session)


@given(st.dictionaries(st.sampled_from(CLAIMS), VALUES), st.dictionaries(st.sampled_from(RULES), VALUES))
@tiers.examples(300)
def test_no_claims_of_a_signed_user_are_an_exception(claims: dict[str, Any], rules: dict[str, Any]) -> None:
    town = Town()
    session = town.come()
    request = town.request()
    user = request.user(**{"aud": "FOO", **claims}, nats=rules)
    town.answer(request.response(user))
    town.run()
    stays_out(town, session)


@given(
    st.dictionaries(st.sampled_from(CLAIMS), VALUES),
    st.dictionaries(st.sampled_from(("jwt", "error", "issuer_account", "type", "version", "tags")), VALUES),
)
@tiers.examples(300)
def test_no_claims_of_a_signed_response_are_an_exception(claims: dict[str, Any], body: dict[str, Any]) -> None:
    town = Town()
    session = town.come()
    request = town.request()
    town.answer(request.response(request.user(aud="FOO"), **claims, nats=body))
    town.run()
    stays_out(town, session)


@given(st.integers(0, 5000), st.integers(1, 255))
@tiers.examples(200)
def test_a_response_with_one_byte_changed_lets_nobody_in(at: int, change: int) -> None:
    town = Town()
    session = town.come()
    changed = bytearray(good(town.request()))
    at %= len(changed)
    changed[at] ^= change
    town.answer(bytes(changed))
    town.run()
    if session.close_reason is None:  # a line end, or bits of the last digit that stand for nothing
        assert at >= len(changed) - 1 or changed[at : at + 1] in b"\r\n"
    stays_out(town, session)


def test_a_response_of_version_0_is_read_as_nats_server_reads_it() -> None:
    from tests.support.operators import base64url

    def make(claims: dict[str, Any], signed_of: Callable[[str, str], str]) -> bytes:
        header = base64url(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
        body = base64url(json.dumps(claims).encode())
        return f"{header}.{body}.{base64url(ISSUER.sign(signed_of(header, body).encode()))}".encode()

    for signed_of, let_in in ((lambda head, body: body, True), (lambda head, body: f"{head}.{body}", False)):
        town = Town()
        session = town.come()
        request = town.request()
        said = {"jwt": request.user(aud="FOO"), "type": "authorization_response"}
        claims = {"sub": request.key, "aud": request.server["id"], "iss": ISSUER.public, "nats": said}
        town.answer(make(claims, signed_of))
        town.run()
        assert (session.close_reason is None) is let_in
