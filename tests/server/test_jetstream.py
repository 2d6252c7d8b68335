"""JetStream behind the shell: group commit, back-pressure, restarts, what a failing disk does to the process."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import DeliverPolicy

from natsctl.server import shell
from natsctl.server.instance import ServerInstance
from natsctl.server.log.lines import Log
from natsctl.server.options import ServerOptions
from natsctl.store.disk import PosixFile
from tests.support import patient_client
from tests.support.raw_client import RawClient
from tests.support.tls_clients import PATIENCE_S, until


def options(folder: Path) -> ServerOptions:
    return ServerOptions(host="127.0.0.1", port=-1, jetstream=True, store_dir=folder)


async def api(client: RawClient, verb: str, **body: object) -> dict[str, Any]:
    _, answer = await client.request(f"$JS.API.{verb}".encode(), json.dumps(body).encode() if body else b"")
    value: dict[str, Any] = json.loads(answer)
    assert "error" not in value, value
    return value


async def add(client: RawClient, name: str, **more: object) -> None:
    await api(client, f"STREAM.CREATE.{name}", name=name, subjects=[f"{name}.>"], **more)


class Acks:
    def __init__(self, client: RawClient, name: bytes) -> None:
        self.client, self.inbox, self.sent, self.seqs = client, b"_INBOX.acks." + name, 0, list[int]()
        self.others: list[dict[str, Any]] = []
        self.changed = asyncio.Event()
        client.subscribe(self.inbox + b".*", self._acked)

    def _acked(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        answer = json.loads(payload)
        if "error" in answer:
            self.others.append(answer)
        else:
            self.seqs.append(answer["seq"])
        self.changed.set()

    def publish(self, subject: bytes, payload: bytes) -> None:
        self.sent += 1
        self.client.publish(subject, payload, b"%s.%d" % (self.inbox, self.sent))

    async def all(self, seconds: float = PATIENCE_S) -> None:
        async with asyncio.timeout(seconds):
            while len(self.seqs) + len(self.others) < self.sent:
                self.changed.clear()
                await self.changed.wait()


class SlowDisk:
    """Holds every sync until it is let go, or for one stream's folder only."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.held: set[PosixFile] = set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    """A gate in front of the real `sync`: files in `held` wait for it."""
    gate = SlowDisk()
    sync = PosixFile.sync

    def gated(file: PosixFile) -> None:
        if file in gate.held:
            gate.open.wait(PATIENCE_S)
        sync(file)

    monkeypatch.setattr(PosixFile, "sync", gated)
    monkeypatch.setattr(PosixFile, "fileno", lambda file: -1)  # native threads would sync without it
    yield gate
    gate.open.set()


def log_file(server: ServerInstance, name: str) -> PosixFile:
    file = server.store.streams[f"$G/{name}"]._index.active.body.writer
    assert isinstance(file, PosixFile)
    return file


def log_path(server: ServerInstance, name: str) -> str:
    return str(server.store.streams[f"$G/{name}"]._index.active.body.path)


async def test_what_a_flush_has_answered_is_seen_by_another_client(tmp_path: Path) -> None:
    async with ServerInstance(options(tmp_path)) as server:
        publisher, client = await patient_client.connect(server.url), await patient_client.connect(server.url)
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"], allow_direct=True)
        await js.add_consumer("S", durable_name="W")

        async def publish(payload: bytes) -> None:
            await publisher.publish("s", payload)
            await publisher.flush()

        for number in range(1, 31):
            await publish(b"a")
            assert (await js.consumer_info("S", "W")).num_pending == number * 4 - 3
            await publish(b"b")
            fresh = await js.add_consumer("S", name=f"F{number}", deliver_policy=DeliverPolicy.NEW)
            await publish(b"c")
            assert (await client.request("$JS.API.DIRECT.GET.S.s", timeout=PATIENCE_S)).data == b"c"
            await publish(b"d")
            assert (await js.stream_info("S")).state.messages == number * 4
            assert (fresh.num_pending, (await js.consumer_info("S", f"F{number}")).num_pending) == (0, 2)
        pull = await js.pull_subscribe_bind("W", "S")
        await publish(b"e")
        assert len(await pull.fetch(121, timeout=PATIENCE_S)) == 121
        assert (await js.consumer_info("S", "W")).num_pending == 0
        await publisher.close()
        await client.close()


async def test_a_stop_answers_what_was_read(tmp_path: Path, disk: SlowDisk) -> None:
    async with ServerInstance(options(tmp_path)) as server:
        client = await RawClient.connect(server.url)
        await add(client, "S")
        await client.request(b"S.first", b"")
        disk.held = {log_file(server, "S")}
        disk.open.clear()
        acks = Acks(client, b"s")
        for _ in range(500):
            acks.publish(b"S.x", b"payload")
        stream = server.store.streams["$G/S"] if server.store else None
        async with asyncio.timeout(PATIENCE_S):
            while stream.last_seq < 501:
                await asyncio.sleep(0)
        assert acks.seqs == []
        stopped = asyncio.create_task(server.stop())
        await asyncio.sleep(0)
        disk.open.set()
        await stopped
        await asyncio.wait_for(client.closed.wait(), PATIENCE_S)
        assert acks.seqs == list(range(2, 502))


async def test_a_slow_sync_of_one_stream_leaves_others_alone_and_pauses_its_publishers(
    tmp_path: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "WAITING_ACKS", 100)
    async with ServerInstance(options(tmp_path)) as server:
        setup = await RawClient.connect(server.url)
        await add(setup, "SLOW")
        await add(setup, "QUICK")
        await setup.request(b"SLOW.first", b"")
        await setup.request(b"QUICK.first", b"")
        disk.held = {log_file(server, "SLOW")}
        disk.open.clear()
        flooding, other = await RawClient.connect(server.url), await RawClient.connect(server.url)
        flood, calm = Acks(flooding, b"flood"), Acks(other, b"calm")
        for _ in range(200):
            for _ in range(100):
                flood.publish(b"SLOW.x", b"x" * 1000)
            await asyncio.sleep(0)
        for _ in range(50):
            calm.publish(b"QUICK.x", b"")
        await calm.all()
        assert flood.seqs == []
        stream = server.store.streams["$G/SLOW"] if server.store else None
        assert stream.last_seq < 15_000
        disk.open.set()
        await flood.all()
        assert flood.seqs == list(range(2, 20_002))
        for client in (setup, flooding, other):
            await client.close()


async def test_large_messages_are_bounded_by_their_bytes(
    tmp_path: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "WAITING_BYTES", 1 << 20)
    async with ServerInstance(options(tmp_path)) as server:
        client = await RawClient.connect(server.url)
        await add(client, "S")
        await client.request(b"S.first", b"")
        disk.held = {log_file(server, "S")}
        disk.open.clear()
        acks = Acks(client, b"s")
        for _ in range(200):
            acks.publish(b"S.x", b"x" * 100_000)
        (connection,) = server.shell.connections.values()
        await until(lambda: not connection.transport.is_reading())
        stream = server.store.streams["$G/S"] if server.store else None
        assert stream.last_seq < 100
        disk.open.set()
        await acks.all()
        await client.close()


async def test_a_damaged_stream_is_reported_and_the_others_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with ServerInstance(options(tmp_path)) as server:
        client = await RawClient.connect(server.url)
        await add(client, "BAD")
        await add(client, "GOOD")
        for _ in range(20):
            await client.request(b"BAD.x", b"precious " * 50)
        await client.request(b"GOOD.x", b"")
        segment = next((tmp_path / "jetstream").glob(f"{log_path(server, 'BAD')}"))
        await client.close()
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    async with ServerInstance(options(tmp_path), Log(with_time=False)) as server:
        client = await RawClient.connect(server.url)
        assert (await api(client, "STREAM.INFO.GOOD"))["state"]["messages"] == 1
        _, answer = await client.request(b"$JS.API.STREAM.INFO.BAD", b"")
        assert json.loads(answer)["error"]["err_code"] == 10194
        assert "were synced and are missing or damaged" in json.loads(answer)["error"]["description"]
        assert list((await api(client, "STREAM.LIST"))["offline"]) == ["BAD"]
        await client.close()
    said = capsys.readouterr().err
    assert "[ERR] stream $G/BAD is damaged and stays closed, nothing was touched" in said
    assert "[INF] JetStream state recovered: 1 stream\n" in said
    assert segment.read_bytes() == content


async def test_a_waiting_pull_request_is_told_that_the_server_stops(tmp_path: Path) -> None:
    async with ServerInstance(options(tmp_path)) as server:
        client = await RawClient.connect(server.url)
        await add(client, "S")
        config = {"name": "C", "durable_name": "C", "ack_policy": "explicit"}
        await api(client, "CONSUMER.CREATE.S.C", stream_name="S", config=config)
        waiting = asyncio.ensure_future(client.request(b"$JS.API.CONSUMER.MSG.NEXT.S.C", b"5"))
        while (await api(client, "CONSUMER.INFO.S.C"))["num_waiting"] == 0:
            pass
    header, _ = await waiting
    assert header.startswith(b"NATS/1.0 409 Server Shutdown\r\n")
    await client.close()
