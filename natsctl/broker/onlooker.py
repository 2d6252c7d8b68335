"""Who wants to know of the connections that come, go, and are refused: the events of the system account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from natsctl.broker.auth.grant import Refusal
    from natsctl.broker.session import Session


class Onlooker(Protocol):
    """Listener to the events of connections; it must not close sessions."""

    def connected(self, session: Session) -> None:
        """Handle a client whose CONNECT was accepted."""

    def refused(self, session: Session, refusal: Refusal) -> None:
        """Handle a client that was refused; `disconnected` follows."""

    def disconnected(self, session: Session) -> None:
        """Handle the end of a connection; its `close_reason` and `stop_ns` are set."""


class Nobody:
    """Event listener that ignores every event."""

    __slots__ = ()

    def connected(self, session: Session) -> None:
        """Do nothing."""

    def refused(self, session: Session, refusal: Refusal) -> None:
        """Do nothing."""

    def disconnected(self, session: Session) -> None:
        """Do nothing."""
