"""The same configuration and the same clients on both servers: what every endpoint answers, compared key by key."""

import asyncio
import http.client
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig, StreamSource

from natsctl.testing.process import Kind, ServerProcess
from tests.support import patient_client
from tests.support.differential import as_released

CONFIG = """
http: 127.0.0.1:-1
server_name: mon
server_tags: ["a:b", "c"]
jetstream { domain: hub, max_mem: 64MB, max_file: 1GB, sync: always, limits { max_ack_pending: 500 } }
websocket { listen: "127.0.0.1:-1", no_tls: true, compression: true }
accounts {
  A { users: [{user: a, password: hidden-word}], jetstream: {max_mem: 1MB, max_file: 10MB},
      exports: [{stream: "x.>"}, {service: "svc", accounts: [B]}, {stream: "t.*.>", account_token_position: 2},
                {service: "many.>", response: stream, threshold: 5s}, {service: chunks, response: chunked},
                {service: half, latency: {sampling: 50%, subject: lat}},
                {service: "of.*.*", account_token_position: 2, latency: {sampling: headers, subject: lat}}],
      mappings: {"m.*": "n.$1", "w": [{destination: "w1", weight: 30%}, {destination: w2, weight: 70%}]} }
  B { users: [{user: b, password: hidden-word}], jetstream: true,
      imports: [{stream: {account: A, subject: "x.>"}, prefix: "fromA"},
                {stream: {account: A, subject: "t.B.*"}, to: "mine.$1.t"},
                {service: {account: A, subject: svc}, to: "asvc"}, {service: {account: A, subject: "many.one"}},
                {service: {account: A, subject: half}, share: true},
                {service: {account: A, subject: "of.B.*"}, to: "our.$1.of"}] }
  SYS { users: [{user: sys, password: hidden-word}] }
}
system_account: SYS
"""

pytestmark = pytest.mark.reference

Answer = tuple[int, dict[str, str], str]


def monitoring_port(process: ServerProcess) -> int:
    ports = json.loads((process.store_dir / f"nats-server_{process.pid}.ports").read_text())
    return int(ports["monitoring"][0].rsplit(":", 1)[1])


def ask(port: int, path: str, method: str = "GET") -> Answer:
    """Return status, headers (without those that differ from moment to moment) and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path)
    response = connection.getresponse()
    passing = ("date", "content-length", "transfer-encoding", "connection")
    headers = {name.lower(): value for name, value in response.getheaders() if name.lower() not in passing}
    body = response.read().decode()
    connection.close()
    return response.status, headers, body


@asynccontextmanager
async def clients(url: str, port: int) -> AsyncIterator[None]:
    """Have clients on a server while the block runs: two that stay, one that has left, three that were refused."""
    async with AsyncExitStack() as stack:

        async def client(user: str, name: str) -> Client:
            connection = await patient_client.connect(url, user=user, password="hidden-word", name=name)
            stack.push_async_callback(connection.close)
            return connection

        alice, bob = await client("a", "alice"), await client("b", "bob")
        gone = await patient_client.connect(url, user="b", password="hidden-word", name="gone")
        await gone.subscribe("zzz")
        await gone.flush()
        await gone.close()
        for login in ({"user": "b", "pass": "wrong"}, {"user": "nobody", "pass": "wrong"}, {"auth_token": "wrong"}):
            await asyncio.to_thread(refused, url, login)
        js = alice.jetstream()
        await js.add_stream(name="S1", subjects=["s1.>"], max_bytes=100_000)
        await js.add_stream(name="SRC", sources=[StreamSource(name="S1")])
        await js.add_stream(name="MIR", mirror=StreamSource(name="S1"))
        await js.add_consumer("S1", ConsumerConfig(durable_name="D1"))
        for _ in range(5):
            await js.publish("s1.x", b"hello")
        await alice.subscribe("foo.*", queue="q")
        await (await alice.subscribe("bar")).unsubscribe(10)
        await bob.subscribe("mine")
        await bob.publish("mine", b"12345")
        await asyncio.gather(alice.flush(), bob.flush())
        await asyncio.to_thread(settled, port)
        await asyncio.sleep(0.5)  # what follows of that
        yield


def refused(url: str, login: dict[str, str]) -> None:
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=30) as sock:
        sock.sendall(b"CONNECT %b\r\nPING\r\n" % json.dumps({"name": "refused", **login}).encode())
        while sock.recv(4096):
            pass


def settled(port: int) -> None:
    """Wait until mirror and source have their messages, and the server has noticed who left; asks no API."""
    deadline = time.monotonic() + 60
    while (
        json.loads(ask(port, "/jsz")[2])["messages"] < 15
        or json.loads(ask(port, "/connz?state=closed")[2])["total"] < 4
    ):
        assert time.monotonic() < deadline, "mirrors and sources do not follow"
        time.sleep(0.05)


@contextmanager
def started(kind: Kind, folder: Path) -> Iterator[ServerProcess]:
    folder.mkdir()
    config = folder / "nats.conf"
    config.write_text(CONFIG)
    with ServerProcess(folder, kind, "-c", str(config)) as process:
        yield process


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Answer]]]:
    """What both servers answer to every question, by kind and path; asked in the same order."""
    answers: dict[str, dict[str, Answer]] = {}
    for kind in ("natsctl", "reference"):
        folder = tmp_path_factory.mktemp("monitor") / kind
        with started(kind, folder) as process:

            async def talk(process: ServerProcess = process) -> dict[str, Answer]:
                port = monitoring_port(process)
                async with clients(process.url, port):
                    found = {path: await asyncio.to_thread(ask, port, path) for path in (*SHAPES, *EXACT)}
                    return {path: (status, kind, as_released(body)) for path, (status, kind, body) in found.items()}

            answers[kind] = asyncio.run(talk())
    yield answers


SHAPES = (
    "/varz", "/connz", "/connz?subs=1", "/connz?subs=detail&auth=1", "/connz?state=closed&auth=1&subs=detail",
    "/connz?state=any&sort=uptime",
    "/connz?auth=1&state=any", "/connz?acc=A&auth=true", "/connz?user=b", "/connz?acc=nope", "/connz?cid=1000000",
    "/connz?limit=1&offset=1", "/connz?sort=rtt", "/connz?state=closed&sort=stop", "/connz?state=closed&sort=reason",
    "/routez", "/routez?subs=detail", "/gatewayz", "/leafz", "/leafz?subs=1", "/subsz", "/subscriptionsz",
    "/accountz", "/accountz?acc=A", "/accountz?acc=B", "/accountz?acc=SYS", "/accstatz", "/accstatz?unused=1",
    "/jsz", "/jsz?accounts=1", "/jsz?streams=1", "/jsz?consumers=1", "/jsz?consumers=1&config=1&direct-consumers=1",
    "/jsz?consumers=1&raft=1", "/jsz?acc=A&streams=1", "/jsz?acc=nope", "/jsz?acc=nope&streams=1",
    "/jsz?accounts=1&limit=1&offset=1", "/jsz?accounts=1&limit=-1", "/jsz?accounts=1&offset=9",
    "/jsz?leader-only=1&stream-leader-only=1&streams=1", "/ipqueuesz",
)  # fmt: skip
"""Pages whose keys, their order and the types of their values are compared."""

EXACT = (
    "/connz?auth=maybe", "/connz?limit=x", "/connz?cid=-1", "/connz?cid=99999999999999999999", "/connz?state=no",
    "/connz?limit=99999999999999999999", "/connz?subs=bad", "/connz?sort=bad", "/connz?sort=stop",
    "/connz?sort=reason&state=any", "/connz?offset=+1", "/connz?offset=%22", "/subsz?test=foo.*&subs=1",
    "/subsz?subs=x", "/accountz?acc=nope", "/accstatz?unused=x", "/jsz?offset=x", "/jsz?streams=yes", "/leafz?subs=q",
    "/gatewayz?accs=q", "/routez?subs=q", "/ipqueuesz?all=q", "/raftz", "/nothing", "/varz/", "/VARZ",
    "//varz", "/a/../varz", "/a/./b?x=1", "//", "/..", "/%2e%2e/healthz", "/%2Fhealthz", "/%zz", "/healthz/.",
    "http://127.0.0.1/healthz", "/%00", "/%ff", "/healthz/../varz/", "/debug//vars",
    "/healthz", "/healthz?details=1", "/healthz?js-enabled-only=1", "/healthz?js-server-only=true",
    "/healthz?stream=x", "/healthz?consumer=c", "/healthz?account=nope", "/healthz?account=A",
    "/healthz?account=A&stream=nope",
    "/healthz?account=A&stream=S1", "/healthz?account=A&stream=S1&consumer=nope",
    "/healthz?account=A&stream=S1&consumer=D1", "/healthz?details=1&account=nope", "/healthz?details=1&stream=x",
    "/healthz?details=1&account=A&stream=nope", "/healthz?js-enabled-only=x",
)  # fmt: skip
"""Pages that are the same on both to the byte."""


def shape(value: Any, key: str = "") -> Any:
    """Return keys in their order with the types of what they hold; of a list, each kind of element once."""
    if isinstance(value, dict):
        return [(name, shape(item, name)) for name, item in value.items()]
    if isinstance(value, list):
        kinds: list[Any] = []
        for item in value:
            found = shape(item, key)
            if found not in kinds:
                kinds.append(found)
        return sorted(kinds, key=repr)
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


@pytest.mark.parametrize("path", SHAPES)
def test_keys_their_order_and_types_are_those_of_the_reference(path: str, pair: dict[str, dict[str, Answer]]) -> None:
    ours, theirs = (pair[kind][path] for kind in ("natsctl", "reference"))
    assert ours[:2] == theirs[:2]
    assert shape(json.loads(ours[2])) == shape(drop(json.loads(theirs[2]), OF_BUILDS))


@pytest.mark.parametrize("path", EXACT)
def test_errors_and_health_are_the_reference_s_to_the_byte(path: str, pair: dict[str, dict[str, Answer]]) -> None:
    assert pair["natsctl"][path] == pair["reference"][path]


def drop(value: Any, keys: set[str]) -> Any:
    if isinstance(value, dict):
        return {name: drop(item, keys) for name, item in value.items() if name not in keys}
    return [drop(item, keys) for item in value] if isinstance(value, list) else value


OF_BUILDS = {"git_commit"}
"""What builds of nats-server tell that were made from a checkout, and those of `go install` do not."""
PASSING = OF_BUILDS | {
    "server_id", "now", "start", "last_activity", "stop", "rtt", "uptime", "idle", "ip", "port", "cid", "created", "ts",
    "first_ts", "last_ts", "last_active", "active", "update_time", "sublist_stats", "subscriptions",
    "num_subscriptions",
    "store_dir", "go", "mem", "cpu", "config_load_time", "config_digest", "http_req_stats", "subscriptions_list_detail",
    "out_bytes", "out_client_bytes", "sent", "max_connections", "disk_io_wait_stats", "deliver_subject", "name",
    "bytes", "in_bytes", "in_client_bytes", "received", "metadata", "pending_bytes",
}  # fmt: skip
"""What differs from run to run, or by what an implementation is."""


@pytest.mark.parametrize(
    "path", ["/varz", "/connz", "/connz?auth=1&state=any", "/routez", "/gatewayz", "/leafz", "/jsz"]
)
def test_values_that_do_not_depend_on_the_moment_are_the_same(path: str, pair: dict[str, dict[str, Answer]]) -> None:
    ours, theirs = (drop(json.loads(pair[kind][path][2]), PASSING) for kind in ("natsctl", "reference"))
    assert ours == theirs


def test_account_details_are_the_same_in_any_order(pair: dict[str, dict[str, Answer]]) -> None:
    for account in ("A", "B", "SYS"):
        found = []
        for kind in ("natsctl", "reference"):
            detail = drop(json.loads(pair[kind][f"/accountz?acc={account}"][2])["account_detail"], PASSING)
            lists = {key: sorted(detail.get(key, []), key=json.dumps) for key in ("imports", "exports")}
            found.append({**detail, **lists})
        assert found[0] == found[1]


def test_no_page_tells_a_password(pair: dict[str, dict[str, Answer]]) -> None:
    assert not [path for path, (_, _, body) in pair["natsctl"].items() if "hidden-word" in body]
