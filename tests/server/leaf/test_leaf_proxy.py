"""Leaf nodes that reach their hub through an HTTP proxy: the tunnel and its faults, on both servers."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from natsctl.server.conf.config import apply
from natsctl.server.conf.syntax import load_text
from natsctl.server.options import ServerOptions
from natsctl.testing.certificates import Authority
from natsctl.testing.process import Kind
from tests.support import patient_client
from tests.support.conf_server import PATIENCE_S, ConfServer
from tests.support.servers import quiet_ports

both = pytest.mark.parametrize("kind", ["natsctl", "reference"])
REFUSED = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"


class Proxy:
    """A proxy that makes tunnels; `answers` are its answers to the first requests instead."""

    def __init__(self, *answers: bytes) -> None:
        self.requests: list[bytes] = []
        self.port = 0
        self._answers = list(answers)
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        request = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(request)
        if self._answers:
            if answer := self._answers.pop(0):
                writer.write(answer)
            writer.close()
            return
        host, _, port = request.split()[1].decode().rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        self._writers.append(far_writer)
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
        for one, other in ((reader, far_writer), (far_reader, writer)):
            self._tasks.append(asyncio.create_task(_pass_on(one, other)))

    async def stop(self) -> None:
        for writer in self._writers:
            writer.close()
            with suppress(OSError, ssl.SSLError):
                await writer.wait_closed()
        await asyncio.gather(*self._tasks)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
    except OSError:
        pass
    writer.close()


@asynccontextmanager
async def running(proxy: Proxy, context: ssl.SSLContext | None = None) -> AsyncIterator[Proxy]:
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, ssl=context)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.stop()


def leaf(url: str, proxy: str, more: str = "") -> str:
    remote = f"{{ url: {json.dumps(url)}, {more} proxy {{ {proxy} }} }}"
    return f"leafnodes {{ reconnect: '100ms', remotes: [{remote}] }}\nconnect_error_reports: 1\n"


async def crosses(hub: ConfServer, spoke: ConfServer) -> None:
    here, there = await patient_client.connect(hub.url), await patient_client.connect(spoke.url)
    heard = await there.subscribe("news")
    await there.flush()
    async with asyncio.timeout(PATIENCE_S):
        while not heard.pending_msgs:
            await here.publish("news", b"x")
            await here.flush()
            await asyncio.sleep(0.02)
    await here.close()
    await there.close()


@both
@pytest.mark.parametrize(("scheme", "login"), [("ws", ""), ("nats-leaf", 'username: "u", password: "p:w"')])
async def test_a_tunnel_carries_a_leaf_node(tmp_path: Path, kind: Kind, scheme: str, login: str) -> None:
    websocket, plain = quiet_ports(2)
    hub_text = f"leafnodes {{ listen: '127.0.0.1:{plain}' }}\n"
    hub_text += f"websocket {{ listen: '127.0.0.1:{websocket}', no_tls: true }}\n"
    address = f"127.0.0.1:{websocket if scheme == 'ws' else plain}"
    async with running(Proxy()) as proxy:
        text = leaf(f"{scheme}://{address}", f'url: "http://127.0.0.1:{proxy.port}", {login}')
        with ConfServer(tmp_path / "hub", "natsctl", hub_text) as hub, ConfServer(tmp_path / "s", kind, text) as spoke:
            await crosses(hub, spoke)
        lines = proxy.requests[0].decode().split("\r\n")
        assert lines[:2] == [f"CONNECT {address} HTTP/1.1", f"Host: {address}"]
        wanted = f"Proxy-Authorization: Basic {base64.b64encode(b'u:p:w').decode()}"
        assert (wanted in lines) is bool(login)


@both
async def test_a_proxy_may_be_under_tls(tmp_path: Path, kind: Kind) -> None:
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("proxy", dns=["localhost"], addresses=["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    (port,) = quiet_ports(1)
    async with running(Proxy(), context) as proxy:
        url, trusted = f'url: "https://localhost:{proxy.port}"', f"tls {{ ca_file: {json.dumps(str(authority.cert))} }}"
        hub_text = f"leafnodes {{ listen: '127.0.0.1:{port}' }}\n"
        remote = f"nats-leaf://127.0.0.1:{port}"
        with ConfServer(tmp_path / "hub", "natsctl", hub_text) as hub:
            with ConfServer(tmp_path / "s", kind, leaf(remote, f"{url}, {trusted}")) as spoke:
                await crosses(hub, spoke)
            with ConfServer(tmp_path / "u", kind, leaf(remote, url)) as spoke:
                await asyncio.to_thread(
                    spoke.await_line, "proxy TLS handshake failed: tls: failed to verify certificate"
                )


@both
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (REFUSED, "proxy CONNECT failed: 407 Proxy Authentication Required"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "proxy CONNECT failed: 502 Bad Gateway"),
        (b"", "failed to read proxy response: (unexpected )?EOF"),
        (b"SSH-2.0-x\r\n\r\n", "failed to read proxy response: malformed HTTP "),
    ],
)
async def test_a_proxy_that_makes_no_tunnel_is_asked_again(tmp_path: Path, kind: Kind, answer: bytes, why: str) -> None:
    (port,) = quiet_ports(1)
    hub_text = f"leafnodes {{ listen: '127.0.0.1:{port}' }}\n"
    async with running(Proxy(answer)) as proxy:
        text = leaf(f"nats-leaf://127.0.0.1:{port}", f'url: "http://127.0.0.1:{proxy.port}"')
        with ConfServer(tmp_path / "hub", "natsctl", hub_text) as hub, ConfServer(tmp_path / "s", kind, text) as spoke:
            await asyncio.to_thread(
                spoke.await_line,
                f'Error trying to connect as leafnode to remote server "127.0.0.1:{port}" \\(attempt 1\\): {why}',
            )
            await crosses(hub, spoke)


@both
def test_a_proxy_that_is_not_there_is_named(tmp_path: Path, kind: Kind) -> None:
    hub, port = quiet_ports(2)
    text = leaf(f"ws://127.0.0.1:{hub}", f'url: "http://127.0.0.1:{port}"')
    with ConfServer(tmp_path, kind, text) as server:
        server.await_line(f"failed to connect to proxy: dial tcp 127.0.0.1:{port}: connect: connection refused")


async def test_an_answer_without_end_is_bounded(tmp_path: Path) -> None:
    (port,) = quiet_ports(1)
    async with running(Proxy(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000)) as proxy:
        text = leaf(f"nats-leaf://127.0.0.1:{port}", f'url: "http://127.0.0.1:{proxy.port}"')
        with ConfServer(tmp_path, "natsctl", text) as server:
            await asyncio.to_thread(server.await_line, "failed to read proxy response: the answer is too long")


@both
async def test_a_silent_proxy_has_its_time(tmp_path: Path, kind: Kind) -> None:
    writers: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda reader, writer: writers.append(writer), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    text = leaf("nats-leaf://127.0.0.1:1", f'url: "http://127.0.0.1:{port}", timeout: "200ms"')
    with ConfServer(tmp_path, kind, text) as server:
        await asyncio.to_thread(server.await_line, "failed to read proxy response: .*i/o timeout")
    silent.close()
    for writer in writers:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def test_an_empty_block_is_no_proxy_and_no_password_is_shown() -> None:
    def remote(text: str) -> object:
        leafnodes = apply(load_text(f"leafnodes {{ remotes: [{{ {text} }}] }}", {}), ServerOptions()).leafnodes
        return leafnodes.remotes[0].proxy

    assert remote('url: "ws://a", proxy {}') is None
    assert "secret" not in repr(remote('url: "ws://a", proxy { url: "https://b", username: u, password: secret }'))
