"""Leaf nodes of a running server: slow passwords beside the loop, what is counted, and what a reload does."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import bcrypt
import pytest

from natsctl.broker.auth.static_auth import User
from natsctl.server.instance import ServerInstance
from natsctl.server.monitor.varz import varz
from natsctl.server.options import LeafNodesOptions, ServerOptions
from natsctl.server.system_answers import statsz
from tests.server.test_reload import site
from tests.support.tls_clients import PATIENCE_S, talking, until

GUESSES = 6


def options(*users: User) -> ServerOptions:
    leafnodes = LeafNodesOptions(host="127.0.0.1", port=-1, users=users)
    return ServerOptions(host="127.0.0.1", port=-1, leafnodes=leafnodes)


async def link(
    server: ServerInstance, password: str, more: bytes = b""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port_of("leafnodes"))
    await reader.readline()
    fields = {"user": "a", "pass": password, "name": "SPOKE"}
    writer.write(b"CONNECT " + json.dumps(fields).encode() + b"\r\n" + more)
    return reader, writer


async def test_bcrypt_passwords_of_leaf_nodes_do_not_stop_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    compare, going = bcrypt.checkpw, threading.Event()
    monkeypatch.setattr(bcrypt, "checkpw", lambda *given: going.wait(PATIENCE_S) and compare(*given))
    async with ServerInstance(options(User("a", secret))) as server, talking(server.port) as client:
        await client.line()
        guesses = [await link(server, "wrong") for _ in range(GUESSES)]
        right, in_writer = await link(server, "right", b"LS+ crosses\r\nPING\r\n")
        for _ in range(20):
            assert await client.ask() == b"PONG\r\n"
        going.set()
        refused = await asyncio.gather(*(reader.read() for reader, _ in guesses))
        assert refused == [b"-ERR 'Authorization Violation'\r\n"] * GUESSES
        assert b'"connect_info":true' in await right.readuntil(b"PONG\r\n")
        assert server.broker.accounts["$G"].has_interest(b"crosses")
        for writer in (in_writer, *(writer for _, writer in guesses)):
            writer.close()


async def test_leaf_nodes_that_do_not_read_or_are_silent_are_counted_apart() -> None:
    async with ServerInstance(options()) as server:
        _, writer = await link(server, "")
        await until(lambda: server.broker.leafs)
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


async def test_remotes_come_and_go_with_a_reload_and_those_that_stay_keep_their_connection(tmp_path: Path) -> None:
    hub = ServerInstance(ServerOptions(host="127.0.0.1", port=-1, leafnodes=LeafNodesOptions("127.0.0.1", -1)))
    async with hub, site(tmp_path, "") as at:
        url = f"nats-leaf://127.0.0.1:{hub.port_of('leafnodes')}"
        one = f'{{ url: "{url}" }}'
        other = f'{{ url: "{url}", account: B, deny_imports: "no.>" }}'
        accounts = "accounts { B {} }\n"
        at.reload(f"{accounts}leafnodes {{ remotes: [ {one} ] }}\n")
        await until(lambda: len(at.server.broker.leafs) == 1)
        (first,) = at.server.broker.leafs
        at.reload(f"{accounts}leafnodes {{ remotes: [ {one}, {other} ] }}\n")
        await until(lambda: len(at.server.broker.leafs) == 2)
        at.reload(f"{accounts}leafnodes {{ remotes: [ {one.replace(' }', ', disabled: true }')}, {other} ] }}\n")
        await until(lambda: len(at.server.broker.leafs) == 1 and first not in at.server.broker.leafs)
        (second,) = at.server.broker.leafs
        at.reload(f"{accounts}leafnodes {{ remotes: [ {one}, {other} ] }}\n")
        await until(lambda: len(at.server.broker.leafs) == 2)
        assert second in at.server.broker.leafs
        at.reload(accounts)
        await until(lambda: len(at.server.broker.leafs) == 0)
        for line in ('"$G" Disabled value is: true', '"$G" Disabled value is: false', '"B" removed'):
            assert f'[INF] Reloaded: LeafNode Remote urls=["{url}"], account={line}' in at.log


async def test_users_of_the_block_that_a_reload_takes_out_lose_their_links(tmp_path: Path) -> None:
    block = "leafnodes {{ listen: 127.0.0.1:-1, authorization {{ users: [ {} ] }} }}\n"
    async with site(tmp_path, block.format("{user: a, password: a}, {user: b, password: b}")) as at:
        gone, gone_writer = await link(at.server, "a")
        await until(lambda: len(at.server.broker.leafs) == 1)
        at.reload(block.format("{user: b, password: b}"))
        assert b"-ERR 'Authorization Violation'" in await gone.read()
        gone_writer.close()
