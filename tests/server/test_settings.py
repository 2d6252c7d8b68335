"""What single settings of nats.conf change for clients, and how connections end that do wrong, on both servers."""

import json
import socket
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError

from natsctl.jetstream.engine_options import MAX_FAULT_LENGTH, MAX_REQUEST_FAULTS, REQUEST_FAULT_NS, RequestFaults
from natsctl.server.conf.config import apply
from natsctl.server.conf.syntax import ConfError, load_text
from natsctl.server.options import ServerOptions
from natsctl.testing.process import Kind
from tests.support import patient_client
from tests.support.callouts import until
from tests.support.clock import VirtualClock
from tests.support.conf_server import PATIENCE_S, ConfServer, Wire

both = pytest.mark.parametrize("kind", ["natsctl", "reference"])


@both
async def test_everybody_else_is_let_in_and_has_jetstream(tmp_path: Path, kind: Kind) -> None:
    text = "accounts { $SYS { users: [{ user: s, password: p }] } }\n"
    with ConfServer(tmp_path, kind, text, "-js", "-sd", str(tmp_path)) as process:
        anyone = await patient_client.connect(process.url)
        system = await patient_client.connect(process.url, user="s", password="p")
        await anyone.jetstream().add_stream(name="S", subjects=["s"])
        refused = await system.request("$JS.API.INFO")
        assert b'"err_code":10039' in refused.data
        purged = await system.request("$JS.API.ACCOUNT.PURGE.$G")
        assert purged.data == b'{"type":"io.nats.jetstream.api.v1.account_purge_response","initiated":true}'
        assert await anyone.jetstream().streams_info() == []
        await anyone.close()
        await system.close()


NONE = "no_system_account: true\n"
REQUESTS = [
    "$SYS.REQ.USER.INFO", "$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ",
    "$SYS.REQ.ACCOUNT.PING.STATZ", "$SYS.DEBUG.SUBSCRIBERS",
]  # fmt: skip
WITH = [
    ("system_account: S\naccounts { S { users: [{user: s, password: p}] } }\n", "S"),
    ('accounts { "$SYS" { users: [{user: s, password: p}] } }\n', "$SYS"),
    ("jetstream {{ store_dir: {folder} }}\naccounts {{ A {{ users: [{{user: s, password: p}}] }} }}\n", "$SYS"),
]
"""Configurations that have a system account all the same."""


async def answered(client: Client, subject: str) -> dict[str, Any]:
    return json.loads((await client.request(subject)).data)


@both
async def test_nobody_is_answered_and_no_event_is_published(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, NONE, monitoring=True) as server:
        client = await patient_client.connect(server.url)
        for subject in REQUESTS:
            with pytest.raises(NoRespondersError):
                await client.request(subject)
        heard = await client.subscribe(">")
        await client.flush()
        other = await patient_client.connect(server.url)
        await other.publish("own", b"x")
        await other.close()
        assert (await heard.next_msg(20)).subject == "own"
        await client.flush()
        assert heard.pending_msgs == 0
        await client.close()


@both
def test_monitoring_names_no_system_account(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, NONE, monitoring=True) as server:
        assert server.monitor("accountz").keys() == {"server_id", "now", "accounts"}
        assert server.monitor("accountz")["accounts"] == ["$G"]
        assert "imports" not in server.monitor("accountz?acc=$G")["account_detail"]
        assert "system_account" not in server.monitor("varz")
        assert server.monitor("healthz") == {"status": "ok"}


@both
@pytest.mark.parametrize(("text", "system"), WITH)
async def test_one_that_is_named_or_that_jetstream_needs_is_there(
    tmp_path: Path, kind: Kind, text: str, system: str
) -> None:
    text = text.format(folder=json.dumps(str(tmp_path))) if "{folder}" in text else text
    with ConfServer(tmp_path, kind, NONE + text, monitoring=True) as server:
        assert server.monitor("accountz")["system_account"] == system
        client = await patient_client.connect(server.url, user="s", password="p")
        user = await answered(client, "$SYS.REQ.USER.INFO")
        assert user["data"]["user"] == "s"
        await client.close()


@both
def test_a_leaf_node_may_not_bind_to_the_account_that_is_not_there(tmp_path: Path, kind: Kind) -> None:
    text = 'leafnodes { listen: "127.0.0.1:-1", authorization { account: "$SYS" } }\n'
    with pytest.raises(RuntimeError, match='cannot find local account "\\$SYS" specified in leafnode authorization'):
        ConfServer(tmp_path, kind, NONE + text).start()


def test_latency_that_nobody_would_publish_is_refused() -> None:
    """nats-server refuses it too where it happens to read the keys in this order."""
    text = "no_system: true\naccounts { A { exports: [{service: a, latency: {subject: b}}] } }\n"
    with pytest.raises(ConfError, match='Error adding service latency sampling for "a": system account not setup'):
        apply(load_text(text, {}), ServerOptions())


UNKNOWN = 'json: unknown field "what"'
OF_TYPE = (
    "json: cannot unmarshal number into Go struct field StreamConfigRequest.StreamConfig.subjects of type []string"
)


def config(folder: Path, strict: bool) -> str:
    return f"jetstream {{ store_dir: {json.dumps(str(folder))}, strict: {str(strict).lower()} }}\n"


@asynccontextmanager
async def asked(server: ConfServer) -> AsyncIterator[Client]:
    client = await patient_client.connect(server.url)
    try:
        yield client
    finally:
        await client.close()


async def answer(client: Client, verb: str, body: str) -> dict[str, Any]:
    return json.loads((await client.request(f"$JS.API.{verb}", body.encode())).data)


@both
async def test_unknown_fields_are_ignored_and_logged_once(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, config(tmp_path, False)) as server:
        async with asked(server) as client:
            body = '{"name":"A","subjects":["a"],"what":1,"other":2}'
            made = await answer(client, "STREAM.CREATE.A", body)
            assert made["config"]["subjects"] == ["a"]
            assert "error" not in await answer(client, "STREAM.CREATE.A", body)
            names = await answer(client, "STREAM.NAMES", '{"what":"B"}')
            assert names["streams"] == ["A"]
            durable = '{"stream_name":"A","config":{"durable_name":"c","what":1},"what":2}'
            assert (await answer(client, "CONSUMER.CREATE.A.c", durable))["name"] == "c"
        lines = [line for line in server.lines() if "JetStream request" in line]
        assert lines == [
            f"[WRN] Invalid JetStream request '$G > $JS.API.{verb}': {UNKNOWN}"
            for verb in ("STREAM.CREATE.A", "STREAM.NAMES", "CONSUMER.CREATE.A.c")
        ]


@pytest.mark.parametrize("kind", ["natsctl", pytest.param("reference", marks=pytest.mark.exact)])
async def test_other_faults_are_refused_all_the_same(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, config(tmp_path, False)) as server:
        async with asked(server) as client:
            for body in ('{"name":"B","what":1,"subjects":4}', '{"name":"B","subjects":4}'):
                fault = (await answer(client, "STREAM.CREATE.B", body))["error"]
                assert fault == {"code": 400, "err_code": 10025, "description": f"invalid JSON: {OF_TYPE}"}
            for body in ('{"name":"B"', '{"name":"B","what":1} {"subjects":["u"]}'):
                assert (await answer(client, "STREAM.CREATE.B", body))["error"]["err_code"] == 10025
            assert (await answer(client, "STREAM.NAMES", "{}"))["streams"] is None


@both
async def test_a_strict_server_refuses_them_and_logs_them_too(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, config(tmp_path, True)) as server:
        async with asked(server) as client:
            fault = (await answer(client, "STREAM.CREATE.A", '{"name":"A","what":1}'))["error"]
            assert fault == {"code": 400, "err_code": 10025, "description": f"invalid JSON: {UNKNOWN}"}
        assert f"[WRN] Invalid JetStream request '$G > $JS.API.STREAM.CREATE.A': {UNKNOWN}" in server.lines()


@both
def test_the_start_and_monitoring_say_so(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, config(tmp_path, False), monitoring=True) as server:
        assert not [line for line in server.lines() if "Strict:" in line]
        assert "strict" not in server.monitor("varz")["jetstream"]["config"]
        assert "strict" not in server.monitor("jsz")["config"]


def test_lines_about_requests_are_limited_in_number_and_length() -> None:
    lines: list[str] = []
    clock = VirtualClock()
    faults = RequestFaults(clock, lines.append)
    for number in range(MAX_REQUEST_FAULTS * 2):
        faults.log(f"{number} " + "x" * MAX_FAULT_LENGTH)
        faults.log(f"{number} " + "x" * MAX_FAULT_LENGTH)
    assert len(lines) == MAX_REQUEST_FAULTS
    assert {len(line) for line in lines} == {MAX_FAULT_LENGTH}
    clock.advance(REQUEST_FAULT_NS)
    faults.log("again")
    assert lines[-1] == "again"


SIZE, COUNT = 1_000_000, 50
READ = 400_000
"""Bytes that a slow client takes at a time."""
DEADLINE = 'write_deadline: "300ms"\nmax_pending: 256MB\n'
MISSED = r"Slow Consumer Detected: WriteDeadline of 300ms exceeded with \d+ chunks of \d+ total bytes\."


def subscribed(server: ConfServer) -> Wire:
    wire = Wire(server.port)
    assert wire.connect() == b"PONG"
    wire.send(b"SUB flood 1\r\nPING\r\n")
    while wire.line() != b"PONG":
        pass
    return wire


def flood(server: ConfServer) -> None:
    with Wire(server.port) as wire:
        assert wire.connect(echo=False) == b"PONG"
        for _ in range(COUNT):
            wire.send(b"PUB flood %d\r\n%b\r\n" % (SIZE, bytes(SIZE)))
        wire.send(b"PING\r\n")
        while wire.line() != b"PONG":
            pass


def read_slowly(wire: Wire, server: ConfServer) -> int:
    """Return the bytes that a client gets that takes a little at a time until it is known as slow."""
    total, slow, end = 0, False, time.monotonic() + PATIENCE_S * 3
    wanted = COUNT * SIZE
    while total < wanted and time.monotonic() < end:
        chunk = wire.sock.recv(READ)
        if not chunk:
            break
        total += len(chunk)
        slow = slow or "Slow Consumer Detected" in server.log()
        if not slow:
            time.sleep(0.04)  # the reader's slowness is what is tested
    return total


@pytest.mark.live
@both
def test_a_client_that_takes_something_is_kept_and_loses_nothing(tmp_path: Path, kind: Kind) -> None:
    conf = DEADLINE.replace("300ms", "1s")  # which a busy machine does not take to let the reader read once
    with ConfServer(tmp_path, kind, f"{conf}write_timeout: retry\n", monitoring=True) as server:
        assert server.monitor("varz")["write_timeout"] == "retry"
        with subscribed(server) as wire, ThreadPoolExecutor(1) as publisher:
            flooding = publisher.submit(flood, server)
            assert read_slowly(wire, server) >= COUNT * SIZE
            flooding.result()
            server.await_line(MISSED.replace("300ms", "1s"))
            server.await_line("Slow Consumer Recovered: Flush took ")
            assert server.monitor("varz")["slow_consumers"] >= 1
            assert server.monitor("connz")["connections"]


@both
@pytest.mark.parametrize("policy", ["retry", "close", "default"])
def test_a_client_that_takes_nothing_is_closed(tmp_path: Path, kind: Kind, policy: str) -> None:
    with ConfServer(tmp_path, kind, f"{DEADLINE}write_timeout: {policy}\n", monitoring=True) as server:
        assert server.monitor("varz").get("write_timeout", "default") == policy
        with subscribed(server):
            flood(server)
            server.await_line(MISSED)
            until(lambda: not server.monitor("connz")["connections"])
            reasons = {one["reason"] for one in server.monitor("connz?state=closed")["connections"]}
            assert "Slow Consumer (Write Deadline)" in reasons


@both
def test_a_client_with_too_much_pending_is_closed_and_logged(tmp_path: Path, kind: Kind) -> None:
    with ConfServer(tmp_path, kind, "max_pending: 1MB\n", monitoring=True) as server, subscribed(server):
        flood(server)
        server.await_line("Slow Consumer Detected: MaxPending of 1048576 Exceeded")
        until(lambda: not server.monitor("connz")["connections"])
        reasons = {one["reason"] for one in server.monitor("connz?state=closed")["connections"]}
        assert "Slow Consumer (Pending Bytes)" in reasons


HELLO: Final = b'CONNECT {"verbose":false,"user":"a","pass":"b"}\r\nPING\r\n'
STRANGER: Final = b'CONNECT {"user":"a","pass":"wrong"}\r\n'
TOO_MUCH: Final = b"-ERR 'Maximum Payload Violation'\r\n"
NO_OPERATION: Final = b"-ERR 'Unknown Protocol Operation'\r\n"
LONG_LINE: Final = b"-ERR 'maximum control line exceeded'\r\n"
REFUSED: Final = b"-ERR 'Authorization Violation'\r\n"
CASES: Final = {
    "a size alone": (HELLO, b"PUB a 1001\r\n", TOO_MUCH, "FIN"),
    "a message that is a little too large": (HELLO, b"PUB a 1001\r\n" + b"x" * 1001 + b"\r\n", TOO_MUCH, "reset"),
    "a message that is much too large": (HELLO, b"PUB a 2000000\r\n" + b"x" * 2_000_000, TOO_MUCH, "reset"),
    "a message after many good ones": (HELLO, b"PUB a 1\r\nx\r\n" * 30 + b"PUB a 1001\r\n", TOO_MUCH, "FIN"),
    "no operation": (HELLO, b"FOO\r\n", NO_OPERATION, "FIN"),
    "no operation and much more": (HELLO, b"FOO\r\n" + b"x" * 1000, NO_OPERATION, "reset"),
    "a long line": (HELLO, b"SUB " + b"x" * 5000 + b" 1\r\n", LONG_LINE, "FIN"),
    "a very long line": (HELLO, b"SUB " + b"x" * 500_000 + b" 1\r\n", LONG_LINE, "reset"),
    "a stranger": (b"", STRANGER + b"PING\r\n", REFUSED, "FIN"),
    "a stranger who publishes": (b"", STRANGER + b"PUB a 5\r\nhello\r\n" * 100, REFUSED, "reset"),
}


def ended(port: int, hello: bytes, sent: bytes) -> tuple[bytes, str]:
    heard = b""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as sock:
        sock.sendall(hello)
        while not heard.endswith(b"PONG\r\n" if hello else b"\r\n"):
            heard += sock.recv(65536)
        was_reset = False
        try:
            sock.sendall(sent)
        except ConnectionError:  # the server does not wait for all of it; a reset is reported once, here or below
            was_reset = True
        try:
            while data := sock.recv(65536):
                heard += data
            how = "reset" if was_reset else "FIN"
        except ConnectionResetError:
            how = "reset"
    return heard.splitlines(keepends=True)[-1], how


@both
def test_a_violation_ends_a_connection_as_on_nats_server(kind: Kind, tmp_path: Path) -> None:
    with ConfServer(tmp_path, kind, "authorization { user: a, password: b }\nmax_payload: 1000\n") as server:
        told = {name: ended(server.port, hello, sent) for name, (hello, sent, *_) in CASES.items()}
    assert told == {name: (line, how) for name, (_, _, line, how) in CASES.items()}
