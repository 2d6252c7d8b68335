"""Users, accounts and operators of JWTs: who is let in, and what the others are told, on both servers."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.support.conf_server import ConfServer
from tests.support.operators import (
    ALL_DAY,
    Key,
    Operator,
    OperatorAccount,
    UserLogin,
    Visitor,
    activation,
    base64url,
    close_reason,
    login,
    make_jwt,
    without_keys,
)

NOW = int(time.time())
ENDED = 1_700_000_000
"""An end in the past, the same for every worker that collects the tests."""
HOUR = 3600
ENDS_IN_S = 8
"""Seconds that a client must not need to come in; a busy machine stands still for some now and then."""
VIOLATION = [b"-ERR 'Authorization Violation'"]
FAILURE = "Authentication Failure"


class Town:
    """An operator's accounts and the users that the cases are about."""

    def __init__(self) -> None:
        self.operator = operator = Operator()
        self.system_user = operator.user(operator.system)
        self.account = operator.account("A")
        self.other = operator.account("OTHER")
        stranger = Key("operator")
        operator.instead[self.other.public] = self.other.jwt(stranger)
        self.signing, self.scoped = Key("account"), Key("account")
        template = {
            "pub": {"allow": ["own.{{name()}}.>", "{{tag(team)}}.>", "{{account-name()}}.x", "{{subject()}}"]},
            "sub": {"allow": ["_INBOX.>", "in.{{name()}}"], "deny": ["in.{{tag(team)}}"]},
            "subs": 3,
            "payload": 20,
        }
        self.account.nats["signing_keys"] = [
            self.signing.public,
            {"kind": "user_scope", "key": self.scoped.public, "role": "r", "template": template},
        ]
        self.no_bearer = operator.account("NO_BEARER", limits={"disallow_bearer": True})
        self.ended = operator.account("ENDED", {"exp": NOW - HOUR})
        self.early = operator.account("EARLY", {"nbf": NOW + HOUR})
        self.unknown = Operator().account("UNKNOWN")
        self.revoking = operator.account("REVOKING")
        self.revoked = operator.user(self.revoking)
        self.revoking.nats["revocations"] = {self.revoked.key.public: NOW + HOUR}
        self.revoking_all = operator.account("REVOKING_ALL", revocations={"*": NOW + HOUR})
        self.narrow = operator.account("NARROW", limits={"conn": 1, "subs": 2, "payload": 10})
        self._trade()

    def _trade(self) -> None:
        """Make a seller and a buyer of its exports, private ones with a good token, a bad one, and none."""
        private = {"type": "stream", "token_req": True}
        exports = [
            {"name": "open", "subject": "open.>", "type": "stream"},
            *({"name": name, "subject": f"{name}.>", **private} for name in ("token", "ended", "other", "none")),
        ]
        self.seller = seller = self.operator.account("SELLER", exports=exports)
        self.buyer = buyer = self.operator.account("BUYER")
        tokens = {
            "token": activation(seller.key, buyer.public, "token.>", "stream"),
            "ended": activation(seller.key, buyer.public, "ended.>", "stream", exp=NOW - HOUR),
        }
        it = {"account": seller.public, "type": "stream"}
        buyer.nats["imports"] = [
            {"name": "open", "subject": "open.>", "local_subject": "bought.>", **it},
            *({"name": name, "subject": f"{name}.>", "token": token, **it} for name, token in tokens.items()),
            {"name": "none", "subject": "none.>", **it},
        ]

    def user(self, claims: dict[str, Any] | None = None, /, **nats: Any) -> UserLogin:
        return self.operator.user(self.account, claims, **nats)


class Place(NamedTuple):
    url: str
    town: Town
    system: Visitor


@pytest.fixture(scope="module", params=["natsctl", "reference"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    town = Town()
    # Who comes has two seconds to say CONNECT, unless told otherwise; a busy machine stands still for longer.
    text, folder = town.operator.conf("authorization { timeout: 30 }"), tmp_path_factory.mktemp("operated")
    with ConfServer(folder, request.param, text, "-js", "-sd", str(folder)) as process:
        system = login(process.url, town.system_user)
        login(process.url, town.user()).close()  # awake: what is pushed of an account is skipped until its first login
        yield Place(process.url, town, system)
        system.close()


pytestmark = pytest.mark.both


# Users that are let in, or not


def scoped(town: Town, **nats: Any) -> UserLogin:
    claims = {"name": "alice"}
    return town.operator.scoped_user(town.account, town.scoped, claims, **{"tags": ["team:red", "team:blue"], **nats})


GOOD: dict[str, Callable[[Town], UserLogin]] = {
    "signed by the account": lambda t: t.user(),
    "signed by a signing key": lambda t: t.operator.user(t.account, signer=t.signing),
    "of a scoped signing key": scoped,
    "from an allowed network": lambda t: t.user(src=["10.0.0.0/8", "127.0.0.0/8"]),
    "from networks in one text": lambda t: t.user(src="10.0.0.0/8, 127.0.0.0/8"),
    "within its hours": lambda t: t.user(times=ALL_DAY, times_location="UTC"),
    "of this kind of connection": lambda t: t.user(allowed_connection_types=["standard", "FUTURE"]),
    "not yet expired": lambda t: t.user({"exp": NOW + HOUR, "nbf": NOW - HOUR}),
    "not revoked itself": lambda t: t.operator.user(t.revoking),
    "newer than the revocation of all": lambda t: t.operator.user(t.revoking_all, {"iat": NOW + 2 * HOUR}),
}

REFUSED: dict[str, Callable[[Town], UserLogin]] = {
    "expired": lambda t: t.user({"exp": NOW - 1}),
    "not yet valid": lambda t: t.user({"nbf": NOW + HOUR}),
    "revoked": lambda t: t.revoked,
    "revoked with all": lambda t: t.operator.user(t.revoking_all),
    "signed by somebody else's key": lambda t: t.operator.user(t.account, signer=Key("account")),
    "of an account nobody knows": lambda t: t.operator.user(t.unknown),
    "of an account of another operator": lambda t: t.operator.user(t.other),
    "of an expired account": lambda t: t.operator.user(t.ended),
    "of an account before its time": lambda t: t.operator.user(t.early),
    "from another network": lambda t: t.user(src=["10.0.0.0/8"]),
    "from no network": lambda t: t.user(src=["nowhere"]),
    "outside its hours": lambda t: t.user(times=[an_hour_elsewhere()], times_location="UTC"),
    "in no time zone": lambda t: t.user(times=[{"start": "00:00:00", "end": "23:59:59"}], times_location="Nowhere/X"),
    "with hours that are none": lambda t: t.user(times=[{"start": "25:00:00", "end": "26:00:00"}]),
    "of another kind of connection": lambda t: t.user(allowed_connection_types=["WEBSOCKET"]),
    "of unknown kinds of connections": lambda t: t.user(allowed_connection_types=["FUTURE"]),
    "scoped with rules of its own": lambda t: scoped(t, subs=5),
    "without a tag that is denied": lambda t: scoped(t, tags=[]),
    "with a bad subject": lambda t: t.user(pub={"allow": ["a..b"]}),
    "signed for another account": lambda t: UserLogin(
        key := Key("user"), make_jwt("user", key.public, t.account.key, issuer_account=t.narrow.public)
    ),
}


def an_hour_elsewhere() -> dict[str, str]:
    hour = (time.gmtime().tm_hour + 12) % 23
    return {"start": f"{hour:02}:00:00", "end": f"{hour:02}:30:00"}


@pytest.mark.parametrize("case", GOOD)
def test_user_is_let_in(place: Place, case: str) -> None:
    visitor = login(place.url, GOOD[case](place.town))
    assert (visitor.said, visitor.open) == ([], True)


@pytest.mark.parametrize("case", REFUSED)
def test_user_is_refused(place: Place, case: str) -> None:
    visitor = login(place.url, REFUSED[case](place.town))
    assert (visitor.said, visitor.open) == (VIOLATION, False)
    assert close_reason(place.system, visitor.cid) == FAILURE


# Proofs


def test_signature_comes_with_padding_or_without(place: Place) -> None:
    user = place.town.user()
    visitor = Visitor(place.url)
    assert visitor.show(**user.connect_options(visitor.info["nonce"], padded=True)) == []


PROOFS: dict[str, Callable[[Town], tuple[UserLogin, dict[str, str]]]] = {
    "none": lambda t: (t.user(), {"sig": ""}),
    "no base 64": lambda t: (t.user(), {"sig": "!!!"}),
    "of another nonce": lambda t: (t.user(), t.user().connect_options("another")),
    "by another key": lambda t: (t.user(), {"sig": UserLogin(Key("user"), "").connect_options("x")["sig"]}),
    "for no JWT": lambda t: (t.user(), {"jwt": ""}),
    "for a JWT that is none": lambda t: (t.user(), {"jwt": "eyJ.eyJ.x"}),
    "for the JWT of an account": lambda t: (t.user(), {"jwt": t.account.jwt(t.operator.key)}),
    "for a bearer where none may be": lambda t: (t.operator.user(t.no_bearer, bearer_token=True), {"sig": ""}),
}


@pytest.mark.parametrize("case", PROOFS)
def test_proof_is_refused(place: Place, case: str) -> None:
    user, options = PROOFS[case](place.town)
    visitor = login(place.url, user, **options)
    assert (visitor.said, visitor.open) == (VIOLATION, False)
    assert close_reason(place.system, visitor.cid) == FAILURE


def test_bearer_needs_no_signature(place: Place) -> None:
    visitor = login(place.url, place.town.user(bearer_token=True), sig="")
    assert (visitor.said, visitor.open) == ([], True)


def test_info_asks_for_a_signature(place: Place) -> None:
    visitor = Visitor(place.url)
    assert visitor.info["auth_required"] is True and len(visitor.info["nonce"]) == 15


# What a user may do


def told(visitor: Visitor, data: bytes) -> list[bytes]:
    return [without_keys(line) for line in visitor.say(data)]


def spelled(town: Town, nats: str, header: str = '{"typ":"JWT","alg":"ed25519-nkey"}', top: str = "") -> UserLogin:
    """Return a user whose claims are this text: keys in any case, and more than once."""
    user, signer = Key("user"), town.account.key
    claims = f'{{"ISS":"{signer.public}","Sub":"{user.public}","iat":{NOW},{top}"Nats":{nats}}}'
    text = f"{base64url(header.encode())}.{base64url(claims.encode())}"
    return UserLogin(user, f"{text}.{base64url(signer.sign(text.encode()))}")


KIND = '"Type":"user","VERSION":2'
ODD = {
    "another case": f'{{{KIND},"Pub":{{"ALLOW":["a"]}},"suBs":1}}',
    "the last of several counts": f'{{{KIND},"PUB":{{"allow":["b"]}},"pub":{{"Allow":["c"]}},"Pub":{{"aLLow":["a"]}},'
    '"subs":9,"Subs":1}',
    "the same key around another": f'{{{KIND},"pub":{{"allow":["b"]}},"Pub":{{"allow":["c"]}},"pub":{{"allow":["a"]}},'
    '"subs":5,"SUBS":7,"subs":1}',
    "objects are read one over the other": f'{{{KIND},"Pub":{{"allow":["a","b"]}},"pub":{{"deny":["b"]}},'
    '"sub\u017f":1}',
    "null says nothing": f'{{{KIND},"pub":{{"allow":["a"]}},"PUB":null,"subs":1,"Subs":null}}',
}


@pytest.mark.parametrize("case", ODD)
def test_claims_are_read_in_any_case(place: Place, case: str) -> None:
    visitor = login(place.url, spelled(place.town, ODD[case], header='{"TYP":"JWT","Alg":"ed25519-nkey"}'))
    assert (visitor.said, visitor.open) == ([], True)
    assert told(visitor, b"PUB a 0\r\n\r\n") == []
    assert told(visitor, b"PUB b 0\r\n\r\n") == [b"-ERR 'Permissions Violation for Publish to \"b\"'"]
    assert told(visitor, b"SUB s 1\r\n") == []
    assert told(visitor, b"SUB t 2\r\n") == [b"-ERR 'maximum subscriptions exceeded'"]


@pytest.mark.parametrize("top", [f'"Exp":{ENDED},', f'"EXP":{ENDED},"ExP":null,', f'"exp":0,"Exp":{ENDED},'])
def test_an_end_in_any_case_is_an_end(place: Place, top: str) -> None:
    visitor = login(place.url, spelled(place.town, f"{{{KIND}}}", top=top))
    assert (visitor.said, visitor.open) == (VIOLATION, False)


def test_leave_to_answer_takes_the_leave_to_publish(place: Place) -> None:
    visitor = login(place.url, place.town.user(resp={"max": 1, "ttl": 0}))
    asker = login(place.url, place.town.user())
    assert told(visitor, b"PUB a 0\r\n\r\n") == [b"-ERR 'Permissions Violation for Publish to \"a\"'"]
    visitor.say(b"SUB ask 1\r\n")
    asker.say(b"SUB back 1\r\nPUB ask back 0\r\n\r\n")
    assert visitor.hear(b"MSG") == []
    visitor.say(b"PUB back 0\r\n\r\n")
    assert asker.hear(b"MSG back") == []
    assert b"-ERR 'Permissions Violation for Publish to \"back\"'" in told(visitor, b"PUB back 0\r\n\r\n")


# Limits


def test_limits_of_an_account(place: Place) -> None:
    operator, narrow = place.town.operator, place.town.narrow
    visitor = login(place.url, operator.user(narrow))
    second = login(place.url, operator.user(narrow))
    assert (second.said, second.open) == ([b"-ERR 'maximum account active connections exceeded'"], False)
    assert close_reason(place.system, second.cid) == "Maximum Account Connections Exceeded"
    assert told(visitor, b"SUB a 1\r\nSUB b 2\r\n") == []
    assert told(visitor, b"SUB c 3\r\n") == [b"-ERR 'maximum subscriptions exceeded'"]
    assert told(visitor, b"PUB a 11\r\n%b\r\n" % (b"x" * 11)) == [b"-ERR 'Maximum Payload Violation'"]


# Accounts that import from each other


def test_imports_of_streams(place: Place) -> None:
    operator, town = place.town.operator, place.town
    buyer, seller = login(place.url, operator.user(town.buyer)), login(place.url, operator.user(town.seller))
    assert told(buyer, b"SUB bought.> 1\r\nSUB token.> 2\r\nSUB ended.> 3\r\nSUB none.> 4\r\nSUB end 9\r\n") == []
    for subject in (b"none.x", b"ended.x", b"open.x", b"token.x"):
        seller.say(b"PUB %b 0\r\n\r\n" % subject)
    buyer.say(b"PUB end 0\r\n\r\n")
    heard = [line for line in buyer.said if line.startswith(b"MSG")]
    assert sorted(heard) == [b"MSG bought.x 1 0", b"MSG end 9 0", b"MSG token.x 2 0"]


# What changes while clients are connected


class Change(NamedTuple):
    nats: dict[str, Any]
    said: list[bytes]
    reason: str


REVOKED = ([b"-ERR 'User Authentication Revoked'"], "Credentials Revoked")
CHANGES: dict[str, Change] = {
    "all revoked": Change({"revocations": {"*": NOW + HOUR}}, *REVOKED),
    "bearers disallowed": Change({"limits": {"disallow_bearer": True}}, VIOLATION, FAILURE),
    "signing key withdrawn": Change({"signing_keys": []}, [], FAILURE),
    "no connections": Change(
        {"limits": {"conn": 0}},
        [b"-ERR 'maximum account active connections exceeded'"],
        "Maximum Account Connections Exceeded",
    ),
    "fewer subscriptions": Change(
        {"limits": {"subs": 1}}, [b"-ERR 'maximum subscriptions exceeded'"], "Maximum Subscriptions Exceeded"
    ),
}


@pytest.fixture
def changing(place: Place, request: pytest.FixtureRequest) -> Iterator[tuple[OperatorAccount, Key]]:
    """An account of its own for each test, known to the server since its start: OTHER's place in the preload."""
    signing = Key("account")
    account = place.town.account
    before = dict(account.nats)
    account.nats["signing_keys"] = [*before["signing_keys"], signing.public]
    assert push(place, account) == {"account": account.public, "code": 200, "message": "jwt updated"}
    yield account, signing
    account.nats.clear()
    account.nats.update(before)
    push(place, account)


def push(place: Place, account: OperatorAccount) -> Any:
    answer = place.system.ask(
        f"$SYS.REQ.ACCOUNT.{account.public}.CLAIMS.UPDATE", account.jwt(place.town.operator.key).encode()
    )
    return answer.get("data") or answer["error"]


@pytest.mark.parametrize("case", CHANGES)
def test_change_of_an_account_closes_clients(place: Place, changing: tuple[OperatorAccount, Key], case: str) -> None:
    account, signing = changing
    user = place.town.operator.user(account, signer=signing, bearer_token=True)
    visitor = login(place.url, user)
    assert (visitor.said, visitor.say(b"SUB a 1\r\n"), visitor.open) == ([], [], True)
    change = CHANGES[case]
    before = dict(account.nats)
    for key, value in change.nats.items():
        account.nats[key] = {**before.get(key, {}), **value} if isinstance(value, dict) else value
    assert push(place, account) == {"account": account.public, "code": 200, "message": "jwt updated"}
    assert (visitor.hear(b"PONG"), visitor.open) == (change.said, False)
    assert close_reason(place.system, visitor.cid) == change.reason
    account.nats.update(before)


def test_default_permissions_change_for_who_is_connected(place: Place, changing: tuple[OperatorAccount, Key]) -> None:
    account, _ = changing
    visitor = login(place.url, place.town.operator.user(account))
    assert told(visitor, b"SUB a 1\r\nPUB b 0\r\n\r\n") == []
    account.nats["default_permissions"] = {"pub": {"deny": ["b"]}, "sub": {"deny": ["a"]}}
    push(place, account)
    assert visitor.hear(b"-ERR") == []
    assert told(visitor, b"PUB b 0\r\n\r\n") == [b"-ERR 'Permissions Violation for Publish to \"b\"'"]
    del account.nats["default_permissions"]


def test_update_of_somebody_else_is_refused(place: Place) -> None:
    town = place.town
    subject = f"$SYS.REQ.ACCOUNT.{town.account.public}.CLAIMS.UPDATE"
    for token, text in (
        (b"", "jwt update error - request body is empty"),
        (b"x", "jwt update resulted in error - expected 3 chunks"),
        (
            town.narrow.jwt(town.operator.key).encode(),
            "jwt update resulted in error - subject does not match jwt content",
        ),
        (town.account.jwt(Key("operator")).encode(), "jwt update resulted in error - account validation failed"),
        (town.user().jwt.encode(), "jwt update resulted in error - not account claim"),
    ):
        assert place.system.ask(subject, token)["error"] == {
            "account": town.account.public, "code": 500, "description": text,
        }  # fmt: skip


def test_update_of_an_account_that_sleeps_is_skipped(place: Place) -> None:
    account = Operator().account("ASLEEP")
    assert push(place, account) == {"account": account.public, "code": 200, "message": "jwt update skipped"}


@pytest.mark.live
def test_user_is_closed_when_its_jwt_expires(place: Place) -> None:
    visitor = login(place.url, place.town.user({"exp": int(time.time()) + ENDS_IN_S}))
    assert visitor.said == []
    assert visitor.hear(b"PONG") == [b"-ERR 'User Authentication Expired'"]
    assert close_reason(place.system, visitor.cid) == "Authentication Expired"


@pytest.mark.live
def test_clients_are_closed_when_their_account_expires(place: Place, changing: tuple[OperatorAccount, Key]) -> None:
    account, _ = changing
    visitor = login(place.url, place.town.operator.user(account))
    assert (visitor.said, visitor.open) == ([], True)
    account.claims["exp"] = int(time.time()) + ENDS_IN_S
    push(place, account)
    assert visitor.hear(b"PONG") == [b"-ERR 'Account Authentication Expired'"]
    assert close_reason(place.system, visitor.cid) == "Authentication Expired"
    again = login(place.url, place.town.operator.user(account))
    assert again.said == []  # the resolver's JWT, which has not expired, is in force again
    del account.claims["exp"]
