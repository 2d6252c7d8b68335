import asyncio
import contextlib
import ssl
import subprocess
from pathlib import Path

import pytest

from natsctl.server.instance import ServerInstance
from natsctl.server.options import ServerOptions, TlsOptions
from natsctl.server.thread import ServerThread


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a self-signed certificate that also serves as its own authority."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


async def talk(server: ServerThread, context: ssl.SSLContext) -> bytes:
    """Return what the server says to a PING after INFO in clear and the handshake."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        info = await reader.readline()
        assert b'"tls_required":true' in info
        await writer.start_tls(context, server_hostname="localhost")
        writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
        return await asyncio.wait_for(reader.readline(), 5)
    finally:
        writer.transport.abort()


def options(files: Path, *, verify: bool = False) -> ServerOptions:
    tls = TlsOptions(files / "cert.pem", files / "key.pem", files / "cert.pem" if verify else None, verify)
    return ServerOptions(host="127.0.0.1", port=-1, tls=tls)


async def test_info_comes_in_clear_and_everything_else_under_tls(files: Path) -> None:
    with ServerThread(options(files)) as server:
        context = ssl.create_default_context(cafile=files / "cert.pem")
        for _ in range(20):  # the handshake races with the server's own steps
            assert await talk(server, context) == b"PONG\r\n"
        assert server.url.startswith("tls://")


async def test_a_client_that_talks_in_clear_is_closed(files: Path) -> None:
    with ServerThread(options(files)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await reader.readline()
        writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert b"PONG" not in await asyncio.wait_for(reader.read(), 5)
        writer.transport.abort()


async def test_a_verifying_server_takes_only_clients_with_a_certificate(files: Path) -> None:
    with ServerThread(options(files, verify=True)) as server:
        context = ssl.create_default_context(cafile=files / "cert.pem")
        with pytest.raises((OSError, AssertionError)):
            assert await talk(server, context) == b"PONG\r\n"
        context.load_cert_chain(files / "cert.pem", files / "key.pem")
        assert await talk(server, context) == b"PONG\r\n"


async def test_a_client_that_talks_before_the_greeting_is_closed(files: Path) -> None:
    with ServerThread(options(files)) as server:
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
            with contextlib.suppress(ConnectionError):
                assert b"PONG" not in await asyncio.wait_for(reader.read(), 5)
            writer.transport.abort()


async def test_a_certificate_that_cannot_be_read_is_an_error_at_the_start(files: Path) -> None:
    tls = TlsOptions(files / "missing.pem", files / "key.pem")
    with pytest.raises(OSError):
        await ServerInstance(ServerOptions(host="127.0.0.1", port=-1, tls=tls)).start()
