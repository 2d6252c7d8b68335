"""Operations between the two servers of a leaf node connection, and writing them.

| tuple | line |
| --- | --- |
| `(LEAF_SUB, subject, queue, weight)` | `LS+ subject [queue weight]` |
| `(LEAF_UNSUB, subject, queue)` | `LS- subject [queue]` |
| `(LEAF_MSG, subject, reply, queues, header, payload)` | `LMSG`, or `HMSG` where there is a header block |

INFO, CONNECT, PING, PONG and -ERR are those of `wire.ops`. A message that only plain subscriptions of the other side
take is `LMSG subject [reply] size`; one that queue groups were chosen for names them: `LMSG subject + reply q1 q2
size`, or `LMSG subject | q1 size` without a reply. Source: nats-server, leafnode.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

LEAF_SUB: Final = 20
LEAF_UNSUB: Final = 21
LEAF_MSG: Final = 22


def encode_leaf_sub(subject: bytes, queue: bytes, weight: int) -> bytes:
    """Return the line that announces interest; a queue group has a weight."""
    return b"LS+ %b %b %d\r\n" % (subject, queue, weight) if queue else b"LS+ %b\r\n" % subject


def encode_leaf_unsub(subject: bytes, queue: bytes) -> bytes:
    """Return the line that announces the end of an interest."""
    return b"LS- %b %b\r\n" % (subject, queue) if queue else b"LS- %b\r\n" % subject


def encode_leaf_msg(subject: bytes, reply: bytes, queues: Sequence[bytes], header: bytes, payload: bytes) -> bytes:
    """Return a message with its body."""
    if queues:
        target = b"%b %b%b " % (subject, b"+ " + reply + b" " if reply else b"| ", b" ".join(queues))
    else:
        target = b"%b %b " % (subject, reply) if reply else subject + b" "
    if header:
        size = len(header)
        return b"HMSG %b%d %d\r\n%b%b\r\n" % (target, size, size + len(payload), header, payload)
    return b"LMSG %b%d\r\n%b\r\n" % (target, len(payload), payload)
