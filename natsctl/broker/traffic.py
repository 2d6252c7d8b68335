"""What connections have moved, counted together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from natsctl.broker.session import Session


class Traffic(msgspec.Struct):
    """Messages, and bytes of their headers and payloads; `in` is from clients."""

    in_msgs: int = 0
    in_bytes: int = 0
    out_msgs: int = 0
    out_bytes: int = 0

    def add(self, session: Session) -> None:
        """Count one connection's traffic in."""
        self.in_msgs += session.in_msgs
        self.in_bytes += session.in_bytes
        self.out_msgs += session.out_msgs
        self.out_bytes += session.out_bytes

    def plus(self, sessions: Iterable[Session]) -> Traffic:
        """Return this and what `sessions` have moved so far."""
        total = Traffic(self.in_msgs, self.in_bytes, self.out_msgs, self.out_bytes)
        for session in sessions:
            total.add(session)
        return total
