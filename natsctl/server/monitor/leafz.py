"""`/leafz`: the connections to leaf nodes and of leaf nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.api.times import format_time

if TYPE_CHECKING:
    from natsctl.server.instance import ServerInstance


class LeafzOptions(msgspec.Struct, kw_only=True):
    """What is asked of `leafz`."""

    subscriptions: bool = False
    account: str = ""


def leafz(server: ServerInstance, options: LeafzOptions) -> dict[str, Any]:
    """Return the leaf node connections."""
    broker = server.broker
    return {
        "server_id": broker.server_id,
        "now": format_time(broker.clock.now_ns()),
        "leafnodes": 0,
        "leafs": [],
    }
