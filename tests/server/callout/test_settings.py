"""Settings of a callout that need a server of their own: allowed accounts, default users, keys, a reload."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from natsctl.api.nkey_pairs import NONCE_BYTES, CurvePair
from natsctl.testing.process import Kind
from tests.server.callout.conftest import delegating, running
from tests.server.callout.test_config_mode import VIOLATION, user_info
from tests.support.callouts import ISSUER, Request
from tests.support.operators import Key, Visitor, base64url

ACCOUNTS = """
accounts {
  AUTH { users: [{user: auth, password: pwd}] }
  FOO { users: [{user: foo, password: pwd}] }
  BAR { users: [{user: bar, password: pwd}] }
  SYS { users: [{user: sys, password: pwd}] }
}
system_account: SYS
"""

pytestmark = pytest.mark.both


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


def test_without_a_service_nobody_comes_in(kind: Kind, tmp_path: Path) -> None:
    with running(kind, tmp_path, conf(timeout_s=1)) as process:
        assert shown(process.url, user="x").said == [VIOLATION]
        assert 'Authorization callout response not received in time on account "AUTH"' in process.log()
        visitor = shown(process.url, user="auth", **{"pass": "pwd"})
        assert visitor.said == []


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
