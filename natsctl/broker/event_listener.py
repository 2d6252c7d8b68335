"""Events of connections, published by the system account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from natsctl.broker.auth.credentials import LoginRefusal
    from natsctl.broker.session import Session


class EventListener(Protocol):
    """Listener to the events of connections; it must not close sessions."""

    def connected(self, session: Session) -> None:
        """Handle a client after its CONNECT was accepted."""

    def refused(self, session: Session, refusal: LoginRefusal) -> None:
        """Handle a client that was refused; `disconnected` follows."""

    def disconnected(self, session: Session) -> None:
        """Handle the end of a connection; its `close_reason` and `stop_ns` are set."""


class NullListener:
    __slots__ = ()

    def connected(self, session: Session) -> None:
        pass

    def refused(self, session: Session, refusal: LoginRefusal) -> None:
        pass

    def disconnected(self, session: Session) -> None:
        pass
