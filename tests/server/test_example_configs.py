"""Every nats.conf in examples/configs does what it says, on both servers, seen by clients.

A test starts a server from the file; only folders, hosts and ports are exchanged for those of the test.
"""

import asyncio
import contextlib
import json
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import TimeoutError
from nats.js.api import ConsumerConfig
from nats.js.errors import ServiceUnavailableError
from websockets.asyncio.client import connect as websocket_connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin

from natsctl.testing.certificates import Authority
from natsctl.testing.process import Kind, ServerProcess, reference_binary
from tests.support import patient_client
from tests.support.example_keys import example_files
from tests.support.leaf_servers import eventually, leaf_port, linked
from tests.support.operators import Visitor
from tests.support.patient_client import PATIENCE_S
from tests.support.tls_clients import until

EXAMPLES = Path(__file__).parents[2] / "examples" / "configs"
FOLDERS = {"/data/jetstream": "data", "/var/log/nats": "log", "/var/run/nats": "run", "/etc/nats": "etc"}
QUIET_S = 0.3
pytestmark = [pytest.mark.docs, pytest.mark.parametrize("kind", ["natsctl", "reference"])]


class FromFile(ServerProcess):
    """A server that is told nothing but an example and, by flag, to take a free port."""

    def __init__(self, folder: Path, kind: Kind, name: str, changes: dict[str, str], *flags: str) -> None:
        text = (EXAMPLES / name).read_text()
        for old, place in FOLDERS.items():
            text = text.replace(old, str(folder / place))
            (folder / place).mkdir(parents=True, exist_ok=True)
        for old, new in changes.items():
            assert old in text, f"{name} has no {old}"
            text = text.replace(old, new)
        self.config = folder / name
        self.config.write_text(text)
        super().__init__(folder, kind, *flags)

    def _command(self) -> list[str]:
        start = (
            [str(reference_binary())]
            if self.kind == "reference"
            else [sys.executable, "-m", "natsctl", "server", "run"]
        )
        return [*start, "-c", str(self.config), "-p", "-1", "--ports_file_dir", str(self.store_dir), *self.flags]

    def listening(self, what: str) -> str:
        found: list[str] = json.loads(next(self.store_dir.glob("*.ports")).read_text())[what]
        return found[0]


Start = Callable[..., FromFile]


@pytest.fixture
def start(kind: Kind, tmp_path: Path) -> Any:
    started: list[FromFile] = []

    def starter(name: str, changes: dict[str, str] | None = None, *flags: str) -> FromFile:
        server = FromFile(tmp_path / Path(name).stem, kind, name, changes or {}, *flags)
        started.append(server)
        server.start()
        return server

    yield starter
    for server in started:
        server.stop()


class Clients:
    def __init__(self) -> None:
        self.open: list[Client] = []
        self.errors: list[str] = []

    async def __call__(self, server: ServerProcess, user: str = "", number: int = 0, **options: Any) -> Client:
        async def note(error: Exception) -> None:
            self.errors.append(str(error))

        if user:
            options |= {"user": user, "password": f"change-me-{number}"}
        options = {"allow_reconnect": False, "error_cb": note, **options}
        client = await patient_client.connect(server.url, **options)
        self.open.append(client)
        return client

    async def refused(self, client: Client, subject: str) -> None:
        await client.publish(subject, b"{}", reply=client.new_inbox())
        await self.told(f'permissions violation for publish to "{subject.lower()}"')

    async def told(self, text: str) -> None:
        await until(lambda: any(text in error.lower() for error in self.errors))


@pytest.fixture
async def clients() -> Any:
    made = Clients()
    yield made
    for client in made.open:
        await client.close()


async def silent(wait: Callable[..., Awaitable[Msg]]) -> bool:
    try:
        await wait(timeout=QUIET_S)
    except TimeoutError:
        return True
    return False


def certificates(folder: Path) -> Authority:
    """Write an authority and a server's certificate as the examples name them; return the authority."""
    authority = Authority(folder)
    server = authority.issue("server", dns=["localhost"], addresses=["127.0.0.1"])
    (folder / "ca.pem").write_bytes(authority.cert.read_bytes())
    (folder / "server-cert.pem").write_bytes(server.cert.read_bytes())
    (folder / "server-key.pem").write_bytes(server.key.read_bytes())
    return authority


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.cert))


async def test_verbs_of_jetstream_are_open_to_those_who_may_use_them(start: Start, clients: Clients) -> None:
    server = start("permissions.conf")
    admin = await clients(server, "orders-admin", 1)
    js = admin.jetstream()
    await js.add_stream(name="ORDERS", subjects=["ORDERS.*"])
    await js.add_consumer("ORDERS", ConsumerConfig(durable_name="NEW", ack_policy="explicit"))
    await clients.refused(admin, "$JS.API.STREAM.CREATE.OTHER")
    await clients.refused(admin, "ORDERS.received")

    shop = await clients(server, "shop", 3)
    assert (await shop.jetstream().publish("ORDERS.received", b"order 1")).seq == 1
    await clients.refused(shop, "ORDERS.shipped")
    await clients.refused(shop, "$JS.API.STREAM.INFO.ORDERS")

    viewer = await clients(server, "viewer", 2)
    assert (await viewer.jetstream().stream_info("ORDERS")).state.messages == 1
    await clients.refused(viewer, "$JS.API.STREAM.PURGE.ORDERS")

    worker = await clients(server, "worker", 4, inbox_prefix=b"_INBOX_worker")
    pull = await worker.jetstream().pull_subscribe_bind("NEW", "ORDERS")
    [message] = await pull.fetch(1)
    await message.ack_sync()
    assert (await js.consumer_info("ORDERS", "NEW")).ack_floor.consumer_seq == 1
    await clients.refused(worker, "$JS.API.CONSUMER.MSG.NEXT.ORDERS.OTHER")

    everything = await clients(server, "admin", 0)
    await everything.jetstream().purge_stream("ORDERS")


async def test_accounts_are_apart_and_have_their_limits(start: Start, clients: Clients) -> None:
    server = start("accounts.conf")
    hr, sales, web = await clients(server, "hr", 1), await clients(server, "sales", 2), await clients(server)
    limits = (await hr.jetstream().account_info()).limits
    assert (limits.max_memory, limits.max_storage) == (512_000_000, 1_000_000_000)
    assert (limits.max_streams, limits.max_consumers) == (10, 100)
    assert (await sales.jetstream().account_info()).limits.max_streams == -1
    with pytest.raises(ServiceUnavailableError):
        await web.jetstream().account_info()

    for number in range(10):
        await hr.jetstream().add_stream(name=f"S{number}", subjects=[f"s{number}"], max_bytes=1024)
    with pytest.raises(Exception, match="maximum number of streams reached"):
        await hr.jetstream().add_stream(name="S10", subjects=["s10"])
    assert await sales.jetstream().streams_info() == []

    heard = await sales.subscribe("salaries")
    await sales.flush()
    await hr.publish("salaries", b"secret")
    await hr.flush()
    assert await silent(heard.next_msg)
    system = await clients(server, "system", 4)
    pong = json.loads((await system.request("$SYS.REQ.SERVER.PING.IDZ", b"")).data)
    assert pong.get("server", pong)


async def test_jwts_of_an_operator_say_who_may_what(start: Start, clients: Clients) -> None:
    server = start("operator.conf")
    app = await clients(server, user_credentials=str(EXAMPLES / "operator-app.creds"))
    reader = await clients(server, user_credentials=str(EXAMPLES / "operator-reader.creds"))
    info = await app.jetstream().account_info()
    assert (info.limits.max_storage, info.limits.max_streams) == (1 << 30, 10)
    heard = await reader.subscribe("prices.>")
    await reader.flush()
    await app.publish("prices.apple", b"3")
    assert (await heard.next_msg(PATIENCE_S)).data == b"3"
    await clients.refused(reader, "prices.apple")
    system = await clients(server, user_credentials=str(EXAMPLES / "operator-system.creds"))
    connections = json.loads((await system.request("$SYS.REQ.SERVER.PING.CONNZ", b"")).data)["data"]
    assert connections["num_connections"] >= 2
    assert Visitor(server.url).show(user="app", **{"pass": "x"}) == [b"-ERR 'Authorization Violation'"]


async def test_a_service_says_who_a_client_is(start: Start, clients: Clients) -> None:
    server = start("auth-callout.conf")
    program, seed = EXAMPLES.parent / "auth-callout" / "service.py", EXAMPLES / "auth-callout-issuer.seed"
    service = await asyncio.create_subprocess_exec(
        sys.executable, str(program), server.url, str(seed), stdout=subprocess.PIPE
    )
    try:
        assert service.stdout is not None and await service.stdout.readline() == b"ready\n"
        alice, bob = [
            await patient_client.connect(server.url, user=name, password=password, allow_reconnect=False)
            for name, password in (("alice", "wonderland"), ("bob", "builder"))
        ]
        clients.open += [alice, bob]
        found = json.loads((await bob.request("$SYS.REQ.USER.INFO", timeout=PATIENCE_S)).data)["data"]
        assert (found["user"], found["account"], found["expires"] > 0) == ("bob", "REPORTS", True)
        await alice.publish("orders.new", b"1")
        await alice.flush()
        refused = Visitor(server.url)
        assert refused.show(user="alice", **{"pass": "x"}) == [b"-ERR 'Authorization Violation'"]
        reason = "Auth callout service returned an error: unknown user or wrong password"
        await asyncio.to_thread(eventually, lambda: reason in server.log(), "no warning")
    finally:
        service.kill()
        await service.wait()


async def test_pages_of_our_own_come_by_websocket(start: Start, clients: Clients, tmp_path: Path) -> None:
    authority = certificates(tmp_path / "websocket" / "etc")
    server = start("websocket.conf", {"0.0.0.0:8443": "127.0.0.1:-1"})
    url, context = server.listening("websocket"), trusting(authority)
    ours, elsewhere = Origin("https://app.example.com"), Origin("https://elsewhere.example.com")
    service = await clients(server, "service", 1)

    async def greeted(user: str, password: str) -> str:
        async with websocket_connect(url, ssl=context, origin=ours) as page:
            assert bytes(await page.recv()).startswith(b"INFO ")
            assert page.protocol.extensions  # compression was agreed on
            login = json.dumps({"user": user, "pass": password, "verbose": False})
            await page.send(f"CONNECT {login}\r\nSUB chat.* 1\r\nPING\r\n".encode())
            answer = bytes(await page.recv()).decode()
            if answer.startswith("PONG"):
                await service.publish("chat.hall", b"hello")
                answer = bytes(await page.recv()).decode()
            return answer

    assert await greeted("page", "change-me-2") == "MSG chat.hall 1 5\r\nhello\r\n"
    assert "Authorization Violation" in await greeted("service", "change-me-1")
    with pytest.raises(InvalidStatus) as refused:
        await websocket_connect(url, ssl=context, origin=elsewhere)
    assert refused.value.response.status_code == 403


async def test_monitoring_answers_and_the_files_are_where_they_are_said(start: Start, clients: Clients) -> None:
    server = start("monitoring.conf", {"127.0.0.1:8222": "127.0.0.1:-1"})
    url = server.listening("monitoring")

    def page(path: str) -> bytes:
        with urlopen(url + path, timeout=60) as answer:
            body: bytes = answer.read()
        return body

    assert json.loads(await asyncio.to_thread(page, "/healthz")) == {"status": "ok"}
    assert json.loads(await asyncio.to_thread(page, "/varz"))["server_name"] == "orders-1"
    system, app = await clients(server, "system", 1), await clients(server, "app", 2)
    await app.jetstream().add_stream(name="S", subjects=["s"])
    answer = json.loads((await system.request("$SYS.REQ.SERVER.PING.JSZ", b"")).data)
    assert answer["data"]["streams"] == 1
    assert (server.store_dir / "run" / "nats.pid").read_text().strip() == str(server.pid)
    assert "Server is ready" in (server.store_dir / "log" / "nats.log").read_text()


async def test_an_edge_shares_its_account_with_the_hub(start: Start, clients: Clients) -> None:
    hub = start("leafnode-hub.conf", {"0.0.0.0:7422": "127.0.0.1:-1"})
    edge = start("leafnode.conf", {"hub.example.com:7422": f"127.0.0.1:{leaf_port(hub)}"})
    linked(edge)
    app, office, here = await clients(hub, "app", 1), await clients(hub, "office", 2), await clients(edge)
    field, others = await app.subscribe(">"), await office.subscribe(">")
    await asyncio.gather(app.flush(), office.flush())
    await reach(here, "ready", field)
    await here.publish("local.noise", b"")
    await here.publish("sensors.1", b"20")
    assert (await field.next_msg(PATIENCE_S)).subject == "sensors.1"  # and no local.noise before it
    assert await silent(others.next_msg)

    await here.jetstream().add_stream(name="EDGE", subjects=["edge.>"])
    assert (await app.jetstream(domain="edge").stream_info("EDGE")).config.subjects == ["edge.>"]
    await app.jetstream().add_stream(name="HUB", subjects=["hub.>"])
    assert (await here.jetstream(domain="hub").stream_info("HUB")).config.name == "HUB"


async def reach(client: Client, subject: str, heard: Any) -> None:
    """Publish until what crosses is heard, and nothing of it is to come: interest needs a moment to travel."""
    for number in range(200):
        await client.publish(subject, b"%d" % number)
        with contextlib.suppress(TimeoutError):
            while (await heard.next_msg(timeout=QUIET_S)).data != b"%d" % number:
                pass
            return
    raise AssertionError(f"{subject} is not heard")


async def test_a_laptop_is_part_of_a_hosted_account(
    start: Start, clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = certificates(tmp_path / "operator" / "etc")
    block = "cert_file: {0}/server-cert.pem, key_file: {0}/server-key.pem".format(tmp_path / "operator" / "etc")
    leafnodes = f'leafnodes {{ listen: "127.0.0.1:-1", tls {{ {block} }} }}\noperator:'
    hosted = start("operator.conf", {"operator:": leafnodes})
    creds = tmp_path / "leafnode-ngs" / "etc" / "ngs.creds"
    creds.parent.mkdir(parents=True)
    creds.write_text(example_files()["operator-app.creds"])
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))  # the authorities that a machine trusts
    laptop = start("leafnode-ngs.conf", {"connect.ngs.global": f"127.0.0.1:{leaf_port(hosted)}"})
    eventually(
        lambda: "JetStream using domains" in laptop.log() or "Leafnode connection created" in laptop.log(), "link"
    )
    app = await clients(hosted, user_credentials=str(EXAMPLES / "operator-app.creds"))
    here = await clients(laptop)
    heard = await app.subscribe("notes.>")
    await app.flush()
    await reach(here, "notes.1", heard)
    await here.jetstream().add_stream(name="NOTES", subjects=["notes.>"])
    assert (await app.jetstream(domain="laptop").stream_info("NOTES")).config.name == "NOTES"
