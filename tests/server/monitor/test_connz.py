"""Pages about connections and accounts."""

import json
import time
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from natsctl.api.subject_index import finish
from natsctl.broker import session as sessions
from natsctl.broker.imports.account_config import AccountConfig
from natsctl.broker.session import Session
from natsctl.server.instance import ServerInstance
from natsctl.server.monitor.accountz import AccstatzOptions, accstatz
from natsctl.server.monitor.connz import ConnState, ConnzOptions, SubszOptions, connz, payload, presentable, subsz
from natsctl.server.monitor.document import pieces, pieces_of
from natsctl.server.monitor.query import BadRequestError
from natsctl.server.options import ServerOptions
from natsctl.testing.process import ServerProcess
from tests.support.call_counts import CallCounter
from tests.support.operators import Operator, login

from .test_reference import ask, monitoring_port


@pytest.fixture
async def server() -> AsyncIterator[ServerInstance]:
    async with ServerInstance(ServerOptions(host="127.0.0.1", port=-1)) as running:
        yield running


def client(server: ServerInstance, name: str, *lines: str) -> Session:
    session = server.broker.connect("10.0.0.1", 4000)
    options = {"verbose": False, "pedantic": False, "name": name}
    session.receive(b"CONNECT %b\r\n" % msgspec.json.encode(options))
    for line in lines:
        session.receive(line.encode() + b"\r\n")
    session.take_output()
    return session


def whole(report: Generator[None, None, Any]) -> Any:
    return msgspec.json.decode(b"".join(pieces_of(report, 2)))


def names(server: ServerInstance, **options: object) -> list[str]:
    page = whole(connz(server, msgspec.convert(options, ConnzOptions)))
    return [entry["name"] for entry in page["connections"]]


async def test_every_order_has_the_largest_first_but_cid_start_uptime_and_reason(server: ServerInstance) -> None:
    first = client(server, "first", "SUB a 1")
    second = client(server, "second", "SUB a 1", "SUB b 2", "PUB x 5\r\nhello")
    third = client(server, "third", "PUB a 1\r\nx", "PUB a 1\r\nx")
    first.rtt_ns, second.rtt_ns, third.rtt_ns, first.pending_bytes = 1, 5, 3, 7000
    assert names(server) == names(server, sort="cid") == names(server, sort="start") == ["first", "second", "third"]
    assert names(server, sort="subs")[0] == "second"
    assert names(server, sort="pending")[0] == "first"
    assert names(server, sort="msgs_from")[0] == "third"
    assert names(server, sort="bytes_from")[0] == "second"
    assert names(server, sort="msgs_to")[-1] == "third"
    assert names(server, sort="rtt") == ["second", "third", "first"]
    assert names(server, sort="uptime") == ["third", "second", "first"]
    assert names(server, sort="last")[0] == "third"
    assert names(server, sort="idle")[-1] == "third"


async def test_pages_filters_and_states(server: ServerInstance) -> None:
    stay = [client(server, f"c{number}", f"SUB s.{number} 1") for number in range(4)]
    gone = client(server, "gone", "SUB bye 1")
    gone.closed()
    assert names(server, offset=1, limit=2) == ["c1", "c2"]
    assert names(server, offset=9) == []
    assert names(server, cid=stay[2].cid) == ["c2"]
    assert names(server, cid=gone.cid) == []
    assert names(server, cid=gone.cid, state=ConnState.ALL) == ["gone"]
    assert names(server, state=ConnState.CLOSED) == ["gone"]
    assert names(server, state=ConnState.ALL, acc="$G") == ["c0", "c1", "c2", "c3", "gone"]
    assert names(server, acc="$G", filter_subject="s.*") == ["c0", "c1", "c2", "c3"]
    assert names(server, acc="$G", filter_subject="s.3") == ["c3"]
    with pytest.raises(BadRequestError, match="filter by subject only valid with account filtering"):
        names(server, filter_subject="s.3")
    assert whole(connz(server, ConnzOptions(limit=2)))["total"] == 4


async def test_a_connection_that_has_ended_keeps_a_bounded_number_of_subscriptions(
    server: ServerInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_LEFT_SUBS", 3)
    client(server, "gone", *(f"SUB s.{number} {number}" for number in range(5))).closed()
    options = ConnzOptions(state=ConnState.CLOSED, subscriptions_detail=True)
    (entry,) = whole(connz(server, options))["connections"]
    assert (entry["subscriptions"], len(entry["subscriptions_list_detail"])) == (5, 3)
    assert entry["reason"] == "Client Closed"


async def test_traffic_of_connections_that_have_ended_stays_with_their_account(server: ServerInstance) -> None:
    client(server, "gone", "PUB x 5\r\nhello").closed()
    options = AccstatzOptions(include_unused=True)
    (stat,) = (one for one in finish(accstatz(server, options))["account_statz"] if one["acc"] == "$G")
    assert (stat["conns"], stat["received"]["msgs"], stat["received"]["bytes"]) == (0, 1, 5)
    assert all(one["acc"] != "$G" for one in finish(accstatz(server, AccstatzOptions()))["account_statz"])


async def test_receiving_counts_as_activity_and_protocol_chatter_does_not(server: ServerInstance) -> None:
    reader, writer = client(server, "reader", "SUB a 1"), client(server, "writer")
    reader.last_data_ns = 1
    reader.receive(b"PING\r\n")
    reader.take_output()
    assert reader.last_data_ns == 1
    writer.receive(b"PUB a 1\r\nx\r\n")
    reader.take_output()
    assert reader.last_data_ns > 1


async def test_subscriptions_that_a_subject_reaches(server: ServerInstance) -> None:
    client(server, "one", "SUB orders.* 1", "SUB orders.new workers 2", "SUB other 3")
    page = whole(subsz(server, SubszOptions(subscriptions=True, test="orders.new", account="$G")))
    found = sorted((one["subject"], one.get("qgroup", "")) for one in page["subscriptions_list"])
    assert found == [("orders.*", ""), ("orders.new", "workers")]
    assert page["total"] == 2
    with pytest.raises(BadRequestError, match="invalid test subject, must be valid publish subject"):
        subsz(server, SubszOptions(subscriptions=True, test="a.>"))


async def test_no_step_of_a_report_about_many_is_long(server: ServerInstance) -> None:
    counter, many = CallCounter(), 20_000
    server.broker.configure([AccountConfig(f"A{number}") for number in range(many // 10)])
    for _ in range(5):
        client(server, "c", *(f"SUB s.{number} {number}" for number in range(many // 5)))
    reports: list[Generator[None, None, Any]] = [
        connz(server, ConnzOptions(acc="$G", filter_subject="x.>")),
        connz(server, ConnzOptions(subscriptions=True)),
        connz(server, ConnzOptions(subscriptions_detail=True)),
        subsz(server, SubszOptions(subscriptions=True, limit=many)),
        subsz(server, SubszOptions(subscriptions=True, offset=many - 10)),
        subsz(server, SubszOptions(subscriptions=True, test="s.7")),
        accstatz(server, AccstatzOptions(include_unused=True)),
        accstatz(server, AccstatzOptions()),
    ]

    def making(report: Generator[None, None, Any]) -> Iterator[object]:
        yield from pieces((yield from report), b"", 0)

    with counter:
        for report in map(making, reports):
            step = counter.noting(lambda report=report: next(report, report))
            while step() is not report:
                pass
    assert len(counter.turns) > 3 * many and max(counter.turns) <= 10_000


def test_jwts_of_accounts_and_users_are_shown_but_none_that_would_let_its_reader_in(tmp_path: Path) -> None:
    operator = Operator()
    account = operator.account("A", {"name": "ACME"}, tags=["team:red"], revocations={"*": int(time.time()) - 3600})
    user, bearer = operator.user(account), operator.user(account, bearer_token=True)
    (tmp_path / "nats.conf").write_text(operator.conf() + "\nhttp: 127.0.0.1:-1\n")
    with ServerProcess(tmp_path / "server", "natsctl", "-c", str(tmp_path / "nats.conf")) as process:
        visitors = [login(process.url, one) for one in (user, bearer)]
        port = monitoring_port(process)
        pages = {
            path: ask(port, path)[2]
            for path in ("/varz", "/connz?auth=1", f"/accountz?acc={account.public}", "/metrics")
        }
        for visitor in visitors:
            visitor.close()
    first, second = json.loads(pages["/connz?auth=1"])["connections"]
    assert (first["jwt"], first["issuer_key"], first["account"]) == (user.jwt, account.public, account.public)
    assert "jwt" not in second
    assert bearer.jwt not in str(pages)
    detail = json.loads(pages[f"/accountz?acc={account.public}"])["account_detail"]
    assert detail["decoded_jwt"]["sub"] == account.public
    assert detail["tags"] == ["team:red"]
    assert list(detail["revoked_user"]) == ["*"]
    varz = json.loads(pages["/varz"])
    assert varz["trusted_operators_claim"][0]["nats"]["type"] == "operator"
    assert "trusted_operators_jwt" not in varz


def test_what_is_no_jwt_is_neither_read_nor_shown() -> None:
    for token in ("", "a", "a.b.c", "a.!!.c", "a.W10.c", "a.e30.c"):
        assert payload(token) == {}
        assert presentable(token) == ""
