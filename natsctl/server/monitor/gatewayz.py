"""`/gatewayz`: the connections to other clusters, of which one node has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.api.times import format_time
from natsctl.server.monitor.query import Query

if TYPE_CHECKING:
    from natsctl.server.view import ServerView


class GatewayzOptions(msgspec.Struct, kw_only=True):
    """What is asked of `gatewayz`."""

    name: str = ""
    accounts: bool = False
    account_name: str = ""
    subscriptions: bool = False
    subscriptions_detail: bool = False


def read(query: Query) -> GatewayzOptions:
    """Return the options of a query. Raises Refused."""
    subscriptions, detail = query.subscriptions()
    accounts, name = query.flag("accs"), query.text("acc_name")
    return GatewayzOptions(
        name=query.text("gw_name"),
        accounts=accounts or bool(name),
        account_name=name,
        subscriptions=subscriptions,
        subscriptions_detail=detail,
    )


def gatewayz(server: ServerView, options: GatewayzOptions) -> dict[str, Any]:
    """Return the gateways."""
    broker = server.broker
    return {
        "server_id": broker.server_id,
        "now": format_time(broker.clock.now_ns()),
        "outbound_gateways": {},
        "inbound_gateways": {},
    }
