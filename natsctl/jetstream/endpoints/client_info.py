"""Who made a request, as advisories tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsctl.api.advisories import ClientInfo
from natsctl.api.times import format_time

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker
    from natsctl.broker.session import Session


def client_info(broker: Broker, account: str, origin: Session | None) -> ClientInfo:
    """Return what is known of the client behind `origin`; None is the server itself."""
    if origin is None:
        return ClientInfo(acc=account, server=broker.server_name, kind="JetStream")
    return ClientInfo(
        start=format_time(origin.start_ns),
        host=origin.host,
        id=origin.cid,
        acc=account,
        user=origin.user,
        name=origin.name,
        lang=origin.lang,
        ver=origin.version,
        rtt=origin.rtt_ns,
        server=broker.server_name,
        kind="Client",
        client_type="websocket" if origin.kind.startswith("ws") else "nats",
    )
