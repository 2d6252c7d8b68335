"""Protocol operations: their kinds, the violations and limits that hold for them, and writing them.

An operation is a plain tuple that begins with its kind.

| tuple | from |
| --- | --- |
| `(PUB, subject, reply, header, payload)` | client, for PUB and HPUB |
| `(HPUB, subject, reply, b"", payload)` | client, for HPUB with an empty header: refused without header support |
| `(RUN, run)` | client, for neighboring PUB and HPUB, if requested: `run` is a `PublishRun` |
| `(SUB, subject, queue, sid)` | client |
| `(UNSUB, sid, max)` | client; `max` 0 means now |
| `(CONNECT, json)` | client |
| `(INFO, json)`, `(OK,)` | both; from a client they mean nothing |
| `(ERR, text)` | server |
| `(PING,)`, `(PONG,)` | both |

All values are bytes; `header` is the whole block (`NATS/1.0…` to the blank line) or empty, `reply` and `queue` are
empty when they were not given. The broker's hot path writes its own message heads (broker/subscription.py).
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, TypeAlias

import msgspec

Op: TypeAlias = tuple[Any, ...]

PUB: Final = 0
SUB: Final = 1
UNSUB: Final = 2
CONNECT: Final = 3
PING: Final = 4
PONG: Final = 5
INFO: Final = 7
OK: Final = 8
ERR: Final = 9
RUN: Final = 10
HPUB: Final = 11


class FaultKind(Enum):
    """One way to break the protocol; the value is the text of `-ERR`, empty if the connection closes silently."""

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


OK_LINE = b"+OK\r\n"


def encode_err(text: str) -> bytes:
    """Return the `-ERR` line for `text`, without line ends inside."""
    return b"-ERR '%b'\r\n" % text.replace("\r", " ").replace("\n", " ").encode("utf-8", "surrogateescape")


def encode_info(json: bytes) -> bytes:
    """Return the INFO line; the blank before its end is nats-server's."""
    return b"INFO %b \r\n" % json
