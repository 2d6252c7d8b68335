"""The same requests and the same clients on both servers: what the system account answers and tells, key by key."""

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import cramjam
import pytest
import yaml
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError, TimeoutError

from natsctl.testing.process import Kind, ServerProcess
from tests.support import patient_client
from tests.support.tls_clients import until

pytestmark = pytest.mark.reference

CONFIG = """
server_name: one
server_tags: ["az:1", "y"]
jetstream { max_mem: 64MB, max_file: 1GB }
accounts {
  SYS { users: [{ user: s, password: p }] }
  A { jetstream: enabled, users: [{ user: a, password: p }] }
  B { users: [{ user: b, password: p }] }
}
system_account: SYS
"""
KINDS: list[Kind] = ["natsctl", "reference"]
NOT_COMPARED = frozenset(
    {
        "sync_always", "compress_ok", "memstats", "cmdline", "subscriptions_list", "disk_io_wait_stats", "rtt",
        "imports", "sublist_stats", "git_commit", "System recvQ", "gomemlimit", "connect_urls", "config",
    }
)  # fmt: skip
"""Keys of what each server has of its own, and of what differs from moment to moment."""
SILENT_S = 0.4
"""How long to wait for somebody who may not answer."""
WITHIN_S = 20.0
"""How long an answer may take that must come."""

SURVEYOR = [
    ("SERVER.PING", ""),
    ("ACCOUNT.PING.STATZ", {"accounts": None, "include_unused": True}),
    ("SERVER.PING.JSZ", {"accounts": True, "streams": True, "consumer": True, "config": True, "raft": True}),
    ("SERVER.PING.GATEWAYZ", {"name": "", "accounts": False, "account_name": "", "subscriptions": False}),
    ("SERVER.PING.RAFTZ", {"account": "", "group": "_meta_"}),
]  # fmt: skip
"""What NATS Surveyor asks for, each with `Accept-Encoding: snappy`."""

ASKED: list[list[Any]] = yaml.safe_load((Path(__file__).parent / "requests.yaml").read_text(encoding="utf-8"))


class Conversation:
    """One server with an operator, and a client in A that has a stream and subscriptions."""

    def __init__(self, process: ServerProcess) -> None:
        self.process = process
        self.system: Client
        self.client: Client
        self.id = ""

    async def start(self) -> None:
        self.system = await patient_client.connect(self.process.url, user="s", password="p", name="operator")
        self.client = await patient_client.connect(self.process.url, user="a", password="p", name="client")
        self.id = json.loads((await self.system.request("$SYS.REQ.SERVER.PING.IDZ")).data)["id"]
        js = self.client.jetstream()
        await js.add_stream(name="S", subjects=["s.>"])
        await js.publish("s.a", b"x")
        await self.client.subscribe("foo")
        await self.client.flush()
        gone = await patient_client.connect(self.process.url, user="b", password="p", name="gone")
        await gone.close()
        async with asyncio.timeout(WITHIN_S):
            while not await self._ended():
                await asyncio.sleep(0.01)

    async def _ended(self) -> int:
        answer = await self.system.request("$SYS.REQ.SERVER.PING.CONNZ", b'{"state":1}')
        return len(json.loads(answer.data)["data"]["connections"])

    async def ask(
        self,
        subject: str,
        body: object,
        headers: dict[str, str] | None = None,
        own: bool = False,
        within_s: float = WITHIN_S,
    ) -> Msg | None:
        payload = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        name = "$SYS.REQ." + subject.replace("SERVER.ID", f"SERVER.{self.id}")
        connection = self.client if own else self.system
        try:
            return await connection.request(name, payload, timeout=within_s, headers=headers)
        except NoRespondersError:
            return Msg(connection, data=b'"no responders"')
        except TimeoutError:
            return None

    async def close(self) -> None:
        await self.system.close()
        await self.client.close()
        self.process.stop()


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[list[Conversation]]:
    found = []
    for kind in KINDS:
        config = tmp_path / f"{kind}.conf"
        config.write_text(CONFIG)
        found.append(Conversation(ServerProcess(tmp_path / kind, kind, "-c", str(config)).start()))
    for one in found:
        await one.start()
    yield found
    for one in found:
        await one.close()


SYNTAX = re.compile("^(syntax error|invalid character|unexpected end of JSON).*")
"""Reasons for what is no JSON, which natsctl words in its own way."""


WHOLE = frozenset(
    ["description", "error", "code", "account", "acc", "reason", "type", "kind", "client_type", "user", "status"]
)
"""Keys whose values are compared, not their types alone."""


def shape(value: Any, key: str = "") -> Any:
    """Return the keys of an answer in their order, with the texts of errors and the types of everything else."""
    if isinstance(value, dict):
        return [(name, shape(one, name)) for name, one in value.items() if name not in NOT_COMPARED]
    if isinstance(value, list):
        return sorted({json.dumps(shape(one)) for one in value})
    if key in WHOLE:
        return SYNTAX.sub("syntax error", value) if isinstance(value, str) else value
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def read(message: Msg | None) -> Any:
    return None if message is None else shape(json.loads(message.data))


async def answers(both: list[Conversation], subject: str, body: object, own: bool = False) -> list[Any]:
    """What both answer, or None; one that is silent where the other answers may only be slow, and is asked again."""
    asked = (side.ask(subject, body, own=own, within_s=SILENT_S) for side in both)
    told = await asyncio.gather(*asked)
    if None in told and any(told):
        told = [one or await side.ask(subject, body, own=own) for side, one in zip(both, told, strict=True)]
    return [read(one) for one in told]


@pytest.mark.exact
async def test_every_request_is_answered_alike(both: list[Conversation]) -> None:
    faults = []
    for subject, body in ASKED:
        ours, theirs = await answers(both, subject, body)
        if ours != theirs:
            faults.append(f"{subject} {body}\nnatsctl   {ours}\nreference {theirs}")
    assert not faults, "\n\n".join(faults)


async def test_an_account_asks_about_itself_alike(both: list[Conversation]) -> None:
    asked = [
        ("ACCOUNT.PING.CONNZ", ""), ("SERVER.PING.CONNZ", ""), ("ACCOUNT.PING.STATZ", ""), ("USER.INFO", ""),
        ("ACCOUNT.PING.STATZ", {"accounts": ["B"]}), ("ACCOUNT.PING.CONNZ", {"acc": "B"}), ("ACCOUNT.PING.CONNZ", "["),
        ("SERVER.PING", ""), ("SERVER.PING.VARZ", ""), ("ACCOUNT.A.INFO", ""), ("ACCOUNT.A.CONNZ", ""),
        ("ACCOUNT.PING.SUBSZ", ""), ("SERVER.ID.KICK", {"cid": 5}),
    ]  # fmt: skip
    for subject, body in asked:
        ours, theirs = await answers(both, subject, body, own=True)
        assert ours == theirs, subject


@pytest.mark.parametrize("encoding", ["snappy", "gzip", "br"])
async def test_surveyor_is_answered_alike_in_the_encoding_that_it_asks_for(
    both: list[Conversation], encoding: str
) -> None:
    for subject, body in SURVEYOR:
        told = [await side.ask(subject, body, {"Accept-Encoding": encoding}) for side in both]
        assert told[0] is not None
        assert told[1] is not None
        assert told[0].headers == told[1].headers, subject
        ours, theirs = [shape(json.loads(decoded(one))) for one in told if one is not None]
        assert ours == theirs, subject


def decoded(message: Msg) -> bytes:
    encoding = (message.headers or {}).get("Content-Encoding")
    if encoding == "snappy":
        return bytes(cramjam.snappy.decompress(message.data))
    return gzip.decompress(message.data) if encoding == "gzip" else message.data


async def test_events_are_told_alike(both: list[Conversation]) -> None:
    told: list[list[Any]] = []
    for side in both:
        heard: list[tuple[str, Any]] = []

        async def note(message: Msg, heard: list[tuple[str, Any]] = heard, side: Conversation = side) -> None:
            heard.append((message.subject.replace(side.id, "ID"), shape(json.loads(message.data))))

        await side.system.subscribe("$SYS.ACCOUNT.>", cb=note)
        await side.system.subscribe("$SYS.SERVER.ACCOUNT.>", cb=note)
        await side.system.subscribe("$SYS.SERVER.*.CLIENT.AUTH.ERR", cb=note)
        await side.system.subscribe("$SYS.SERVER.*.SHUTDOWN", cb=note)
        await side.system.flush()
        async with talking(side.process.url, "p", b"PUB foo 3\r\nbar\r\nPING\r\n") as (_, reader):
            await reader.readuntil(b"PONG\r\n")
        await heard_of(heard, "$SYS.ACCOUNT.B.DISCONNECT")
        async with talking(side.process.url, "bad", b"") as (_, reader):
            assert b"Authorization Violation" in await reader.read()
        await heard_of(heard, "$SYS.ACCOUNT.$G.DISCONNECT")
        async with talking(side.process.url, "p", b"PING\r\n") as (cid, reader):
            await reader.readuntil(b"PONG\r\n")
            await side.ask("SERVER.ID.KICK", {"cid": cid})
            await reader.read()
        await heard_of(heard, "Kicked")
        await asyncio.to_thread(side.process.stop)
        await heard_of(heard, "SHUTDOWN")
        told.append(sorted(heard, key=str))
    assert {subject for subject, _ in told[0]} == {
        "$SYS.ACCOUNT.B.CONNECT", "$SYS.ACCOUNT.B.DISCONNECT", "$SYS.ACCOUNT.B.SERVER.CONNS",
        "$SYS.SERVER.ACCOUNT.B.CONNS", "$SYS.SERVER.ID.CLIENT.AUTH.ERR", "$SYS.ACCOUNT.$G.DISCONNECT",
        "$SYS.SERVER.ID.SHUTDOWN",
    }  # fmt: skip
    assert told[0] == told[1]


async def heard_of(heard: list[tuple[str, Any]], what: str) -> None:
    await until(lambda: what in str(heard))


@asynccontextmanager
async def talking(url: str, password: str, says: bytes) -> AsyncIterator[tuple[int, asyncio.StreamReader]]:
    """Return the number of a connection of user b, and what the server says to it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
    info = json.loads((await reader.readline()).removeprefix(b"INFO "))
    options = {"verbose": False, "user": "b", "pass": password, "name": "visitor", "lang": "raw", "version": "1"}
    writer.write(b"CONNECT " + json.dumps(options).encode() + b"\r\n" + says)
    try:
        yield info["client_id"], reader
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
