import asyncio
import json
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from OpenSSL import SSL

from natsctl.broker.auth.static_auth import User
from natsctl.broker.refusals import CloseReason
from natsctl.server.instance import ServerInstance
from natsctl.server.listener import joined
from natsctl.server.ocsp.stapling import StapledContexts
from natsctl.server.options import LeafNodesOptions, ServerOptions, TlsOptions, WebSocketOptions
from natsctl.server.process import reload as reload_module
from natsctl.server.process.reload import Reloader
from natsctl.server.resources import new_event_loop
from natsctl.server.tls import contexts as tls_module
from natsctl.server.tls import listener_tls
from natsctl.server.tls.certificates import public_key_sha256
from natsctl.server.tls.contexts import TlsFileError
from natsctl.server.tls.listener import THROTTLED
from natsctl.server.tls.listener_tls import ListenerTls
from natsctl.testing.certificates import Issued
from tests.server.websocket.upgrades import request, said
from tests.support.tls_clients import HELLO, PATIENCE_S, Files, ListLog, Visit, answered, serving, talking, until, visit


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(autouse=True, params=["ssl", "pyOpenSSL"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The library under the listeners: Python's own, and the one of listeners that staple."""
    if request.param == "pyOpenSSL":

        def stapled(options: TlsOptions) -> StapledContexts:
            return StapledContexts(options, {})

        monkeypatch.setattr(tls_module, "TlsContexts", stapled)
        monkeypatch.setattr(reload_module, "TlsContexts", stapled)
    return request.param


def info(line: bytes) -> dict[str, object]:
    assert line.startswith(b"INFO "), line
    return json.loads(line[5:])


async def test_info_comes_in_clear_and_everything_else_under_tls(files: Files) -> None:
    async with serving(tls=files.tls()) as server:
        assert server.url.startswith("tls://")
        for _ in range(3):
            async with talking(server.port) as talk:
                said = info(await talk.line())
                assert said["tls_required"] and "tls_available" not in said and "tls_verify" not in said
                await talk.secure(files.client())
                assert await talk.ask() == b"PONG\r\n"


async def test_the_session_knows_what_the_handshake_settled(files: Files) -> None:
    async with serving(tls=files.tls()) as server, talking(server.port) as talk:
        await talk.line()
        context = files.client()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        await talk.secure(context)
        await talk.ask()
        facts = next(iter(server.broker.sessions.values())).tls
        assert (facts.version, facts.cipher) == ("1.2", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
        assert not facts.first and facts.peer_certificates == ()


async def test_a_client_that_talks_in_clear_is_closed_and_counted_as_a_failed_handshake(files: Files) -> None:
    log = ListLog()
    async with serving(log, tls=files.tls()) as server:
        for early in (False, True):
            async with talking(server.port) as talk:
                if not early:
                    await talk.line()
                talk.writer.write(HELLO)
                assert b"PONG" not in await talk.rest()
        await until(lambda: len(server.broker.closed) == 2)
        assert {s.close_reason for s in server.broker.closed} == {CloseReason.TLS_HANDSHAKE_ERROR}
        assert log.said("TLS handshake error: tls: first record does not look like a TLS handshake")
        assert log.said("Client connection closed: TLS Handshake Failure")


async def test_a_handshake_that_does_not_come_ends_in_time_and_holds_nobody_up(files: Files) -> None:
    log = ListLog()
    async with serving(log, tls=files.tls()) as server, talking(server.port) as good:
        await good.line()
        await good.secure(files.client())
        assert await good.ask() == b"PONG\r\n"
        server.listener_tls["clients"].replace(files.tls(timeout_s=0.2))
        async with talking(server.port) as idle, talking(server.port) as half:
            half.writer.write(b"\x16\x03\x01\x02\x00\x01\x00")
            assert info(await idle.line()) and await idle.rest() == b""
            assert info(await half.line()) and await half.rest() == b""
            assert await good.ask(b"PING\r\n") == b"PONG\r\n"
        assert log.said("i/o timeout") and log.said("TLS handshake timeout")


async def test_a_crowd_of_half_open_connections_leaves_the_others_served(files: Files) -> None:
    async with serving(tls=files.tls(timeout_s=PATIENCE_S)) as server:
        crowd = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(50)]
        for number, (_, writer) in enumerate(crowd):
            writer.write(b"\x16\x03\x01\x02\x00\x01\x00"[: number % 8])
        async with talking(server.port) as good:
            await good.line()
            await good.secure(files.client())
            assert await good.ask() == b"PONG\r\n"
        for _, writer in crowd:
            writer.transport.abort()
        await until(lambda: not server.broker.sessions)


async def test_a_handshake_that_comes_byte_by_byte_is_taken(files: Files) -> None:
    async with serving(tls=files.tls()) as server, talking(server.port) as talk:
        await talk.line()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = files.client().wrap_bio(incoming, outgoing, server_hostname="localhost")
        talk.writer.get_extra_info("socket").setsockopt(6, 1, 1)
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                for byte in outgoing.read():
                    talk.writer.write(bytes([byte]))
                    await asyncio.sleep(0)
                incoming.write(await asyncio.wait_for(talk.reader.read(65536), PATIENCE_S))
        client.write(HELLO)  # leaves together with the end of the handshake
        talk.writer.write(outgoing.read())
        answer = b""
        while b"PONG" not in answer:
            incoming.write(await asyncio.wait_for(talk.reader.read(65536), PATIENCE_S))
            try:
                answer += client.read(65536)
            except ssl.SSLWantReadError:
                continue


async def test_with_handshake_first_nothing_is_said_in_clear(files: Files) -> None:
    async with serving(tls=files.tls(handshake_first=True), allow_non_tls=True) as server:
        async with talking(server.port, files.client()) as talk:
            assert info(await talk.line())["tls_required"]
            assert await talk.ask() == b"PONG\r\n"
            facts = next(iter(server.broker.sessions.values())).tls
            assert facts is not None and facts.first
        server.listener_tls["clients"].replace(files.tls(handshake_first=True, timeout_s=0.1), allow_non_tls=True)
        async with talking(server.port) as clear:
            assert await clear.rest() == b""


async def test_with_a_fallback_info_comes_in_clear_where_no_handshake_does(files: Files) -> None:
    async with serving(tls=files.tls(handshake_first=True, fallback_s=1.0)) as server:
        async with talking(server.port, files.client()) as first:
            await first.line()
            assert await first.ask() == b"PONG\r\n"
        async with talking(server.port) as patient:
            assert info(await patient.line())["tls_required"]
            await patient.secure(files.client())
            assert await patient.ask() == b"PONG\r\n"


async def test_a_verifying_server_takes_only_clients_with_a_certificate_it_trusts(files: Files) -> None:
    log = ListLog()
    good = files.authority.issue("good", attributes=[("C", "CH"), ("O", "Org"), ("CN", "good")])
    bad = files.stranger.issue("bad")
    old = files.authority.issue("old", days=-1)
    async with serving(log, tls=files.tls(verify=True)) as server:
        for issued in (None, bad, old):
            assert await answered(server.port, files.client(issued)) == b""
        async with talking(server.port) as talk:
            assert info(await talk.line())["tls_verify"]
            await talk.secure(files.client(good))
            assert await talk.ask() == b"PONG\r\n"
            facts = next(s.tls for s in server.broker.sessions.values() if s.tls)
            assert facts.peer_certificates[0].subject == "CN=good,O=Org,C=CH"
        assert log.said("TLS handshake error: tls: client didn't provide a certificate")
        assert log.said("tls: failed to verify certificate: x509: certificate signed by unknown authority")
        assert log.said("tls: failed to verify certificate: x509: certificate has expired or is not yet valid")


async def test_only_pinned_certificates_come_in(files: Files) -> None:
    pinned, other = files.authority.issue("pinned"), files.authority.issue("other")
    digest = public_key_sha256(ssl.PEM_cert_to_DER_cert(pinned.cert.read_text()))
    log = ListLog()
    async with serving(log, tls=files.tls(verify=True, pinned_certs=frozenset({digest}))) as server:
        assert await answered(server.port, files.client(pinned)) == b"PONG\r\n"
        assert await answered(server.port, files.client(other)) == b""
    assert log.said("TLS handshake error: certificate not pinned")


Visitor = Callable[..., Awaitable[Visit]]


@asynccontextmanager
async def visited(
    way: str, tls: TlsOptions, log: ListLog | None = None, **options: Any
) -> AsyncIterator[tuple[ServerInstance, Visitor]]:
    """Serve one kind of listener, and yield with the server how clients visit it."""
    if way == "websocket":
        options["websocket"] = WebSocketOptions(host="127.0.0.1", port=-1, tls=tls)
    elif way == "leafnodes":
        options["leafnodes"] = LeafNodesOptions("127.0.0.1", -1, tls, options.pop("users", ()))
    else:
        options["tls"] = replace(tls, handshake_first=way == "handshake first")
    framed: dict[str, Any] = {"request": request(), "hello": said(HELLO)} if way == "websocket" else {}
    greeted = way in ("clients", "leafnodes")
    async with serving(log, **options) as server:
        yield server, partial(asyncio.to_thread, visit, server.port_of(way) or server.port, greeted=greeted, **framed)


@pytest.mark.parametrize("stateless", [True, False], ids=["ticket", "session id"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("way", ["clients", "handshake first", "websocket", "leafnodes"])
async def test_a_client_that_comes_again_shows_its_certificate_again(
    files: Files, way: str, version: ssl.TLSVersion, stateless: bool
) -> None:
    user = files.authority.issue("user", emails=["ann@nats.io"])
    context = files.client(user)
    context.minimum_version = context.maximum_version = version
    if not stateless:
        context.options |= ssl.OP_NO_TICKET
    tls = files.tls(verify=True, verify_and_map=True)
    async with visited(way, tls, users=(User("ann@nats.io", ""),)) as (_, visits):
        seen = await visits(context)
        for _ in range(4):
            assert seen.heard.endswith(b"PONG\r\n") and not seen.resumed
            seen = await visits(context, seen.session)


async def test_a_session_is_resumed_where_nobody_is_asked_for_a_certificate(files: Files) -> None:
    context = files.client()
    async with visited("clients", files.tls()) as (_, visits):
        seen = await visits(context)
        assert (await visits(context, seen.session)).resumed


@pytest.mark.parametrize("way", ["clients", "leafnodes"])
async def test_a_reload_closes_who_has_a_certificate_that_is_pinned_no_longer(
    files: Files, tmp_path: Path, way: str
) -> None:
    kept, gone = files.authority.issue("kept"), files.authority.issue("gone")
    pins = [public_key_sha256(ssl.PEM_cert_to_DER_cert(issued.cert.read_text())) for issued in (kept, gone)]
    path = tmp_path / "nats.conf"
    path.touch()
    plain = ServerOptions(host="127.0.0.1", port=-1, config_file=path)

    def pinning(count: int) -> ServerOptions:
        tls = files.tls(verify=True, pinned_certs=frozenset(pins[:count]))
        return replace(
            plain, **({"tls": tls} if way == "clients" else {"leafnodes": LeafNodesOptions("127.0.0.1", -1, tls)})
        )

    hello = HELLO if way == "clients" else b'CONNECT {"name":"leaf"}\r\nPING\r\n'
    async with ServerInstance(pinning(2)) as server:
        port = server.port_of(way)
        async with talking(port) as first, talking(port) as second:
            for talk, issued in ((first, kept), (second, gone)):
                await talk.line()
                await talk.secure(files.client(issued))
                talk.writer.write(hello)
                while await talk.line() != b"PONG\r\n":
                    pass
            Reloader(server, lambda: pinning(1), pinning(2)).reload()
            assert b"PONG" not in await second.rest()
            while await first.ask(b"PING\r\n") != b"PONG\r\n":
                pass


def test_the_time_for_connect_that_is_said_holds_under_tls_too(files: Files) -> None:
    tls = replace(files.tls(), timeout_s=5.0)
    assert ServerOptions().login_timeout_s == 2
    assert ServerOptions(tls=tls).login_timeout_s == 6
    assert ServerOptions(tls=tls, auth_timeout_s=2).login_timeout_s == 2


async def test_no_client_renegotiates(files: Files) -> None:
    def renegotiated(port: int) -> str:
        context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        context.set_max_proto_version(SSL.TLS1_2_VERSION)
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as raw:
            while not raw.recv(65536).endswith(b"\n"):
                pass
            raw.settimeout(None)
            connection = SSL.Connection(context, raw)
            connection.set_connect_state()
            connection.do_handshake()
            assert connection.renegotiate()
            try:
                connection.do_handshake()
            except SSL.Error as refusal:
                return str(refusal)
        return "renegotiated"

    async with serving(tls=files.tls()) as server:
        assert "no renegotiation" in await asyncio.to_thread(renegotiated, server.port)


async def test_a_minimum_version_holds(files: Files) -> None:
    async with serving(tls=files.tls(min_version="1.3")) as server:
        for version, comes_in in ((ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_3, True)):
            context = files.client()
            context.maximum_version = version
            assert await answered(server.port, context) == (b"PONG\r\n" if comes_in else b"")


async def test_the_name_that_a_client_asks_for_chooses_the_certificate(files: Files) -> None:
    one = files.authority.issue("one", dns=["one.test"])
    two = files.authority.issue("two", dns=["two.test", "*.two.test"])
    tls = TlsOptions(certs=((one.cert, one.key), (two.cert, two.key)))
    async with serving(tls=tls) as server:
        for name in ("one.test", "two.test", "a.two.test"):
            assert await answered(server.port, files.client(), name) == b"PONG\r\n"


async def test_new_files_are_for_new_connections(files: Files) -> None:
    async with serving(tls=files.tls()) as server, talking(server.port) as before:
        await before.line()
        await before.secure(files.client())
        await before.ask()
        changed = files.authority.issue("changed", dns=["changed.test"])
        served = server.listener_tls["clients"]
        with pytest.raises(TlsFileError):
            served.replace(replace(files.tls(), cert_file=files.folder / "missing.pem"))
        served.replace(TlsOptions(changed.cert, changed.key))
        assert await answered(server.port, files.client(), "changed.test") == b"PONG\r\n"
        assert await before.ask(b"PING\r\n") == b"PONG\r\n"


async def test_more_handshakes_than_the_rate_allows_are_refused_in_clear(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_tls, "RATE_WINDOW_S", 60.0)  # longer than all of this takes
    log = ListLog()
    async with serving(log, tls=files.tls(connection_rate_limit=3)) as server:
        told = [await answered(server.port, files.client()) for _ in range(8)]
        assert told == [b"PONG\r\n"] * 3 + [b""] * 5
        async with talking(server.port) as talk:
            await talk.line()
            assert await talk.line() == f"-ERR '{THROTTLED}'\r\n".encode()
            assert await talk.rest() == b""
        rejected = re.compile(r"Rejected (\d+) connections due to TLS rate limiting$")  # told once a second
        await until(lambda: sum(int(found[1]) for line in log.lines if (found := rejected.search(line))) == 6)
        reasons = [s.close_reason for s in server.broker.closed]
        assert reasons.count(CloseReason.MAX_CONNECTIONS_EXCEEDED) == 6


async def test_a_client_that_does_not_read_is_cut_off_under_tls_too(files: Files) -> None:
    async with (
        serving(tls=files.tls(), max_pending=4 << 20) as server,
        talking(server.port) as slow,
        talking(server.port) as fast,
    ):
        for talk in (slow, fast):
            await talk.line()
            await talk.secure(files.client())
            await talk.ask()
        assert await slow.ask(b"SUB a 1\r\nPING\r\n") == b"PONG\r\n"
        slow.writer.transport.pause_reading()
        block = b"PUB a 500000\r\n" + b"x" * 500_000 + b"\r\n"
        for _ in range(60):
            fast.writer.write(block)
            assert await fast.ask(b"PING\r\n") == b"PONG\r\n"
        await until(lambda: server.broker.slow_consumers == 1)


def test_a_key_of_another_certificate_is_refused(files: Files) -> None:
    one, two = files.authority.issue("k1"), files.authority.issue("k2")
    mixed = Issued(one.cert, two.key)
    with pytest.raises(TlsFileError, match="private key does not match public key"):
        ListenerTls(TlsOptions(mixed.cert, mixed.key))


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@pytest.mark.parametrize("way", ["clients", "handshake first", "websocket", "leafnodes"])
def test_a_connection_that_was_reset_leaves_its_address_in_the_log_or_nothing(files: Files, way: str) -> None:
    async def log_of_resets() -> list[str]:
        log = ListLog()
        async with visited(way, files.tls(), log=log) as (server, visits):
            port = server.port_of(way) or server.port
            reset(socket.create_connection(("127.0.0.1", port)))  # before the loop can accept it
            assert b"PONG" in (await visits(files.client())).heard
            sock = socket.create_connection(("127.0.0.1", port))
            sock.sendall(b"\x16\x03\x01\x02\x00\x01")
            address = joined(*sock.getsockname())
            if way != "websocket":  # which is silent until there is a request
                await until(lambda: log.said(f"{address} - "))
            reset(sock)
            if way != "websocket":
                await until(lambda: log.said(f"->{address}: read: connection reset by peer"))
        return log.lines

    with asyncio.Runner(loop_factory=new_event_loop) as runner:  # uvloop, where there is one: asyncio keeps addresses
        lines = runner.run(log_of_resets())
    assert not [line for line in lines if " :0 -" in line or "from :0" in line]
