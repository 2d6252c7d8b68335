"""`/routez`: the routes to other servers of a cluster, of which one node has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.api.times import format_time
from natsctl.server.monitor.query import Query

if TYPE_CHECKING:
    from natsctl.server.view import ServerView


class RoutezOptions(msgspec.Struct, kw_only=True):
    """What is asked of `routez`."""

    subscriptions: bool = False
    subscriptions_detail: bool = False


def read(query: Query) -> RoutezOptions:
    """Return the options of a query. Raises Refused."""
    subscriptions, detail = query.subscriptions()
    return RoutezOptions(subscriptions=subscriptions, subscriptions_detail=detail)


def routez(server: ServerView, options: RoutezOptions) -> dict[str, Any]:
    """Return the routes."""
    broker = server.broker
    return {
        "server_id": broker.server_id,
        "server_name": broker.server_name,
        "now": format_time(broker.clock.now_ns()),
        "num_routes": 0,
        "routes": [],
    }
