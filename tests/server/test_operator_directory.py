"""Account JWTs in a folder: pushed, looked up, listed, pulled and deleted, on both servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from natsctl.testing.process import Kind, ServerProcess
from tests.support.conf_server import ConfServer
from tests.support.operators import Key, Operator, OperatorAccount, Visitor, encode_jwt, login, make_jwt

pytestmark = pytest.mark.both


class Place(NamedTuple):
    process: ServerProcess
    operator: Operator
    system: Visitor
    folder: Path


def conf(operator: Operator, folder: Path, kind: str, more: str = "") -> str:
    return (
        f"operator: {operator.jwt()}\nsystem_account: {operator.system.public}\nauthorization {{ timeout: 30 }}\n"
        f'resolver {{ type: {kind}, dir: "{folder}" {more} }}\n'
    )


@pytest.fixture(params=["natsctl", "reference"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    operator, folder = Operator(), tmp_path / "jwt"
    file = tmp_path / "nats.conf"
    file.write_text(conf(operator, folder, "full", ", allow_delete: true"))
    with ServerProcess(tmp_path / "server", request.param, "-c", str(file)) as process:
        system = login(process.url, operator.user(operator.system))
        yield Place(process, operator, system, folder)
        system.close()


def push(place: Place, account: OperatorAccount, subject: str = "$SYS.REQ.CLAIMS.UPDATE") -> Any:
    answer = place.system.ask(subject, account.jwt(place.operator.signer).encode())
    return answer.get("data") or answer["error"]


def done(account: OperatorAccount, text: str = "jwt updated") -> dict[str, Any]:
    return {"account": account.public, "code": 200, "message": text}


def test_life_of_an_account(place: Place) -> None:
    assert place.system.said == []  # before its own account was ever pushed
    operator = place.operator
    account = operator.account("A")
    user = operator.user(account)
    assert login(place.process.url, user).said == [b"-ERR 'Authorization Violation'"]
    assert push(place, account) == done(account)
    guest = login(place.process.url, user)
    assert guest.said == []
    assert (place.folder / f"{account.public}.jwt").read_text().count(".") == 2
    look_up = f"$SYS.REQ.ACCOUNT.{account.public}.CLAIMS.LOOKUP"
    assert place.system.request(look_up) == (place.folder / f"{account.public}.jwt").read_bytes()
    assert place.system.request(f"$SYS.REQ.ACCOUNT.{Key('account').public}.CLAIMS.LOOKUP") == b""
    assert place.system.ask("$SYS.REQ.CLAIMS.LIST")["data"] == [account.public]
    request = {"sub": operator.key.public, "nats": {"accounts": [account.public], "type": "generic", "version": 2}}
    answer = place.system.ask("$SYS.REQ.CLAIMS.DELETE", encode_jwt(request, operator.key).encode())
    assert answer["data"] == {"code": 200, "message": "deleted 1 accounts"}
    assert guest.hear(b"PONG") == [b"-ERR 'Account Authentication Expired'"]
    assert login(place.process.url, user).said == [b"-ERR 'Authorization Violation'"]
    assert [path.suffix for path in place.folder.iterdir()] == [".deleted"]


def test_pull_brings_every_account_and_an_end(place: Place) -> None:
    account = place.operator.account("A")
    push(place, account)
    visitor, text = place.system, (place.folder / f"{account.public}.jwt").read_bytes()
    assert visitor.request("$SYS.REQ.CLAIMS.PACK") == account.public.encode() + b"|" + text


def test_push_that_is_refused_changes_nothing(place: Place) -> None:
    operator, account = place.operator, place.operator.account("A")
    push(place, account)
    before = (place.folder / f"{account.public}.jwt").read_bytes()
    other = operator.account("B")
    of_account = f"$SYS.REQ.ACCOUNT.{other.public}.CLAIMS.UPDATE"
    assert push(place, account, of_account) == {
        "account": other.public, "code": 500,
        "description": "jwt update resulted in error - subject does not match jwt content",
    }  # fmt: skip
    assert place.system.ask("$SYS.REQ.CLAIMS.UPDATE", b"x.y")["error"] == {
        "account": "n/a", "code": 500, "description": "jwt update resulted in error - expected 3 chunks",
    }  # fmt: skip
    faulty = {
        "exports": [{"name": "a", "subject": "a..b", "type": "stream"}, {"name": "b", "subject": "b", "type": "stream",
                     "response_type": "Stream"}],
        "imports": [{"name": "i", "subject": "", "account": "", "type": "service", "local_subject": "x.>"}],
        "mappings": {"m": [{"subject": "n", "weight": 60}, {"subject": "o", "weight": 60}]},
        "default_permissions": {"pub": {"allow": ["p q"]}},
        "signing_keys": ["nonsense"],
    }  # fmt: skip
    account.nats.update(faulty)
    answer = push(place, account)
    assert answer["description"] == (
        "jwt validation failed - validation errors: [account to import from is not specified subject cannot be empty "
        "subject cannot be empty both, renaming subject and subject, need to end or not end in > "
        'subject "a..b" cannot contain consecutive `.` '
        'invalid response type for stream: "Stream" '
        'Permission Subject "p q" is not allowed to contain queue '
        'Mapping "m" exceeds 100% among all of it\'s weighted to mappings '
        '"nonsense" is not a valid account signing key]'
    )
    assert (place.folder / f"{account.public}.jwt").read_bytes() == before


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"sub": "x"}, "not self signed"),
        ({"stranger": True}, "not trusted"),
        ({"nats": {"type": "generic", "version": 2}}, "malformed request"),
        ({"accounts": ["x"]}, "malformed request"),
        ({"accounts": "system"}, "not allowed to delete system account"),
    ],
)
def test_deletion_is_the_operators_alone(place: Place, said: dict[str, Any], text: str) -> None:
    operator = place.operator
    signer = Key("operator") if said.get("stranger") else operator.key
    accounts = [operator.system.public] if said.get("accounts") == "system" else said.get("accounts", [])
    claims = {"sub": signer.public, "nats": {"accounts": accounts, "type": "generic", "version": 2}}
    claims |= {key: value for key, value in said.items() if key in ("sub", "nats")}
    answer = place.system.ask("$SYS.REQ.CLAIMS.DELETE", encode_jwt(claims, signer).encode())
    described = f"delete accounts request by {claims['sub']} failed - {text}"
    assert answer["error"] == {"code": 500, "description": described}


@pytest.mark.parametrize("kind", ["natsctl", "reference"])
def test_strict_operator_does_not_push_with_its_own_key(tmp_path: Path, kind: Kind) -> None:
    operator, signing = Operator(strict_signing_key_usage=True), Key("account")
    operator.system.nats["signing_keys"] = [signing.public]
    preload = f"resolver_preload {{ {operator.system.public}: {operator.system.jwt(operator.signing_key)} }}"
    with ConfServer(tmp_path, kind, conf(operator, tmp_path / "jwt", "full") + preload) as process:
        system = login(process.url, operator.user(operator.system, signer=signing))
        account = operator.account("A")
        answer = system.ask("$SYS.REQ.CLAIMS.UPDATE", account.jwt(operator.key).encode())
        text = "jwt update resulted in error - operator requires issuer to be a signing key"
        assert answer["error"] == {"account": account.public, "code": 500, "description": text}


def test_pull_leaves_out_what_has_expired(place: Place) -> None:
    account = place.operator.account("A")
    token = make_jwt("account", account.public, place.operator.signer, {"exp": int(time.time()) - 100}, **account.nats)
    answer = place.system.ask("$SYS.REQ.CLAIMS.UPDATE", token.encode())
    assert answer["data"] == done(account)
    assert place.system.request("$SYS.REQ.CLAIMS.PACK") == b""


def test_a_file_put_into_the_folder_counts_though_it_ends_in_a_line_end(place: Place) -> None:
    account = place.operator.account("A")
    place.folder.mkdir(exist_ok=True)
    (place.folder / f"{account.public}.jwt").write_text(account.jwt(place.operator.signer) + "\n")
    assert login(place.process.url, place.operator.user(account)).said == []
