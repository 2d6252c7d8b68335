import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Message,
    Ping,
    Pong,
    Request,
)
from wsproto.extensions import PerMessageDeflate
from wsproto.frame_protocol import CloseReason

from natsctl.server.instance import ServerInstance
from natsctl.server.options import ServerOptions, WebSocketOptions

OPTIONS = ServerOptions(
    host="127.0.0.1", port=-1, websocket=WebSocketOptions(-1, "127.0.0.1", no_tls=True, compression=True)
)


class Client:
    """A WebSocket client that speaks NATS by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._ws = WSConnection(ConnectionType.CLIENT)
        self.text = b""
        self.pongs = 0
        self.closed_with: int | None = None

    async def open(self, *extensions: PerMessageDeflate) -> None:
        request = Request(host="h", target="/", extensions=list(extensions))
        self._writer.write(self._ws.send(request))

    def send(self, event: BytesMessage | Ping | CloseConnection) -> None:
        self._writer.write(self._ws.send(event))

    async def read_until(self, wanted: bytes) -> bytes:
        """Read messages until `wanted` has come, and return everything up to here."""
        async with asyncio.timeout(30):
            while wanted not in self.text:
                await self._read()
        return self.text

    async def _read(self) -> None:
        data = await self._reader.read(65536)
        self._ws.receive_data(data or None)
        for event in self._ws.events():
            if isinstance(event, Message):
                self.text += bytes(event.data)
            elif isinstance(event, Pong):
                self.pongs += 1
            elif isinstance(event, CloseConnection):
                self.closed_with = event.code
            else:
                assert isinstance(event, AcceptConnection)

    async def read_to_the_end(self) -> None:
        async with asyncio.timeout(30):
            while self.closed_with is None:
                await self._read()


@asynccontextmanager
async def connected(server: ServerInstance, *extensions: PerMessageDeflate) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port_of("websocket"))
    client = Client(reader, writer)
    await client.open(*extensions)
    assert (await client.read_until(b"\r\n")).startswith(b"INFO {")
    yield client
    writer.close()


async def test_publish_and_subscribe_with_operations_split_over_messages() -> None:
    async with ServerInstance(OPTIONS) as server, connected(server) as client:
        for part in (b'CONNECT {"verbose":false}\r\nSUB a 1\r', b"\nPUB a 5\r\nhel", b"lo\r\nPING\r\n"):
            client.send(BytesMessage(data=part))
        assert (await client.read_until(b"PONG")).endswith(b"MSG a 1 5\r\nhello\r\nPONG\r\n")


async def test_large_messages_go_through_compression_both_ways() -> None:
    async with ServerInstance(OPTIONS) as server, connected(server, PerMessageDeflate()) as client:
        client.send(BytesMessage(data=b'CONNECT {"verbose":false}\r\nSUB a 1\r\n'))
        client.send(BytesMessage(data=b"PUB a 500000\r\n" + b"x" * 500_000 + b"\r\n"))
        assert b"x" * 500_000 in await client.read_until(b"x\r\n")


async def test_pings_of_the_frame_layer_are_answered() -> None:
    async with ServerInstance(OPTIONS) as server, connected(server) as client:
        client.send(Ping(payload=b"here?"))
        client.send(BytesMessage(data=b"PING\r\n"))
        await client.read_until(b"PONG")
        assert client.pongs == 1


async def test_a_protocol_error_is_told_and_ends_with_a_close_frame() -> None:
    async with ServerInstance(OPTIONS) as server, connected(server) as client:
        client.send(BytesMessage(data=b"NONSENSE\r\n"))
        await client.read_to_the_end()
        assert b"-ERR 'Unknown Protocol Operation'" in client.text


async def test_a_client_that_says_goodbye_leaves_no_session() -> None:
    async with ServerInstance(OPTIONS) as server, connected(server) as client:
        assert len(server.broker.sessions) == 1
        client.send(CloseConnection(code=CloseReason.NORMAL_CLOSURE))
        await client.read_to_the_end()
        async with asyncio.timeout(30):
            while server.broker.sessions:
                await asyncio.sleep(0.01)
