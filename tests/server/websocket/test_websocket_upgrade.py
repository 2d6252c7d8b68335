import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import h11
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from natsctl.broker.auth.static_auth import User
from natsctl.server.options import WebSocketOptions
from natsctl.server.websocket.protocol import UpgradeError, Upgrader
from natsctl.testing.process import Kind
from tests.support.conf_server import ConfServer
from tests.support.tls_clients import PATIENCE_S, ListLog, serving, talking, until

from .upgrades import Frames, answer, comparable, request, said, upgraded

CLEAR = WebSocketOptions(-1, "127.0.0.1", no_tls=True)

REQUESTS = {
    "good": request(), "path": request("GET /any/where HTTP/1.1"), "query": request("GET /?a=b HTTP/1.1"),
    "mqtt": request("GET /mqtt HTTP/1.1"), "leafnode": request("GET /leafnode HTTP/1.1"),
    "post": request("POST / HTTP/1.1"), "head": request("HEAD / HTTP/1.1"),
    "old": request("GET / HTTP/1.0", Host=None), "no host": request(Host=None), "no upgrade": request(Upgrade=None),
    "other upgrade": request(Upgrade="h2c"),
    "listed upgrade": request(Upgrade="h2c, WebSocket", Connection="keep-alive, upgrade"),
    "no connection": request(Connection="close"), "no key": request(Sec_WebSocket_Key=None),
    "short key": request(Sec_WebSocket_Key="YWJj"), "version": request(Sec_WebSocket_Version="8"),
    "compression": request(Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits"),
    "other extension": request(Sec_WebSocket_Extensions="x-webkit-deflate-frame"),
    "no masking": request(Nats_No_Masking="true"), "same origin": request(Origin="http://example.com"),
    "same origin with port": request(Origin="http://EXAMPLE.com:80"),
    "other scheme": request(Origin="https://example.com"), "other origin": request(Origin="http://evil.com"),
    "other port": request(Origin="http://example.com:81"), "no origin at all": request(Origin="nonsense"),
    "host without its bracket": request(Host="[x", Origin="http://example.com"),
    "host of many colons": request(Host="a:b:c", Origin="http://example.com"),
    "not http": b"CONNECT {}\r\nPING\r\n\r\n", "early frames": request() + said(b"PING\r\n"),
    "body": request(Content_Length="3") + b"abc",
    "empty chunked body": request(Transfer_Encoding="chunked") + b"0\r\n\r\n",
    "chunked body": request(Transfer_Encoding="chunked") + b"3\r\nabc\r\n0\r\n\r\n",
    "other transfer encoding": request(Transfer_Encoding="identity"),
    "lines end in newlines": request().replace(b"\r\n", b"\n"), "head too long": request(Cookie="x" * 2_000_000),
}  # fmt: skip


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Kind, int]]:
    folder = tmp_path_factory.mktemp("upgrades")
    text = (
        'websocket { listen: "127.0.0.1:-1", no_tls: true, compression: true, same_origin: true, '
        'handshake_timeout: "5s", headers { X-Answered-By: us } }'
    )
    with ConfServer(folder / "a", "natsctl", text) as ours, ConfServer(folder / "b", "reference", text) as theirs:
        yield {server.kind: port_of(server) for server in (ours, theirs)}


def port_of(server: ConfServer) -> int:
    return int(server.ports()["websocket"][0].rpartition(":")[2])


@pytest.mark.reference
@pytest.mark.parametrize("name", REQUESTS)
async def test_requests_are_answered_as_the_reference_does(servers: dict[Kind, int], name: str) -> None:
    kinds: list[Kind] = ["natsctl", "reference"]
    answers = await asyncio.gather(*(answer(servers[kind], REQUESTS[name]) for kind in kinds))
    ours, theirs = map(comparable, answers)
    if name == "head too long":  # what was not read makes the end of the connection a reset, sooner or later
        ours, theirs = ours.removesuffix(b"<end>"), theirs.removesuffix(b"<end>")
    assert ours == theirs


@pytest_asyncio.fixture
async def log() -> AsyncIterator[ListLog]:
    yield ListLog()


async def test_why_a_request_was_refused_is_in_the_log(log: ListLog) -> None:
    options = replace(CLEAR, same_origin=True, allowed_origins=("https://app.example.com:8443",))
    async with serving(log, websocket=options) as server:
        port = server.port_of("websocket")
        for sent, reason in [
            (request("PUT / HTTP/1.1"), "request method must be GET"),
            (request(Upgrade="x"), "invalid value for header 'Upgrade'"),
            (request(Origin="http://example.com:1"), "origin not allowed: not same origin"),
            (request(Origin="http://example.com"), "origin not allowed: not in the allowed list"),
            (request(Host="a:b:c", Origin="http://a"), "origin not allowed: address a:b:c: too many colons in address"),
            (request(Host="[x", Origin="http://a"), "origin not allowed: address [x: missing ']' in address"),
        ]:
            await answer(port, sent, 0.05)
            assert log.said(f"websocket handshake error: {reason}")


async def test_an_allowed_origin_comes_in(log: ListLog) -> None:
    async with serving(websocket=replace(CLEAR, allowed_origins=("https://app.example.com",))) as server:
        port = server.port_of("websocket")
        assert b" 101 " in await answer(port, request(Origin="https://APP.example.com:443"), 0.05)
        assert b" 403 " in await answer(port, request(Origin="https://app.example.com:444"), 0.05)


async def test_a_request_that_does_not_end_is_cut_off_in_time() -> None:
    async with serving(websocket=CLEAR) as server:
        port, upgrader = server.port_of("websocket"), server.upgrader
        async with upgraded(port) as good:
            good.send(said(b'CONNECT {"verbose":false}\r\nPING\r\n'))
            assert (await good.next())[1] == b"PONG\r\n"
            upgrader.replace(replace(CLEAR, handshake_timeout_s=0.2))
            crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
            for _, writer in crowd[:10]:
                writer.write(request()[:-2])
            for reader, writer in crowd:
                with contextlib.suppress(ConnectionError):
                    assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
                writer.transport.abort()
            good.send(said(b"PING\r\n"))
            assert (await good.next())[1] == b"PONG\r\n"


async def test_the_listener_has_its_own_info() -> None:
    async with serving(websocket=CLEAR) as server, upgraded(server.port_of("websocket")) as client:
        info = json.loads(client.info[5:])
        assert (info["host"], info["port"]) == ("127.0.0.1", server.port_of("websocket"))
        assert not {"tls_required", "tls_available", "connect_urls", "ws_connect_urls"} & info.keys()


async def told(client: Frames, connect: dict[str, object] | None = None) -> bytes:
    body = json.dumps({"verbose": False, **(connect or {})}).encode()
    client.send(said(b"CONNECT " + body + b"\r\nPING\r\n"))
    return (await client.next())[1]


COOKIES = replace(CLEAR, user_cookie="who", pass_cookie="pass", token_cookie="tok")
VIOLATION = b"-ERR 'Authorization Violation'\r\n"


@pytest.mark.parametrize(
    ("cookie", "connect", "answered"),
    [
        ("who=ann; other=x; pass=pw", {}, b"PONG\r\n"), ('who="ann"; pass=pw', {}, b"PONG\r\n"),
        ("who=ann; pass=wrong", {}, VIOLATION), ("who=ann; pass=wrong", {"pass": "pw"}, b"PONG\r\n"),
        ("who=ann; pass=pw", {"user": "bob"}, VIOLATION), ("pass=pw", {}, VIOLATION),
        ("nonsense", {"user": "ann", "pass": "pw"}, b"PONG\r\n"),
    ],
)  # fmt: skip
async def test_cookies_say_what_connect_leaves_out(cookie: str, connect: dict[str, object], answered: bytes) -> None:
    async with (
        serving(websocket=COOKIES, users=(User("ann", "pw"),)) as server,
        upgraded(server.port_of("websocket"), Cookie=cookie) as client,
    ):
        assert await told(client, connect) == answered


CASES: dict[str, bool] = {
    "who=ann; pass=pw": True, "who=ann;pass=pw;": True, " who = ann; pass=pw": False, "who =ann; pass=pw": True,
    "who=bob; who=ann; pass=pw": True, "who=ann; who=bob; pass=pw": False,
    "who=ann; pass=pw\r\nCookie: who=bob": False, "who=bob; pass=pw\r\nCookie: who=ann": True,
    "who=ann; who; pass=pw": False, "who=ann; who=; pass=pw": False, 'who=ann; who="; pass=pw': True,
    'who=ann; who=b"ob; pass=pw': True, "who=ann; who=b\\ob; pass=pw": True, "who=ann; who=b\xf6b; pass=pw": True,
    "who=ann; who=b,ob; pass=pw": False, 'who=""; who=ann; pass="pw"': True, 'who=ann ; pass="pw" ': True,
    "Who=ann; pass=pw": False, "who=ann, pass=pw": False, "wh(o=bob; who=ann; pass=pw": True,
    "who=ann; pass=pw" + "; a=b" * 2998: True, "who=ann; pass=pw" + "; a=b" * 2999: False,
}  # fmt: skip
"""What a request brings along, and whether it lets in a user."""


@pytest.mark.parametrize("kind", ["natsctl", "reference"])
async def test_cookies_are_read_as_nats_server_reads_them(kind: Kind, tmp_path: Path) -> None:
    text = (
        "authorization { users: [ { user: ann, password: pw } ] }\n"
        'websocket { listen: "127.0.0.1:-1", no_tls: true, user_cookie: who, pass_cookie: pass }\n'
    )
    admitted = {}
    with ConfServer(tmp_path, kind, text) as server:
        for cookie in CASES:
            async with talking(port_of(server)) as talk:
                talk.writer.write(request(Cookie="%").replace(b"%", cookie.encode("latin-1")))
                await asyncio.wait_for(talk.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
                frames = Frames(talk)
                await frames.next()
                admitted[cookie] = await told(frames) == b"PONG\r\n"
    assert admitted == CASES


def test_a_cookie_that_is_named_twice_counts_once() -> None:
    upgrader = Upgrader(replace(COOKIES, user_cookie="same", pass_cookie="same"), 100)
    head = h11.Connection(h11.SERVER)
    head.receive_data(request(Cookie="same=x"))
    event = head.next_event()
    assert isinstance(event, h11.Request)
    assert upgrader.upgrade(event, secure=False).cookies == {"user": "x"}


async def test_a_token_comes_by_cookie() -> None:
    async with (
        serving(websocket=COOKIES, token="s3cret") as server,
        upgraded(server.port_of("websocket"), Cookie="tok=s3cret") as client,
    ):
        assert await told(client) == b"PONG\r\n"


async def test_the_listener_has_a_login_of_its_own() -> None:
    async with serving(websocket=replace(CLEAR, token="ws")) as server:
        port = server.port_of("websocket")
        async with upgraded(port) as client:
            assert json.loads(client.info[5:])["auth_required"]
            assert await told(client, {"auth_token": "ws"}) == b"PONG\r\n"
        async with upgraded(port) as client:
            assert await told(client) == VIOLATION


async def test_silent_clients_of_the_listener_are_somebody_else() -> None:
    users = (User("ann", "pw"), User("guest", "x"))
    async with (
        serving(websocket=replace(CLEAR, no_auth_user="guest"), users=users) as server,
        upgraded(server.port_of("websocket")) as client,
    ):
        assert await told(client) == b"PONG\r\n"
        assert [s.user for s in server.broker.sessions.values()] == ["guest"]


async def test_a_proxy_names_its_client_in_the_log(log: ListLog) -> None:
    async with serving(log, websocket=CLEAR) as server:
        port = server.port_of("websocket")
        async with upgraded(port, X_Forwarded_For="1.2.3.4"), upgraded(port, X_Forwarded_For="::1"):
            await until(lambda: sum(" - wid:" in line for line in log.lines) == 2)
        assert log.said("[DBG] 1.2.3.4/127.0.0.1:") and log.said("[DBG] [::1]/127.0.0.1:")


async def test_other_options_are_for_the_next_request() -> None:
    async with serving(websocket=CLEAR) as server:
        upgrader = server.upgrader
        with pytest.raises(ValueError, match="unable to parse allowed origin"):
            upgrader.replace(replace(CLEAR, allowed_origins=("nonsense",)))
        port = server.port_of("websocket")
        assert b" 101 " in await answer(port, request(Origin="http://evil.com"), 0.05)
        upgrader.replace(replace(CLEAR, same_origin=True))
        assert b" 403 " in await answer(port, request(Origin="http://evil.com"), 0.05)


@given(
    cuts=st.lists(st.integers(0, 400), max_size=3),
    junk=st.lists(st.tuples(st.integers(0, 300), st.binary(max_size=6)), max_size=4),
)
def test_any_request_is_upgraded_or_refused(cuts: list[int], junk: list[tuple[int, bytes]]) -> None:
    sent = bytearray(request(Origin="http://a.com:80", Cookie='who="a"; pass', X_Forwarded_For="::1"))
    for at, data in junk:
        sent[at:at] = data
    for at in cuts:
        del sent[at : at + 5]
    upgrader = Upgrader(replace(COOKIES, same_origin=True, allowed_origins=("http://a.com",)), 100)
    http = h11.Connection(h11.SERVER)
    http.receive_data(bytes(sent))
    try:
        event = http.next_event()
    except h11.RemoteProtocolError:
        return
    if isinstance(event, h11.Request):
        try:
            assert upgrader.upgrade(event, secure=False).answer.startswith(b"HTTP/1.1 101 ")
        except UpgradeError as refused:
            assert 400 <= refused.status < 500
