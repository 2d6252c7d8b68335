"""Who wants to know of the connections that come, go, and are refused: the events of the system account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from natsctl.broker.auth.grant import Refusal
    from natsctl.broker.session import Session


class Onlooker(Protocol):
    """Told of each connection's life; it must not close sessions."""

    def connected(self, session: Session) -> None:
        """Take note that a client's CONNECT was accepted."""

    def refused(self, session: Session, refusal: Refusal) -> None:
        """Take note that a client was not let in; `disconnected` follows."""

    def disconnected(self, session: Session) -> None:
        """Take note that a connection has ended; its `close_reason` and `stop_ns` are set."""


class Nobody:
    """The onlooker of a broker that has none."""

    __slots__ = ()

    def connected(self, session: Session) -> None:
        """Do nothing."""

    def refused(self, session: Session, refusal: Refusal) -> None:
        """Do nothing."""

    def disconnected(self, session: Session) -> None:
        """Do nothing."""
