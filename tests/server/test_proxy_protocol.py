"""The PROXY protocol, whole and in pieces; trusted proxies, which sign the nonce for the clients that they pass on."""

import asyncio
import base64
import json
import random
import re
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.server import proxy_protocol
from natsctl.server.conf.config import apply
from natsctl.server.conf.syntax import ConfError, load_text
from natsctl.server.instance import ServerInstance
from natsctl.server.log.lines import Log
from natsctl.server.options import ServerOptions
from natsctl.server.proxy_protocol import MAX_LINE_BYTES, SIGNATURE, ProxyHeader, ProxyHeaderError
from natsctl.testing.certificates import Authority
from natsctl.testing.process import Kind
from tests.support.conf_server import PATIENCE_S, ConfServer, Wire
from tests.support.fuzz import proxy
from tests.support.operators import Key, Operator, base64url
from tests.support.servers import quiet_ports

KINDS = ["natsctl", "reference"]
both = pytest.mark.parametrize("kind", KINDS)
PROXY = "proxy_protocol: true\ndebug: true\n"
V4 = socket.inet_aton("192.0.2.7") + socket.inet_aton("192.0.2.1") + struct.pack(">HH", 1111, 4222)
V6 = socket.inet_pton(socket.AF_INET6, "2001:db8::7") + socket.inet_pton(socket.AF_INET6, "::1")
V6 += struct.pack(">HH", 1111, 4222)
MAPPED = socket.inet_pton(socket.AF_INET6, "::ffff:192.0.2.7") * 2 + struct.pack(">HH", 1111, 4222)
EXTENSIONS = b"\x04" + struct.pack(">H", 60_000) + b"x" * 60_000


def binary(command: int = 0x21, family: int = 0x11, body: bytes = V4) -> bytes:
    return SIGNATURE + bytes([command, family]) + struct.pack(">H", len(body)) + body


GOOD: dict[str, tuple[bytes, tuple[str, int] | None]] = {
    "line": (b"PROXY TCP4 192.0.2.7 192.0.2.1 1111 4222\r\n", ("192.0.2.7", 1111)),
    "line of IPv6": (b"PROXY TCP6 2001:DB8:0::7 ::1 1111 4222\r\n", ("2001:db8::7", 1111)),
    "line of IPv4 mapped to IPv6": (b"PROXY TCP6 ::ffff:192.0.2.7 ::ffff:1.1.1.1 1111 4222\r\n", ("192.0.2.7", 1111)),
    "line with more blanks": (b"PROXY  TCP4\t192.0.2.7  192.0.2.1 01111 4222 \r\n", ("192.0.2.7", 1111)),
    "unknown": (b"PROXY UNKNOWN\r\n", None), "unknown with words": (b"PROXY UNKNOWN ffff:: ::1 1 2\r\n", None),
    "longest unknown": (b"PROXY UNKNOWN ".ljust(MAX_LINE_BYTES - 2, b"x").replace(b" x", b" ", 1) + b"x\r\n", None),
    "binary": (binary(), ("192.0.2.7", 1111)), "binary of IPv6": (binary(0x21, 0x21, V6), ("2001:db8::7", 1111)),
    "binary of IPv4 mapped to IPv6": (binary(0x21, 0x21, MAPPED), ("192.0.2.7", 1111)),
    "binary with extensions": (binary(body=V4 + EXTENSIONS), ("192.0.2.7", 1111)),
    "local": (binary(0x20, 0x00, b""), None), "local with an address": (binary(0x20), None),
    "local with much": (binary(0x20, 0xFF, EXTENSIONS), None), "unspecified": (binary(0x21, 0x01, b"abc"), None),
}  # fmt: skip
INVALID = "invalid PROXY protocol header: "
UNSUPPORTED = "unsupported PROXY protocol feature: "
PORT = 'strconv.ParseUint: parsing "%s": %s'
BAD: dict[bytes, str] = {
    b"PROXY \r\n": f"{INVALID}invalid v1 format",
    b"PROXY TCP4\r\n": f"{INVALID}invalid v1 format",
    b"PROXY TCP4 192.0.2.7 192.0.2.1 1 2 3\r\n": f"{INVALID}invalid v1 format",
    b"PROXY TCP4 192.0.2 192.0.2.1 1 2\r\n": f"{INVALID}invalid address",
    b"PROXY TCP4 192.0.2.07 192.0.2.1 1 2\r\n": f"{INVALID}invalid address",
    b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n": f"{INVALID}invalid address",
    b"PROXY TCP4 192.0.2.7 here 1 2\r\n": f"{INVALID}invalid address",
    b"PROXY TCP4 192.0.2.7 192.0.2.1 1x 2\r\n": "invalid source port: " + PORT % ("1x", "invalid syntax"),
    b"PROXY TCP4 192.0.2.7 192.0.2.1 -1 2\r\n": "invalid source port: " + PORT % ("-1", "invalid syntax"),
    b"PROXY TCP4 192.0.2.7 192.0.2.1 1 65536\r\n": "invalid dest port: " + PORT % ("65536", "value out of range"),
    b"PROXY TCP4 ::1 ::1 1 2\r\n": f"{INVALID}TCP4 with IPv6 address",
    b"PROXY TCP6 192.0.2.7 ::1 1 2\r\n": f"{INVALID}TCP6 with IPv4 address",
    b"PROXY UDP4 192.0.2.7 192.0.2.1 1 2\r\n": f"{INVALID}invalid protocol UDP4",
    b"PROXY " + b"x" * 101: f"{INVALID}v1 line too long",
    b"PROXY UNKNOWN " + b"x" * 92 + b"\r\n": f"{INVALID}v1 line too long",
    SIGNATURE[:11] + b"X": f"{INVALID}invalid signature",
    binary(0x11): f"{INVALID}invalid version 0x10",
    binary(0x2F): "unknown PROXY protocol command: 0x0f",
    binary(0x21, 0x12): f"{UNSUPPORTED}only STREAM protocol supported",
    binary(0x21, 0x31): f"{UNSUPPORTED}unsupported address family 0x30",
    binary(0x21, 0x11, V4[:11]): "IPv4 address data too short: 11 bytes",
    binary(0x21, 0x21, V6[:35]): "IPv6 address data too short: 35 bytes",
}
BROKEN_OFF: dict[bytes, str] = {
    b"": "failed to read protocol version: EOF", b"PROX": "failed to read protocol version: unexpected EOF",
    b"PROXY TCP4": "failed to read v1 line: EOF", SIGNATURE[:6]: "failed to read v2 signature: EOF",
    SIGNATURE[:9]: "failed to read v2 signature: unexpected EOF", SIGNATURE: "failed to read v2 header: EOF",
    binary()[:14]: "failed to read v2 header: unexpected EOF",
    binary()[:16]: "failed to read IPv4 address data: EOF",
    binary()[:20]: "failed to read IPv4 address data: unexpected EOF",
    binary(0x21, 0x21, V6)[:20]: "failed to read IPv6 address data: unexpected EOF",
    binary(0x20)[:20]: "failed to discard LOCAL command address data: EOF",
}  # fmt: skip
NOT_HEADERS = [b"CONNECT {}\r\n", b"PING\r\nPING\r\n", b"PROXYTCP", b"proxy TCP4", b"\r\n\r\n\r\n\r\n"]


def read(pieces: list[bytes]) -> tuple[tuple[str, int] | None, bytes]:
    header, rest = ProxyHeader(), list(pieces)
    while rest:
        if header.feed(rest.pop(0)):
            return header.source, header.rest + b"".join(rest)
    raise AssertionError(header.broken_off())


@pytest.mark.parametrize("case", GOOD)
def test_a_header_is_read_in_any_pieces(case: str) -> None:
    data, source = GOOD[case]
    assert read([data + b"CONNECT"]) == (source, b"CONNECT")
    for cut in [*range(min(len(data), 400)), len(data) - 1]:
        assert read([data[:cut], data[cut:] + b"rest"]) == (source, b"rest")
    if len(data) < 400:
        assert read([bytes([byte]) for byte in data]) == (source, b"")


@pytest.mark.parametrize("data", BAD)
def test_a_faulty_header_is_refused_in_any_pieces(data: bytes) -> None:
    for cut in range(len(data)):
        header = ProxyHeader()
        with pytest.raises(ProxyHeaderError, match=re.escape(BAD[data])):
            header.feed(data[:cut])
            header.feed(data[cut:])


@pytest.mark.parametrize("data", NOT_HEADERS)
def test_bytes_that_are_no_header_are_the_clients(data: bytes) -> None:
    for cut in range(len(data)):
        assert read([data[:cut], data[cut:]]) == (None, data)


@given(st.integers(min_value=0))
def test_hostile_headers_are_read_or_refused_in_the_same_way_in_any_pieces(number: int) -> None:
    chance = random.Random(number)
    proxy.check(proxy.make(chance), chance)


# Over the wire, on both servers


@contextmanager
def serving(folder: Path, kind: Kind, text: str = PROXY) -> Iterator[ConfServer]:
    with ConfServer(folder, kind, text, monitoring=True) as server:
        yield server


def connection(server: ConfServer, cid: int) -> dict[str, Any]:
    return server.monitor(f"connz?cid={cid}&auth=1&state=any")["connections"][0]


@both
def test_the_address_of_the_header_is_the_clients(tmp_path: Path, kind: Kind) -> None:
    with serving(tmp_path, kind) as server:
        server.await_line(r"\[INF\] PROXY protocol enabled for client connections")
        for data, source in GOOD.values():
            with Wire(server.port, data) as wire:
                info = wire.info()
                assert "client_ip" not in info
                own = wire.sock.getsockname()
                assert wire.connect(name="n") == b"PONG"
                host, port = source or own
                shown = connection(server, info["client_id"])
                assert (shown["ip"], shown["port"], shown["name"]) == (host, port, "n")
                assert wire.info()["client_ip"] == host
        with Wire(server.port) as wire:
            assert wire.connect() == b"PONG"
            assert wire.info()["client_ip"] == "127.0.0.1"


@both
def test_a_faulty_header_closes_the_connection_with_a_line(tmp_path: Path, kind: Kind) -> None:
    with serving(tmp_path, kind) as server:
        lines = []
        for data, why in BAD.items():
            with Wire(server.port, data) as wire:
                info = wire.info()
                host, port = wire.sock.getsockname()
                assert wire.rest() == b""
            lines.append(f"[WRN] Error reading PROXY protocol header from {host}:{port}: {why}")
        assert server.reason(info["client_id"]) == "Protocol Violation"
        for data, why in BROKEN_OFF.items():
            with Wire(server.port, data) as wire:
                host, port = wire.sock.getsockname()
                wire.info()
                wire.sock.shutdown(socket.SHUT_WR)
                assert wire.rest() == b""
            lines.append(f"[WRN] Error reading PROXY protocol header from {host}:{port}: {why}")
        assert [line for line in server.lines() if "PROXY protocol header" in line] == lines


@both
def test_a_user_is_held_to_the_networks_of_its_jwt_by_the_header(tmp_path: Path, kind: Kind) -> None:
    operator = Operator()
    account = operator.account("A")
    user = operator.user(account, src=["192.0.2.0/24"])
    with serving(tmp_path, kind, operator.conf(PROXY)) as server:
        for header, answer in [
            (GOOD["line"][0], b"PONG"),
            (b"PROXY TCP4 198.51.100.1 192.0.2.1 1 2\r\n", b"-ERR 'Authorization Violation'"),
            (b"", b"-ERR 'Authorization Violation'"),
        ]:
            with Wire(server.port, header) as wire:
                assert wire.connect(**user.connect_options(wire.info()["nonce"])) == answer


TLS_MODES = {
    "required": ("", ""), "optional": ("", "allow_non_tls: true"), "first": ("handshake_first: true", ""),
    "auto": ("handshake_first: auto", ""), "auto, optional": ("handshake_first: auto", "allow_non_tls: true"),
}  # fmt: skip


@pytest.mark.parametrize("mode", TLS_MODES)
@both
def test_the_header_comes_before_the_handshake(tmp_path: Path, kind: Kind, mode: str) -> None:
    pair = Authority(tmp_path / "ca").issue("server", dns=["localhost"], addresses=["127.0.0.1"])
    inner, outer = TLS_MODES[mode]
    tls = f"tls {{ cert_file: {json.dumps(str(pair.cert))}, key_file: {json.dumps(str(pair.key))}, {inner} }}\n"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with serving(tmp_path / "server", kind, f"{PROXY}{tls}{outer}\n") as server:
        for name in ("line", "binary", "local"):
            data, source = GOOD[name]
            with Wire(server.port, data) as wire:
                own = wire.sock.getsockname()
                info = {} if "first" in inner else wire.info()
                wire.sock = context.wrap_socket(wire.sock)
                info = info or wire.info()
                assert wire.connect() == b"PONG"
                shown = connection(server, info["client_id"])
                assert (shown["ip"], shown["port"]) == (source or own)
                assert shown["tls_version"]
        if "allow_non_tls" in outer and not inner:
            with Wire(server.port, GOOD["line"][0]) as wire:
                info = wire.info()
                assert wire.connect() == b"PONG"
                assert connection(server, info["client_id"])["ip"] == "192.0.2.7"


@both
def test_other_listeners_read_no_header(tmp_path: Path, kind: Kind) -> None:
    leaf, websocket = quiet_ports(2)
    text = f"{PROXY}leafnodes {{ port: {leaf} }}\n"
    text += f'websocket {{ port: {websocket}, no_tls: true, handshake_timeout: "200ms" }}\n'
    with serving(tmp_path, kind, text) as server:
        for port in (leaf, websocket):
            with Wire(port, GOOD["line"][0]) as wire:
                wire.rest()
        assert server.monitor("varz")["connections"] == 0


# Time limits, on a clock that the test sets


@pytest.mark.parametrize(
    ("sent", "where"),
    [
        (b"", "failed to read protocol version"),
        (b"PROX", "failed to read protocol version"),
        (b"PROXY TCP4", "failed to read v1 line"),
        (binary()[:20], "failed to read IPv4 address data"),
        (binary(0x20, 0x00, EXTENSIONS)[:50], "failed to discard LOCAL command address data"),
    ],
)
async def test_a_header_has_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes, where: str) -> None:
    monkeypatch.setattr(proxy_protocol, "HEADER_S", 0.05)
    log = Log(tmp_path / "log", with_time=False)
    options = ServerOptions(host="127.0.0.1", port=-1, proxy_protocol=True, auth_timeout_s=0.01, user="a", password="b")
    async with ServerInstance(options, log) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        host, port = writer.get_extra_info("sockname")
        writer.write(sent)
        said = await asyncio.wait_for(reader.read(), PATIENCE_S)
        assert said.startswith(b"INFO ")
        assert said.count(b"\r\n") == 1
        writer.close()
    log.close()
    local = f"127.0.0.1:{server.port}"
    line = f"Error reading PROXY protocol header from {host}:{port}: {where}: "
    assert line + f"read tcp {local}->{host}:{port}: i/o timeout" in (tmp_path / "log").read_text()


async def test_the_time_for_a_login_begins_after_the_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_protocol, "HEADER_S", 60)
    options = ServerOptions(host="127.0.0.1", port=-1, proxy_protocol=True, auth_timeout_s=0.05, user="a", password="b")
    async with ServerInstance(options) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await reader.readline()
        assert not [session for session in server.broker.sessions.values() if session.timers.alarm_ns < 1 << 62]
        writer.write(GOOD["line"][0])
        assert await asyncio.wait_for(reader.readline(), PATIENCE_S) == b"-ERR 'Authentication Timeout'\r\n"
        writer.close()


VIOLATION = b"-ERR 'Authorization Violation'"
FIRST, SECOND, OTHER = Key("user"), Key("operator"), Key("account")


def proxies(*keys: Key) -> str:
    return f"proxies {{ trusted: [{', '.join(f'{{ key: {key.public} }}' for key in keys)}] }}\ndebug: true\n"


USERS = """
authorization {
  users: [
    { user: free, password: p }
    { user: bound, password: p, proxy_required: true }
  ]
}
"""


def shown(wire: Wire, key: Key | None, **options: Any) -> tuple[dict[str, Any], bytes]:
    """Return INFO, and the answer to a CONNECT that a proxy has signed."""
    info = wire.info()
    if key is not None:
        options["proxy_sig"] = base64url(key.sign(info["nonce"].encode()))
    return info, wire.connect(**options)


@both
@pytest.mark.parametrize("signature", ["!!!", "AAAA", base64.b64encode(b"\xff" * 64).decode()])
def test_a_signature_that_is_none_is_refused(tmp_path: Path, kind: Kind, signature: str) -> None:
    with ConfServer(tmp_path, kind, proxies(FIRST), monitoring=True) as server, Wire(server.port) as wire:
        info = wire.info()
        assert wire.connect(proxy_sig=signature) == VIOLATION
        assert server.reason(info["client_id"]) == "Proxy Not Trusted"


@both
def test_without_trusted_proxies_a_signature_means_nothing(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, USERS) as server:
        with Wire(server.port) as wire:
            assert "nonce" not in wire.info()
            assert wire.connect(proxy_sig="!!!", user="free", **{"pass": "p"}) == b"PONG"
        with Wire(server.port) as wire:
            assert wire.connect(user="bound", **{"pass": "p"}) == VIOLATION


USER, OPERATOR = Key("user"), Operator()
WITH_JWT = OPERATOR.user(OPERATOR.account("A"), proxy_required=True)
LOGINS: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "a single user": (
        "authorization { user: a, password: p, proxy_required: true }",
        lambda _: {"user": "a", "pass": "p"},
    ),
    "a token": ("authorization { token: t, proxy_required: true }", lambda _: {"auth_token": "t"}),
    "an nkey": (
        f"authorization {{ users: [{{ nkey: {USER.public}, proxy_required: true }}] }}",
        lambda nonce: {"nkey": USER.public, "sig": base64url(USER.sign(nonce.encode()))},
    ),
    "a silent client": (
        "no_auth_user: a\nauthorization { users: [{ user: a, password: p, proxy_required: on }] }",
        lambda _: {},
    ),
    "a user with a JWT": (OPERATOR.conf(), WITH_JWT.connect_options),
}


@both
@pytest.mark.parametrize("login", LOGINS)
def test_every_login_may_need_a_proxy(tmp_path: Path, kind: Kind, login: str) -> None:
    text, options = LOGINS[login]
    with ConfServer(tmp_path, kind, f"{proxies(FIRST)}{text}\n", monitoring=True) as server:
        assert server.monitor("varz")["proxies"] == {"trusted": [{"key": FIRST.public}]}
        for key, reason in ((FIRST, ""), (None, "Proxy Required"), (OTHER, "Proxy Not Trusted")):
            with Wire(server.port) as wire:
                info = wire.info()
                signed = {"proxy_sig": base64url(key.sign(info["nonce"].encode()))} if key else {}
                assert wire.connect(**options(info["nonce"]), **signed) == (VIOLATION if reason else b"PONG")
                assert not reason or server.reason(info["client_id"]) == reason
                entry = connection(server, info["client_id"])
                assert entry.get("proxy") == (None if reason else {"key": FIRST.public})
        if login == "a silent client":
            with Wire(server.port, b"PING\r\n") as wire:
                wire.info()
                assert wire.line() == VIOLATION


@both
def test_a_reload_closes_the_connections_of_a_removed_proxy(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, proxies(FIRST, SECOND) + USERS, monitoring=True) as server:
        with Wire(server.port) as first, Wire(server.port) as second, Wire(server.port) as direct:
            gone, answer = shown(first, FIRST, user="bound", **{"pass": "p"})
            assert answer == b"PONG"
            assert shown(second, SECOND, user="bound", **{"pass": "p"})[1] == b"PONG"
            assert shown(direct, None, user="free", **{"pass": "p"})[1] == b"PONG"
            server.reload(proxies(OTHER, SECOND) + USERS)
            server.await_line(rf'\[INF\] Reloaded: proxies trusted keys \["{FIRST.public}"\] were removed')
            server.await_line(rf'\[INF\] Reloaded: proxies trusted keys \["{OTHER.public}"\] were added')
            assert VIOLATION in first.rest()
            assert server.reason(gone["client_id"]) == "Proxy Not Trusted"
            for wire in (second, direct):
                wire.send(b"PING\r\n")
                while (line := wire.line()).startswith(b"INFO "):
                    pass
                assert line == b"PONG"
        with Wire(server.port) as wire:
            assert shown(wire, OTHER, user="bound", **{"pass": "p"})[1] == b"PONG"


LEAF_USERS = {
    "every user": "user: l, password: p, proxy_required: true",
    "one of them": "users: [{ user: l, password: p, proxy_required: true }, { user: m, password: p }]",
}


@both
@pytest.mark.parametrize("users", LEAF_USERS)
def test_a_leaf_node_may_need_a_proxy(tmp_path: Path, kind: Kind, users: str) -> None:
    (port,) = quiet_ports(1)
    text = f"{proxies(FIRST)}leafnodes {{ port: {port}, authorization {{ {LEAF_USERS[users]} }} }}\n"
    with ConfServer(tmp_path, kind, text, monitoring=True) as server:
        for key in (FIRST, None, OTHER):
            with Wire(port) as wire:
                info = wire.info()
                options = {"user": "l", "pass": "p", "name": "leaf", "server_id": "N1"}
                options |= {"proxy_sig": base64url(key.sign(info["nonce"].encode()))} if key else {}
                wire.send(f"CONNECT {json.dumps(options)}\r\nPING\r\n".encode())
                if key is not FIRST:
                    assert VIOLATION in wire.rest()
                    continue
                while wire.line() != b"PONG":
                    pass
                (leaf,) = server.monitor("leafz")["leafs"]
                assert leaf["proxy"] == {"key": FIRST.public}


def test_a_proxy_without_a_key_is_refused() -> None:
    """nats-server refuses it when it starts."""
    with pytest.raises(ConfError, match='proxy trusted key "" is invalid'):
        apply(load_text("proxies { trusted: [{}] }", {}), ServerOptions())
