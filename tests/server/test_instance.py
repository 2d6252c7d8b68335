import asyncio
import socket
import threading
from pathlib import Path

import pytest

from natsctl.server import instance, shell
from natsctl.server.instance import ServerInstance, ServerThread
from natsctl.server.listener import MUCH_READ_BYTES, ClientConnection
from natsctl.server.log.lines import Log
from natsctl.server.options import ServerOptions
from natsctl.server.storage import StoreInUseError
from natsctl.store.disk import PosixFile
from tests.support.raw_client import RawClient
from tests.support.tls_clients import PATIENCE_S, talking, until

ANY = ServerOptions(host="127.0.0.1", port=-1)
MUCH = b"PUB x %d\r\n%s\r\n" % (MUCH_READ_BYTES, b"x" * MUCH_READ_BYTES)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
async def test_an_unspecified_address_is_of_both_families() -> None:
    async with ServerInstance(ANY.at("0.0.0.0", -1)) as server:
        for host in ("127.0.0.1", "::1"):
            reader, writer = await asyncio.open_connection(host, server.port)
            assert f'"client_ip":"{host}"'.encode() in await reader.readline()
            writer.close()


async def test_stop_closes_clients_and_frees_the_port() -> None:
    server = ServerInstance(ANY)
    await server.start()
    client = await RawClient.connect(server.url)
    port = server.port
    await server.stop()
    await asyncio.wait_for(client.closed.wait(), 30)
    async with ServerInstance(ANY.at("127.0.0.1", port)) as again:
        assert again.port == port


async def test_a_fault_of_one_connection_ends_that_one_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ServerInstance(ANY) as server:
        good, bad = await RawClient.connect(server.url), await RawClient.connect(server.url)

        def fail(*args: object) -> bool:
            raise ZeroDivisionError("a bug")

        server.broker.accounts["$G"].subscribe(b"boom", fail)
        bad.publish(b"boom", b"")
        await asyncio.wait_for(bad.closed.wait(), 30)
        await good.flush()
        await good.close()


def test_a_server_on_a_thread_serves_plain_code() -> None:
    with ServerThread(ANY) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            assert sock.recv(5) == b"INFO "
        assert server.url == f"nats://127.0.0.1:{server.port}"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))


def test_a_server_thread_that_cannot_start_raises_in_the_caller() -> None:
    with ServerThread(ANY) as server, pytest.raises(OSError, match="in use"):
        ServerThread(ANY.at("127.0.0.1", server.port)).start()


async def test_a_client_that_closes_its_side_still_gets_its_answers() -> None:
    async with ServerInstance(ANY) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
        writer.write_eof()
        assert b"PONG\r\n" in await asyncio.wait_for(reader.read(), 30)
        writer.close()
        await writer.wait_closed()


async def test_traces_show_the_protocol_but_no_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    options = ServerOptions(host="127.0.0.1", port=-1, token="s3cret")
    async with ServerInstance(options, Log(trace=True)) as server:
        client = await RawClient.connect(f"nats://s3cret@127.0.0.1:{server.port}")
        client.publish(b"a", b"x" * 1000)
        await client.flush()
        await client.close()
    said = capsys.readouterr().err
    assert '- <<- [CONNECT {"' in said
    assert "- <<- [PUB a  1000]" in said
    assert f'- <<- MSG_PAYLOAD: ["{"x" * 1000}"]' in said
    assert "- ->> [PONG]" in said
    assert "s3cret" not in said


async def test_pings_and_the_write_deadline_wait_for_no_regular_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "TICK_S", 600.0)
    options = ServerOptions(host="127.0.0.1", port=-1, ping_interval_s=0.1, ping_max=1_000_000, write_deadline_s=0.2)
    async with asyncio.timeout(PATIENCE_S), ServerInstance(options) as server, talking(server.port) as talk:
        await talk.line()
        for _ in range(3):
            assert await talk.line() == b"PING\r\n"
        assert await talk.ask(b"CONNECT {}\r\nSUB a 1\r\n") == b"+OK\r\n"
        talk.writer.transport.pause_reading()
        talk.writer.write(b"PUB a 1000000\r\n%b\r\n" % bytes(1_000_000) * 12)
        await until(lambda: server.broker.slow_consumers == 1)


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there = socket.create_connection(listener.getsockname())
        here, _ = listener.accept()
        return here, there


async def test_who_is_accepted_while_the_server_stops_does_not_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "CLOSE_CLIENTS_S", 600.0)
    close = ClientConnection.close
    late: list[ClientConnection] = []
    late_sockets: list[socket.socket] = []
    accepting: list[asyncio.Task[object]] = []

    def close_and_accept(connection: ClientConnection) -> None:
        if not late:
            late.append(ClientConnection(connection._shell))
            here, there = tcp_pair()
            late_sockets.append(there)
            loop = asyncio.get_running_loop()
            accepting.append(loop.create_task(loop.connect_accepted_socket(lambda: late[0], here)))
        close(connection)

    async with asyncio.timeout(30), ServerInstance(ANY) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await until(lambda: server.broker.sessions)
        monkeypatch.setattr(ClientConnection, "close", close_and_accept)
        await server.stop()
        assert late and late[0].closing
        writer.close()
        late_sockets[0].close()


async def test_who_sends_much_lets_others_be_read_first() -> None:
    async with asyncio.timeout(30), ServerInstance(ANY) as server:
        client = await RawClient.connect(server.url)
        [connection] = server.shell.connections.values()
        connection.data_received(MUCH)
        assert not connection.transport.is_reading()
        while not connection.transport.is_reading():
            await asyncio.sleep(0)
        connection.data_received(b"PUB x 0\r\n\r\n")
        assert connection.transport.is_reading()
        await client.close()


async def test_a_connection_that_gives_way_stays_paused_for_another_reason() -> None:
    async with asyncio.timeout(30), ServerInstance(ANY) as server:
        client = await RawClient.connect(server.url)
        [connection] = server.shell.connections.values()
        connection.data_received(MUCH)
        connection.pause()
        turned = asyncio.Event()
        asyncio.get_running_loop().call_soon(turned.set)  # after what the chunk has put in the loop's queue
        await turned.wait()
        assert not connection.transport.is_reading()
        connection.resume()
        assert connection.transport.is_reading()
        await client.close()


async def test_a_disk_that_does_not_answer_leaves_the_store_locked_and_no_clean_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ServerOptions(host="127.0.0.1", port=-1, jetstream=True, store_dir=tmp_path)
    answers, sync = threading.Event(), PosixFile.sync
    answers.set()

    def wait_and_sync(file: PosixFile) -> None:
        answers.wait()
        sync(file)

    monkeypatch.setattr(PosixFile, "sync", wait_and_sync)
    monkeypatch.setattr(PosixFile, "fileno", lambda file: -1)  # so that Python's threads commit
    monkeypatch.setattr("natsctl.store.file_commit.SMALL_BYTES", -1)  # and not the loop
    monkeypatch.setattr("natsctl.server.shell.QUIESCE_S", 0.05)
    server = ServerInstance(options, Log(with_time=False))
    await server.start()
    store = server.store
    client = await RawClient.connect(server.url)
    await client.request(b"$JS.API.STREAM.CREATE.A", b'{"name":"A","subjects":["a"]}')
    answers.clear()
    client.publish(b"a", b"late")
    await client.flush()
    committer = server.committer
    await until(lambda: committer.in_flight)
    await server.stop()
    assert "The disk does not answer" in capsys.readouterr().err
    with pytest.raises(StoreInUseError):
        await ServerInstance(options).start()
    answers.set()
    store._lock.close()  # as the end of the process does
