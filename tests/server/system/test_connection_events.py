"""CONNECT, DISCONNECT and AUTH.ERR."""

from __future__ import annotations

from natsctl.broker.auth.credentials import Grant, Refusal
from natsctl.broker.refusals import CloseReason

from .conftest import Net


def keys(value: dict[str, object]) -> list[str]:
    return list(value)


def test_a_client_that_comes_and_goes_is_told_with_what_it_moved(net: Net) -> None:
    sid = net.operator.subscribe("$SYS.ACCOUNT.A.*")
    client = net.client("worker", "A", "bob", lang="go", version="1.2")
    (connect,) = net.operator.take(sid)
    client.publish("foo", b"12345")
    client.close()
    (disconnect,) = net.operator.take(sid)
    assert (connect.subject, disconnect.subject) == (b"$SYS.ACCOUNT.A.CONNECT", b"$SYS.ACCOUNT.A.DISCONNECT")
    came, gone = connect.json(), disconnect.json()
    assert keys(came) == ["type", "id", "timestamp", "server", "client"]
    assert keys(gone) == ["type", "id", "timestamp", "server", "client", "sent", "received", "reason"]
    assert came["type"] == "io.nats.server.advisory.v1.client_connect"
    assert gone["type"] == "io.nats.server.advisory.v1.client_disconnect"
    assert keys(came["client"]) == [
        "start", "host", "id", "acc", "user", "name", "lang", "ver", "name_tag", "kind", "client_type",
    ]  # fmt: skip
    assert came["client"] | {"start": ""} == {
        "start": "", "host": "127.0.0.1", "id": client.session.cid, "acc": "A", "user": "bob", "name": "worker",
        "lang": "go", "ver": "1.2", "name_tag": "A", "kind": "Client", "client_type": "nats",
    }  # fmt: skip
    assert "stop" in gone["client"]
    assert (gone["sent"], gone["received"]) == ({"msgs": 1, "bytes": 5}, {"msgs": 0, "bytes": 0})
    assert gone["reason"] == "Client Closed"
    assert came["id"] != gone["id"]
    assert len(came["id"]) == 22


def test_the_reason_is_that_of_connz(net: Net) -> None:
    client = net.client("worker", "A")
    sid = net.operator.subscribe("$SYS.ACCOUNT.A.DISCONNECT")
    client.session.close(CloseReason.KICKED)
    client.close()
    assert [message.json()["reason"] for message in net.operator.take(sid)] == ["Kicked"]


def test_nothing_is_built_where_nobody_listens(net: Net) -> None:
    before = net.broker.next_event_seq()
    net.client("worker", "A").close()
    assert net.broker.next_event_seq() == before + 1


def test_who_is_refused_is_told_to_the_operator_and_in_the_account(net: Net) -> None:
    operator = net.operator.subscribe("$SYS.SERVER.*.CLIENT.AUTH.ERR")
    owner = net.client("owner")
    theirs = owner.subscribe("$SYS.ACCOUNT.CLIENT.AUTH.ERR")
    session = net.broker.connect("10.1.1.1", 5)
    session.login.refuse(Refusal("no such user"))
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
