"""Facts about the sender of a request for services of other accounts and advisories: the header `Nats-Request-Info`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsctl.api import headers
from natsctl.api.advisories import ClientInfo
from natsctl.api.codec import encode
from natsctl.api.times import format_time

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.broker import Broker
    from natsctl.broker.session import Session


def client_kind(session: Session) -> tuple[str, str]:
    """Return how requests name the kind of a connection, and the protocol it speaks."""
    if session.connection_type.startswith("LEAFNODE"):
        return "Leafnode", ""
    return "Client", "websocket" if session.connection_type == "WEBSOCKET" else "nats"


def requester_info(broker: Broker, account: Account, origin: Session | None, detailed: bool) -> ClientInfo:
    """Return the facts about a publisher in `account`: account and round trip time, all of them if `detailed`."""
    name = account.name
    if origin is None:
        return ClientInfo(acc=name, server=broker.server_name, kind="JetStream") if detailed else ClientInfo(acc=name)
    name = origin.account.name
    if not detailed:
        return ClientInfo(acc=name, rtt=origin.rtt_ns)
    grant = origin.login.grant
    kind, client_type = client_kind(origin)
    return ClientInfo(
        start=format_time(origin.start_ns),
        host=origin.host,
        id=origin.cid,
        acc=name,
        user=origin.user,
        name=origin.name,
        lang=origin.lang,
        ver=origin.version,
        rtt=origin.rtt_ns,
        server=broker.server_name,
        jwt=grant.jwt,
        issuer_key=grant.issuer,
        name_tag=grant.name_tag,
        tags=list(grant.tags),
        kind=kind,
        client_type=client_type,
    )


def with_info(header: bytes, info: ClientInfo) -> bytes:
    """Return a header block that says who asks, whatever it said before."""
    block = headers.remove(header, headers.REQUEST_INFO) if header else header
    return b"%bNats-Request-Info: %b\r\n\r\n" % (block[:-2] if block else b"NATS/1.0\r\n", encode(info))
