"""What accounts give each other: streams, services, responses, and what ends them."""

import json
import re

import pytest

from natsctl.broker.auth.static_auth import StaticAuthenticator, User
from natsctl.broker.broker import Broker
from natsctl.broker.broker_options import BrokerOptions
from natsctl.broker.imports.account_config import (
    AccountConfig,
    Destination,
    Latency,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
    SubjectMap,
)
from natsctl.broker.imports.service_latency import MAX_TRACING_LINES
from tests.broker.conftest import SECOND, BrokerHarness, SessionClient
from tests.support.call_counts import calls_of

USERS = tuple(User(name, name, name.upper()) for name in "abc")


class AccountNetwork:
    """Three accounts with a client each: `a`, `b` and `c`."""

    def __init__(self, *configs: AccountConfig) -> None:
        self.harness = BrokerHarness(BrokerOptions(auth=StaticAuthenticator(users=USERS)))
        self.broker: Broker = self.harness.broker
        self.configure(*configs)
        self.a, self.b, self.c = (self.client(name) for name in "abc")

    def configure(self, *configs: AccountConfig) -> None:
        named = {config.name for config in configs}
        rest = [AccountConfig(name) for name in "ABC" if name not in named]
        self.broker.configure([*configs, *rest])

    def client(self, name: str, **options: object) -> SessionClient:
        hello = {
            "verbose": False, "pedantic": False, "headers": True, "no_responders": True, "user": name, "pass": name,
            **options,
        }  # fmt: skip
        return SessionClient(self.broker.connect("127.0.0.1", 5555), b"CONNECT %b\r\n" % json.dumps(hello).encode())

    def texts(self) -> list[str]:
        return [problem.text for problem in self.broker.import_problems]


def streams(*imports: StreamImport, export: str = "s.>") -> tuple[AccountConfig, ...]:
    return AccountConfig("A", exports=(StreamExport(export),)), AccountConfig("B", imports=imports)


def services(item: ServiceImport, export: ServiceExport | None = None) -> tuple[AccountConfig, ...]:
    export = export or ServiceExport("q.>")
    return AccountConfig("A", exports=(export,)), AccountConfig("B", imports=(item,))


def reply_of(heard: bytes) -> bytes:
    found = re.search(rb"_R_\.\S+", heard)
    assert found is not None, heard
    return found[0]


# --- streams


def test_a_literal_stream_may_be_called_anything() -> None:
    network = AccountNetwork(*streams(StreamImport("A", "s.x", "other")))
    network.b.say(b"SUB other 1\r\nSUB s.x 2\r\n")
    network.a.say(b"PUB s.x 1\r\nx\r\n")
    assert network.b.heard() == b"MSG other 1 1\r\nx\r\n"


def test_nothing_stands_in_the_exporting_account_before_somebody_listens_and_after() -> None:
    network = AccountNetwork(*streams(StreamImport("A", "s.>")))
    exporter = network.broker.accounts["A"]
    before = exporter.subscriptions
    network.b.say(b"SUB s.> 1\r\nSUB other 2\r\n")
    assert exporter.subscriptions == before + 1
    network.b.say(b"UNSUB 1\r\n")
    assert exporter.subscriptions == before
    network.b.say(b"SUB s.1 3\r\n")
    network.b.session.closed()
    assert exporter.subscriptions == before


def test_a_group_is_one_across_accounts() -> None:
    network = AccountNetwork(*streams(StreamImport("A", "s.>")))
    network.a.say(b"SUB s.1 g 1\r\n")
    network.b.say(b"SUB s.1 g 1\r\n")
    publisher = network.client("a")
    publisher.say(b"PUB s.1 1\r\nx\r\n" * 50)
    here, there = network.a.heard().count(b"MSG"), network.b.heard().count(b"MSG")
    assert here + there == 50 and here and there


def test_a_subscription_with_a_maximum_counts_what_is_imported() -> None:
    network = AccountNetwork(*streams(StreamImport("A", "s.>")))
    network.b.say(b"SUB s.1 1\r\nUNSUB 1 2\r\n")
    network.a.say(b"PUB s.1 1\r\nx\r\n" * 3)
    assert network.b.heard().count(b"MSG") == 2
    assert not network.b.session.subs


def test_what_waits_for_a_client_of_another_account_is_known() -> None:
    network = AccountNetwork(*streams(StreamImport("A", "s.>")))
    network.b.say(b"SUB s.1 1\r\n")
    exporter = network.broker.accounts["A"]
    network.a.session.receive(b"PUB s.1 100\r\n%b\r\n" % (b"x" * 100))
    assert exporter.unwritten_bytes(b"s.1") == network.b.session.pending_bytes > 100


# --- services


def test_nobody_waits_longer_than_the_threshold_allows() -> None:
    export = ServiceExport("q.>", response_threshold_ns=5 * SECOND)
    network = AccountNetwork(*services(ServiceImport("A", "q.>"), export))
    network.a.say(b"SUB q.> 1\r\n")
    network.b.say(b"SUB in 1\r\nPUB q.1 in 3\r\nreq\r\n")
    network.harness.wait(4)
    assert network.broker.accounts["A"].imports.owed == 1
    network.harness.wait(1)
    assert network.broker.accounts["A"].imports.owed == 0
    assert b"MSG" not in network.b.heard()


def test_nobody_waits_for_who_has_gone() -> None:
    network = AccountNetwork(*services(ServiceImport("A", "q.>")))
    network.a.say(b"SUB q.> 1\r\n")
    network.b.say(b"SUB in.* 1\r\nPUB q.1 in.1 3\r\nreq\r\n")
    exporter = network.broker.accounts["A"]
    assert exporter.imports.owed == 1
    assert exporter.has_interest(reply_of(network.a.heard()))
    network.b.session.closed()
    network.broker.tick()
    assert exporter.imports.owed == 0


# --- latency


def metric(heard: bytes) -> dict[str, object]:
    found = json.loads(heard[heard.index(b'{"type":"io.nats.server.metric') :].split(b"\r\n")[0])
    assert isinstance(found, dict)
    return found


LATENT = ServiceExport("q", latency=Latency("lat"), response_threshold_ns=SECOND)


def latent() -> AccountNetwork:
    network = AccountNetwork(*services(ServiceImport("A", "q"), LATENT))
    network.a.say(b"SUB q 1\r\nSUB lat 2\r\n")
    network.b.say(b"SUB in 1\r\nPUB q in 3\r\nreq\r\n")
    return network


def test_a_measured_request_tells_how_long_it_took() -> None:
    network = latent()
    network.b.session.rtt_ns, network.a.session.rtt_ns = 1000, 500
    reply = reply_of(network.a.heard())
    assert reply.endswith(b".T")
    network.harness.clock.ns += 2000
    told = metric(network.a.say(b"PUB %b 2\r\nok\r\n" % reply))
    assert list(told) == [
        "type", "id", "timestamp", "status", "requestor", "responder", "start", "service", "system", "total",
    ]  # fmt: skip
    assert (told["status"], told["service"], told["total"]) == (200, 1500, 2000)
    assert b"ok" in network.b.heard()


def test_a_measured_request_that_fails_tells_why() -> None:
    network = latent()
    network.b.say(b"PUB q 3\r\nreq\r\n")
    assert (metric(network.a.heard())["status"], network.broker.accounts["A"].imports.owed) == (400, 1)
    network.b.say(b"UNSUB 1\r\n")
    assert metric(network.a.heard())["status"] == 408
    network.b.say(b"SUB in 1\r\nPUB q in 3\r\nreq\r\n")
    network.a.heard()
    network.harness.wait(1)
    assert metric(network.a.heard())["status"] == 504
    network.a.say(b"UNSUB 1\r\n")
    network.b.say(b"PUB q in 3\r\nreq\r\n")
    assert metric(network.a.heard())["status"] == 503


@pytest.mark.parametrize(
    ("header", "measured"),
    [
        ("X-B3-Sampled: 1", True),
        ("X-B3-Sampled: 0", False),
        ("X-B3-TraceId: 80f198ee56343ba864fe8b2a57d3eff7", True),
        ("B3: 80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1-05e3ac9a4f6e3b90", True),
        ("B3: 0", False),
        ("Uber-Trace-Id: 479fefe9525eddb:5adb976bfc1f95c1:479fefe9525eddb:1", True),
        ("Uber-Trace-Id: 479fefe9525eddb:5adb976bfc1f95c1:479fefe9525eddb:0", False),
        ("traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", True),
        ("traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", False),
        ("Other: 1", False),
        ("not a header\r\nX-B3-Sampled: 1", True),
    ],
)
def test_headers_ask_for_a_measurement(header: str, measured: bool) -> None:
    network = AccountNetwork(*services(ServiceImport("A", "q"), ServiceExport("q", latency=Latency("lat", 0))))
    network.a.say(b"SUB q 1\r\nSUB lat 2\r\n")
    block = f"NATS/1.0\r\n{header}\r\n\r\n".encode()
    network.b.say(b"SUB in 1\r\nHPUB q in %d %d\r\n%b\r\n" % (len(block), len(block), block))
    assert reply_of(network.a.heard()).endswith(b".T") is measured


def test_long_headers_are_searched_for_what_asks_for_a_measurement() -> None:
    network = AccountNetwork(*services(ServiceImport("A", "q"), ServiceExport("q", latency=Latency("lat", 0))))
    network.a.say(b"SUB q 1\r\nSUB lat 2\r\n")
    baggage = b"".join(b"UBERCTX-key-%d: %d\r\n" % (number, number) for number in range(MAX_TRACING_LINES))
    block = b"NATS/1.0\r\n%buber-trace-id: 1:2:3:1\r\n%b\r\n" % (b"other: 1\r\n" * 20_000, baggage)
    assert calls_of(lambda: network.b.say(b"HPUB q %d %d\r\n%b\r\n" % (len(block), len(block), block))) < 10_000
    shown = metric(network.a.heard())["header"]
    assert isinstance(shown, dict) and len(shown) == MAX_TRACING_LINES
    assert shown["Uber-Trace-Id"] == ["1:2:3:1"] and shown["Uberctx-Key-7"] == ["7"]


# --- configuration


def test_a_change_leaves_clients_and_what_goes_on_alone() -> None:
    network = AccountNetwork(*services(ServiceImport("A", "q.>")))
    network.a.say(b"SUB q.> 1\r\nSUB s.1 2\r\n")
    network.b.say(b"SUB in 1\r\nSUB s.1 5\r\nPUB q.1 in 3\r\nreq\r\n")
    reply = reply_of(network.a.heard())
    network.configure(*streams(StreamImport("A", "s.>")))
    assert b"503" in network.b.say(b"PUB q.1 in 3\r\nreq\r\n")
    network.client("a").say(b"PUB s.1 1\r\nx\r\n")
    assert network.b.heard() == b"MSG s.1 5 1\r\nx\r\n"
    network.a.say(b"PUB %b 2\r\nok\r\n" % reply)
    assert network.b.heard() == b"MSG in 1 2\r\nok\r\n"
    network.configure()
    network.client("a").say(b"PUB s.1 1\r\nx\r\n")
    assert network.b.heard() == b"" and network.b.session.close_reason is None


def test_an_account_that_is_not_named_any_more_is_gone() -> None:
    network = AccountNetwork(*services(ServiceImport("A", "q.>")))
    (gone,) = network.broker.configure([AccountConfig("B"), AccountConfig("C")])
    assert (gone.name, gone.sessions) == ("A", {network.a.session})
    assert sorted(network.broker.accounts) == ["$G", "$SYS", "B", "C"]


Case = tuple[AccountConfig, ...]
REFUSED: dict[str, Case] = {
    '"X" account not defined for stream import': streams(StreamImport("X", "s.>")),
    '"X" account not defined for service import': services(ServiceImport("X", "q.>")),
    'Error adding stream import "t": stream import not authorized': streams(StreamImport("A", "t")),
    'Error adding stream import ">": stream import not authorized': streams(StreamImport("A", ">")),
    'Error adding service import "t": service import not authorized': services(ServiceImport("A", "t")),
    'Error adding service import "q.1": service import not authorized': services(
        ServiceImport("A", "q.1"), ServiceExport("q.1", ("C",))
    ),
    'Error adding stream import "s.>": stream import already exists': streams(
        StreamImport("A", "s.>"), StreamImport("A", "s.>", "t.>")
    ),
    'Error adding service import "q.*": import forms a cycle': (
        AccountConfig("A", exports=(ServiceExport("q.*"),), imports=(ServiceImport("B", "q.*"),)),
        AccountConfig("B", exports=(ServiceExport("q.*"),), imports=(ServiceImport("A", "q.*"),)),
    ),
    'Error adding stream import "s.*": import forms a cycle': (
        AccountConfig("A", exports=(StreamExport("s.*"),), imports=(StreamImport("B", "s.*"),)),
        AccountConfig("B", exports=(StreamExport("s.*"),), imports=(StreamImport("A", "s.*"),)),
    ),
    'Error adding service latency sampling for "q.>" on subject "q.x": invalid publish subject': services(
        ServiceImport("A", "q.1"), ServiceExport("q.>", latency=Latency("q.x"))
    ),
    'Error adding service latency sampling for "q.>" on subject "l": bad service response type': services(
        ServiceImport("A", "q.1"), ServiceExport("q.>", latency=Latency("l"), response="chunked")
    ),
    'Error adding stream export "s.x": sublist: invalid subject': (
        AccountConfig("A", exports=(StreamExport("s.x", account_token_position=2),)),
    ),
    '"X" account not defined for stream export': (AccountConfig("A", exports=(StreamExport("s", ("X",)),)),),
}


@pytest.mark.parametrize(("text", "configs"), REFUSED.items(), ids=list(REFUSED))
def test_what_can_not_be_is_told_and_left_out(text: str, configs: Case) -> None:
    assert AccountNetwork(*configs).texts() == [text]


def test_a_message_that_comes_through_a_service_again_ends() -> None:
    network = AccountNetwork(
        AccountConfig(
            "A",
            exports=(ServiceExport("q.>"),),
            imports=(ServiceImport("B", "r.>", "z.>"),),
            mappings=(SubjectMap("q.>", (Destination("z.>"),)),),
        ),
        AccountConfig(
            "B",
            exports=(ServiceExport("r.>"),),
            imports=(ServiceImport("A", "q.>", "y.>"),),
            mappings=(SubjectMap("r.>", (Destination("y.>"),)),),
        ),
    )
    assert network.texts() == []
    assert b"503" in network.a.say(b"SUB in 1\r\nPUB z.1 in 1\r\nx\r\n")
