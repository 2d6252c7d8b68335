"""What an operator has the server do: disconnect a client, send it elsewhere, read the configuration again."""

from __future__ import annotations

import msgspec

from natsctl.api.model import Model, Uint64
from natsctl.api.strict import DecodeError, read_plain
from natsctl.broker.broker import Broker
from natsctl.broker.reasons import CloseReason
from natsctl.broker.session import Session
from natsctl.server.monitor.refused import BadRequestError


class ClientRequest(Model):
    """Which client is meant."""

    cid: Uint64 = 0


def client_asked(body: bytes) -> int | None:
    """Return the client that a body names; None where it does not read, which is not answered."""
    try:
        return msgspec.convert(read_plain(body, ClientRequest), ClientRequest).cid
    except DecodeError:
        return None


def kick(broker: Broker, cid: int) -> None:
    """Disconnect a client or a leaf node. Raises BadRequestError."""
    peer = broker.sessions.get(cid) or broker.leafs.get(cid)
    if not isinstance(peer, Session):
        raise BadRequestError("no such client or leafnode id")
    peer.close(CloseReason.KICKED)


def send_elsewhere(broker: Broker, cid: int) -> None:
    """Tell one client that this server is about to stop. Raises BadRequestError."""
    session = broker.sessions.get(cid)
    if session is None:
        raise BadRequestError("no such client id")
    if session.protocol < 1 or not session.greeted:
        raise BadRequestError("client does not support Lame Duck Mode or is not ready to receive the notification")
    session.send_info(lame_duck=True)
