"""Leaf nodes in the events of the system account, and under its operator's hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from natsctl.broker.auth.credentials import Grant
from natsctl.broker.refusals import CloseReason
from natsctl.server.monitor.query import BadRequestError
from natsctl.server.system_account import System
from natsctl.server.system_answers import kick
from tests.support.leaf_servers import Servers


def test_a_leaf_node_that_comes_and_goes_is_told_as_one() -> None:
    servers = Servers()
    hub, spoke = servers.start("HUB", "hub"), servers.start("SPOKE", "leaf")
    broker = hub.machine.broker
    server: Any = SimpleNamespace(broker=broker, engine=None, leafs=None)
    System(server, lambda: None, lambda: None).start()
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
