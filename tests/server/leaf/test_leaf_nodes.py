"""Leaf nodes of a running server, and the remotes that it asks."""

import asyncio
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import bcrypt
import pytest

from natsctl.broker.auth.static_auth import User
from natsctl.server.instance import ServerInstance
from natsctl.server.leaf.connection import MAX_OFFERED_URLS, REFUSED_MAX_S, LeafRemote
from natsctl.server.monitor.varz import varz
from natsctl.server.options import LeafNodesOptions, LeafRemoteOptions, ServerOptions
from natsctl.server.system.answers import statsz
from natsctl.wire.server_url import ServerUrl
from tests.server.process.test_reload import site
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


A, B = ServerUrl("nats-leaf", "a", 1), ServerUrl("nats-leaf", "b", 2)


def remote(**options: Any) -> LeafRemote:
    shell = SimpleNamespace(log=None, loop=None, leafs=None)
    given = LeafRemoteOptions(urls=(A, B), no_randomize=True, **options)
    return LeafRemote(cast(Any, shell), given, 1.0, 1.0, lambda first, attempt: True)


def lost(**seen: Any) -> Any:
    given = {"reconnect_delay_ns": 0, "was_registered": True, "leafnode_urls": [], "ws_urls": [], **seen}
    return SimpleNamespace(**given)


def test_urls_take_turns() -> None:
    one = remote()
    assert [one._next_url() for _ in range(3)] == [A, B, A]


def test_what_a_hub_offers_comes_first_and_what_is_configured_stays() -> None:
    one = remote()
    one._take_offers(lost(leafnode_urls=["c:3", "a:1", "[::1]:4", "nonsense", "x:y"]))
    assert [url.address for url in one._urls] == ["c:3", "[::1]:4", "a:1", "b:2"]
    one._take_offers(lost(leafnode_urls=["d:5"]))
    assert [url.address for url in one._urls] == ["d:5", "a:1", "b:2"]


def test_offers_are_bounded_and_can_be_ignored() -> None:
    one, deaf = remote(), remote(ignore_discovered_servers=True)
    many = [f"h{number}:1" for number in range(1000)]
    for each in (one, deaf):
        each._take_offers(lost(leafnode_urls=many))
    assert (len(one._urls), len(deaf._urls)) == (MAX_OFFERED_URLS + 2, 2)


def test_a_lost_link_is_made_again_soon_and_a_refused_one_later_and_later() -> None:
    one = remote()
    assert [one._pause_s(lost()) for _ in range(3)] == [1.0, 1.0, 1.0]
    assert [one._pause_s(lost(was_registered=False)) for _ in range(7)] == [1, 2, 4, 8, 16, 30, REFUSED_MAX_S]
    assert one._pause_s(lost()) == 1.0
    assert one._pause_s(lost(reconnect_delay_ns=30_000_000_000)) == 30.0


async def test_a_disabled_remote_never_connects() -> None:
    one = remote(disabled=True)
    one.start()
    assert one._task is None
    await asyncio.sleep(0)
    one.stop()
