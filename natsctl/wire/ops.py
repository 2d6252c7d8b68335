"""Kinds of protocol operations; an operation is a plain tuple that begins with its kind.

| tuple | from |
| --- | --- |
| `(PUB, subject, reply, header, payload)` | client, for PUB and HPUB |
| `(SUB, subject, queue, sid)` | client |
| `(UNSUB, sid, max)` | client; `max` 0 means now |
| `(CONNECT, json)` | client |
| `(MSG, subject, sid, reply, header, payload)` | server, for MSG and HMSG |
| `(INFO, json)`, `(OK,)`, `(ERR, text)` | server |
| `(PING,)`, `(PONG,)` | both |

All values are bytes; `header` is the whole block (`NATS/1.0…` to the blank line) or empty, `reply` and `queue` are
empty when they were not given.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Op: TypeAlias = tuple[Any, ...]

PUB: Final = 0
SUB: Final = 1
UNSUB: Final = 2
CONNECT: Final = 3
PING: Final = 4
PONG: Final = 5
MSG: Final = 6
INFO: Final = 7
OK: Final = 8
ERR: Final = 9
