"""Output of many megabytes: it leaves in slices, nobody waits for it, and it arrives whole over every transport."""

import asyncio
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from natsctl.broker.broker import Broker
from natsctl.broker.broker_options import BrokerOptions
from natsctl.broker.refusals import CloseReason
from natsctl.server import shell as shell_module
from natsctl.server.instance import ServerInstance
from natsctl.server.listener import LARGE_BYTES, SLICE_BYTES, ClientConnection
from natsctl.server.log.lines import Log
from natsctl.server.options import LeafNodesOptions, LeafRemoteOptions, ServerOptions, WebSocketOptions
from natsctl.server.shell import TURN_SLICES, Shell
from natsctl.wire.server_url import parse_server_url
from tests.server.test_shell import DueCalls
from tests.support.clock import VirtualClock
from tests.support.tls_clients import PATIENCE_S, Files, Talk, serving, talking, until

LOGIN = b'CONNECT {"verbose":false}\r\nSUB all 1\r\n'
LIMIT = 64 << 20
TURN_WRITE_BYTES = TURN_SLICES * SLICE_BYTES


class Wire:
    """A transport that takes everything at once, unless it is full."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.ended = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.ended = True

    @property
    def data(self) -> bytes:
        return b"".join(self.writes)


@pytest.fixture
def loop() -> DueCalls:
    loop = DueCalls()
    loop.time = lambda: 1.0  # type: ignore[attr-defined]
    return loop


@pytest.fixture
def shell(loop: DueCalls, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setattr(shell_module, "UNFINISHED_S", 0.0)
    broker = Broker(VirtualClock(), random.Random(1), BrokerOptions(max_pending=LIMIT))
    return Shell(cast(Any, loop), Log(quiet=True), broker, None, 10.0)


def connected(shell: Shell, loop: DueCalls, login: bytes = LOGIN) -> tuple[ClientConnection, Wire]:
    connection, wire = ClientConnection(shell), Wire()
    connection.connection_made(cast(Any, wire))
    shell.received(connection, login)
    loop.run()
    wire.writes.clear()
    return connection, wire


def publish(shell: Shell, payload: bytes, header: bytes = b"") -> None:
    shell.broker.accounts["$G"].publish(b"all", b"", header, payload)
    shell.wake()


def frame_of(payload: bytes) -> bytes:
    return b"MSG all 1 %d\r\n%b\r\n" % (len(payload), payload)


def turns(loop: DueCalls, wires: list[Wire]) -> Iterator[int]:
    """Take all turns; yield the bytes that each one writes."""
    before = sum(len(wire.data) for wire in wires)
    while loop.run():
        after = sum(len(wire.data) for wire in wires)
        yield after - before
        before = after


@pytest.mark.parametrize(
    ("recipients", "size"),
    [(1, 3 * TURN_WRITE_BYTES), (3, SLICE_BYTES), (7, SLICE_BYTES + 1), (80, LARGE_BYTES), (20, SLICE_BYTES)],
)
def test_one_turn_writes_a_limited_number_of_bytes(shell: Shell, loop: DueCalls, recipients: int, size: int) -> None:
    wires = [connected(shell, loop)[1] for _ in range(recipients)]
    other, quick = connected(shell, loop, b'CONNECT {"verbose":false}\r\n')
    payload = random.Random(2).randbytes(size)
    publish(shell, payload)
    shell.received(other, b"PING\r\n")
    written = turns(loop, [*wires, quick])
    first = next(written)
    assert quick.data == b"PONG\r\n", "it does not wait"
    assert max(first, *written, 0) <= TURN_WRITE_BYTES + SLICE_BYTES + 100
    assert [wire.data for wire in wires] == [frame_of(payload)] * recipients
    assert max(len(data) for wire in wires for data in wire.writes) <= SLICE_BYTES


def test_later_output_comes_after_it_and_many_small_parts_are_cut_too(shell: Shell, loop: DueCalls) -> None:
    connection, wire = connected(shell, loop)
    payload, expected = bytes(range(256)) * 16_384, b""
    for count in (1, 9):
        publish(shell, payload[:-count])
        shell.received(connection, b"PING\r\n")
        loop.run()
        expected += frame_of(payload[:-count]) + b"PONG\r\n"
    small = 5 * SLICE_BYTES // len(frame_of(b"xy"))
    for _ in range(small):
        publish(shell, b"xy")
    assert all(size <= TURN_WRITE_BYTES + SLICE_BYTES for size in turns(loop, [wire]))
    assert wire.data == expected + frame_of(b"xy") * small


def test_it_waits_while_the_transport_is_full(shell: Shell, loop: DueCalls) -> None:
    connection, wire = connected(shell, loop)
    payload = bytes(4 * TURN_WRITE_BYTES)
    publish(shell, payload)
    loop.run()
    for _ in range(3):
        connection.pause_writing()
        before = len(wire.data)
        assert sum(turns(loop, [wire])) == 0 and connection.waiting_bytes == len(frame_of(payload)) - before
        connection.resume_writing()
        assert len(wire.data) <= before + TURN_WRITE_BYTES
    assert sum(turns(loop, [wire])) and wire.data == frame_of(payload)


def test_it_has_one_write_deadline_in_all(shell: Shell, loop: DueCalls) -> None:
    connection, wire = connected(shell, loop)
    publish(shell, bytes(9 * TURN_WRITE_BYTES))
    loop.run()
    left_s = []
    for seconds in (1.0, 5.0, 9.0):
        loop.time = lambda now=seconds: now  # type: ignore[attr-defined]
        connection.pause_writing()
        left_s.append(shell.blocked(connection))
        connection.resume_writing()
    assert left_s == [10.0, 6.0, 2.0], "a slice that leaves does not begin it again"
    list(turns(loop, [wire]))
    connection.pause_writing()
    assert shell.blocked(connection) == 10.0, "later output has its own"


@pytest.mark.parametrize("end", ["closed by the server", "closed by the client", "blocked"])
def test_a_connection_closes_after_it(shell: Shell, loop: DueCalls, end: str) -> None:
    connection, wire = connected(shell, loop)
    payload = bytes(3 * TURN_WRITE_BYTES)
    publish(shell, payload)
    loop.run()
    if end == "closed by the client":
        assert connection.eof_received(), "the loop must not close it"
    else:
        connection.session.close(CloseReason.KICKED)
    if end == "blocked":
        connection.pause_writing()
        assert sum(turns(loop, [wire])) == 0 and connection.closing and not wire.ended
        connection.resume_writing()
    assert not wire.ended
    list(turns(loop, [wire]))
    assert wire.data == frame_of(payload) and wire.ended


def test_nothing_is_written_after_a_lost_connection(shell: Shell, loop: DueCalls) -> None:
    connection, wire = connected(shell, loop)
    publish(shell, bytes(3 * TURN_WRITE_BYTES))
    loop.run()
    assert connection.may_send_more
    connection.connection_lost(None)
    assert sum(turns(loop, [wire])) == 0 and not connection.waiting_bytes


# Over real transports


async def receives(talk: Talk, publish: Any, payload: bytes, subject: bytes = b"all") -> None:
    """Subscribe, have the payload published with and without headers, and read both messages."""
    assert await talk.ask(b'CONNECT {"verbose":false,"headers":true}\r\nSUB %b 1\r\nPING\r\n' % subject) == b"PONG\r\n"
    header = b"NATS/1.0\r\nA: b\r\n\r\n"
    await publish(header)
    for line in (
        b"MSG %b 1 %d\r\n" % (subject, len(payload)),
        b"HMSG %b 1 %d %d\r\n" % (subject, len(header), len(header + payload)),
    ):
        while (got := await talk.line()) == b"PING\r\n" or got.startswith(b"INFO"):
            pass
        assert got == line
        body = header + payload if line.startswith(b"HMSG") else payload
        async with asyncio.timeout(PATIENCE_S):
            assert await talk.reader.readexactly(len(body) + 2) == body + b"\r\n"


PAYLOAD = bytes(itertools.islice(itertools.cycle(b'{"name":"C1","num":12345},'), 9_000_001))


def publisher(server: ServerInstance, subject: bytes = b"all") -> Any:
    async def publish(header: bytes) -> None:
        account = server.broker.accounts["$G"]
        await until(lambda: account.has_interest(subject))
        for each in (b"", header):
            account.publish(subject, b"", each, PAYLOAD)
        server._shell.wake()  # type: ignore[union-attr]

    return publish


@pytest.mark.parametrize("secured", [False, True])
async def test_it_arrives_whole(tmp_path: Path, secured: bool) -> None:
    files = Files(tmp_path)
    async with serving(tls=files.tls() if secured else None) as server, talking(server.port) as talk:
        await talk.line()
        if secured:
            await talk.secure(files.client())
        await receives(talk, publisher(server), PAYLOAD)


@pytest.mark.parametrize("compressed", [False, True])
async def test_it_arrives_whole_through_leaf_nodes_over_websocket(compressed: bool) -> None:
    hub = ServerOptions(
        host="127.0.0.1", port=-1, max_payload=LIMIT, leafnodes=LeafNodesOptions(host="127.0.0.1", port=-1),
        websocket=WebSocketOptions(-1, "127.0.0.1", no_tls=True, compression=compressed),
    )  # fmt: skip
    async with ServerInstance(hub) as up:
        url = parse_server_url(f"ws://127.0.0.1:{up.port_of('websocket')}")
        remote = LeafRemoteOptions(urls=(url,), ws_compression=compressed)
        spoke = ServerOptions(
            host="127.0.0.1", port=-1, max_payload=LIMIT,
            leafnodes=LeafNodesOptions(host="127.0.0.1", port=0, remotes=(remote,), reconnect_s=0.1),
        )  # fmt: skip
        async with ServerInstance(spoke) as down:
            for near, far, subject in ((up, down, b"up"), (down, up, b"down")):
                async with talking(near.port) as talk:
                    await talk.line()
                    await receives(talk, publisher(far, subject), PAYLOAD, subject)
