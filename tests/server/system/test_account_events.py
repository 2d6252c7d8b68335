"""How many connections an account has."""

from __future__ import annotations

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


def test_the_event_reads_as_the_reference_writes_it(net: Net) -> None:
    sid = net.operator.subscribe("$SYS.ACCOUNT.A.SERVER.CONNS")
    net.client("one", "A")
    (message,) = net.operator.take(sid)
    event = message.json()
    assert list(event) == [
        "type", "id", "timestamp", "server", "acc", "name", "conns", "leafnodes", "total_conns", "num_subscriptions",
        "sent", "received", "slow_consumers",
    ]  # fmt: skip
    assert event["type"] == "io.nats.server.advisory.v1.account_connections"
    assert list(event["sent"]) == ["msgs", "bytes", "gateways", "routes", "leafs"]


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
