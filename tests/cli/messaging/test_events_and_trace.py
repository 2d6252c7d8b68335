"""`natsctl events` in its forms, with its filters and ends; `natsctl trace`."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from natsctl.cli.main import run as run_main
from natsctl.cli.render.event import KINDS, render_event, render_short
from natsctl.client.connection import Connection
from natsctl.client.messaging.messages import Outgoing
from natsctl.client.messaging.request_reply import ReplyLimits, ask
from natsctl.testing.process import ServerProcess
from tests.support.commands import Run

NOW_NS = 1_767_225_600_000_000_000


def _event(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": f"io.nats.{kind}", "id": "ID", "timestamp": "2026-01-01T00:00:00Z", **fields}).encode()


@pytest.fixture
def noisy(natsctl: Run, other: Any) -> Run:
    """A server on which the stream E is made and removed again and again."""

    async def churn(connection: Connection) -> None:
        config = json.dumps({"name": "E", "subjects": ["e"], "storage": "memory"}).encode()
        while True:
            await connection.request("$JS.API.STREAM.CREATE.E", config)
            await connection.request("$JS.API.STREAM.DELETE.E")
            await asyncio.sleep(0.02)

    other.does(churn)
    return natsctl


def test_json_is_what_the_server_sent_one_event_a_line(noisy: Run) -> None:
    done = noisy("events", "--type", "stream_action", "--count", "2", "--wait", "30s", "-j")
    assert (done.code, done.err) == (0, "")
    assert {one["type"] for one in done.lines} == {"io.nats.jetstream.advisory.v1.stream_action"}
    assert {one["action"] for one in done.lines} == {"create", "delete"}
    assert {"id", "timestamp", "stream"} <= set(done.lines[0])


def test_short_and_long_forms_tell_what_happened(noisy: Run) -> None:
    short = noisy("events", "--short", "--filter", '"action":"CREATE"', "--count", "1", "--wait", "30s")
    assert short.out.endswith("[Stream Create] E\n")
    assert "Listening for Advisories on $JS.EVENT.ADVISORY.>" in short.err
    long = noisy("events", "--type", "api_audit", "--js-advisory", "--count", "1", "--wait", "30s").out
    assert "JetStream API Access" in long
    assert "Subject: $JS.API.STREAM." in long
    assert "Client: other, id " in long


def test_envelopes_are_cloud_events(noisy: Run) -> None:
    event = noisy("events", "--cloudevent", "--type", "*action", "--count", "1", "--wait", "30s").lines[0]
    assert (event["specversion"], event["source"], event["subject"]) == ("1.0", "urn:nats:jetstream", "advisory")
    assert event["type"] == event["data"]["type"] == "io.nats.jetstream.advisory.v1.stream_action"
    assert event["dataschema"].endswith("/jetstream/advisory/v1/stream_action.json")
    assert (event["id"], event["time"]) == (event["data"]["id"], event["data"]["timestamp"])


def test_subjects_are_heard_beside_the_kinds_that_are_chosen(noisy: Run) -> None:
    words = ("events", "--subjects", "no.event", "--count", "1", "--wait", "20s", "--short")
    assert noisy(*words, "--js-advisory").code == 0
    assert noisy("events", "--subjects", "no.event", "--wait", "100ms").code == 7


def test_events_of_one_consumer_only(stored: Run, other: Any) -> None:
    for name in ("C", "D"):
        stored("con", "add", "S", name, "--pull", "--sample", "100")

    async def work(connection: Connection) -> None:
        while True:
            await connection.publish("s.a", b"x")
            for name in ("D", "C"):
                async for message, _ in ask(
                    connection, Outgoing(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", b""), ReplyLimits()
                ):
                    await connection.publish(message.reply, b"+ACK")
            await asyncio.sleep(0.01)

    other.does(work)
    done = stored("events", "--consumer", "S.C", "--js-metric", "--count", "2", "--wait", "30s", "-j")
    assert {(one["consumer"], one["deliveries"]) for one in done.lines} == {("C", 1)}
    assert stored("events", "--consumer", "NOPE.C", "--wait", "200ms", "-j").code == 7


def test_stored_events_are_read_from_a_stream(natsctl: Run) -> None:
    natsctl("str", "add", "LOG", "--subjects", "$JS.EVENT.ADVISORY.STREAM.>")
    natsctl("str", "add", "E", "--subjects", "e")
    done = natsctl(
        "events", "--stream", "LOG", "--since", "1h", "--filter", '"E"', "--count", "1", "--wait", "20s", "-j"
    )
    assert done.lines[0]["stream"] == "E"
    missing = natsctl("events", "--stream", "LOGG")
    assert missing.code == 3
    assert 'did you mean "LOG"?' in missing.err


@pytest.fixture
def system_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A server whose connections the system account hears of."""
    conf = tmp_path / "server.conf"
    conf.write_text(
        "accounts { $SYS { users = [{user: admin, password: s}] }, APP { users = [{user: app, password: s}] } }\n"
    )
    with ServerProcess(tmp_path / "system", request.param, "-c", str(conf)) as process:
        yield process.url.removeprefix("nats://")


@pytest.mark.parametrize("system_server", ["natsctl", "reference"], indirect=True)
def test_the_system_account_hears_of_connections(system_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    import threading

    done = threading.Event()

    def come_and_go() -> None:
        import socket

        host, _, port = system_server.partition(":")
        while not done.is_set():
            with socket.create_connection((host, int(port))) as one:
                one.recv(4096)
                one.sendall(b'CONNECT {"user":"app","pass":"s","name":"guest","verbose":false}\r\nPING\r\n')
                one.recv(64)

    guest = threading.Thread(target=come_and_go)
    guest.start()
    try:
        words = ["-s", f"nats://admin:s@{system_server}", "events", "--count", "2", "--wait", "30s"]
        code = run_main([*words, "--type", "client_*", "--filter", "guest", "--short"])
    finally:
        done.set()
        guest.join()
    out = capsys.readouterr().out
    assert code == 0
    assert "onnection] guest 127.0.0.1 account APP" in out


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_known_type_has_a_long_and_a_short_form(kind: str) -> None:
    fields = {
        "stream": "S",
        "consumer": "C",
        "action": "delete",
        "leader": "n1",
        "replicas": [{"name": "n2"}, {"name": "n3"}],
        "server": {"name": "srv"} if kind.startswith("server.") else "srv",
        "domain": "hub",
        "acc": "APP",
        "conns": 3,
        "client": {"name": "cli", "id": 7, "host": "h", "acc": "APP", "lang": "go", "ver": "1"},
        "requestor": {"acc": "A"},
        "responder": {"acc": "B"},
        "total": 1_500_000_000,
    }
    long = render_event("x", _event(kind, **fields), NOW_NS)
    short = render_short("x", _event(kind, **fields), NOW_NS)
    assert "[ID] " in long
    assert "{" not in long + short
    assert "\n" not in short
    assert len(long.splitlines()) > 3
    assert short.split("] ")[1].strip()


def test_a_restore_tells_its_end_and_a_delay_is_a_duration() -> None:
    told = _event(
        "jetstream.advisory.v1.restore_complete",
        stream="S",
        start="2026-01-01T00:00:00.1Z",
        end="2026-01-01T00:00:02.5Z",
        bytes=2048,
    )
    long = render_event("x", told, NOW_NS)
    assert "00.100" in long.split("Start: ")[1].splitlines()[0]
    assert "02.500" in long.split("End: ")[1].splitlines()[0]
    assert "Bytes: 2.0 KiB" in long
    ack = _event("jetstream.metric.v1.consumer_ack", stream="S", consumer="C", stream_seq=4, ack_time=1_009_000)
    assert "Delay: 1.009ms" in render_event("x", ack, NOW_NS)
    assert "S > C" in render_event("x", ack, NOW_NS)


def test_what_is_unknown_is_shown_whole_and_cannot_drive_the_terminal() -> None:
    odd = _event("future.v9.thing", shiny="\x1b[31mred", deep={"a": [1]})
    for shown in (render_event("sub", odd, NOW_NS), render_short("sub", odd, NOW_NS)):
        assert "io.nats.future.v9.thing" in shown
        assert '"deep"' in shown
        assert "\x1b" not in shown
    assert "\\x1b" in render_event("sub", b"\x1b[2Jnot json", NOW_NS)
    assert "not json" in render_short("sub\x1b", b"not json", NOW_NS)


def test_a_trace_shows_streams_and_listeners_and_delivers_nothing(stored: Run, other: Any) -> None:
    other.listens("s.*")
    shown = stored("trace", "s.a", "hello", "-T").out
    assert 'from Client "natsctl' in shown
    assert "to JetStream: S stores it as s.a" in shown
    assert 'to Client "other" cid' in shown
    assert "subscribed to s.*" in shown
    assert "[+" in shown
    assert shown.endswith("Delivered to: Client 1, JetStream 1\n")
    assert (other.heard, stored("str", "info", "S", "-j").json["state"]["messages"]) == ([], 0)


@pytest.mark.parametrize(
    ("parent", "shown"),
    [
        (f"00-{'ab' * 16}-{'cd' * 8}-01", f"OpenTelemetry trace {'ab' * 16}, span {'cd' * 8}, sampled"),
        (f"00-{'ab' * 16}-{'cd' * 8}-00", f"OpenTelemetry trace {'ab' * 16}, span {'cd' * 8}, not sampled"),
        ("00-no-parent-01", None),
    ],
)
def test_a_trace_shows_the_trace_context_of_its_message(stored: Run, parent: str, shown: str | None) -> None:
    done = stored("trace", "s.a", "hello", "-H", f"traceparent:{parent}")
    first = done.out.splitlines()[0]
    assert (done.code, first) == (0, shown) if shown else first.startswith("Server ")


def test_a_trace_delivers_when_asked_to(stored: Run) -> None:
    document = stored("trace", "s.a", "hello", "--deliver", "-H", "K:v", "-j").json
    assert (document["subject"], document["delivered"]) == ("s.a", True)
    (report,) = document["traces"]
    assert [event["type"] for event in report["events"]] == ["in", "js"]
    assert report["request"]["header"]["K"] == ["v"]
    assert stored("str", "get", "S", "1", "--raw").out == "hello"


def test_a_trace_to_nobody_says_so(natsctl: Run) -> None:
    done = natsctl("trace", "nobody.there")
    assert (done.code, done.out.splitlines()[-1]) == (0, "No subscriber or stream takes messages on this subject")
    assert natsctl("trace", "a.*").code == 2
    assert "Nats-Trace-Only: true" in natsctl("--dry-run", "trace", "a.b", "x").out
