"""Account JWTs in a folder, pushed and looked up, or from a URL when a user comes, on both servers."""

import hashlib
import json
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import reduce
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from natsctl.api.jwt_token import MAX_TOKEN_BYTES
from natsctl.broker.jwt.account_registry import Trust
from natsctl.broker.jwt.authenticator import JwtAuthenticator
from natsctl.server import operator_mode, url_resolver
from natsctl.server.log.lines import Log
from natsctl.server.resources import SystemClock
from natsctl.server.url_resolver import FetchError, UrlResolver
from natsctl.testing.certificates import Authority
from natsctl.testing.process import Kind
from tests.support.callouts import until
from tests.support.conf_server import PATIENCE_S, ConfServer
from tests.support.operators import Key, Operator, OperatorAccount, Visitor, encode_jwt, login, make_jwt

pytestmark = pytest.mark.both
both = pytest.mark.parametrize("kind", ["natsctl", "reference"])


class Place(NamedTuple):
    process: ConfServer
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
    with ConfServer(
        tmp_path / "server", request.param, conf(operator, folder, "full", ", allow_delete: true")
    ) as process:
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


def test_pull_brings_every_account_that_has_not_expired_and_an_end(place: Place) -> None:
    account, ended, exp = place.operator.account("A"), place.operator.account("B"), {"exp": int(time.time()) - 100}
    push(place, account)
    token = make_jwt("account", ended.public, place.operator.signer, exp, **ended.nats)
    assert place.system.ask("$SYS.REQ.CLAIMS.UPDATE", token.encode())["data"] == done(ended)
    text = (place.folder / f"{account.public}.jwt").read_bytes()
    assert place.system.request("$SYS.REQ.CLAIMS.PACK") == account.public.encode() + b"|" + text
    digests = [hashlib.sha256(path.read_bytes()).digest() for path in place.folder.glob("*.jwt")]
    same = reduce(lambda digest, other: bytes(a ^ b for a, b in zip(digest, other, strict=True)), digests)
    assert place.system.request("$SYS.REQ.CLAIMS.PACK", same) == b"", "who has the same is sent nothing"


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


@both
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


def test_a_file_put_into_the_folder_counts_though_it_ends_in_a_line_end(place: Place) -> None:
    account = place.operator.account("A")
    place.folder.mkdir(exist_ok=True)
    (place.folder / f"{account.public}.jwt").write_text(account.jwt(place.operator.signer) + "\n")
    assert login(place.process.url, place.operator.user(account)).said == []


VIOLATION = [b"-ERR 'Authorization Violation'"]
PATH = "/jwt/v1/accounts/"


class Accounts:
    """A server of account JWTs, by public key; `asked` are the keys that were asked for."""

    def __init__(self, tokens: dict[str, str]) -> None:
        self.tokens = tokens
        self.asked: list[str] = []
        self.logins: set[str | None] = set()
        self.moved = ""
        self.held: set[str] = set()
        """Keys whose answer waits for `release`."""
        self.release = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # http.server's name
                name = self.path.removeprefix(PATH)
                outer.asked.append(name)
                outer.logins.add(self.headers["Authorization"])
                if name in outer.held:
                    outer.release.wait(PATIENCE_S)
                body = outer.tokens.get(name, "" if name == "" else None)
                if body is None:
                    self.send_error(404)
                    return
                self.send_response(302 if outer.moved else 200)
                self.send_header("Location", outer.moved)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}{PATH}"


@contextmanager
def serving(tokens: dict[str, str], context: ssl.SSLContext | None = None) -> Iterator[Accounts]:
    accounts = Accounts(tokens)
    if context is not None:
        accounts.server.socket = context.wrap_socket(accounts.server.socket, server_side=True)
        accounts.url = accounts.url.replace("http:", "https:").replace("127.0.0.1", "localhost")
    thread = threading.Thread(target=accounts.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield accounts
    finally:
        accounts.release.set()
        accounts.server.shutdown()
        accounts.server.server_close()
        thread.join()


def by_url(operator: Operator, url: str, more: str = "") -> str:
    return f'operator: {operator.jwt()}\nsystem_account: {operator.system.public}\nresolver: URL("{url}")\n{more}\n'


@both
def test_an_account_is_fetched_once_with_what_it_imports_from(tmp_path: Path, kind: Kind) -> None:
    operator = Operator()
    seller = operator.account("SELLER", exports=[{"name": "news", "subject": "news.>", "type": "stream"}])
    imports = [{"name": "news", "subject": "news.>", "account": seller.public, "type": "stream"}]
    buyer = operator.account("BUYER", imports=imports)
    with (
        serving(operator.preload()) as accounts,
        ConfServer(tmp_path, kind, by_url(operator, accounts.url)) as server,
    ):
        assert accounts.asked[0] == ""
        first = login(server.url, operator.user(buyer))
        assert (first.said, first.open) == ([], True)
        second = login(server.url, operator.user(buyer))
        assert (second.said, second.open) == ([], True)
        assert accounts.asked.count(buyer.public) == 1
        first.say(b"SUB news.* 1\r\n")
        publisher = login(server.url, operator.user(seller))
        publisher.say(b"PUB news.a 2\r\nhi\r\n")
        assert first.hear_message().startswith(b"MSG news.a 1")
        assert accounts.asked.count(seller.public) == 1


@both
def test_an_account_that_is_not_there_is_refused_and_named(tmp_path: Path, kind: Kind) -> None:
    operator = Operator()
    tokens = operator.preload()
    other = operator.account("LATER")
    with serving(tokens) as accounts, ConfServer(tmp_path, kind, by_url(operator, accounts.url)) as server:
        visitor = login(server.url, operator.user(other))
        assert (visitor.said, visitor.open) == (VIOLATION, False)
        server.await_line(f'Account fetch failed: could not fetch <"{accounts.url}{other.public}">: 404 Not Found')
        for wrong in (tokens[operator.system.public], other.jwt(Key("operator")), "no JWT", "../" * 9, "\r\nx: y"):
            tokens[other.public] = wrong
            visitor = login(server.url, operator.user(other))
            assert (visitor.said, visitor.open) == (VIOLATION, False), wrong
        tokens |= operator.preload()
        visitor = login(server.url, operator.user(other))
        assert (visitor.said, visitor.open) == ([], True)


@both
def test_the_server_does_not_start_where_nobody_answers(tmp_path: Path, kind: Kind) -> None:
    operator = Operator()
    with pytest.raises(RuntimeError, match=r'could not fetch <"http://127\.0\.0\.1:1/">: .*onnection refused'):
        ConfServer(tmp_path, kind, by_url(operator, "http://127.0.0.1:1")).start()


@both
def test_a_preload_needs_a_resolver_that_keeps_it(tmp_path: Path, kind: Kind) -> None:
    operator = Operator()
    preload = f"resolver_preload {{ {operator.system.public}: {operator.system.jwt(operator.key)} }}"
    with serving(operator.preload()) as accounts, pytest.raises(RuntimeError, match="only available for writeable"):
        ConfServer(tmp_path, kind, by_url(operator, accounts.url, preload)).start()


@both
def test_the_url_of_the_operator_is_used_without_a_resolver(tmp_path: Path, kind: Kind) -> None:
    with serving({}) as accounts:
        operator = Operator(account_server_url=accounts.url.removesuffix("/accounts/"))
        account = operator.account("A")
        accounts.tokens |= operator.preload()
        with ConfServer(tmp_path, kind, f"operator: {operator.jwt()}\n") as server:
            visitor = login(server.url, operator.user(account))
            assert (visitor.said, visitor.open) == ([], True)


@both
def test_the_system_account_may_come_later(tmp_path: Path, kind: Kind) -> None:
    operator = Operator()
    user = operator.user(operator.system)
    with serving({}) as accounts, ConfServer(tmp_path, kind, by_url(operator, accounts.url)) as server:
        accounts.tokens |= operator.preload()
        until(lambda: login(server.url, user).open)
        visitor = login(server.url, user)
        assert visitor.ask("$SYS.REQ.USER.INFO")["data"]["account"] == operator.system.public


@both
def test_resolver_tls_says_whom_to_trust(tmp_path: Path, kind: Kind) -> None:
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("accounts", dns=["localhost"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    operator = Operator()
    account = operator.account("A")
    trusted = f"resolver_tls {{ ca_file: {json.dumps(str(authority.cert))} }}"
    with serving(operator.preload(), context) as accounts:
        with ConfServer(tmp_path / "s", kind, by_url(operator, accounts.url, trusted)) as server:
            visitor = login(server.url, operator.user(account))
            assert (visitor.said, visitor.open) == ([], True)
        with pytest.raises(RuntimeError, match="certificate"):
            ConfServer(tmp_path / "u", kind, by_url(operator, accounts.url)).start()


@both
def test_others_are_served_while_an_answer_is_awaited(tmp_path: Path, kind: Kind) -> None:
    operator = Operator()
    known, slow = operator.account("KNOWN"), operator.account("SLOW")
    with (
        serving(operator.preload()) as accounts,
        ConfServer(tmp_path, kind, by_url(operator, accounts.url)) as server,
    ):
        first = login(server.url, operator.user(known))
        accounts.held.add(slow.public)
        waiting: list[Visitor] = []
        user = operator.user(slow)
        thread = threading.Thread(target=lambda: waiting.append(login(server.url, user)))
        thread.start()
        until(lambda: slow.public in accounts.asked)
        second = login(server.url, operator.user(known))
        assert (second.said, second.open) == ([], True)
        assert first.say(b"PUB a 0\r\n\r\n") == []
        assert waiting == []
        accounts.release.set()
        thread.join()
        assert [visitor.open for visitor in waiting] == [True]


# The bounds of one fetch


def resolver(accounts: Accounts) -> UrlResolver:
    return UrlResolver(accounts.url, ssl.create_default_context())


SLOW = {
    "silence": (b"", b""),
    "status line": (b"", b"H"),
    "header": (b"HTTP/1.1 200 OK\r\nA: ", b"b"),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "size of a chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
    "trailer": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", b"A: b\r\n"),
    "body": (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * MAX_TOKEN_BYTES),
    "redirections": (b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", b""),
}
"""Answers that never end: how they begin, and what comes again and again."""


@pytest.mark.parametrize("name", SLOW)
def test_an_answer_that_does_not_end_is_given_up(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_resolver, "FETCH_S", 0.2)
    begin, again = SLOW[name]
    over = threading.Event()

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            with suppress(OSError):
                self.request.sendall(begin)
                while not over.wait(0.02) and b"Location" not in begin:
                    self.request.sendall(again)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            with pytest.raises(FetchError, match=r"deadline exceeded|stopped after 10 redirects|longer than 1048576"):
                UrlResolver(f"http://127.0.0.1:{server.server_address[1]}", ssl.create_default_context()).get("A")
        finally:
            over.set()
            server.shutdown()


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x"])
def test_a_redirection_leads_to_no_file(target: str) -> None:
    with serving({"A": ""}) as accounts:
        accounts.moved = target
        with pytest.raises(FetchError, match="unsupported protocol scheme"):
            resolver(accounts).get("A")


@both
def test_the_login_in_the_url_is_sent_and_not_shown(tmp_path: Path, kind: Kind) -> None:
    operator = Operator()
    with serving(operator.preload()) as accounts:
        url = accounts.url.replace("://", "://u:sec%20ret@")
        with ConfServer(tmp_path, kind, by_url(operator, url)) as server:
            assert login(server.url, operator.user(operator.account("LATER"))).said == VIOLATION
            server.await_line("Account fetch failed")
            assert "ret" not in server.log() and accounts.logins == {"Basic " + b64encode(b"u:sec ret").decode()}


def test_a_start_waits_a_bounded_time_for_accounts_that_have_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit_s, asked in ((30.0, 2), (0.0, 0)):
        monkeypatch.setattr(operator_mode, "MAX_WAKE_S", limit_s)
        with serving({}) as accounts:
            auth = JwtAuthenticator(Trust(), resolver(accounts), resolver(accounts))
            broker: Any = SimpleNamespace(options=SimpleNamespace(auth=auth), clock=SystemClock())
            operator_mode.wake_accounts(broker, [Key("account").public for _ in range(2)], Log(quiet=True))
            assert len(accounts.asked) == asked


def test_imports_are_fetched_in_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_resolver, "MAX_FETCHES", 5)
    operator = Operator()
    sellers = [operator.account(f"S{number}") for number in range(20)]
    imports = [{"name": "a", "subject": "a", "account": seller.public, "type": "stream"} for seller in sellers]
    buyer = operator.account("B", imports=imports)
    with serving(operator.preload()) as accounts:
        fetched, faults = resolver(accounts).fetch_all(buyer.public, {sellers[-1].public})
    assert len(fetched) == 5
    assert faults == []
    assert sellers[-1].public not in fetched
