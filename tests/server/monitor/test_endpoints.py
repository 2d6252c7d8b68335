import asyncio
import http.client
import json
from pathlib import Path

import pytest

from natsctl.server.instance import ServerInstance
from natsctl.server.monitor.ages import uptime
from natsctl.server.options import ServerOptions

OPTIONS = ServerOptions(host="127.0.0.1", port=-1, http_host="127.0.0.1", http_port=-1)


def ask(port: int, *requests: tuple[str, str]) -> list[tuple[int, bytes]]:
    """Return status and body of each request, all on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    answers = []
    for method, path in requests:
        connection.request(method, path)
        response = connection.getresponse()
        answers.append((response.status, response.read()))
    connection.close()
    return answers


async def test_varz_healthz_and_jsz_of_a_server_with_jetstream(tmp_path: Path) -> None:
    options = ServerOptions(
        host="127.0.0.1", port=-1, http_host="127.0.0.1", http_port=-1, jetstream=True, store_dir=tmp_path, domain="hub"
    )
    async with ServerInstance(options) as server:
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


async def test_without_jetstream_jsz_says_so_and_health_is_as_configured() -> None:
    async with ServerInstance(OPTIONS) as server:
        jsz, health, demand = await asyncio.to_thread(
            ask,
            server.port_of("monitoring"),
            ("GET", "/jsz"),
            ("GET", "/healthz"),
            ("GET", "/healthz?js-enabled-only=true"),
        )
        assert json.loads(jsz[1])["disabled"] is True
        assert (health[0], demand[0]) == (200, 200)


async def test_unknown_pages_are_404_and_every_method_is_answered() -> None:
    async with ServerInstance(OPTIONS) as server:
        answers = await asyncio.to_thread(
            ask, server.port_of("monitoring"), ("GET", "/nothing"), ("POST", "/varz"), ("HEAD", "/varz")
        )
        assert [status for status, _ in answers] == [404, 200, 200]
        assert answers[2][1] == b""


async def test_a_request_that_is_no_http_ends_its_connection_alone() -> None:
    async with ServerInstance(OPTIONS) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port_of("monitoring"))
        writer.write(b"\x16\x03\x01" + b"x" * 40_000 + b"\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), 30)).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        writer.close()
        assert (await asyncio.to_thread(ask, server.port_of("monitoring"), ("GET", "/healthz")))[0][0] == 200


@pytest.mark.parametrize(("age_s", "text"), [(0, "0s"), (61, "1m1s"), (3600, "1h0m0s"), (90061, "1d1h1m1s")])
def test_uptime_begins_with_its_largest_unit(age_s: int, text: str) -> None:
    assert uptime(age_s * 10**9) == text
