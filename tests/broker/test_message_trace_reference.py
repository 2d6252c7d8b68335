"""Traces of messages by both servers: the same events, in the same order, with the same fields.

recorded/traces.json has what nats-server 2.15.2 reports, by `NATSCTL_RECORD=1 pytest -m reference` of this file.
"""

import asyncio
import contextlib
import gzip
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from natsctl.testing.process import Kind, ServerProcess
from tests.support import patient_client
from tests.support.servers import quiet_ports

CONFIG: Final = """
accounts {
  A { users: [{user: a, password: a}
              {user: narrow, password: a, permissions: {publish: ["ok.>", "reports", "_INBOX.>"]}}]
      jetstream: enabled
      msg_trace: {dest: reports, sampling: "100%"}
      mappings: {"from.*": "to.$1"}
      exports: [{stream: "s.open"}, {stream: "s.closed"}
                {service: "q.open", allow_trace: true}, {service: "q.closed"}] }
  B { users: [{user: b, password: b}]
      imports: [{stream: {account: A, subject: "s.open"}, to: "b.open", allow_trace: true}
                {stream: {account: A, subject: "s.closed"}}
                {service: {account: A, subject: "q.open"}, to: "ask.open"}
                {service: {account: A, subject: "q.closed"}}] }
  C { users: [{user: c, password: c}], trace_dest: reports }
}
"""
DEST: Final = {"Nats-Trace-Dest": "reports"}
ONLY: Final = {**DEST, "Nats-Trace-Only": "true"}
RECORDED: Final = Path(__file__).with_name("recorded") / "traces.json"
RECORDING: Final = bool(os.environ.get("NATSCTL_RECORD"))
CASES: Final[dict[str, dict[str, Any]]] = json.loads(RECORDED.read_text())
"""Who publishes what, and the reports about it, by what the message is."""


def started(folder: Path, kind: Kind, text: str = CONFIG) -> ServerProcess:
    folder.mkdir()
    conf = folder / "nats.conf"
    conf.write_text(f"server_name: one\n{text}")
    return ServerProcess(folder / "store", kind, "-c", str(conf))


@asynccontextmanager
async def talking(server: ServerProcess) -> AsyncIterator[dict[str, Client]]:
    """Yield a client of each user, with recipients of what is published."""

    async def ignored(error: Exception) -> None:
        """Take errors of permissions."""

    async with AsyncExitStack() as stack:
        clients = {}
        for user, password in (("a", "a"), ("b", "b"), ("c", "c"), ("narrow", "a")):
            options = {"user": user, "password": password, "name": user, "error_cb": ignored}
            clients[user] = await patient_client.connect(server.url, **options)
            stack.push_async_callback(clients[user].close)
        await clients["a"].subscribe("plain")
        await clients["b"].subscribe("plain")
        await clients["a"].subscribe("plain", queue="group")
        for subject in ("s.open", "b.open", "s.closed"):
            await clients["b"].subscribe(subject)
        for subject in ("q.open", "q.closed", "to.x"):
            await clients["a"].subscribe(subject)
        js = clients["a"].jetstream()
        await js.add_stream(name="STORED", subjects=["stored.>"])
        await js.add_stream(name="UNWANTED", subjects=["unwanted"], retention="interest")
        for client in clients.values():
            await client.flush()
        yield clients


def plain(report: bytes, header: dict[str, str] | None) -> dict[str, Any]:
    """Return a report without what differs from run to run."""
    encoding = (header or {}).get("Content-Encoding", "")
    found: dict[str, Any] = json.loads(gzip.decompress(report) if encoding == "gzip" else report)
    found["server"] = found["server"]["name"]
    found["encoding"] = encoding
    for event in found["events"]:
        assert event.pop("ts")
        event.pop("cid", None)
        if event["type"] == "js" and "error" in event:
            event["error"] = True  # the texts are those of each server's log
            event.pop("subject", None)
    return found


async def traces(server: ServerProcess) -> dict[str, dict[str, Any]]:
    """Return the cases with the reports about their messages, by the account that they go to."""
    found: dict[str, dict[str, Any]] = {}
    arrived: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()

    async def hear(user: str, message: Msg) -> None:
        arrived.put_nowait((user, plain(message.data, message.headers)))

    async with talking(server) as clients:
        for user in ("a", "b", "c"):
            await clients[user].subscribe("reports", cb=partial(hear, user))
            await clients[user].flush()
        for name, case in CASES.items():
            client, subject, headers = clients[case["user"]], case["subject"], case["headers"]
            await client.publish(subject, b"body", headers=headers)
            await client.publish(subject, b"body", reply=client.new_inbox(), headers=headers)
            await client.flush()
            heard: list[tuple[str, dict[str, Any]]] = []
            with contextlib.suppress(TimeoutError):
                while RECORDING or len(heard) < sum(map(len, case["reports"].values())) or not arrived.empty():
                    heard.append(await asyncio.wait_for(arrived.get(), 0.5 if RECORDING else 30.0))
            reports = {user: [report for at, report in heard if at == user] for user, _ in heard}
            found[name] = {"user": case["user"], "subject": subject, "headers": headers, "reports": reports}
    return found


@pytest.mark.parametrize("kind", ["natsctl", "reference"])
async def test_a_server_reports_what_was_recorded_of_nats_server(tmp_path: Path, kind: Kind) -> None:
    with started(tmp_path / kind, kind) as server:
        told = await traces(server)
    if RECORDING and kind == "reference":
        RECORDED.write_text(json.dumps(told, indent=1) + "\n")
    assert {name: (told[name], CASES[name]) for name in CASES if told[name] != CASES[name]} == {}


LEAF: Final = """
server_name: {name}
leafnodes {{ {leafnodes} }}
"""


@pytest.mark.parametrize("only", [False, True])
@pytest.mark.parametrize("hub", ["natsctl", "reference"])
@pytest.mark.parametrize("spoke", ["natsctl", "reference"])
async def test_a_trace_goes_on_over_leaf_nodes_of_either_server(
    tmp_path: Path, hub: Kind, spoke: Kind, only: bool
) -> None:
    (port,) = quiet_ports(1)
    confs = [tmp_path / "hub.conf", tmp_path / "spoke.conf"]
    confs[0].write_text(LEAF.format(name="hub", leafnodes=f'listen: "127.0.0.1:{port}"'))
    confs[1].write_text(LEAF.format(name="spoke", leafnodes=f'remotes: [{{url: "nats://127.0.0.1:{port}"}}]'))
    async with AsyncExitStack() as stack:
        near, far = (
            stack.enter_context(ServerProcess(tmp_path / conf.stem, kind, "-c", str(conf)))
            for kind, conf in zip((hub, spoke), confs, strict=True)
        )
        publisher = await patient_client.connect(near.url, name="publisher")
        recipient = await patient_client.connect(far.url, name="recipient")
        for client in (publisher, recipient):
            stack.push_async_callback(client.close)
        plain_sub = await recipient.subscribe("work.*")
        grouped = await recipient.subscribe("shared", queue="g")
        reports = await publisher.subscribe("reports")
        await across(publisher, recipient)
        for subject, sub, queue in (("work.1", plain_sub, ""), ("shared", grouped, "g")):
            await publisher.publish(subject, b"x", headers=ONLY if only else DEST)
            found = [plain(report.data, None) for report in [await reports.next_msg(20), await reports.next_msg(20)]]
            found.sort(key=lambda report: report["server"])
            here, there = found
            assert (here["server"], here["hops"], there["server"]) == ("hub", 1, "spoke")
            assert [event["type"] for event in here["events"]] == ["in", "eg"]
            assert here["events"][1] == {"type": "eg", "kind": 4, "name": "spoke", "hop": "1"}
            assert there["request"]["header"]["Nats-Trace-Hop"] == ["1"]
            assert there["events"][0] == {"type": "in", "kind": 4, "name": "hub", "acc": "$G", "subj": subject}
            pattern = "work.*" if not queue else subject
            client = {"type": "eg", "kind": 0, "name": "recipient", "sub": pattern}
            assert there["events"][1:] == [{**client, "queue": queue} if queue else client]
            if not only:
                assert (await sub.next_msg(20)).headers["Nats-Trace-Hop"] == "1"
        await recipient.flush()
        assert (plain_sub.pending_msgs, grouped.pending_msgs) == (0, 0)


async def across(one: Client, other: Client) -> None:
    """Wait until the interest of each side is known to the other."""
    async with asyncio.timeout(60):
        for near, far in ((one, other), (other, one)):
            sub = await far.subscribe("across")
            while not sub.pending_msgs:
                await near.publish("across")
                await asyncio.sleep(0.02)
                await far.flush()
            await sub.unsubscribe()
