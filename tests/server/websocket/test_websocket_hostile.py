"""Those who mean harm to the WebSocket listener, and those who do not read."""

import asyncio
import json
import socket
import zlib

import pytest
from msgspec.structs import replace
from wsproto.frame_protocol import Opcode

from natsctl.broker import deferred_work
from natsctl.broker.refusals import CloseReason
from natsctl.broker.session import Session
from natsctl.server import shell
from natsctl.server.instance import ServerInstance
from natsctl.server.options import WebSocketOptions
from natsctl.server.websocket.protocol import COMPRESSED, FINAL, FrameRules
from tests.support.tls_clients import PATIENCE_S, ListLog, serving, talking, until

from .test_websocket_frames import deflated
from .upgrades import BINARY, PING, Frames, masked, said, upgraded

CLEAR = WebSocketOptions(-1, "127.0.0.1", no_tls=True, compression=True)
CLOSE = FINAL | Opcode.CLOSE


def port(server: ServerInstance) -> int:
    return server.port_of("websocket")


async def introduced(client: Frames) -> Frames:
    client.send(said(b'CONNECT {"verbose":false}\r\nPING\r\n'))
    assert (await client.next())[1] == b"PONG\r\n"
    return client


async def closing(client: Frames) -> tuple[int, str]:
    """Return status and reason of the close frame, after whatever comes before it."""
    while True:
        head, payload = await client.next()
        if head == CLOSE:
            return int.from_bytes(payload[:2], "big"), payload[2:].decode()


@pytest.mark.parametrize(
    ("sent", "status", "text"),
    [
        (b"\x82\x01x", 1002, "mask bit missing"),
        (masked(PING, b"x" * 126), 1002, "control frame length bigger than maximum allowed of 125 bytes"),
        (masked(BINARY | COMPRESSED, deflated(b"\0" * 9_000_000)), 1009, "maximum payload exceeded"),
        (masked(CLOSE, b"x"), 1002, "close frame payload cannot be 1 byte"),
    ],
)
async def test_a_bad_frame_ends_with_a_close_frame_that_says_why(sent: bytes, status: int, text: str) -> None:
    log = ListLog()
    async with serving(log, websocket=CLEAR) as server:
        async with upgraded(port(server), Sec_WebSocket_Extensions="permessage-deflate", Nats_No_Masking="") as client:
            client.send(sent)
            assert await closing(client) == (status, text)
            assert await client.talk.rest() == b""
        await until(lambda: len(server.broker.closed) == 1)
        assert server.broker.closed[0].close_reason is CloseReason.READ_ERROR
        assert log.said(f"read error: {text}")


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"NONSENSE\r\n", 1002), (b"PUB a 2000000\r\n", 1009), (b"SUB " + b"x" * 5000, 1008)],
)
async def test_a_protocol_error_has_the_status_of_its_reason(sent: bytes, status: int) -> None:
    async with serving(websocket=CLEAR) as server, upgraded(port(server)) as client:
        (await introduced(client)).send(said(sent))
        assert (await client.next())[1].startswith(b"-ERR '")
        assert (await closing(client))[0] == status


async def test_goodbye_is_answered_and_what_was_asked_before_is_not_lost() -> None:
    async with serving(websocket=CLEAR) as server, upgraded(port(server)) as client:
        (await introduced(client)).send(said(b"PING\r\n"), masked(CLOSE, b"\x03\xe8bye"))
        assert (await client.next())[1] == b"PONG\r\n"
        assert await closing(client) == (1000, "bye")
        assert await client.talk.rest() == b""
        await until(lambda: not server.broker.sessions)
        assert server.broker.closed[0].close_reason is CloseReason.CLIENT_CLOSED


async def test_operations_may_be_split_over_messages_and_pings_of_frames_are_answered() -> None:
    async with serving(websocket=CLEAR) as server, upgraded(port(server)) as client:
        (await introduced(client)).send(said(b"SUB a 1\r"), said(b"\nPUB a 5\r\nhel"), masked(PING, b"here?"))
        assert await client.next() == (FINAL | Opcode.PONG, b"here?")
        client.send(said(b"lo\r\n"))
        assert await client.next() == (BINARY, b"MSG a 1 5\r\nhello\r\n")


async def test_a_flood_of_pings_that_nobody_reads_the_answers_of_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = 64 * 1024
    monkeypatch.setattr("natsctl.server.websocket.connection.WRITE_BUFFER_BYTES", most)
    async with serving(websocket=CLEAR) as server, upgraded(port(server)) as client:
        await introduced(client)
        connection = next(iter(server.shell.connections.values()))
        client.talk.writer.transport.pause_reading()
        client.talk.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for _ in range(30):
            client.talk.writer.write(masked(PING, b"x" * 125) * 1000)
            await client.talk.writer.drain()
        await until(lambda: connection.blocked_since)
        assert connection.transport.get_write_buffer_size() <= most + 127
        async with upgraded(port(server)) as other:
            await introduced(other)


async def test_a_frame_of_gigabytes_is_read_as_it_comes_and_ends_with_its_first_nonsense() -> None:
    async with serving(websocket=CLEAR) as server, upgraded(port(server)) as client:
        await introduced(client)
        client.send(bytes([BINARY, 0xFF]) + (1 << 40).to_bytes(8, "big") + b"\0\0\0\0" + b"PING\r\n" * 1000)
        assert (await client.next())[1].startswith(b"PONG\r\n")
        client.talk.writer.write(b"NONSENSE\r\n")
        assert (await closing(client))[0] == 1002


async def test_pings_of_the_listener_come_in_their_own_time() -> None:
    options = replace(CLEAR, ping_interval_s=0.1)
    async with serving(websocket=options, ping_max=1000) as server, upgraded(port(server)) as client:
        await introduced(client)
        for session in server.broker.sessions.values():
            session.rtt_ns = 1
        assert (await client.next())[1] == b"PING\r\n"  # long before the two minutes of everybody else
        client.send(said(b"PONG\r\n"))
        assert (await client.next())[1] == b"PING\r\n"


async def test_output_is_compressed_from_65_bytes_on_and_in_browser_sized_frames() -> None:
    agent = "Mozilla/5.0"
    async with serving(websocket=CLEAR) as server:
        async with upgraded(port(server), Sec_WebSocket_Extensions="permessage-deflate") as client:
            client.send(said(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPUB a 500\r\n' + b"x" * 500 + b"\r\n"))
            head, payload = await client.next()
            assert head == BINARY | COMPRESSED
            assert zlib.decompressobj(-15).decompress(payload).startswith(b"MSG a 1 500\r\nxxx")
        async with upgraded(port(server), User_Agent=agent) as client:
            client.send(said(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPUB a 9000\r\n' + b"x" * 9000 + b"\r\n"))
            sizes = [len((await client.next())[1]) for _ in range(3)]
            assert sizes == [4096, 4096, len(b"MSG a 1 9000\r\n") + 9002 - 8192]


async def test_connections_without_a_request_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("natsctl.server.websocket.connection.MAX_WAITING", 3)
    async with serving(websocket=CLEAR) as server:
        crowd = [await asyncio.open_connection("127.0.0.1", port(server)) for _ in range(5)]
        gone = 0
        for reader, _ in crowd[3:]:
            try:
                gone += await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
            except ConnectionError:
                gone += 1
        assert gone == 2
        for _, writer in crowd:
            writer.transport.abort()
        await until(lambda: server.upgrader is not None and not server.upgrader.waiting)
        async with upgraded(port(server)) as client:
            assert json.loads(client.info[5:])


async def test_a_server_that_stops_says_so() -> None:
    async with serving(websocket=CLEAR) as server, upgraded(port(server)) as client:
        await introduced(client)
        await server.stop()
        assert await closing(client) == (1001, "Server Shutdown")


async def test_one_too_many_is_told_in_frames() -> None:
    async with serving(websocket=CLEAR, max_connections=1) as server, upgraded(port(server)) as client:
        await introduced(client)
        async with upgraded(port(server)) as another:
            said_last = b""
            while (frame := await another.next())[0] != CLOSE:
                said_last = frame[1]
            assert (said_last or another.info).endswith(b"-ERR 'maximum connections exceeded'\r\n")
            assert frame[1] == (1008).to_bytes(2, "big") + b"Maximum Connections Exceeded"


async def test_a_server_that_stops_leaves_no_handshake_behind() -> None:
    options = replace(CLEAR, handshake_timeout_s=600.0)
    async with serving(websocket=options) as server, talking(server.port_of("websocket")) as talk:
        talk.writer.write(b"GET / HTTP/1.1\r\n")
        await until(lambda: server.upgrader is not None and server.upgrader.waiting)
        await server.stop()
        assert await talk.rest() == b""


async def test_no_frame_is_unpacked_before_those_before_it_were_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    inflate, resume = FrameRules._inflate, shell.resume_work

    def inflating(messages: FrameRules, data: bytes) -> bytes:
        steps.append("inflate")
        return inflate(messages, data)

    def resuming(session: Session) -> None:
        steps.append("slice")
        resume(session)

    async with (
        serving(websocket=CLEAR) as server,
        upgraded(port(server), Sec_WebSocket_Extensions="permessage-deflate") as client,
    ):
        await introduced(client)
        monkeypatch.setattr(FrameRules, "_inflate", inflating)
        monkeypatch.setattr(shell, "resume_work", resuming)
        monkeypatch.setattr(deferred_work, "SLICE_NS", -1)
        monkeypatch.setattr(deferred_work, "CROWD_SLICE_NS", -1)
        frame = masked(BINARY | COMPRESSED, deflated(b"PUB a 0\r\n\r\n" * 500))
        client.send(frame * 40, said(b"PING\r\n"))
        assert (await client.next())[1] == b"PONG\r\n"
        (session,) = server.broker.sessions.values()
        assert session.in_msgs == 40 * 500
    runs = "".join(step[0] for step in steps).split("s")
    assert sum(map(len, runs)) == 2 * 40, "once for the frame, and once for its end"
    assert max(map(len, runs)) <= 2
    assert len(runs) > 40
