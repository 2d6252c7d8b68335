"""What can be wrong with the bytes of a peer, and the limits they are held to."""

from __future__ import annotations

from enum import Enum

import msgspec


class FaultKind(Enum):
    """One way to break the protocol; the value is the text of `-ERR`, empty where the connection closes silently."""

    UNKNOWN_OPERATION = "Unknown Protocol Operation"
    MAX_PAYLOAD = "Maximum Payload Violation"
    MAX_CONTROL_LINE = "maximum control line exceeded"
    MALFORMED = ""


class ProtocolViolationError(Exception):
    """The peer broke the protocol; nothing after this point of its stream can be read."""

    def __init__(self, kind: FaultKind, detail: str) -> None:
        super().__init__(f"{kind.value or 'malformed operation'}: {detail}")
        self.kind = kind
        self.detail = detail
        self.unread = 0
        """Bytes that had arrived by then and come after it."""

    @property
    def text(self) -> str:
        """The text between the quotes of `-ERR`, empty where nats-server closes without one."""
        return self.kind.value


class Limits(msgspec.Struct, frozen=True):
    """Limits of the messages of one peer, in bytes. Defaults are nats-server's."""

    max_control_line: int = 4096
    """Arguments of one operation, without its verb and the blanks after it."""
    max_payload: int = 1 << 20
    """Header block and body of one message together."""
