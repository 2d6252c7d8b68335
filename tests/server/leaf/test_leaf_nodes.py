"""Leaf nodes of a running server: slow passwords beside the loop, what is counted, and what a reload does."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import bcrypt
import pytest

from natsctl.broker.auth.static_auth import User
from natsctl.server.conf.config import read_config
from natsctl.server.instance import ServerInstance
from natsctl.server.monitor.query import BadRequestError
from natsctl.server.monitor.varz import varz
from natsctl.server.options import LeafNodesOptions, ServerOptions
from natsctl.server.process.log import Log
from natsctl.server.reload import Reloader
from natsctl.server.system_answers import statsz

SLOW_S = 0.4
"""How long a comparison takes."""
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


async def test_bcrypt_passwords_of_leaf_nodes_do_not_stop_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    compare = bcrypt.checkpw

    def slow(given: bytes, known: bytes) -> bool:
        time.sleep(SLOW_S)
        return compare(given, known)

    monkeypatch.setattr(bcrypt, "checkpw", slow)
    # As many comparisons as take longer than the time for CONNECT: who has said it in time does not pay for that.
    async with ServerInstance(options(User("a", secret), auth_timeout_s=2)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b'CONNECT {"verbose":false}\r\n')
        guesses = [await link(server, "wrong") for _ in range(GUESSES)]
        right, in_writer = await link(server, "right", b"LS+ crosses\r\nPING\r\n")
        known = asyncio.ensure_future(right.readuntil(b"PONG\r\n"))
        refused = asyncio.gather(*(reader.read() for reader, _ in guesses))
        pongs = 0
        while not (refused.done() and known.done()):
            writer.write(b"PING\r\n")
            await asyncio.wait_for(reader.readuntil(b"PONG\r\n"), 30)
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


class Site:
    """A server with its configuration file."""

    def __init__(self, folder: Path, text: str) -> None:
        self.path = folder / "x.conf"
        self.path.write_text("listen: 127.0.0.1:-1\n" + text)
        told = self.read()
        self.log_path = folder / "log"
        self.server = ServerInstance(told, Log(self.log_path, with_time=False))
        self.reloader = Reloader(self.server, self.read, told)

    async def __aenter__(self) -> Site:
        await self.server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()
        self.server.log.close()

    def read(self) -> ServerOptions:
        return read_config(self.path, ServerOptions(), {})

    def reload(self, text: str) -> None:
        self.path.write_text("listen: 127.0.0.1:-1\n" + text)
        self.reloader.reload()

    @property
    def leafs(self) -> int:
        return len(self.server.broker.leafs)


async def until(probe: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not probe():
            await asyncio.sleep(0.01)


async def test_remotes_come_and_go_with_a_reload_and_those_that_stay_keep_their_connection(tmp_path: Path) -> None:
    hub = ServerInstance(ServerOptions(host="127.0.0.1", port=-1, leafnodes=LeafNodesOptions("127.0.0.1", -1)))
    at = Site(tmp_path, "")
    async with hub, at:
        url = f"nats-leaf://127.0.0.1:{hub.port_of('leafnodes')}"
        one = f'{{ url: "{url}" }}'
        other = f'{{ url: "{url}", account: B, deny_imports: "no.>" }}'
        accounts = "accounts { B {} }\n"
        at.reload(f"{accounts}leafnodes {{ remotes: [ {one} ] }}\n")
        await until(lambda: at.leafs == 1)
        (first,) = at.server.broker.leafs
        at.reload(f"{accounts}leafnodes {{ remotes: [ {one}, {other} ] }}\n")
        await until(lambda: at.leafs == 2)
        at.reload(f"{accounts}leafnodes {{ remotes: [ {one.replace(' }', ', disabled: true }')}, {other} ] }}\n")
        await until(lambda: at.leafs == 1 and first not in at.server.broker.leafs)
        (second,) = at.server.broker.leafs
        at.reload(f"{accounts}leafnodes {{ remotes: [ {one}, {other} ] }}\n")
        await until(lambda: at.leafs == 2)
        assert second in at.server.broker.leafs
        at.reload(accounts)
        await until(lambda: at.leafs == 0)
    log = at.log_path.read_text()
    for line in (
        f'Reloaded: LeafNode Remote urls=["{url}"], account="$G" Disabled value is: true',
        f'Reloaded: LeafNode Remote urls=["{url}"], account="$G" Disabled value is: false',
        f'Reloaded: LeafNode Remote urls=["{url}"], account="B" removed',
    ):
        assert line in log


async def test_users_of_the_block_that_a_reload_takes_out_lose_their_links(tmp_path: Path) -> None:
    block = "leafnodes {{ listen: 127.0.0.1:-1, authorization {{ users: [ {} ] }} }}\n"
    at = Site(tmp_path, block.format("{user: a, password: a}, {user: b, password: b}"))
    async with at:
        gone, gone_writer = await link(at.server, "a")
        await until(lambda: at.leafs == 1)
        at.reload(block.format("{user: b, password: b}"))
        assert b"-ERR 'Authorization Violation'" in await gone.read()
        gone_writer.close()


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ("", "{ port: -1 }", 'field "Host": old=, new=0.0.0.0'),
        ("{ port: -1 }", "", 'field "Host": old=0.0.0.0, new='),
        ("{ port: -1 }", "{ port: -1, authorization { timeout: 3 } }", 'field "AuthTimeout": old=2, new=3'),
        ("{ port: -1 }", "{ port: -1, no_advertise: true }", 'field "NoAdvertise": old=false, new=true'),
        ("{ port: -1 }", "{ port: -1, reconnect: 3 }", 'field "ReconnectInterval": old=1s, new=3s'),
        ("{ port: -1 }", "{ port: -1, write_deadline: 3s }", 'field "WriteDeadline": old=0s, new=3s'),
        ("{ port: -1 }", "{ port: -1, write_timeout: close }", 'field "WriteTimeout": old=, new=close'),
        (
            '{ remotes: [ { url: "nats-leaf://u:p@127.0.0.1:1" } ] }',
            '{ remotes: [ { url: "nats-leaf://u:p@127.0.0.1:1", deny_imports: [a, b] } ] }',
            'remote urls=["nats-leaf://u:xxxxx@127.0.0.1:1"], account="$G": '
            'field "DenyImports": old=[], new=[a b]',
        ),
    ],
)  # fmt: skip
async def test_what_needs_a_restart_is_refused_in_the_words_of_the_reference(
    tmp_path: Path, before: str, after: str, field: str
) -> None:
    at = Site(tmp_path, f"leafnodes {before}\n" if before else "")
    async with at:
        with pytest.raises(BadRequestError) as refused:
            at.reload(f"leafnodes {after}\n" if after else "")
        assert str(refused.value) == f"config reload not supported for LeafNode: {field}"
