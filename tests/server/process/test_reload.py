"""What a reload changes, whom it closes, and what it refuses, in the texts of nats-server."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import bcrypt
import pytest

from natsctl.server.conf.config import read_config
from natsctl.server.instance import ServerInstance
from natsctl.server.log.lines import Log
from natsctl.server.monitor.query import BadRequestError
from natsctl.server.options import ServerOptions
from natsctl.server.process.reload import Reloader
from natsctl.testing.certificates import Authority
from tests.server.conf.faults import ISSUER
from tests.support.conf_server import ConfServer
from tests.support.operators import Key, base64url
from tests.support.tls_clients import until

LISTEN = "listen: 127.0.0.1:-1\n"
USERS = "authorization { users [ {user: a, password: a}, {user: b, password: b} ] }\n"


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def say(self, text: str) -> str:
        self.writer.write(text.encode() + b"PING\r\n")
        return await self.heard()

    async def heard(self) -> str:
        lines = []
        while line := await asyncio.wait_for(self.reader.readline(), 30):
            if line == b"PONG\r\n":
                return "".join(lines)
            if not line.startswith(b"INFO "):
                lines.append(line.decode())
        return "".join(lines) + "<END>"


class Site:
    def __init__(self, folder: Path, text: str) -> None:
        self.path = folder / "x.conf"
        self.path.write_text(LISTEN + text)
        told = self.read()
        self.clients: list[Client] = []
        self.server = ServerInstance(told, Log(folder / "log", with_time=False))
        self.reloader = Reloader(self.server, self.read, told)

    def read(self) -> ServerOptions:
        return read_config(self.path, ServerOptions(), {})

    def reload(self, text: str) -> None:
        self.path.write_text(LISTEN + text)
        self.reloader.reload()

    @property
    def log(self) -> list[str]:
        lines = (self.path.parent / "log").read_text().splitlines()
        return [line.partition("] ")[2] for line in lines]

    async def client(self, **options: str) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.server.port))
        self.clients.append(client)
        said = await client.say(f"CONNECT {json.dumps({'verbose': False, 'protocol': 1, **options})}\r\n")
        assert said == ""
        return client


@asynccontextmanager
async def site(folder: Path, text: str) -> AsyncIterator[Site]:
    found = Site(folder, text)
    try:
        async with found.server:
            yield found
    finally:
        found.server.log.close()
        for client in found.clients:
            client.writer.close()
            with suppress(OSError):
                await client.writer.wait_closed()


async def test_a_changed_password_is_told_and_a_removed_user_is_closed_without_a_word(tmp_path: Path) -> None:
    async with site(tmp_path, USERS) as at:
        changed, removed = await at.client(user="a", **{"pass": "a"}), await at.client(user="b", **{"pass": "b"})
        at.reload("authorization { users [ {user: a, password: new} ] }\n")
        assert await changed.heard() == "-ERR 'Authorization Violation'\r\n<END>"
        assert await removed.heard() == "<END>"
        await at.client(user="a", **{"pass": "new"})


@pytest.mark.parametrize("text", [USERS, "authorization { user: a, password: a }\n", ""])
async def test_who_is_as_before_stays(tmp_path: Path, text: str) -> None:
    async with site(tmp_path, text) as at:
        client = await at.client(user="a", **{"pass": "a"})
        at.reload(text + "max_control_line: 512\n")
        assert await client.say("PUB x 0\r\n\r\n") == ""


async def test_who_logged_in_without_a_user_next_to_system_users_stays(tmp_path: Path) -> None:
    text = "accounts { $SYS { users: [{user: s, password: s}] } }\n"
    async with site(tmp_path, text) as at:
        client = await at.client()
        at.reload(text)
        assert await client.say("PUB x 0\r\n\r\n") == ""


async def test_a_subscription_that_is_permitted_no_more_is_removed(tmp_path: Path) -> None:
    async with site(tmp_path, USERS) as at:
        client = await at.client(user="a", **{"pass": "a"})
        await client.say("SUB foo 1\r\nSUB bar 2\r\n")
        at.reload("authorization { users [ {user: a, password: a, permissions: {subscribe: foo}} ] }\n")
        said = await client.say("PUB foo 0\r\n\r\nPUB bar 0\r\n\r\n")
        assert '-ERR \'Permissions Violation for Subscription to "bar" (sid "2")\'\r\n' in said
        assert "MSG foo 1" in said
        assert "MSG bar" not in said


async def test_who_moves_to_another_account_is_closed_without_a_word(tmp_path: Path) -> None:
    async with site(tmp_path, "accounts { A { users [{user: a, password: a}] }, B {} }\n") as at:
        client = await at.client(user="a", **{"pass": "a"})
        at.reload("accounts { A {}, B { users [{user: a, password: a}] } }\n")
        assert await client.heard() == "<END>"


AFTER = {
    "removed": ("A { users [{user: b, password: b}] }", ""),
    "another password": ("A { users [{user: a, password: new}] }", ""),
    "another kind of connection": ("A { users [{user: a, password: HASH, allowed_connection_types: [MQTT]}] }", ""),
    "account removed": ("B { users [{user: b, password: b}] }", ""),
    "another account": ("A {}, B { users [{user: a, password: HASH}] }", "B"),
    "fewer rights": ("A { users [{user: a, password: HASH, permissions: {publish: x, subscribe: x}}] }", "A"),
}
"""Accounts after a reload, and the account that the user is in then."""


@pytest.mark.parametrize("phase", ["before CONNECT", "during the comparison"])
@pytest.mark.parametrize("listener", ["clients", "leafnodes"])
@pytest.mark.parametrize("change", AFTER)
async def test_a_login_that_a_reload_meets_is_decided_by_the_new_users(
    change: str, listener: str, phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed, compare, reloaded = bcrypt.hashpw(b"a", bcrypt.gensalt(4)).decode(), bcrypt.checkpw, threading.Event()
    monkeypatch.setattr(bcrypt, "checkpw", lambda *given: reloaded.wait(30) and compare(*given))
    more = "leafnodes { listen: 127.0.0.1:-1 }\n"
    after, account = AFTER[change]
    async with site(tmp_path, f'accounts {{ A {{ users [{{user: a, password: "{hashed}"}}] }} }}\n{more}') as at:
        port = at.server.port if listener == "clients" else at.server.port_of("leafnodes")
        at.clients.append(client := Client(*await asyncio.open_connection("127.0.0.1", port)))
        await client.reader.readline()
        broker = at.server.broker
        links = broker.sessions.values() if listener == "clients" else at.server.leafs.leafs.links.values()
        if phase == "during the comparison":
            client.writer.write(b'CONNECT {"user":"a","pass":"a","verbose":false}\r\n')
            await until(lambda: any(link.login.pending for link in links))
        at.reload(f"accounts {{ {after} }}\n{more}".replace("HASH", f'"{hashed}"'))
        reloaded.set()
        if phase == "before CONNECT":
            client.writer.write(b'CONNECT {"user":"a","pass":"a","verbose":false}\r\n')
        if not account:
            assert "Authorization Violation" in await client.heard() and not links
            return
        await until(lambda: any(link.login.connected for link in links))
        assert [link.account.name for link in links] == [account]
        if listener == "clients":
            refused = await client.say("SUB foo 1\r\nPUB foo 0\r\n\r\n")
            assert refused.count("Permissions Violation") == (2 if change == "fewer rights" else 0)


@pytest.mark.parametrize("right", [True, False])
async def test_hashes_that_a_reload_changes_are_compared_while_others_are_served(
    right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def users(password: bytes, more: str = "") -> str:
        hashed = bcrypt.hashpw(password, bcrypt.gensalt(4)).decode()
        return f'authorization {{ users [{{user: a, password: "{hashed}"{more}}}, {{user: b, password: b}}] }}\n'

    compare, going, begun = bcrypt.checkpw, threading.Event(), list[str]()

    def compare_late(*given: bytes) -> bool:
        begun.append(threading.current_thread().name)
        return going.wait(30) and compare(*given)

    async with site(tmp_path, users(b"a")) as at:
        changed, other = [await at.client(user=name, **{"pass": name}) for name in "ab"]
        session = next(each for each in at.server.broker.sessions.values() if each.login.user == "a")
        monkeypatch.setattr(bcrypt, "checkpw", compare_late)
        at.reload(users(b"a" if right else b"x", ", permissions: {publish: {deny: x}}"))
        changed.writer.write(b"SUB y 1\r\nPUB y 1\r\n1\r\nPUB x 0\r\n\r\nPING\r\n")
        assert await other.say("") == ""
        await until(lambda: bool(begun))
        at.reload(
            users(b"a" if right else b"x", ", permissions: {publish: {deny: x}}")
        )  # the first answer is not taken
        assert session.in_msgs == 0 and session.close_reason is None
        going.set()
        heard = await changed.heard()
    answer = "MSG y 1 1\r\n1\r\n-ERR 'Permissions Violation for Publish to \"x\"'\r\n"
    assert heard == (answer if right else "-ERR 'Authorization Violation'\r\n<END>")
    assert len(begun) >= 2 and not [name for name in begun if not name.startswith("natsctl-logins")]


async def test_a_signature_of_no_nonce_lets_nobody_in(tmp_path: Path) -> None:
    key = Key("user")
    async with site(tmp_path, USERS) as at:
        at.clients.append(client := Client(*await asyncio.open_connection("127.0.0.1", at.server.port)))
        assert b"nonce" not in await client.reader.readline()
        at.reload(f"authorization {{ users: [{{ nkey: {key.public} }}] }}\n")
        shown = {"nkey": key.public, "sig": base64url(key.sign(b"")), "verbose": False}
        said = await client.say(f"CONNECT {json.dumps(shown)}\r\n")
        assert said == "-ERR 'Authorization Violation'\r\n<END>"


async def test_clients_without_a_name_are_refused_once_there_are_users(tmp_path: Path) -> None:
    async with site(tmp_path, "") as at:
        client = await at.client()
        at.reload(USERS)
        assert await client.heard() == "-ERR 'Authorization Violation'\r\n<END>"


async def test_the_limits_of_clients_that_are_in_change(tmp_path: Path) -> None:
    async with site(tmp_path, "") as at:
        client = await at.client()
        at.reload('max_payload: 10\nmax_control_line: 100\nping_interval: "3s"\nping_max: 4\nwrite_deadline: "3s"\n')
        assert await client.say("PUB x 11\r\n12345678901\r\n") == "-ERR 'Maximum Payload Violation'\r\n<END>"
        assert [line.removeprefix("[INF] ") for line in at.log if "Reloaded: " in line] == [
            "Reloaded: authorization users", "Reloaded: accounts", "Reloaded: ping_interval = 3s",
            "Reloaded: ping_max = 4", "Reloaded: max_control_line = 100", "Reloaded: max_payload = 10",
            "Reloaded: write_deadline = 3s",
        ]  # fmt: skip
        assert any(line.startswith("[INF] Reloaded server configuration (sha256:") for line in at.log)
        assert at.server.config_load_ns > 0


async def test_clients_beyond_max_connections_are_closed(tmp_path: Path) -> None:
    async with site(tmp_path, "") as at:
        clients = [await at.client() for _ in range(3)]
        at.reload("max_connections: 1\n")
        said = [await client.heard() for client in clients[:2]]
        assert said == ["-ERR 'maximum connections exceeded'\r\n<END>"] * 2
        assert await clients[2].say("") == ""
        assert "[INF] Closed 2 connections to fall within max_connections" in at.log


async def test_clients_beyond_what_their_account_may_have_are_closed(tmp_path: Path) -> None:
    text = "accounts {{ A {{ users: [{{user: a, password: a}}], limits: {{max_conn: {}}} }} }}"
    full = "maximum account active connections exceeded"
    async with site(tmp_path, text.format(3)) as at:
        clients = [await at.client(user="a", **{"pass": "a"}) for _ in range(3)]
        at.reload(text.format(2))
        assert await clients[2].heard() == f"-ERR '{full}'\r\n<END>"
        assert sum(full in line for line in at.log) == 1
        assert [await client.say("") for client in clients[:2]] == ["", ""]
        at.reload(text.format(2) + " # again")
        assert [await client.say("") for client in clients[:2]] == ["", ""]
        at.reload(text.format(-1))
        assert await (await at.client(user="a", **{"pass": "a"})).say("") == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("max_subs: 3", "config reload not supported for MaxSubs: old=0, new=3"),
        ("host: 0.0.0.0", "config reload not supported for Host: old=127.0.0.1, new=0.0.0.0"),
        ("prot: 1", 'unknown field "prot"'),
        ("a {", "is never closed"),
        ("tls { cert_file: /no/such, key_file: /no/such }", "no such file"),
    ],
)
async def test_what_a_reload_can_not_take_changes_nothing(tmp_path: Path, text: str, reason: str) -> None:
    async with site(tmp_path, USERS) as at:
        client = await at.client(user="a", **{"pass": "a"})
        before = at.server.options
        with pytest.raises(BadRequestError) as caught:
            at.reload(f"max_payload: 10\n{text}\n")
        assert reason in str(caught.value)
        assert at.server.options is before
        assert await client.say("PUB x 11\r\n12345678901\r\n") == ""


PROXIED = f"proxies {{ trusted: [{{ key: {Key('user').public} }}] }}\nauthorization {{ token: t, proxy_required: %s }}"
CALLOUT = (
    "accounts { A { users: [{user: auth, password: p}] } }\n"
    f"authorization {{ auth_callout {{ issuer: {ISSUER}, account: A, auth_users: [auth], allowed_accounts: %s }} }}"
)
REMOTE = 'leafnodes { remotes: [ { url: "nats-leaf://u:p@127.0.0.1:1"%s } ] }'
PROXY = ', proxy { url: "http://127.0.0.1:%d" }'
STORE = "jetstream { store_dir: FOLDER, %s }"
FIXED = [
    ("", "max_subs: 3", "MaxSubs: old=0, new=3"),
    ("", 'lame_duck_duration: "60s"', "LameDuckDuration: old=2m0s, new=1m0s"),
    ("server_name: a", "server_name: b", "ServerName: old=a, new=b"),
    ("", "http_port: 8222", "HTTPPort: old=0, new=8222"),
    ("", "system_account: X\naccounts { X {} }", "SystemAccount: old=, new=X"),
    ("", "no_system: true", "NoSystemAccount: old=false, new=true"),
    ("", "websocket { port: -1, no_tls: true }", "Websocket"),
    ("proxy_protocol: true", "", "ProxyProtocol: old=true, new=false"),
    ("", "write_timeout: retry", "WriteTimeout: old=, new=retry"),
    (PROXIED % "true", PROXIED % "false", "ProxyRequired: old=true, new=false"),
    (CALLOUT % "[]", CALLOUT % "[A]", f"AuthCallout: old=&{{{ISSUER} A [auth]  []}}, new=&{{{ISSUER} A [auth]  [A]}}"),
    (STORE % "strict: false", STORE % "strict: true", "NoJetStreamStrict: old=true, new=false"),
    (STORE % "key: secret", STORE % "key: secreted", "JetStreamKey: old="),
    (STORE % "key: secret", STORE % "key: secret, prev_key: secreted", "JetStreamOldKey: old="),
    (STORE % "key: secret", STORE % "key: secret, cipher: aes", "JetStreamCipher: old="),
    ("", "leafnodes { port: -1 }", 'LeafNode: field "Host": old=, new=0.0.0.0'),
    ("leafnodes { port: -1 }", "", 'LeafNode: field "Host": old=0.0.0.0, new='),
    ("leafnodes { port: -1 }", "leafnodes { port: -1, authorization { timeout: 3 } }", '"AuthTimeout": old=2, new=3'),
    ("leafnodes { port: -1 }", "leafnodes { port: -1, no_advertise: true }", '"NoAdvertise": old=false, new=true'),
    ("leafnodes { port: -1 }", 'leafnodes { port: -1, reconnect: "3s" }', '"ReconnectInterval": old=1s, new=3s'),
    ("leafnodes { port: -1 }", "leafnodes { port: -1, write_deadline: 3s }", '"WriteDeadline": old=0s, new=3s'),
    ("leafnodes { port: -1 }", "leafnodes { port: -1, write_timeout: close }", '"WriteTimeout": old=, new=close'),
    (
        REMOTE % "",
        REMOTE % ", deny_imports: [a, b]",
        'LeafNode: remote urls=["nats-leaf://u:xxxxx@127.0.0.1:1"], account="$G": '
        'field "DenyImports": old=[], new=[a b]',
    ),
    (REMOTE % PROXY % 1, REMOTE % PROXY % 2, 'field "Proxy": only the proxy TLS configuration can be changed'),
]
"""Text before a reload and after it, and why the reload is refused."""


@pytest.mark.parametrize(("before", "after", "reason"), FIXED)
async def test_what_needs_a_restart_is_refused(tmp_path: Path, before: str, after: str, reason: str) -> None:
    before, after = (text.replace("FOLDER", f"'{tmp_path}/js'") + "\n" for text in (before, after))
    async with site(tmp_path, before) as at:
        with pytest.raises(BadRequestError) as caught:
            at.reload(after)
        said = str(caught.value)
        assert said.startswith("config reload not supported for ") and reason in said and "secret" not in said


@pytest.mark.reference
@pytest.mark.parametrize(("before", "after", "reason"), FIXED)
def test_the_reference_refuses_it_too(tmp_path: Path, before: str, after: str, reason: str) -> None:
    before, after = (text.replace("FOLDER", f"'{tmp_path}/js'") + "\n" for text in (before, after))
    with ConfServer(tmp_path, "reference", before) as server:
        line = server.reload(after)
    assert "config reload not supported for " in line and reason in line


async def test_limits_of_jetstream_grow_and_do_not_shrink(tmp_path: Path) -> None:
    text = f"jetstream {{ store_dir: '{tmp_path}/js', max_mem: 1GB, max_file: 1GB }}\n"
    async with site(tmp_path, text) as at:
        at.reload(text.replace("max_file: 1GB", "max_file: 2GB"))
        assert [usage.limit for usage in at.server.engine.usage.values()] == [1 << 30, 2 << 30]
        with pytest.raises(BadRequestError, match="decreasing jetstream max memory and store"):
            at.reload(text)
        with pytest.raises(BadRequestError, match="jetstream storage directory"):
            at.reload(text.replace("/js", "/other"))


async def test_certificates_that_are_swapped_during_a_reload_do_not_stop_it_half_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = Authority(tmp_path).issue("server", addresses=["127.0.0.1"])
    tls = f'tls {{ cert_file: "{issued.cert}", key_file: "{issued.key}" }}'
    text = f"{tls}\nleafnodes {{ listen: '127.0.0.1:-1', {tls} }}\n"
    async with site(tmp_path, text) as at:
        prepared = at.reloader._prepared

        def swap(new: ServerOptions) -> object:
            options = prepared(new)
            for path in (issued.cert, issued.key):
                path.write_text("half a certificate")
            return options

        monkeypatch.setattr(at.reloader, "_prepared", swap)
        at.reload(text + "max_control_line: 512\n")
        assert at.server.options.max_control_line == 512
        assert "Reloaded server configuration" in at.log[-1]
        with pytest.raises(BadRequestError, match="no certificate and key in PEM"):
            at.reload(text + "max_control_line: 1024\n")
        assert at.server.options.max_control_line == 512


async def test_others_are_served_while_a_thread_reads_and_reloads_follow_one_another(tmp_path: Path) -> None:
    async with site(tmp_path, USERS) as at:
        client = await at.client(user="a", **{"pass": "a"})
        may_read, ends = threading.Event(), list[str]()
        texts = [USERS + "max_control_line: 512\n", USERS + "max_pending: 2000000\n"]

        def read() -> ServerOptions:
            assert may_read.wait(30)
            at.path.write_text(LISTEN + texts.pop(0))
            return at.read()

        reloader = Reloader(at.server, read, at.read())
        for _ in range(2):
            reloader.begin(lambda fault: ends.append(str(fault)))
        assert await client.say("") == "" and not ends
        may_read.set()
        while len(ends) < 2:
            await client.say("")
        assert at.server.options.max_control_line == 512
        assert ends[0] == "None" and ends[1].startswith("config reload not supported for MaxPending")
