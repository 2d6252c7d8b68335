"""No client of natsctl sends a byte in clear where TLS was asked for, whatever INFO offers, also when it reconnects."""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import nkeys
import pytest

from natsctl.api.errors import ExitCode, UnreachableError
from natsctl.cli.main import run as run_main
from natsctl.client.dial import connect
from natsctl.client.nats_py import client_class
from natsctl.client.one_shot import NeedsMoreError, open_one_shot, open_plain
from natsctl.client.servers import Target, resolve
from natsctl.client.settings import Settings
from natsctl.server.embedded import SharedServer, join
from natsctl.server.instance import ServerInstance
from natsctl.server.options import LeafNodesOptions, LeafRemoteOptions, ServerOptions, TlsOptions
from natsctl.spark.source.errors import JetStreamSourceError
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.link import Link
from natsctl.wire.client import ClientCredentials, TlsNotOfferedError
from natsctl.wire.server_url import ServerUrl
from tests.support.handshake_recorder import CLIENT_HELLO, PATIENCE_S, HandshakeRecorder, recording

OFFERS: Final = {
    "nothing": {},
    "required": {"tls_required": True},
    "available": {"tls_available": True},
}
CRITICAL: Final = 2
"""Exit status of a check of monitoring plugins."""
SECRET: Final = "s3cret-pa55"


@pytest.fixture(params=OFFERS, ids=list(OFFERS))
def recorder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HandshakeRecorder]:
    with recording(tmp_path, **OFFERS[request.param]) as started:
        yield started


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[HandshakeRecorder]:
    with recording(tmp_path) as started:
        yield started


def target(port: int, ca: Path | None, **settings: Any) -> Target:
    flags = Settings(url=f"nats://127.0.0.1:{port}", ca=str(ca or ""), timeout_s=PATIENCE_S)
    return resolve(flags._replace(**{"user": "ann", "password": SECRET, **settings}), {"HOME": "/nowhere"})


def run_connection(recorder: HandshakeRecorder, ca: Path | None) -> bool:
    async def work() -> None:
        async with await connect(target(recorder.port, ca), name="test") as connection:
            assert connection.tls is (ca is not None)

    try:
        asyncio.run(work())
    except UnreachableError:
        return False
    return True


def run_completion(recorder: HandshakeRecorder, ca: Path | None) -> bool:
    client = open_one_shot(target(recorder.port, ca), time.monotonic() + PATIENCE_S)
    if client is not None:
        client.ask("STREAM.NAMES")
        client.shut()
    return client is not None


def run_plain(recorder: HandshakeRecorder, ca: Path | None) -> bool:
    try:
        open_plain(target(recorder.port, ca), "test").shut()
    except NeedsMoreError:
        return False
    return True


def run_spark(recorder: HandshakeRecorder, ca: Path | None) -> bool:
    pem = ca.read_text() if ca else ""
    url = f"nats://127.0.0.1:{recorder.port}"
    settings = ServerSettings((url,), "ann", SECRET, tls_ca=pem, timeout_s=PATIENCE_S, retries=0)
    try:
        Link.open(settings).close()
    except JetStreamSourceError:
        return False
    return True


def run_guest(recorder: HandshakeRecorder, ca: Path | None) -> bool:
    guest = join(SharedServer(f"nats://127.0.0.1:{recorder.port}", SECRET, 0, "RECORDER"))
    if guest is not None:
        guest.close()
    return guest is not None


def run_leaf(recorder: HandshakeRecorder, ca: Path | None) -> bool:
    tls = TlsOptions(ca_file=ca) if ca else None
    return link(
        recorder, LeafRemoteOptions((ServerUrl("nats-leaf", "127.0.0.1", recorder.port, "ann", SECRET),), tls=tls)
    )


def link(recorder: HandshakeRecorder, remote: LeafRemoteOptions) -> bool:
    """Run a server with a remote until the recorder has its login, or the end of its connection."""

    async def work() -> bool:
        options = ServerOptions(host="127.0.0.1", port=-1, leafnodes=LeafNodesOptions(remotes=(remote,)))
        async with ServerInstance(options), asyncio.timeout(PATIENCE_S):
            while True:
                await asyncio.sleep(0.01)
                for each in recorder.recordings[:1]:
                    if b"CONNECT" in each.clear + each.secret:
                        return True
                    if each.ended:
                        return False

    return asyncio.run(work())


def command(*words: str) -> Callable[[HandshakeRecorder, Path | None], bool]:
    def run(recorder: HandshakeRecorder, ca: Path | None) -> bool:
        login = ["--user", "ann", "--password", SECRET, *(["--tlsca", str(ca)] if ca else [])]
        code = run_main(["--server", f"nats://127.0.0.1:{recorder.port}", *login, *words])
        assert code in (ExitCode.DONE, ExitCode.UNREACHABLE)
        return code == ExitCode.DONE

    return run


CLIENTS: Final[dict[str, Callable[[HandshakeRecorder, Path | None], bool]]] = {
    "connection": run_connection,
    "completion": run_completion,
    "plain connection": run_plain,
    "spark": run_spark,
    "leaf remote": run_leaf,
    "guest": run_guest,
    "stream ls": command("stream", "ls", "--names"),
    "pub": command("pub", "a", "b"),
    "bench pub": command("bench", "pub", "a", "--msgs", "1"),
}


@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "guest"])
def test_tls_wanted(client: str, recorder: HandshakeRecorder, tmp_path: Path) -> None:
    connected = CLIENTS[client](recorder, tmp_path / "authority.pem")
    recorder.hang_up()
    if client == "plain connection":
        assert not connected
        assert recorder.recordings == []
        return
    assert connected is bool(recorder.offers)
    for each in recorder.recorded():
        assert each.clear == b""
        assert each.upgraded is bool(recorder.offers)
        assert (SECRET.encode() in each.secret) is bool(recorder.offers)


@pytest.mark.parametrize("client", CLIENTS)
def test_tls_not_asked_for(client: str, recorder: HandshakeRecorder) -> None:
    """A server that requires TLS gets it; this one's certificate is not trusted."""
    required = "tls_required" in recorder.offers
    assert CLIENTS[client](recorder, None) is not required
    recorder.hang_up()
    for each in recorder.recorded():
        assert (SECRET.encode() in each.clear) is not required
        assert each.secret == b""
        if required:
            assert each.clear == b""


COMMANDS: Final = (
    "sub a", "req a b", "account info", "plan DOCUMENT", "kv ls", "object ls", "rtt", "stream info S", "consumer ls S",
    "latency --server-b URL --duration 1s", "backup FOLDER", "top",
)  # fmt: skip


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_send_nothing_and_exit_with_5(line: str, refusing: HandshakeRecorder, tmp_path: Path) -> None:
    document = tmp_path / "document.json"
    document.write_text('{"streams": [{"name": "S", "subjects": ["s"]}]}')
    url = f"tls://127.0.0.1:{refusing.port}"
    named = {"DOCUMENT": str(document), "FOLDER": str(tmp_path / "backup"), "URL": url}
    words = [named.get(word, word) for word in line.split()]
    assert run_main(["--server", url, "--user", "ann", "--password", SECRET, *words]) == ExitCode.UNREACHABLE
    assert all(each.clear == b"" for each in refusing.recorded())


def test_a_check_sends_nothing_and_is_critical(refusing: HandshakeRecorder) -> None:
    url = f"tls://ann:{SECRET}@127.0.0.1:{refusing.port}"
    assert run_main(["--server", url, "server", "check", "connection"]) == CRITICAL
    assert all(each.clear == b"" for each in refusing.recorded())


LOGINS: Final = {
    "user": ["--user", "ann", "--password", SECRET],
    "token": ["--token", SECRET],
    "creds": ["--creds", "CREDS"],
    "nkey": ["--nkey", "SEED"],
    "none": [],
}


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("wish", ["scheme", "ca", "insecure", "scheme of another url"])
def test_no_login_of_any_kind_is_sent(wish: str, login: str, refusing: HandshakeRecorder, tmp_path: Path) -> None:
    seed = nkeys.from_seed(nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)).seed.decode()
    (tmp_path / "SEED").write_text(seed)
    (tmp_path / "CREDS").write_text(f"eyJ0eXAiOiJKV1QifQ.e30.c2ln\n{seed}\n")
    words = [str(tmp_path / word) if word in ("SEED", "CREDS") else word for word in LOGINS[login]]
    url = f"nats://127.0.0.1:{refusing.port}"
    wishes = {
        "scheme": ["--server", url.replace("nats://", "tls://")],
        "ca": ["--server", url, "--tlsca", str(tmp_path / "authority.pem")],
        "insecure": ["--server", url, "--tls-insecure"],
        "scheme of another url": ["--server", f"{url},tls://127.0.0.1:{refusing.port}"],
    }
    assert run_main([*wishes[wish], *words, "stream", "ls"]) == ExitCode.UNREACHABLE
    assert all(each.clear == b"" for each in refusing.recorded())


def test_a_websocket_in_clear_is_not_even_opened(refusing: HandshakeRecorder) -> None:
    """Its first request would have the login of the URL in it."""
    url = f"ws://ann:{SECRET}@127.0.0.1:{refusing.port}"
    assert run_main(["--server", url, "--tls-insecure", "stream", "ls"]) == ExitCode.UNREACHABLE
    assert run_main(["--server", f"{url},tls://127.0.0.1:1", "stream", "ls"]) == ExitCode.UNREACHABLE
    assert refusing.recordings == []


def test_spark_wants_tls_on_all_servers_of_a_list(refusing: HandshakeRecorder) -> None:
    url = f"nats://127.0.0.1:{refusing.port}"
    settings = ServerSettings((url, "tls://127.0.0.1:1"), user="ann", password=SECRET, retries=0)
    link = Link(settings)
    with pytest.raises(JetStreamSourceError, match="TLS was requested"):
        link._greet(url, "")
    assert [each.clear for each in refusing.recorded()] == [b""]


def test_a_leaf_remote_keeps_its_login_where_its_url_asks_for_tls(refusing: HandshakeRecorder) -> None:
    """nats-server sends it: to it the scheme means nothing."""
    remote = LeafRemoteOptions((ServerUrl("tls", "127.0.0.1", refusing.port, "ann", SECRET),))
    assert not link(refusing, remote)
    assert [each.clear for each in refusing.recorded()] == [b""]


def test_a_leaf_remote_wants_tls_on_all_urls_where_one_is_wss(refusing: HandshakeRecorder) -> None:
    urls = tuple(ServerUrl(scheme, "127.0.0.1", refusing.port, "ann", SECRET) for scheme in ("ws", "wss"))
    assert not link(refusing, LeafRemoteOptions(urls, no_randomize=True))
    assert [each.clear[:1] for each in refusing.recorded()[:1]] == [CLIENT_HELLO]


@pytest.mark.parametrize(
    "injected",
    [b"PING\r\n", b'INFO {"connect_info":true}\r\nLMSG a 2\r\nhi\r\nLS+ >\r\n', b"-ERR 'x'\r\n"],
    ids=["PING", "INFO", "-ERR"],
)
def test_a_leaf_remote_answers_nothing_that_came_in_clear(injected: bytes, tmp_path: Path) -> None:
    with recording(tmp_path, tls_required=True, info_on_connect=True) as recorder:
        recorder.behind_info = injected
        run_leaf(recorder, tmp_path / "authority.pem")
        assert [each.clear for each in recorder.recorded()] == [b""]


@pytest.mark.parametrize("client", ["connection", "completion", "spark"])
def test_what_came_in_clear_is_no_answer(client: str, tmp_path: Path) -> None:
    """An attacker cannot answer CONNECT in advance."""
    with recording(tmp_path, tls_required=True) as recorder:
        recorder.behind_info = b"-ERR 'Authorization Violation'\r\n"
        assert CLIENTS[client](recorder, tmp_path / "authority.pem")


async def test_a_connection_reopens_under_tls_only(tmp_path: Path) -> None:
    """The one server of two that is left offers TLS no longer."""
    ca = tmp_path / "authority.pem"
    with recording(tmp_path, tls_required=True) as recorder:
        urls = f"nats://127.0.0.1:{recorder.port}"
        known = target(recorder.port, ca, url=f"{urls},{urls}")
        async with await connect(known, name="test") as connection:
            subscription = await connection.subscribe("a", lasting=True)
            await connection.flush()
            recorder.offers = {}
            recorder.hang_up()
            with pytest.raises(UnreachableError):
                while True:
                    await connection.request("a", timeout_s=1)
            with pytest.raises(UnreachableError, match="does not offer TLS"):
                await connection.request("a", timeout_s=1)
            await subscription.stop()
        upgraded, *others = recorder.recorded(2)
        assert SECRET.encode() in upgraded.secret
        assert [each.clear for each in others] == [b""] * len(others)


async def test_nats_pys_own_reconnecting_decides_again(tmp_path: Path) -> None:
    """Also on servers that it learned of from INFO."""
    refused: list[Exception] = []
    done = asyncio.Event()

    async def note(failure: Exception) -> None:
        refused.append(failure)

    async def end() -> None:
        done.set()

    with recording(tmp_path) as discovered, recording(tmp_path / "own", tls_available=True) as recorder:
        recorder.offers["connect_urls"] = [f"127.0.0.1:{discovered.port}"]
        client = client_class()()
        client.credentials = ClientCredentials("ann", SECRET)
        await client.connect(
            f"nats://127.0.0.1:{recorder.port}",
            tls=ssl.create_default_context(cafile=tmp_path / "own" / "authority.pem"),
            error_cb=note,
            closed_cb=end,
            reconnect_time_wait=0.01,
            max_reconnect_attempts=2,
        )
        await client.publish("a", SECRET.encode())
        await client.flush()
        recorder.offers = {}
        recorder.hang_up()
        async with asyncio.timeout(PATIENCE_S):
            await done.wait()
        upgraded, *others = await asyncio.to_thread(recorder.recorded, 2)
        assert (upgraded.clear, SECRET.encode() in upgraded.secret) == (b"", True)
        others += await asyncio.to_thread(discovered.recorded)
        assert [each.clear for each in others] == [b""] * len(others)
        assert sum(isinstance(failure, TlsNotOfferedError) for failure in refused) == len(others)
