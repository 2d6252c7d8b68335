"""Events of connections, published by the system account."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from natsctl.broker.auth.credentials import LoginRefusal
    from natsctl.broker.session import Session


class EventListener:
    """Listener to the events of connections that ignores them; no listener may close sessions."""

    def connected(self, session: Session) -> None:
        """Handle a client after its CONNECT was accepted."""

    def refused(self, session: Session, refusal: LoginRefusal) -> None:
        """Handle a client that was refused; `disconnected` follows."""

    def disconnected(self, session: Session) -> None:
        """Handle the end of a connection; its `close_reason` and `stop_ns` are set."""
