"""What the system account is told: connections, accounts, leaf nodes and the server's own state."""

from types import SimpleNamespace
from typing import Any

import pytest

from natsctl.broker.auth.credentials import Grant, LoginRefusal
from natsctl.broker.refusals import CloseReason
from natsctl.server.monitor.query import BadRequestError
from natsctl.server.system.account import StatszHeartbeat, SystemAccount
from natsctl.server.system.answers import kick
from tests.support.leaf_servers import Servers
from tests.support.machine import Machine

from .conftest import Net

BOTH = (b"$SYS.SERVER.ACCOUNT.A.CONNS", b"$SYS.ACCOUNT.A.SERVER.CONNS")


def numbers(net: Net, *sids: bytes) -> list[tuple[bytes, int]]:
    return [(message.subject, message.json()["conns"]) for sid in sids for message in net.operator.take(sid)]


def test_both_subjects_tell_of_each_connection_that_comes_or_goes(net: Net) -> None:
    sids = net.operator.subscribe("$SYS.SERVER.ACCOUNT.*.CONNS"), net.operator.subscribe("$SYS.ACCOUNT.*.SERVER.CONNS")
    one = net.client("one", "A")
    assert numbers(net, *sids) == [(BOTH[0], 1), (BOTH[1], 1)]
    net.client("two", "A")
    one.close()
    assert numbers(net, *sids) == [(BOTH[0], 2), (BOTH[0], 1), (BOTH[1], 2), (BOTH[1], 1)]


def test_an_account_with_connections_is_told_of_every_thirty_seconds(net: Net) -> None:
    sid = net.operator.subscribe(BOTH[1].decode())
    client = net.client("one", "A")
    net.operator.take(sid)
    net.wait(29.9)
    assert net.operator.take(sid) == []
    net.wait(0.2)
    net.wait(30)
    assert numbers(net, sid) == [(BOTH[1], 1), (BOTH[1], 1)]
    client.close()
    assert numbers(net, sid) == [(BOTH[1], 0)]
    net.wait(60)
    assert net.operator.take(sid) == []


def test_a_change_puts_the_next_telling_off(net: Net) -> None:
    sid = net.operator.subscribe(BOTH[1].decode())
    net.client("one", "A")
    net.wait(20)
    net.client("two", "A")
    net.operator.take(sid)
    net.wait(20)
    assert net.operator.take(sid) == []
    net.wait(10)
    assert numbers(net, sid) == [(BOTH[1], 2)]


def test_the_global_account_is_not_told_of(net: Net) -> None:
    sid = net.operator.subscribe("$SYS.SERVER.ACCOUNT.>")
    net.client("one").close()
    assert net.operator.take(sid) == []


def test_who_asks_is_told_of_accounts_that_have_connections(net: Net) -> None:
    net.client("one", "A")
    net.broker.account("EMPTY")
    assert net.answer("$SYS.REQ.ACCOUNT.A.CONNS")["conns"] == 1
    assert net.answer("$SYS.REQ.ACCOUNT.A.CONNS", {"acc": "A"})["acc"] == "A"
    assert net.ask("$SYS.REQ.ACCOUNT.A.CONNS", {"acc": "B"}) is None
    assert net.ask("$SYS.REQ.ACCOUNT.EMPTY.CONNS") is None
    assert net.ask("$SYS.REQ.ACCOUNT.NONE.CONNS") is None
    assert net.ask("$SYS.REQ.ACCOUNT.A.CONNS", b"{") is None


def test_a_client_that_comes_and_goes_is_told_with_what_it_moved(net: Net) -> None:
    sid = net.operator.subscribe("$SYS.ACCOUNT.A.*")
    client = net.client("worker", "A", "bob", lang="go", version="1.2")
    (connect,) = net.operator.take(sid)
    client.publish("foo", b"12345")
    client.close()
    (disconnect,) = net.operator.take(sid)
    assert (connect.subject, disconnect.subject) == (b"$SYS.ACCOUNT.A.CONNECT", b"$SYS.ACCOUNT.A.DISCONNECT")
    came, gone = connect.json(), disconnect.json()
    assert came["type"] == "io.nats.server.advisory.v1.client_connect"
    assert gone["type"] == "io.nats.server.advisory.v1.client_disconnect"
    assert came["client"] | {"start": ""} == {
        "start": "", "host": "127.0.0.1", "id": client.session.cid, "acc": "A", "user": "bob", "name": "worker",
        "lang": "go", "ver": "1.2", "name_tag": "A", "kind": "Client", "client_type": "nats",
    }  # fmt: skip
    assert "stop" in gone["client"]
    assert (gone["sent"], gone["received"]) == ({"msgs": 1, "bytes": 5}, {"msgs": 0, "bytes": 0})
    assert gone["reason"] == "Client Closed"
    assert came["id"] != gone["id"]
    assert len(came["id"]) == 22


def test_nothing_is_built_where_nobody_listens(net: Net) -> None:
    before = net.broker.next_event_seq()
    net.client("worker", "A").close()
    assert net.broker.next_event_seq() == before + 1


def test_who_is_refused_is_told_to_the_operator_and_in_the_account(net: Net) -> None:
    operator = net.operator.subscribe("$SYS.SERVER.*.CLIENT.AUTH.ERR")
    owner = net.client("owner")
    theirs = owner.subscribe("$SYS.ACCOUNT.CLIENT.AUTH.ERR")
    session = net.broker.connect("10.1.1.1", 5)
    session.login.refuse(LoginRefusal("no such user"))
    net.machine.settle()
    (told,), (heard,) = net.operator.take(operator), owner.take(theirs)
    event = told.json()
    assert event["reason"] == "Authentication Failure"
    assert event["type"] == "io.nats.server.advisory.v1.client_disconnect"
    assert (event["client"]["acc"], event["client"]["host"]) == ("$G", "10.1.1.1")
    assert heard.json()["client"] == event["client"]
    assert "no such user" not in told.payload.decode()


def test_a_token_is_not_told(net: Net) -> None:
    sid = net.operator.subscribe("$SYS.ACCOUNT.>")
    wire = net.machine.connect("secretive", auth_token="hunter2")
    wire.close()
    connect, disconnect = net.operator.take(sid)
    assert connect.json()["client"]["user"] == "[REDACTED]"
    assert disconnect.json()["client"]["user"] == "[REDACTED]"
    assert b"hunter2" not in connect.payload + disconnect.payload


def test_who_was_refused_is_still_named_when_it_is_gone(net: Net) -> None:
    sid = net.operator.subscribe("$SYS.ACCOUNT.$G.DISCONNECT")
    session = net.broker.connect("10.1.1.1", 5)
    session.receive(b'CONNECT {"user":"bob","pass":"5up3r","account":"A"}\r\n')
    session.closed()
    net.machine.settle()
    (message,) = net.operator.take(sid)
    assert message.json()["client"]["user"] == "bob"
    assert b"5up3r" not in message.payload
    assert session.login.credentials is None


def test_who_never_says_connect_leaves_the_global_account(net: Net) -> None:
    sid = net.operator.subscribe("$SYS.ACCOUNT.*.DISCONNECT")
    net.broker.connect("127.0.0.1", 5).closed()
    net.machine.settle()
    (message,) = net.operator.take(sid)
    assert message.subject == b"$SYS.ACCOUNT.$G.DISCONNECT"
    assert "user" not in message.json()["client"]


def test_what_a_jwt_says_of_its_user_is_told(net: Net) -> None:
    sid = net.operator.subscribe("$SYS.ACCOUNT.A.CONNECT")
    wire = net.machine.connect("jwt")
    wire.session.login.admit(Grant("U1", "A", issuer="AKEY", jwt="ey.J", tags=("red",)))
    net.broker.event_listener.connected(wire.session)
    net.machine.settle()
    (message,) = net.operator.take(sid)
    client = message.json()["client"]
    assert (client["issuer_key"], client["jwt"], client["tags"]) == ("AKEY", "ey.J", ["red"])


def test_a_leaf_node_that_comes_and_goes_is_told_as_one() -> None:
    servers = Servers()
    hub, spoke = servers.start("HUB", "hub"), servers.start("SPOKE", "leaf")
    broker = hub.machine.broker
    server: Any = SimpleNamespace(broker=broker, engine=None, leafs=None)
    SystemAccount(server, lambda: None, lambda: None).start()
    operator = hub.machine.connect("operator")
    operator.session.login.admit(Grant("s", "$SYS"))
    sid = operator.subscribe("$SYS.ACCOUNT.$G.*")
    servers.join(spoke, hub)
    servers.settle()
    (connect,) = operator.take(sid)
    client = connect.json()["client"]
    assert connect.subject == b"$SYS.ACCOUNT.$G.CONNECT"
    assert (client["name"], client["kind"], client["acc"]) == ("SPOKE", "Leafnode", "$G")
    assert "client_type" not in client
    (cid,) = broker.leafs
    link: Any = broker.leafs[cid]
    kick(broker, cid)
    assert link.close_reason is CloseReason.KICKED
    link.closed()
    servers.settle()
    (disconnect,) = operator.take(sid)
    assert disconnect.json()["reason"] == "Kicked"
    with pytest.raises(BadRequestError, match="no such client or leafnode id"):
        kick(broker, cid)


MILLISECOND = 1_000_000


class Beating:
    """A heartbeat whose messages are noted with the time since the start, in ms."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.start = self.machine.clock.monotonic_ns()
        self.built: list[int] = []
        self.heartbeat = StatszHeartbeat(self.machine.broker, self.body)
        self.subject = f"$SYS.SERVER.{self.machine.broker.server_id}.STATSZ".encode()

    @property
    def now(self) -> int:
        return (self.machine.clock.monotonic_ns() - self.start) // MILLISECOND

    def body(self) -> dict[str, int]:
        self.built.append(self.now)
        return {"at": self.now}

    def listen(self) -> None:
        self.machine.broker.system_account.subscribe(self.subject, lambda *message: None)

    def run(self, until: int) -> None:
        while self.now < until:
            self.machine.clock.advance(50 * MILLISECOND)
            self.heartbeat.tick()


def test_the_waits_double_up_to_ten_seconds_the_second_is_held_back_by_the_rate_limit() -> None:
    beating = Beating()
    beating.listen()
    beating.run(50_000)
    assert beating.built == [250, 1250, 3250, 7250, 15_250, 25_250, 35_250, 45_250]


def test_no_heartbeat_is_built_where_nobody_listens() -> None:
    beating = Beating()
    beating.run(20_000)
    assert beating.built == []


def test_who_asks_without_a_reply_is_told_at_once_and_others_not_more_than_once_a_second() -> None:
    beating = Beating()
    beating.listen()
    beating.run(16_000)
    del beating.built[:]
    beating.heartbeat.publish_now()
    beating.heartbeat.publish_now()
    assert beating.built == [16_000, 16_000]
    beating.heartbeat.broadcast()
    assert len(beating.built) == 2
    beating.run(17_500)
    assert beating.built == [16_000, 16_000, 17_000]
