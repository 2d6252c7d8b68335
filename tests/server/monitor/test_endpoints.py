import asyncio
import http.client
import json
import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from natsctl.server.instance import ServerInstance
from natsctl.server.monitor.document import uptime
from natsctl.server.monitor.http import HttpRequest
from natsctl.server.monitor.pages import Monitor
from natsctl.server.options import ServerOptions

OPTIONS = ServerOptions(host="127.0.0.1", port=-1, http_host="127.0.0.1", http_port=-1)


def ask(port: int, *requests: tuple[str, str]) -> list[tuple[int, bytes]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    answers = []
    for method, path in requests:
        connection.request(method, path)
        response = connection.getresponse()
        answers.append((response.status, response.read()))
    connection.close()
    return answers


async def test_varz_healthz_and_jsz_of_a_server_with_jetstream(tmp_path: Path) -> None:
    async with ServerInstance(replace(OPTIONS, jetstream=True, store_dir=tmp_path, domain="hub")) as server:
        answers = await asyncio.to_thread(
            ask, server.port_of("monitoring"), ("GET", "/varz"), ("GET", "/healthz"), ("GET", "/jsz"), ("GET", "/")
        )
        varz, healthz, jsz = (json.loads(body) for _, body in answers[:3])
        assert [status for status, _ in answers] == [200] * 4
        assert (varz["server_id"], varz["port"]) == (server.server_id, server.port)
        assert varz["jetstream"]["config"]["store_dir"] == str(tmp_path / "jetstream")
        assert varz["jetstream"]["config"]["sync_always"] is True
        assert healthz == {"status": "ok"}
        assert (jsz["streams"], jsz["config"]["domain"]) == (0, "hub")


@pytest.mark.parametrize(("age_s", "text"), [(0, "0s"), (61, "1m1s"), (3600, "1h0m0s"), (90061, "1d1h1m1s")])
def test_uptime_begins_with_its_largest_unit(age_s: int, text: str) -> None:
    assert uptime(age_s * 10**9) == text


def headed(port: int, host: str | None, origin: str = "") -> tuple[int, str | None]:
    """Return the status of a request with these headers, and which pages of other origins may read the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest("GET", "/varz", skip_host=True)
    for name, value in (("Host", host), ("Origin", origin)):
        if value:
            connection.putheader(name, value)
    connection.putheader("Connection", "close")
    connection.endheaders()
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status, response.getheader("Access-Control-Allow-Origin")


async def test_pages_of_other_sites_read_nothing_over_loopback() -> None:
    async with ServerInstance(replace(OPTIONS, server_name="Hub", client_advertise="nats.example:4222")) as server:
        port = server.port_of("monitoring")

        async def status(host: str, origin: str = "") -> tuple[int, str | None]:
            return await asyncio.to_thread(headed, port, host, origin)

        own = ("127.0.0.1", f"127.0.0.1:{port}", "[::1]:8222", "10.1.2.3", "localhost:1", "a.localhost", "LOCALHOST.",
               "hub", "nats.example", socket.gethostname())  # fmt: skip
        assert [await status(host) for host in own] == [(200, "*")] * len(own)
        foreign = ("evil.example", "evil.example:8222", "127.0.0.1.evil.example", "localhost.evil.example", "a@b.c",
                   "[bad", "xn--hub")  # fmt: skip
        assert [await status(host) for host in foreign] == [(403, None)] * len(foreign)
        for origin in ("http://localhost:3000", "http://127.0.0.1", "http://hub", "https://[::1]:8"):
            assert await status("localhost", origin) == (200, "*")
        for origin in ("https://evil.example", "null", "http://203.0.113.9", "http://hub.evil.example", "file://"):
            assert await status("localhost", origin) == (200, None)


async def test_over_the_network_any_name_and_origin_are_answered() -> None:
    async with ServerInstance(OPTIONS) as server:
        page = Monitor(server).answer(HttpRequest("GET", "/varz", "prometheus.example", "https://dashboard.example"))
        assert page.status == 200 and ("Access-Control-Allow-Origin", "*") in page.headers
