"""Lists of the browser: what needs attention, users who may not see everything, a server that starts again."""

import asyncio
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from natsctl.client.requests import end_tasks
from natsctl.client.services import EchoService
from natsctl.testing.process import ServerProcess
from tests.cli.browse.conftest import Browse

LIMITED = """
accounts { APP {
  jetstream: enabled
  users: [
    {user: all, password: pw}
    {user: some, password: pw, permissions: {
      publish: ["$JS.API.STREAM.INFO.ORDERS", "$JS.API.STREAM.MSG.GET.ORDERS"], subscribe: ["_INBOX.>"]
    }}
    {user: names, password: pw, permissions: {
      publish: ["$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.ORDERS"], subscribe: ["_INBOX.>"]
    }}
  ] } }
"""

SYSTEM = """
server_name: BACKSTAGE
accounts { SYS { users: [{user: sys, password: pw}] }, APP { jetstream: enabled, users: [{user: app, password: pw}] } }
system_account: SYS
jetstream {}
"""


@pytest.fixture
def limited(shared_server: ServerProcess, tmp_path: Path, command: Any) -> Any:
    """A server with two streams and a user who may see one of them."""
    conf = tmp_path / "limited.conf"
    conf.write_text(LIMITED)
    with ServerProcess(tmp_path / "store", shared_server.kind, "-c", str(conf)) as process:
        natsctl = command(process.url)
        for name in ("ORDERS", "SECRETS"):
            done = natsctl("stream", "add", name, "--subjects", name, "--defaults", "--user", "all", "--password", "pw")
            assert done.code == 0, done.err
        assert natsctl("publish", "ORDERS", "hello", "--user", "all", "--password", "pw").code == 0
        yield process


async def test_a_refusal_is_shown_in_its_place(browse: Browse, limited: ServerProcess) -> None:
    async with browse(limited.url, (100, 24), login={"user": "some", "password": "pw"}) as browsing:
        assert "not authorised to publish to" in browsing.text
        await browsing.press("o")
        await browsing.type("ORDERS")
        await browsing.press("enter", "enter", "left_square_bracket")
        assert "hello" in browsing.text  # by MSG.GET, as direct gets are refused
        await browsing.press("left_square_bracket")
        assert "not authorised" in browsing.text
    async with browse(limited.url, (100, 24), login={"user": "names", "password": "pw"}) as browsing:
        assert browsing.app.selection.names == ["ORDERS", "SECRETS"]
        assert "not allowed" in browsing.text
        await browsing.press("down")
        assert "not allowed" in browsing.text


async def test_findings_of_explain_and_audit_come_first(browse: Browse, shop: str, natsctl: Any) -> None:
    async with browse(shop, (100, 30)) as browsing:
        manager = browsing.app.manager
        await manager.stream_create({"name": "FULL", "subjects": ["f"], "max_msgs": 1, "discard": "new"})
        await manager.consumer_create("ORDERS", {"durable_name": "LOST", "filter_subject": "ORDERS.PAID"})
        await manager.connection.publish("f", b"x")
        await manager.connection.flush()
        attention = browsing.app.catalog.attention
        for _ in range(2):
            browsing.app.work(attention.check, "attention")
            attention.complete = False
            browsing.app.catalog.streams.expire()
            await browsing.tick()
            while not attention.complete:
                await browsing.pilot.pause(0.02)
        assert attention.names == ["FULL", "ORDERS > LOST"]
        await browsing.press("1", "enter")
        assert "max_msgs is reached" in browsing.text
        await browsing.press("escape", "down")
        assert "near miss: ORDERS.paid" in browsing.text


async def test_rates_become_a_sparkline(browse: Browse, shop: str) -> None:
    async with browse(shop, (120, 30)) as browsing:
        connection = browsing.app.manager.connection
        for number in (10, 40, 20, 80):
            for _ in range(number):
                await connection.publish("ORDERS.new", b"{}")
            await connection.flush()
            await browsing.tick()
        assert "▁▄▂█" in browsing.text
        await browsing.press("enter", "right_square_bracket")
        assert "80/s" in browsing.text


async def test_services_show_their_instances_and_requests(browse: Browse, shop: str) -> None:
    async with browse(shop, (120, 24)) as browsing:
        connection = browsing.app.manager.connection
        await browsing.press("6")
        assert "no services" in browsing.text
        ready = asyncio.Event()
        task = asyncio.create_task(EchoService("demo").run(connection, ready.set, lambda message: None))
        try:
            await ready.wait()
            for count in (0, 3):
                for _ in range(count):
                    await connection.request("demo.echo", b"x")
                await browsing.tick()
        finally:
            await end_tasks([task])
        assert re.search(r" demo +█ +1 ", browsing.text)  # three requests in the last second; instances
        await browsing.press("enter")
        assert "Service demo" in browsing.text
        assert "echo: demo.echo, 3 requests, " in browsing.text


async def test_dead_letters_show_their_reasons_and_their_messages(browse: Browse, failed: str) -> None:
    async with browse(failed, (120, 24)) as browsing:
        await browsing.press("7")
        assert browsing.app.selection.names == ["ORDERS > NEW 2", "ORDERS > NEW 1"]
        await browsing.press("down", "enter")
        for row in ("Subject: ORDERS.new", "Reason: terminated", "Deliveries: 1", "Message exists: true"):
            assert row in browsing.text
        await browsing.press("right_square_bracket")
        assert browsing.app._pages is not None
        assert [message.seq for message in browsing.app._pages.messages] == [1]
        await browsing.press("enter")
        assert "Trace: t-1" in browsing.text
        await browsing.press("escape", "escape", "o")
        await browsing.type("other")
        await browsing.press("enter", "d")
        assert "nothing to delete here" in browsing.text  # a name without a dead letter


async def test_servers_answer_to_the_system_account(
    browse: Browse, shared_server: ServerProcess, tmp_path: Path
) -> None:
    conf = tmp_path / "server.conf"
    conf.write_text(SYSTEM)
    with ServerProcess(tmp_path / "store", shared_server.kind, "-c", str(conf)) as process:
        async with browse(process.url, (120, 24), login={"user": "sys", "password": "pw"}) as browsing:
            await browsing.press("8")
            assert re.search(r" BACKSTAGE +1 ", browsing.text)  # connections
            await browsing.press("enter")
            assert "Server BACKSTAGE" in browsing.text
            assert browsing.app.selection.name == "BACKSTAGE"
        async with browse(process.url, (120, 24), login={"user": "app", "password": "pw"}) as browsing:
            await browsing.press("8")
            assert "servers answer to users" in browsing.text


@pytest.mark.ours("the reference is restarted in the tests of connections")
async def test_a_restart_of_the_server_is_survived(browse: Browse, tmp_path: Path, command: Any) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with ServerProcess(tmp_path / "store", "natsctl", "-p", str(port)) as process:
        natsctl = command(process.url)
        assert natsctl("stream", "add", "ORDERS", "--subjects", "ORDERS.>", "--defaults").code == 0
        async with browse(process.url, (100, 24)) as browsing:
            assert browsing.app.selection.names == ["ORDERS"]
            process.kill()
            browsing.now_s += 10
            browsing.app._tick()
            for _ in range(300):
                await browsing.pilot.pause(0.02)
                if "connecting again" in browsing.text:
                    break
            assert "connecting again" in browsing.text
            await browsing.pilot.press("right_square_bracket")  # the screen works meanwhile
            process.start()
            for _ in range(150):
                await browsing.pilot.pause(0.02)
                if "again" in browsing.text and "connected to" in browsing.text:
                    break
            await browsing.settle()
            assert "connected to" in browsing.text
            assert browsing.app.selection.names == ["ORDERS"]
