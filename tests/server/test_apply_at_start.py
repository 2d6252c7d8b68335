"""`natsctl server run --apply`: the assets of documents exist before clients can connect."""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from nats.aio.client import Client

from natsctl.api.errors import UsageError
from natsctl.broker.auth.static_auth import is_bcrypt
from natsctl.cli.server.provisioned import provisioner
from natsctl.server.conf.config import read_config
from natsctl.server.instance import ServerInstance
from natsctl.server.log.lines import Log
from natsctl.server.options import ServerOptions, TlsOptions, WebSocketOptions
from natsctl.server.process.flags import NotProvisionedError, StartDocuments
from natsctl.server.process.process import main
from natsctl.server.process.provision import InProcessAddress, provision
from natsctl.server.sockets import listen
from natsctl.testing.certificates import Authority
from tests.server.process.test_process import Running
from tests.support import patient_client
from tests.support.operators import Visitor

EXAMPLES = Path(__file__).parents[2] / "examples"
ORDERS = str(EXAMPLES / "configs" / "orders.yaml")
ACCOUNTS = """
listen: "127.0.0.1:-1"
accounts {{
  SHOP {{ jetstream: enabled, users: [{{ user: shop, password: "{secret}" }}] }}
  {more}
}}
"""
SECRET = "$2a$04$4iGe9CyUJK2Efx4GmXO1Quyq/UADyfXoZhwUzaK7ymUu0Y4mwVG7q"


def options(folder: Path, config: str = "") -> ServerOptions:
    base = ServerOptions(host="127.0.0.1", port=-1, jetstream=True, store_dir=folder / "store", sync="never")
    if not config:
        return base
    path = folder / "nats.conf"
    path.write_text(config)
    return replace(read_config(path, base, {}), jetstream=True)


async def started(opts: ServerOptions, *paths: str, account: str = "", prune: bool = False) -> ServerInstance:
    """A server that has carried documents out; nothing is left of it where it has not."""
    documents = StartDocuments(paths, account, prune)
    server = ServerInstance(opts)
    await server.start(partial(provision, documents, provisioner(documents), log=Log(quiet=True)))
    return server


async def names(server: ServerInstance, **login: object) -> dict[str, list[str]]:
    client: Client = await patient_client.connect(server.url, **login)
    js = client.jetstream()
    found = {
        str(one.config.name): [info.name for info in await js.consumers_info(str(one.config.name))]
        for one in await js.streams_info()
    }
    await client.close()
    return found


async def test_a_start_makes_what_documents_say_and_a_restart_changes_nothing(tmp_path: Path) -> None:
    lines: list[str] = []

    class Kept(Log):
        def info(self, text: str) -> None:
            lines.append(text)

    documents = StartDocuments((ORDERS,))
    for said in ("4 created", "4 unchanged"):
        server = ServerInstance(options(tmp_path))
        await server.start(partial(provision, documents, provisioner(documents), log=Kept(quiet=True)))
        found = await names(server)
        assert {name: sorted(consumers) for name, consumers in found.items()} == {
            "ORDERS": ["DISPATCH", "MONITOR", "NEW"]
        }
        await server.stop()
        assert lines[-1] == f"Applied {ORDERS} for orders: {said}"


async def test_prune_removes_what_the_documents_name_no_more(tmp_path: Path) -> None:
    server = await started(options(tmp_path), ORDERS)
    client = await patient_client.connect(server.url)
    await client.jetstream().add_stream(name="BY_HAND", subjects=["hand"])
    await client.close()
    await server.stop()
    less = tmp_path / "less.yaml"
    less.write_text("owner: orders\nstreams: {ORDERS: {subjects: [ORDERS.*], max_age: 1y}}\n")
    for prune, left in ((False, 3), (True, 0)):
        server = await started(options(tmp_path), str(less), prune=prune)
        found = await names(server)
        assert (sorted(found), len(found["ORDERS"])) == (["BY_HAND", "ORDERS"], left)
        await server.stop()


async def test_a_file_that_was_not_written_prunes_nothing(tmp_path: Path) -> None:
    server = await started(options(tmp_path), ORDERS)
    await server.stop()
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    with pytest.raises(UsageError, match="all would be removed"):
        await started(options(tmp_path), str(empty), prune=True)
    server = await started(options(tmp_path), str(empty))
    assert list(await names(server)) == ["ORDERS"]
    await server.stop()


async def test_users_and_tls_of_the_configuration_are_not_in_the_way(tmp_path: Path) -> None:
    issued = Authority(tmp_path / "tls").issue("localhost")
    assert is_bcrypt(SECRET)
    opts = replace(options(tmp_path, ACCOUNTS.format(secret=SECRET, more="")), tls=TlsOptions(issued.cert, issued.key))
    server = await started(opts, ORDERS)
    engine = server.engine
    assert list(engine.accounts["SHOP"].streams) == ["ORDERS"]
    assert server.broker.options.listener_auth == {}, "the door is closed again"
    await server.stop()


@pytest.mark.parametrize(
    ("account", "told"),
    [("", "needs --apply_account"), ("BAR", "no account BAR has JetStream"), ("WEB", "no account WEB has JetStream")],
)
async def test_which_account_has_to_be_clear(tmp_path: Path, account: str, told: str) -> None:
    config = ACCOUNTS.format(secret="x", more="HR { jetstream: enabled }, WEB { }")
    with pytest.raises(NotProvisionedError, match="takes one of HR, SHOP") as failed:
        await started(options(tmp_path, config), ORDERS, account=account)
    assert (failed.value.code, told in str(failed.value)) == (2, True)


async def test_documents_are_for_the_account_that_is_named(tmp_path: Path) -> None:
    config = ACCOUNTS.format(secret="x", more="HR { jetstream: enabled, users: [{ user: hr, password: y }] }")
    server = await started(options(tmp_path, config), ORDERS, account="SHOP")
    assert list(await names(server, user="shop", password="x")) == ["ORDERS"]
    assert await names(server, user="hr", password="y") == {}
    await server.stop()


async def test_accounts_of_an_operator_are_named_by_their_keys(tmp_path: Path) -> None:
    text = (EXAMPLES / "configs" / "operator.conf").read_text().replace("store_dir: /data/jetstream,", "")
    folder = tmp_path / "operator"
    folder.mkdir()
    opts = replace(options(folder, text), host="127.0.0.1", port=-1)
    system = opts.system_account
    known = [key for key, _ in opts.operator.preload if key != system] if opts.operator else []
    server = await started(opts, ORDERS, account=known[0])
    app = str(EXAMPLES / "configs" / "operator-app.creds")
    assert list(await names(server, user_credentials=app)) == ["ORDERS"]
    await server.stop()
    for account, told in (("", "public key of an account"), ("A" * 56, "--apply_account")):
        with pytest.raises(NotProvisionedError, match=told):
            await started(opts, ORDERS, account=account)


async def test_a_refused_change_ends_the_start_with_its_code_and_leaves_all_as_it_was(tmp_path: Path) -> None:
    server = await started(options(tmp_path), ORDERS)
    await server.stop()
    other = tmp_path / "other.yaml"
    other.write_text("owner: orders\nstreams: {ORDERS: {subjects: [o], storage: memory}, NEW: {subjects: [n]}}\n")
    with pytest.raises(NotProvisionedError, match=r"Stream ORDERS: .*storage") as failed:
        await started(options(tmp_path), str(other))
    assert failed.value.code == 4
    server = await started(options(tmp_path), ORDERS)
    assert list(await names(server)) == ["ORDERS"]
    await server.stop()


async def test_a_failed_change_ends_the_start_with_another_code(tmp_path: Path) -> None:
    config = 'jetstream { max_file: 1M }\nlisten: "127.0.0.1:-1"\n'
    big = tmp_path / "big.yaml"
    big.write_text("streams: {BIG: {subjects: [b], max_bytes: 1GiB}}\n")
    with pytest.raises(NotProvisionedError, match="Stream BIG: insufficient storage") as failed:
        await started(options(tmp_path, config), str(big))
    assert failed.value.code == 1


async def test_nobody_else_comes_in_meanwhile(tmp_path: Path) -> None:
    found: list[list[bytes]] = []

    async def carry(way: InProcessAddress, tell: Callable[[str], None]) -> None:
        def knock() -> None:
            found.append(Visitor(way.url).show())
            found.append(Visitor(way.url).show(auth_token="guess"))
            visitor = Visitor(way.url)
            assert visitor.info.get("auth_required") is True
            assert "tls_required" not in visitor.info
            found.append(visitor.show(auth_token=way.token))
            visitor.close()

        await asyncio.to_thread(knock)

    server = ServerInstance(options(tmp_path))
    await server.start(partial(provision, StartDocuments(("x",)), carry, log=Log(quiet=True)))
    await server.stop()
    assert found[:2] == [[b"-ERR 'Authorization Violation'"]] * 2
    assert b"-ERR" not in b"".join(found[2])


def test_faulty_documents_end_a_start_and_a_check_before_anything_is_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("streams:\n  A: {subjects: [a], max_age: soon}\n  B: {subject: b}\n")
    (tmp_path / "nats.conf").write_text("jetstream {}\n")
    store = tmp_path / "store"
    for words in (["-js"], ["-c", str(tmp_path / "nats.conf"), "-t"]):
        assert main([*words, "-p", "-1", "-sd", str(store), "--apply", str(bad)], provisioner) == 2
        said = capsys.readouterr().err
        assert "$.streams.A.max_age: expected a duration" in said
        assert "$.streams.B.subject: unknown key" in said
    assert not store.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--apply", ORDERS], "--apply needs JetStream"),
        (["-js", "--apply_prune"], "--apply_prune needs --apply"),
        (["-js", "--apply_account", "A"], "--apply_account needs --apply"),
        (["-js", "--apply", "nowhere.yaml"], "nowhere.yaml"),
        (["-js", "--apply"], "needs an argument"),
    ],
)
def test_flags_that_can_not_be_meant_are_usage_errors(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-p", "-1", *words], provisioner) == 2
    assert told in capsys.readouterr().err
    assert main(["-js", "--apply", ORDERS]) == 2  # without what can carry documents out
    assert "natsctl server run" in capsys.readouterr().err


HANGING = """
import asyncio, sys
from natsctl.server.process.process import main
def provisioner(documents):
    async def carry(way, tell):
        tell("begun")
        await asyncio.sleep(3600)
    return carry
sys.exit(main(sys.argv[1:], provisioner))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_clients_wait_while_a_server_starts_and_a_signal_that_ends_the_start_closes_them(
    tmp_path: Path, number: signal.Signals
) -> None:
    with ExitStack() as stack:
        free = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        clients, websocket, monitoring = (one.getsockname() for one in free)
    (tmp_path / "nats.conf").write_text(
        f"websocket {{ listen: '127.0.0.1:{websocket[1]}', no_tls: true }}\nhttp: '127.0.0.1:{monitoring[1]}'"
    )
    flags = ["-js", "-sd", str(tmp_path / "store"), "-P", str(tmp_path / "pid"), "--ports_file_dir", str(tmp_path)]
    flags += ["-c", str(tmp_path / "nats.conf"), "-p", str(clients[1]), "--apply", "x"]
    server = Running(tmp_path, *flags, command=[sys.executable, "-c", HANGING])
    server.wait_for("begun")
    assert (tmp_path / "pid").read_text() == str(server.process.pid)
    assert not list(tmp_path.glob("*.ports"))
    with pytest.raises(ConnectionRefusedError):  # nothing there says that it is ready
        socket.create_connection(monitoring)
    waiting = [socket.create_connection(address) for address in (clients, websocket)]
    assert server.end(number) == 0
    for client in waiting:
        with client, suppress(ConnectionResetError):
            assert client.recv(1) == b""
    assert "Server Exiting.." in server.log
    assert "Listening" not in server.log and "Traceback" not in server.log
    assert not (tmp_path / "pid").exists()


async def test_clients_that_came_while_a_server_started_are_served_once_it_is_ready(tmp_path: Path) -> None:
    wanted = replace(options(tmp_path), websocket=WebSocketOptions(host="127.0.0.1", port=-1))
    sockets = listen(wanted)
    came: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def prepare(server: ServerInstance) -> None:
        came.extend([await asyncio.open_connection(*sockets[kind].getsockname()) for kind in ("clients", "websocket")])
        came[1][1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(10):
            await asyncio.sleep(0)
        assert not server.broker.sessions

    server = ServerInstance(wanted, sockets=sockets)
    await server.start(prepare)
    heads = [await reader.read(5) for reader, _ in came]
    for _, writer in came:
        writer.close()
    await server.stop()
    assert heads == [b"INFO ", b"HTTP/"]


async def test_a_start_that_fails_closes_the_clients_that_wait(tmp_path: Path) -> None:
    server = ServerInstance(options(tmp_path))
    came: list[socket.socket] = []

    async def prepare(server: ServerInstance) -> None:
        came.append(socket.create_connection(("127.0.0.1", server.port)))
        raise UsageError("no")

    with pytest.raises(UsageError):
        await server.start(prepare)
    with came[0], suppress(ConnectionResetError):
        assert came[0].recv(1) == b""


def test_the_command_tells_what_it_did_before_it_is_ready(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "natsctl", "server", "run"]
    server = Running(tmp_path, "-js", "-sd", str(tmp_path), "--apply", ORDERS, command=command)
    server.wait_for("Server is ready")
    assert server.end(signal.SIGTERM) == 0
    order = [server.log.index(text) for text in ("4 created", "Listening", "Server is ready")]
    assert order == sorted(order)
