"""The callout of an operator's account: its JWT says who decides about its users, on both servers."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from natsctl.testing.process import Kind, ServerProcess
from tests.server.callout.conftest import NEW, running
from tests.server.callout.responses import without_keys
from tests.server.callout.test_config_mode import VIOLATION, user_info
from tests.support.callouts import CalloutService, Request
from tests.support.operators import Key, Operator, OperatorAccount, UserLogin, Visitor, close_reason, login

pytestmark = pytest.mark.both
HOUR = 3600
DENY_ALL = {"pub": {"deny": [">"]}, "sub": {"deny": [">"]}}


class Town:
    """An operator with an account whose users a service decides about, and accounts where it places them."""

    def __init__(self) -> None:
        self.operator = operator = Operator()
        self.system_user = operator.user(operator.system)
        self.auth = operator.account("AUTH")
        self.signing, self.scoped, self.web, self.proxied = (Key("account") for _ in range(4))
        self.app = operator.account("APP", default_permissions={"pub": {"deny": ["no"]}})
        rules = {"pub": {"allow": ["of.{{name()}}", "$SYS.REQ.USER.INFO"]}, "sub": {"allow": ["_INBOX.>"]}}
        self.app.nats["signing_keys"] = [
            self.signing.public,
            _scope(self.scoped, rules),
            _scope(self.web, {"allowed_connection_types": ["WEBSOCKET"]}),
            _scope(self.proxied, {"proxy_required": True}),
        ]
        self.closed = operator.account("CLOSED")
        self.ended = operator.account("ENDED", {"exp": int(time.time()) - HOUR})
        self.service = operator.user(self.auth, {"name": "service"})
        self.own_signing = Key("account")
        self.auth.nats["signing_keys"] = [self.own_signing.public]
        allowed = [self.app.public, self.ended.public]
        self.auth.nats["authorization"] = {"auth_users": [self.service.key.public], "allowed_accounts": allowed}
        self.client = operator.user(self.auth, {"name": "sentinel"}, tags=["a:b"], **DENY_ALL)
        self.default = operator.user(self.auth, {"name": "default"}, bearer_token=True, **DENY_ALL)

    def decide(self, request: Request) -> bytes:
        app, own = self.app, self.auth.key
        of_app = {"issuer_account": app.public}
        bare = {"subs": 0, "data": 0, "payload": 0, **of_app}
        asked = request.connect.get("auth_token", "")
        signers = {"signed": self.own_signing, "forged": Key("account")}
        if asked in signers:
            return request.response(request.user(own), signers[asked], nats={"issuer_account": self.auth.public})
        if asked == "of another account":
            return request.response(request.user(own), own, nats=of_app)
        users = {
            "app": request.user(app.key, name="ann"),
            "signing": request.user(self.signing, nats=of_app),
            "scoped": request.user(self.scoped, name="bob", nats=bare),
            "scoped with rules": request.user(self.scoped, nats=of_app),
            "web": request.user(self.web, nats=bare),
            "proxied": request.user(self.proxied, nats=bare),
            "stranger": request.user(Key("account"), nats=of_app),
            "closed": request.user(self.closed.key),
            "ended": request.user(self.ended.key),
            "own": request.user(own),
        }
        return request.response(users.get(asked, ""), own, error="" if asked in users else "not today")


def _scope(key: Key, template: dict[str, object]) -> dict[str, object]:
    return {"kind": "user_scope", "key": key.public, "role": "r", "template": template}


class Place(NamedTuple):
    process: ServerProcess
    town: Town
    service: CalloutService

    def show(self, token: str) -> Visitor:
        options = {"auth_token": token} if token else {}
        return login(self.process.url, self.town.client, **options)


@pytest.fixture(scope="module", params=["natsctl", "reference"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    town = Town()
    text = town.operator.conf(f"default_sentinel: {town.default.jwt}\nauthorization {{ timeout: 20 }}")
    with (
        running(request.param, tmp_path_factory.mktemp("operated"), text) as process,
        CalloutService(process.url, town.decide, login=town.service) as service,
    ):
        yield Place(process, town, service)


def test_the_service_is_a_user_of_its_account(place: Place) -> None:
    found = place.service.ask("$SYS.REQ.USER.INFO")["data"]
    assert found["permissions"] == {"publish": {"deny": ["$SYS.REQ.USER.AUTH"]}, "subscribe": {}}
    assert (found["user"], found["account"]) == (place.town.service.key.public, place.town.auth.public)


@pytest.mark.parametrize(("token", "account", "user"), [
    ("app", "APP", "ann"), ("signing", "APP", "[REDACTED]"), ("scoped", "APP", "bob"), ("own", "AUTH", "[REDACTED]"),
    ("signed", "AUTH", "[REDACTED]"),
])  # fmt: skip
def test_the_key_of_the_response_says_the_account(place: Place, token: str, account: str, user: str) -> None:
    visitor = place.show(token)
    assert visitor.said == []
    found = user_info(visitor)
    town = place.town
    assert (found["user"], found["account"]) == (user, town.operator.accounts[account].public)
    assert found["user_name"] == "sentinel"
    rules = {
        "APP": {"publish": {"deny": ["no"]}, "subscribe": {}},
        "AUTH": {"publish": {"deny": ["$SYS.REQ.USER.AUTH"]}, "subscribe": {}},
    }
    scoped = {"publish": {"allow": ["$SYS.REQ.USER.INFO", "of.bob"]}, "subscribe": {"allow": ["_INBOX.>"]}}
    assert found["permissions"] == (scoped if token == "scoped" else rules[account])


REFUSED = {
    "": "Auth callout service returned an error: not today",
    "scoped with rules": "User JWT is not valid: scoped users require no permissions or limits set",
    "web": 'Authorized user on account "KEY" not allowed to use connection type',
    "proxied": "Proxy connection required",
    "stranger": 'User JWT issuer "KEY" is not known',
    "closed": 'Account "KEY" not permitted as valid account option for auth callout for account "KEY"',
    "forged": "Auth callout signing key is unknown",
    "of another account": 'Auth callout response issuer account "KEY" is not the callout account',
}


@pytest.mark.parametrize("token", [token for token in REFUSED if token != "web"])
def test_a_response_that_the_account_does_not_stand_for_lets_nobody_in(place: Place, token: str) -> None:
    nobody_comes_in(place, token)


@pytest.mark.parametrize("shared", NEW, indirect=True)
def test_a_response_for_another_kind_of_connection_lets_nobody_in(place: Place) -> None:
    nobody_comes_in(place, "web")


def nobody_comes_in(place: Place, token: str) -> None:
    visitor = place.show(token)
    assert visitor.said == [VIOLATION]
    event = place.service.event()
    assert without_keys(event["reason"]) == REFUSED[token]
    client = place.town.client
    shown = {"acc": place.town.auth.public, "issuer_key": place.town.auth.public, "tags": ["a:b"], "jwt": client.jwt}
    assert event["client"].items() >= {**shown, "user": client.key.public}.items()
    assert REFUSED[token] in without_keys(place.process.log())


def test_an_expired_account_takes_nobody(place: Place) -> None:
    assert place.show("ended").said == [VIOLATION]
    assert without_keys(place.service.event()["reason"]).startswith(
        'No valid account "KEY" for auth callout response on account "KEY": account '
    )


def test_the_request_says_with_which_jwt_the_client_came(place: Place) -> None:
    visitor = place.show("app")
    request, client = place.service.request(), place.town.client
    assert request.claims["sub"] == place.town.auth.public
    assert request.connect["jwt"] == client.jwt and request.connect["sig"]
    shown = {"user": client.key.public, "name_tag": "sentinel", "tags": ["a:b"], "nonce": visitor.info["nonce"]}
    assert request.client.items() >= shown.items()


def test_who_brings_no_jwt_comes_with_the_default_one(place: Place) -> None:
    visitor = Visitor(place.process.url)
    visitor.show(auth_token="app")
    assert user_info(visitor)["user"] == "ann"
    assert place.service.request().connect["jwt"] == place.town.default.jwt


def test_a_login_that_fails_is_not_delegated(kind: Kind, tmp_path: Path) -> None:
    """nats-server says so of the second one when its time is over."""
    town = Town()
    with (
        running(kind, tmp_path, town.operator.conf("authorization { timeout: 3 }")) as process,
        CalloutService(process.url, town.decide, login=town.service) as delegate,
    ):
        service = Visitor(process.url)
        assert service.show(jwt=town.service.jwt) == [VIOLATION]
        stranger = UserLogin(Key("user"), town.client.jwt)
        assert login(process.url, stranger, auth_token="app").said == [VIOLATION]
        assert delegate.requests.empty()


def test_connz_shows_the_user_and_the_key(place: Place) -> None:
    system = login(place.process.url, place.town.system_user)
    for token, key in (("app", place.town.app.public), ("signing", place.town.signing.public)):
        visitor = place.show(token)
        asked = json.dumps({"cid": visitor.cid, "auth": True}).encode()
        shown = system.ask("$SYS.REQ.SERVER.PING.CONNZ", asked)["data"]["connections"][0]
        expected = ("ann" if token == "app" else "[REDACTED]", place.town.app.public, key, ["a:b"], None)
        found = tuple(shown.get(name) for name in ("authorized_user", "account", "issuer_key", "tags", "jwt"))
        assert found == expected


# Changes of accounts, each on a server of its own


def _update(system: Visitor, town: Town, account: OperatorAccount) -> None:
    subject = f"$SYS.REQ.ACCOUNT.{account.public}.CLAIMS.UPDATE"
    answer = system.ask(subject, account.jwt(town.operator.signer).encode())
    assert answer["data"]["code"] == 200


def test_a_change_of_the_account_holds_for_those_the_service_let_in(kind: Kind, tmp_path: Path) -> None:
    town = Town()
    with (
        running(kind, tmp_path, town.operator.conf("authorization { timeout: 20 }")) as process,
        CalloutService(process.url, town.decide, login=town.service) as service,
    ):
        place = Place(process, town, service)
        system = login(process.url, town.system_user)
        first, second = place.show("app"), place.show("app")
        signed = place.show("signing")
        key = service.request().key
        town.app.nats["revocations"] = {key: int(time.time()) + HOUR}
        _update(system, town, town.app)
        assert first.hear(b"-ERR") == [] and close_reason(system, first.cid) == "Credentials Revoked"
        assert second.say(b"") == [] and signed.say(b"") == []
        town.app.nats["signing_keys"] = town.app.nats["signing_keys"][1:]
        _update(system, town, town.app)
        assert close_reason(system, signed.cid) == "Authentication Failure"
        assert second.say(b"") == []
        town.app.nats["revocations"] = {"*": int(time.time()) + HOUR}
        _update(system, town, town.app)
        assert close_reason(system, second.cid) == "Credentials Revoked"
        del town.auth.nats["authorization"]
        _update(system, town, town.auth)
        asked = service.asked
        free = login(process.url, town.operator.user(town.auth))
        assert user_info(free)["account"] == town.auth.public and service.asked == asked
