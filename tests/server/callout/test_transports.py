"""Callouts about clients under TLS and over WebSocket, and about leaf nodes, on both servers."""

import asyncio
import json
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from websockets.asyncio.client import connect as websocket_over_tls
from websockets.sync.client import connect as websocket_connect

from natsctl.testing.certificates import Authority, Issued
from natsctl.testing.process import Kind, ServerProcess
from tests.server.callout.conftest import delegating, running
from tests.server.callout.test_config_mode import VIOLATION
from tests.support.callouts import ISSUER, WITHIN_S, CalloutService, Request, until
from tests.support.leaf_servers import leaf_port
from tests.support.operators import Key, Operator, Visitor

pytestmark = pytest.mark.both


class Certificates:
    """An authority, and the certificates of a server and a client as the text of a block `tls`."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.server = self.authority.issue("server", dns=["localhost"], addresses=["127.0.0.1"])
        self.client = self.authority.issue("client", dns=["client.example"])

    def block(self, *, verify: bool = True) -> str:
        return f"tls {{ {self.files(self.server)}, verify: {str(verify).lower()} }}"

    def files(self, issued: Issued) -> str:
        return f'cert_file: "{issued.cert}", key_file: "{issued.key}", ca_file: "{self.authority.cert}"'

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority.cert)
        context.load_cert_chain(self.client.cert, self.client.key)
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def conf(more: str) -> str:
    block = f"auth_callout {{ issuer: {ISSUER.public}, account: AUTH, auth_users: [auth] }}"
    return f"""
accounts {{ AUTH {{ users: [{{user: auth, password: pwd}}] }}, FOO {{}} }}
authorization {{ timeout: 20, {block} }}
{more}
"""


def into_foo(request: Request) -> bytes:
    if request.connect.get("user") == "bad" or request.connect.get("auth_token") == "bad":
        return b""
    return request.response(request.user(aud="FOO", name="let in"))


def common_names(request: Request) -> list[str]:
    """Return whose certificates a request shows, the client's first."""
    assert request.tls is not None and "certs" not in request.tls
    (chain,) = request.tls["verified_chains"]
    found = [x509.load_pem_x509_certificate(pem.encode()).subject for pem in chain]
    return [str(name.rfc4514_string()) for name in found]


def test_a_client_under_tls_shows_its_verified_certificates(
    kind: Kind, tmp_path: Path, certificates: Certificates
) -> None:
    tls = certificates.context()
    with (
        running(kind, tmp_path, conf(certificates.block())) as process,
        CalloutService(process.url, into_foo, tls=tls, user="auth", password="pwd") as service,
        CalloutService(process.url, into_foo, tls=tls) as client,
    ):
        request = service.request()
        assert request.tls is not None and request.tls["version"] == "1.3"
        assert request.tls["cipher"].startswith("TLS_")
        assert common_names(request) == ["CN=client", "CN=authority"]
        assert client.ask("$SYS.REQ.USER.INFO")["data"]["user"] == "let in"


def test_a_client_under_tls_without_a_certificate_shows_none(
    kind: Kind, tmp_path: Path, certificates: Certificates
) -> None:
    tls = ssl.create_default_context(cafile=certificates.authority.cert)
    with (
        running(kind, tmp_path, conf(certificates.block(verify=False))) as process,
        CalloutService(process.url, into_foo, tls=tls, user="auth", password="pwd") as service,
        CalloutService(process.url, into_foo, tls=tls),
    ):
        request = service.request()
        assert request.tls is not None and sorted(request.tls) == ["cipher", "version"]


def websocket_url(process: ServerProcess, scheme: str) -> str:
    (ports,) = process.store_dir.glob("nats-server_*.ports")
    found: list[str] = json.loads(ports.read_text())["websocket"]
    return f"{scheme}://127.0.0.1:{found[0].rpartition(':')[2]}"


async def answer_to(url: str, tls: ssl.SSLContext, login: bytes) -> bytes:
    """Without threads: Python's ssl may hang if one reads while another writes, as in the client of websockets.sync."""
    async with asyncio.timeout(WITHIN_S), websocket_over_tls(url, ssl=tls) as socket:
        await socket.recv()
        await socket.send(login)
        return bytes(await socket.recv(decode=False))


def test_clients_over_websocket_are_asked_about(kind: Kind, tmp_path: Path, certificates: Certificates) -> None:
    block = f"websocket {{ listen: '127.0.0.1:-1', {certificates.block()} }}"
    with delegating(kind, tmp_path, conf(block), into_foo) as (process, service):
        url = websocket_url(process, "wss")
        for user, answer in (("good", b"PONG"), ("bad", VIOLATION)):
            login = b'CONNECT {"verbose":false,"user":"%b"}\r\nPING\r\n' % user.encode()
            assert asyncio.run(answer_to(url, certificates.context(), login)).startswith(answer)
            request = service.request()
            assert (request.client["kind"], request.client["type"]) == ("Client", "websocket")
            assert common_names(request)[0] == "CN=client"


def test_users_of_the_websocket_listener_alone_are_known_there(kind: Kind, tmp_path: Path) -> None:
    block = f"auth_callout {{ issuer: {ISSUER.public}, auth_users: [auth] }}"
    text = f"""
authorization {{ user: other, password: pwd, timeout: 1, {block} }}
websocket {{ listen: "127.0.0.1:-1", no_tls: true, authorization {{ username: auth, password: pwd }} }}
"""
    with (
        running(kind, tmp_path, text) as process,
        websocket_connect(websocket_url(process, "ws"), open_timeout=WITHIN_S) as socket,
    ):
        socket.recv(timeout=WITHIN_S)
        connect = b'CONNECT {"verbose":false,"user":"auth","pass":"pwd"}\r\n'
        socket.send(connect + b"SUB $SYS.REQ.USER.AUTH 1\r\nPING\r\n")
        assert socket.recv(timeout=WITHIN_S) == b"PONG\r\n"
        visitor = Visitor(process.url)
        assert visitor.show(user="auth", **{"pass": "pwd"}) == [VIOLATION]
        heard = socket.recv(timeout=WITHIN_S)
        assert isinstance(heard, bytes) and heard.startswith(b"MSG $SYS.REQ.USER.AUTH 1 $SYS._INBOX.")


LEAF = "leafnodes { listen: '127.0.0.1:-1' }"


def spoke_conf(port: int, login: str, more: str = "") -> str:
    return f'server_name: SPOKE\nleafnodes {{ remotes: [{{ url: "nats://{login}@127.0.0.1:{port}", {more} }}] }}'


@pytest.mark.parametrize("login", ["leaf:pwd", "token"])
def test_leaf_nodes_are_asked_about(kind: Kind, tmp_path: Path, login: str) -> None:
    with delegating(kind, tmp_path, conf(LEAF), into_foo) as (hub, service):
        hub_port = leaf_port(hub)
        with running("natsctl", tmp_path / "spoke", spoke_conf(hub_port, login)) as spoke:
            request = service.request()
            assert (request.client["kind"], request.client.get("type", "")) == ("Leafnode", "")
            near, far = Visitor(spoke.url), Visitor(hub.url)
            near.show()
            far.show(user="x")
            far.say(b"SUB crosses 1\r\n")
            until(lambda: near.say(b"PUB crosses 0\r\n\r\n") == [] and far.say(b""))


def test_a_leaf_node_that_the_service_refuses_stays_out(kind: Kind, tmp_path: Path) -> None:
    with (
        delegating(kind, tmp_path, conf(LEAF), into_foo) as (hub, service),
        running("natsctl", tmp_path / "spoke", spoke_conf(leaf_port(hub), "bad:pwd")) as spoke,
    ):
        service.request()
        event = service.event()
        assert event["reason"] == 'Auth callout violation: "no reason supplied" on account "AUTH"'
        assert (event["client"]["kind"], event["client"]["acc"]) == ("Leafnode", "AUTH")
        until(lambda: "Authorization" in spoke.log())


def test_leaf_nodes_of_an_operator_are_asked_about(kind: Kind, tmp_path: Path) -> None:
    operator = Operator()
    auth, app = operator.account("AUTH"), operator.account("APP")
    service_user = operator.user(auth)
    auth.nats["authorization"] = {"auth_users": [service_user.key.public], "allowed_accounts": ["*"]}
    leaf = operator.user(auth, {"name": "leaf"})

    def decide(request: Request) -> bytes:
        if request.connect.get("auth_token") != "token":
            return b""
        return request.response(request.user(app.key, name="let in"), auth.key)

    creds = tmp_path / "leaf.creds"
    creds.write_text(leaf.creds)
    bad = tmp_path / "bad.creds"
    bad.write_text(type(leaf)(Key("user"), leaf.jwt).creds)
    with (
        running(kind, tmp_path, operator.conf(f"{LEAF}\nauthorization {{ timeout: 20 }}")) as hub,
        CalloutService(hub.url, decide, login=service_user) as service,
    ):
        text = spoke_conf(leaf_port(hub), "token", f'credentials: "{creds}"')
        with running("natsctl", tmp_path / "spoke", text) as spoke:
            assert service.request().client["name_tag"] == "leaf"
            until(lambda: "Leafnode connection created for account" in spoke.log() or "JetStream using" in spoke.log())
        with running("natsctl", tmp_path / "stranger", text.replace(str(creds), str(bad))):
            event = service.event()
            assert event["reason"] == "Leafnode not mapped to a callout account"
            assert service.requests.empty()
