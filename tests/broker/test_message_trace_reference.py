"""Traces of messages by both servers: the same events, in the same order, with the same fields."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from nats.aio.client import Client

from natsctl.testing.process import Kind, ServerProcess
from tests.support import patient_client
from tests.support.servers import quiet_ports

pytestmark = pytest.mark.reference

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
SAMPLED: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NOT_SAMPLED: Final = SAMPLED[:-1] + "0"
DEST: Final = {"Nats-Trace-Dest": "reports"}
ONLY: Final = {**DEST, "Nats-Trace-Only": "true"}

Case = tuple[str, str, dict[str, str]]
CASES: Final[dict[str, Case]] = {
    "to clients and a group": ("a", "plain", DEST),
    "only traced": ("a", "plain", ONLY),
    "mapped": ("a", "from.x", DEST),
    "into a stream": ("a", "stored.1", DEST),
    "into a stream, only traced": ("a", "stored.1", ONLY),
    "a stream that refuses": ("a", "stored.1", {**DEST, "Nats-Expected-Stream": "OTHER"}),
    "a stream without interest": ("a", "unwanted", DEST),
    "by a sampled parent": ("a", "plain", {"traceparent": SAMPLED, "tracestate": "a=b"}),
    "by a sampled parent into a stream": ("a", "stored.1", {"TraceParent": SAMPLED}),
    "by a parent that is not sampled": ("a", "plain", {"traceparent": NOT_SAMPLED}),
    "by a parent of flags with all bits": ("a", "plain", {"traceparent": SAMPLED[:-2] + "ff"}),
    "by a malformed parent": ("a", "plain", {"traceparent": "01"}),
    "by a parent in another account": ("c", "plain", {"Traceparent": SAMPLED}),
    "by a parent in an account without a destination": ("b", "plain", {"traceparent": SAMPLED}),
    "a parent and a destination": ("a", "plain", {"traceparent": SAMPLED, "Nats-Trace-Dest": "reports"}),
    "traced before": ("a", "plain", {"traceparent": SAMPLED, "Nats-Trace-Dest": "trace disabled"}),
    "an exported stream": ("a", "s.open", DEST),
    "an exported stream, only traced": ("a", "s.open", ONLY),
    "an exported stream that is not traced further": ("a", "s.closed", DEST),
    "an exported stream that is not traced further, only traced": ("a", "s.closed", ONLY),
    "a service": ("b", "ask.open", DEST),
    "a service, only traced": ("b", "ask.open", ONLY),
    "a service that is not traced further": ("b", "q.closed", DEST),
    "a service that is not traced further, only traced": ("b", "q.closed", ONLY),
    "what may not be published": ("narrow", "forbidden", DEST),
    "what may not be published, mapped": ("narrow", "from.x", DEST),
    "a destination that is none": ("a", "plain", {"Nats-Trace-Dest": "a.*"}),
    "a header of old": ("a", "plain", {**DEST, "Nats-Trace-Origin-Account": "A"}),
    "compressed": ("a", "plain", {**DEST, "Accept-Encoding": "gzip"}),
}


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


async def traces(server: ServerProcess, cases: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the reports about the message of each case."""
    found: dict[str, list[dict[str, Any]]] = {}
    async with talking(server) as clients:
        reports = {user: await clients[user].subscribe("reports") for user in ("a", "b", "c")}
        for case in cases:
            user, subject, headers = CASES[case]
            await clients[user].publish(subject, b"body", headers=headers)
            with_reply = clients[user].new_inbox()
            await clients[user].publish(subject, b"body", reply=with_reply, headers=headers)
            await clients[user].flush()
            found[case] = []
            for sub in reports.values():
                await asyncio.sleep(0.02)  # nats-server writes from another routine
                await clients["a"].flush()
                while sub.pending_msgs:
                    message = await sub.next_msg()
                    found[case].append(plain(message.data, message.headers))
    return found


async def test_both_servers_report_the_same(tmp_path: Path) -> None:
    told: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for kind in ("natsctl", "reference"):
        with started(tmp_path / kind, kind) as server:
            told[kind] = await traces(server, CASES)
    differing = {
        case: (told["natsctl"][case], told["reference"][case])
        for case in CASES
        if told["natsctl"][case] != told["reference"][case]
    }
    assert differing == {}
    assert sum(map(len, told["natsctl"].values())) > len(CASES)


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
