"""Leaf nodes of a running server: slow passwords beside the loop, what is counted, and who is counted as what."""

from __future__ import annotations

import asyncio
import json

import bcrypt

from natsctl.broker.static_auth import User
from natsctl.server.instance import ServerInstance
from natsctl.server.leaf_options import LeafNodesOptions
from natsctl.server.monitor.varz import varz
from natsctl.server.options import ServerOptions
from natsctl.server.system.statsz import statsz

COST = 11
"""About 100 ms."""
GUESSES = 6


def options(*users: User, auth_timeout_s: float = 0.0) -> ServerOptions:
    leafnodes = LeafNodesOptions(host="127.0.0.1", port=-1, users=users, auth_timeout_s=auth_timeout_s)
    return ServerOptions(host="127.0.0.1", port=-1, leafnodes=leafnodes)


async def link(
    server: ServerInstance, password: str, more: bytes = b""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port_of("leafnodes"))
    await reader.readline()
    fields = {"user": "a", "pass": password, "name": "SPOKE"}
    writer.write(b"CONNECT " + json.dumps(fields).encode() + b"\r\n" + more)
    return reader, writer


async def test_bcrypt_passwords_of_leaf_nodes_do_not_stop_the_clients() -> None:
    secret = bcrypt.hashpw(b"right", bcrypt.gensalt(COST)).decode()
    # As many comparisons as take longer than the time for CONNECT: who has said it in time does not pay for that.
    async with ServerInstance(options(User("a", secret), auth_timeout_s=0.3)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b'CONNECT {"verbose":false}\r\n')
        guesses = [await link(server, "wrong") for _ in range(GUESSES)]
        right, in_writer = await link(server, "right", b"LS+ crosses\r\nPING\r\n")
        known = asyncio.ensure_future(right.readuntil(b"PONG\r\n"))
        refused = asyncio.gather(*(reader.read() for reader, _ in guesses))
        pongs = 0
        while not (refused.done() and known.done()):
            writer.write(b"PING\r\n")
            await asyncio.wait_for(reader.readuntil(b"PONG\r\n"), 5)
            pongs += 1
        assert await refused == [b"-ERR 'Authorization Violation'\r\n"] * GUESSES
        assert b'"connect_info":true' in await known
        assert pongs > 20 * GUESSES
        assert server.broker.accounts["$G"].has_interest(b"crosses")
        for connection in (writer, in_writer, *(writer for _, writer in guesses)):
            connection.close()


async def test_leaf_nodes_that_do_not_read_or_are_silent_are_counted_apart() -> None:
    async with ServerInstance(options()) as server:
        _, writer = await link(server, "")
        while not server.broker.leafs:
            await asyncio.sleep(0.01)
        assert server.leafs is not None
        (found,) = server.leafs.leafs.registered()
        server.broker.slow_consumers = server.broker.stale_connections = 2
        found.cut_slow_consumer()
        kinds = {"clients": 2, "routes": 0, "gateways": 0, "leafs": 1}
        document = varz(server)
        assert (document["slow_consumers"], document["slow_consumer_stats"]) == (3, kinds)
        assert document["stale_connection_stats"] == {**kinds, "leafs": 0}
        assert statsz(server)["statsz"]["slow_consumer_stats"] == kinds
        writer.close()
