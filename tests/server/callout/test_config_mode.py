"""A configuration's authentication callout: who is asked about, what is asked, its settings, on both servers."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.jwt_token import any_claims
from natsctl.api.nkey_pairs import NONCE_BYTES, CurvePair
from natsctl.testing.process import Kind
from tests.server.callout.conftest import NEW, NKEY, Place, delegating, drain, running
from tests.server.callout.responses import ADMITTED, REFUSED, without_keys
from tests.support.callouts import ISSUER, Request, until
from tests.support.operators import Key, Visitor, base64url, close_reason

VIOLATION = b"-ERR 'Authorization Violation'"
INFO = "$SYS.REQ.USER.INFO"
OF_WEBSOCKET = "a user for WebSocket"

pytestmark = pytest.mark.both


def user_info(visitor: Visitor) -> dict[str, Any]:
    """Return what the server tells a user about itself, without the name of its account; subjects are sorted."""
    found: dict[str, Any] = visitor.ask(INFO)["data"]
    del found["account_name"]  # a key, of an operator's account
    for direction in ("publish", "subscribe"):  # nats-server lists them in any order
        for subjects in found.get("permissions", {}).get(direction, {}).values():
            subjects.sort()
    return found


# What becomes of responses


def nobody_comes_in(place: Place, case: str) -> None:
    reason = REFUSED[case][1]
    visitor = place.show(case)
    assert (visitor.said, visitor.open) == ([VIOLATION], False)
    event = place.service.event(case)
    assert (without_keys(event["reason"]), event["client"]["acc"], event["client"]["user"]) == (reason, "AUTH", case)
    assert any(reason in without_keys(line) for line in place.process.log().splitlines() if "[WRN]" in line)
    ended = "Proxy Required" if "proxy" in case else "Authentication Failure"
    assert close_reason(place.system, visitor.cid) == ended


@pytest.mark.parametrize("case", [case for case in REFUSED if case != OF_WEBSOCKET])
def test_a_response_that_is_not_as_it_should_be_lets_nobody_in(place: Place, case: str) -> None:
    nobody_comes_in(place, case)


@pytest.mark.parametrize("shared", NEW, indirect=True)
def test_a_response_for_another_kind_of_connection_lets_nobody_in(place: Place) -> None:
    nobody_comes_in(place, OF_WEBSOCKET)


@pytest.mark.parametrize("case", ADMITTED)
def test_a_good_response_lets_the_client_in_as_it_says(place: Place, case: str) -> None:
    expected = dict(ADMITTED[case][1])
    visitor = place.show(case)
    assert visitor.said == []
    found = user_info(visitor)
    assert (found.pop("expires", 0) > 0) is bool(expected.pop("expires", False))
    assert found == expected


def test_connz_shows_who_was_let_in_and_which_key_vouches_for_it(place: Place) -> None:
    visitor = place.show("renamed")
    asked = json.dumps({"cid": visitor.cid, "auth": True}).encode()
    shown = place.system.ask("$SYS.REQ.SERVER.PING.CONNZ", asked)["data"]["connections"][0]
    keys = ("authorized_user", "account", "issuer_key", "name_tag", "jwt", "tags")
    assert [shown.get(key) for key in keys] == ["alice", "FOO", "FOO", "FOO", None, None]


def test_the_limits_are_those_of_the_account_and_not_of_the_jwt(place: Place) -> None:
    visitor = place.show("with limits")
    assert visitor.say(b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nPUB d 10\r\n0123456789\r\n") == []
    narrow = place.show("to NARROW")
    assert narrow.info["max_payload"] == 1 << 20
    said = narrow.say(b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nSUB d 4\r\n")
    assert said == [b"-ERR 'maximum subscriptions exceeded'"]
    assert narrow.say(b"PUB d 101\r\n" + b"x" * 101 + b"\r\n") == [b"-ERR 'Maximum Payload Violation'"]


def test_nobody_in_the_account_of_the_service_may_ask_it(place: Place) -> None:
    visitor = place.show("in the service's account")
    refused = b"-ERR 'Permissions Violation for Publish to \"$SYS.REQ.USER.AUTH\"'"
    assert visitor.say(b"PUB $SYS.REQ.USER.AUTH 0\r\n\r\n") == [refused]
    assert place.service.asked and place.service.requests.qsize() == 1
    assert place.service.ask(INFO)["data"]["permissions"]["publish"] == {"deny": ["$SYS.REQ.USER.AUTH"]}


def test_a_client_may_be_placed_in_the_system_account(place: Place) -> None:
    visitor = place.show("to SYS")
    assert visitor.ask("$SYS.REQ.SERVER.PING.IDZ")["name"] == "A"


def test_an_account_that_is_full_takes_nobody(place: Place) -> None:
    first = place.show("to FULL")
    assert user_info(first)["account"] == "FULL"
    second = place.show("to FULL")
    assert second.said[0] == b"-ERR 'maximum account active connections exceeded'"
    drain(place.service)
    # Nobody is asked about a known user whose account is full.
    third = place.show("full", "pwd")
    assert third.said == [b"-ERR 'maximum account active connections exceeded'"]
    assert place.service.requests.empty()


# Who is asked about


def test_a_user_of_the_service_is_not_asked_about(place: Place) -> None:
    visitor = place.show("auth", "pwd")
    assert user_info(visitor)["account"] == "AUTH"
    wrong = place.show("auth", "wrong")
    assert wrong.said == [VIOLATION]
    event = place.service.event("auth")
    assert (event["reason"], event["client"]["user"]) == ("Authentication Failure", "auth")
    assert place.service.requests.empty()


def test_a_name_of_the_service_in_another_field_does_not_help(place: Place) -> None:
    visitor = Visitor(place.url)
    visitor.show(user="an error", nkey="auth", **{"pass": "pwd"})
    assert visitor.said == [VIOLATION] and place.service.asked


def test_a_user_with_a_key_shows_its_signature(place: Place) -> None:
    visitor = Visitor(place.url)
    nonce = visitor.info["nonce"]
    visitor.show(nkey=NKEY.public, sig=base64url(NKEY.sign(nonce.encode())))
    assert user_info(visitor)["user"] == NKEY.public
    request = place.service.request()
    assert (request.client["nonce"], request.client["user"]) == (nonce, NKEY.public)
    assert request.connect["nkey"] == NKEY.public and request.connect["sig"]


def test_a_client_that_shows_nothing_is_asked_about(place: Place) -> None:
    visitor = Visitor(place.url)
    assert visitor.show() == []
    found = user_info(visitor)
    assert (found["user"], found["account"]) == ("", "FOO")


def test_a_token_is_shown_to_the_service_and_to_nobody_else(place: Place) -> None:
    visitor = Visitor(place.url)
    visitor.show(auth_token="with rules")
    request = place.service.request()
    assert (request.connect["auth_token"], request.client["user"]) == ("with rules", "[REDACTED]")
    assert user_info(visitor)["user"] == "[REDACTED]"


def test_what_is_sent_before_connect_is_refused_and_nobody_asked(place: Place) -> None:
    visitor = Visitor(place.url)
    assert visitor.say(b"") == [VIOLATION]
    assert place.service.requests.empty()


def test_what_follows_connect_is_carried_out_after_the_response(place: Place) -> None:
    visitor = Visitor(place.url)
    connect = b'CONNECT {"verbose":false,"user":"plain","pass":"x"}\r\n'
    said = visitor.say(connect + b"SUB own.x 1\r\nPUB own.x 2\r\nhi\r\n")
    assert said == [b"MSG own.x 1 2", b"hi"]


def test_a_second_connect_is_asked_about_again(place: Place) -> None:
    visitor = place.show("plain")
    assert visitor.show(user="in the global account") == []
    assert user_info(visitor)["account"] == "$G"
    assert visitor.show(user="an error") == [VIOLATION]


# What is asked


def test_the_request_describes_client_and_server(place: Place) -> None:
    visitor = Visitor(place.url)
    visitor.show(user="plain", name="mine", lang="x", version="1.2", **{"pass": "secret"})
    request, info = place.service.request(), visitor.info
    claims = request.claims
    now = time.time()
    assert claims["aud"] == "nats-authorization-request" and claims["iss"] == info["server_id"]
    assert claims["sub"] == ISSUER.public and len(claims["jti"]) == 52
    assert abs(claims["iat"] - now) < 60 and claims["exp"] - claims["iat"] == 20
    server = {"name": "A", "host": "127.0.0.1", "id": info["server_id"], "version": info["version"]}
    assert request.server == {**server, "tags": ["az1", "ssd"]}
    assert request.client == {
        "host": "127.0.0.1", "id": visitor.cid, "user": "plain", "name": "mine", "kind": "Client", "type": "nats",
    }  # fmt: skip
    shown = {"user": "plain", "pass": "secret", "name": "mine", "lang": "x", "version": "1.2", "protocol": 1}
    assert request.connect == shown
    assert list(claims) == ["aud", "exp", "jti", "iat", "iss", "sub", "nats"]
    assert list(claims["nats"]) == ["server_id", "user_nkey", "client_info", "connect_opts", "type", "version"]
    assert (claims["nats"]["type"], claims["nats"]["version"]) == ("authorization_request", 2)
    assert request.reply.startswith("$SYS._INBOX.") and request.header == {}
    assert any_claims(request.token) == (claims, "authorization_request")  # signed with the key of the server's ID


def test_a_jwt_means_nothing_without_an_operator(place: Place) -> None:
    visitor = Visitor(place.url)
    visitor.show(user="plain", jwt="eyJx")
    assert "jwt" not in place.service.request().connect


# Events


def test_the_operator_hears_who_comes_goes_and_is_refused(place: Place) -> None:
    listener = place.show("sys", "pwd")
    subjects = ("$SYS.ACCOUNT.FOO.CONNECT", "$SYS.ACCOUNT.FOO.DISCONNECT", "$SYS.SERVER.*.CLIENT.AUTH.ERR")
    listener.say(b"".join(b"SUB %b %d\r\n" % (subject.encode(), sid) for sid, subject in enumerate(subjects)))
    place.show("renamed").close()
    place.show("an error")
    heard: list[bytes] = []
    until(lambda: heard.extend(listener.say(b"")) or len([h for h in heard if h.startswith(b"MSG")]) >= 3)
    events = [json.loads(line) for line in heard if line.startswith(b"{")]
    shown = {event["type"].rpartition(".")[2]: event["client"]["user"] for event in events if "reason" not in event}
    assert shown == {"client_connect": "alice"}
    ends = {(event["client"]["user"], event["client"]["acc"], event["reason"]) for event in events if "reason" in event}
    assert ends == {("alice", "FOO", "Client Closed"), ("an error", "$G", "Authentication Failure")}


ACCOUNTS = """
accounts {
  AUTH { users: [{user: auth, password: pwd}] }
  FOO { users: [{user: foo, password: pwd}] }
  BAR { users: [{user: bar, password: pwd}] }
  SYS { users: [{user: sys, password: pwd}] }
}
system_account: SYS
"""


def conf(more: str = "", block: str = "", timeout_s: int = 20) -> str:
    callout = f"issuer: {ISSUER.public}, account: AUTH, auth_users: [auth], {block}"
    return f"{ACCOUNTS}\nauthorization {{ timeout: {timeout_s}, auth_callout {{ {callout} }} }}\n{more}\n"


def shown(url: str, **options: object) -> Visitor:
    visitor = Visitor(url)
    visitor.show(**options)
    return visitor


def into(account: str, **claims: object) -> Callable[[Request], bytes]:
    return lambda request: request.response(request.user(aud=account, **claims))


def refuse(request: Request) -> bytes:
    return b""


@pytest.mark.parametrize("proxied", [True, False])
def test_a_user_may_have_to_come_through_a_trusted_proxy(kind: Kind, proxied: bool, tmp_path: Path) -> None:
    proxy, decide = Key("user"), into("BAR", nats={"proxy_required": True})
    text = conf(f"proxies {{ trusted: [{{ key: {proxy.public} }}] }}")
    with delegating(kind, tmp_path, text, decide) as (process, _):
        visitor = Visitor(process.url)
        signature = base64url(proxy.sign(visitor.info["nonce"].encode()))
        said = visitor.show(user="x", **({"proxy_sig": signature} if proxied else {}))
        assert said == ([] if proxied else [VIOLATION])


def test_only_users_of_allowed_accounts_are_asked_about(kind: Kind, tmp_path: Path) -> None:
    text = conf("no_auth_user: foo", "allowed_accounts: [BAR]")
    with delegating(kind, tmp_path, text, into("BAR")) as (process, service):
        cases = {
            "foo": ({"user": "foo", "pass": "pwd"}, "FOO", 0),
            "the default user": ({}, "FOO", 0),
            "sys": ({"user": "sys", "pass": "pwd"}, "SYS", 0),
            "bar": ({"user": "bar", "pass": "pwd"}, "BAR", 1),
            "unknown": ({"user": "x", "pass": "pwd"}, "BAR", 1),
            "foo with another password": ({"user": "foo", "pass": "x"}, "BAR", 1),
        }
        for name, (options, account, asked) in cases.items():
            before = service.asked
            visitor = shown(process.url, **options)
            assert (name, user_info(visitor)["account"], service.asked - before) == (name, account, asked)
        again = shown(process.url, user="foo", **{"pass": "pwd"})
        assert again.show(user="x") == [] and user_info(again)["account"] == "BAR"


def test_a_default_user_is_asked_about_like_any_other(kind: Kind, tmp_path: Path) -> None:
    with delegating(kind, tmp_path, conf("no_auth_user: foo"), refuse) as (process, service):
        for send in (b"", b"CONNECT {}\r\n"):
            visitor = Visitor(process.url)
            assert visitor.say(send) == [VIOLATION]
            connect = service.request().connect
            assert (connect["user"], connect["pass"]) == ("foo", "pwd")


def test_who_begins_without_connect_is_let_in(kind: Kind, tmp_path: Path) -> None:
    with delegating(kind, tmp_path, conf("no_auth_user: foo"), into("FOO")) as (process, _):
        assert Visitor(process.url).say(b"SUB a 1\r\nPUB a 1\r\nx\r\n") == [b"+OK", b"+OK", b"MSG a 1 1", b"x"]


def test_requests_and_responses_may_be_sealed(kind: Kind, tmp_path: Path) -> None:
    service_key = CurvePair(os.urandom(32))
    other = CurvePair(os.urandom(32))

    def decide(request: Request) -> bytes:
        xkey = request.server["xkey"]
        assert request.header == {"Nats-Server-Xkey": xkey}
        name = request.connect["user"]
        response = request.response(request.user(aud="FOO"))
        nonce = os.urandom(NONCE_BYTES)
        return {
            "clear": response,
            "sealed": service_key.seal(response, xkey, nonce),
            "by another": other.seal(response, xkey, nonce),
            "for another": service_key.seal(response, other.public, nonce),
            "cut": service_key.seal(response, xkey, nonce)[:20],
            "of another version": b"xkv2" + service_key.seal(response, xkey, nonce)[4:],
        }[name]

    reasons = {
        "by another": "nkeys: could not decrypt input",
        "for another": "nkeys: could not decrypt input",
        "cut": "nkeys: encrypted input is not valid",
        "of another version": "nkeys: encrypted input wrong version",
    }
    with delegating(kind, tmp_path, conf(block=f"xkey: {service_key.public}"), decide, curve=service_key) as (
        process,
        service,
    ):
        for name in ("clear", "sealed"):
            visitor = shown(process.url, user=name)
            assert user_info(visitor) == {"user": name, "account": "FOO"}
            assert service.request().server["xkey"] == visitor.info["xkey"]
        for name, why in reasons.items():
            assert shown(process.url, user=name).said == [VIOLATION]
            expected = f'Error decrypting auth callout response on account "AUTH": {why}'
            assert service.event()["reason"] == expected


def test_an_account_that_is_none_lets_nobody_in(kind: Kind, tmp_path: Path) -> None:
    text = conf().replace("account: AUTH", "account: NOPE")
    with running(kind, tmp_path, text) as process:
        assert shown(process.url, user="x").said == [VIOLATION]
        assert 'No valid account "NOPE" for auth callout request: account missing' in process.log()


def test_a_single_user_may_be_the_service(kind: Kind, tmp_path: Path) -> None:
    block = f"auth_callout {{ issuer: {ISSUER.public}, auth_users: [auth] }}"
    text = f"authorization {{ user: auth, password: pwd, timeout: 20, {block} }}"
    with delegating(kind, tmp_path, text, refuse) as (process, service):
        assert shown(process.url, user="auth", **{"pass": "x"}).said == [VIOLATION]
        assert service.asked == 0
        assert shown(process.url, user="other", **{"pass": "pwd"}).said == [VIOLATION]
        assert service.asked == 1
