"""The reply subject of a message of a fast batch: `<inbox>.<id>.<flow>.<gap mode>.<place>.<op>.$FI`.

Source: server/stream.go of nats-server, ADR-50.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from natsctl.api import headers

if TYPE_CHECKING:
    from natsctl.jetstream.publish.pending_message import PendingMessage

CONTROL_SUFFIX: Final = b".$FI"
"""The end of the reply subject of every message of a fast batch."""
SERVICE_REPLY: Final = b"_R_."
"""The start of reply subjects that come through a service of another account."""

DEFAULT_FLOW: Final = 10
LARGEST_FLOW: Final = 2**16 - 1

START, APPEND, COMMIT, COMMIT_END, PING = range(5)
APPEND_END: Final = b"%d.1" + CONTROL_SUFFIX
"""The end of a reply subject that appends, after its gap mode and the dot."""


class Control(NamedTuple):
    """The fields of a reply subject."""

    batch_id: bytes
    flow: int
    gap_ok: bool
    seq: int
    op: int

    @property
    def commits(self) -> bool:
        """Return whether the batch ends here."""
        return self.op in (COMMIT, COMMIT_END)


def parse_control(reply: bytes) -> Control | None:
    """Return the fields of a reply subject, None if it is malformed."""
    tokens = reply.rsplit(b".", 6)
    if len(tokens) < 7:
        return None
    _, batch_id, flow, gap_mode, place, ops, _ = tokens
    op = int(ops) if ops.isdigit() and len(ops) < 20 else -1
    seq = int(place) if place.isdigit() and len(place) < 21 else 0
    if not START <= op <= PING or not 0 < seq < 2**64 - 1 or gap_mode not in (b"fail", b"ok"):
        return None
    if (op == START and seq != 1) or (op in (APPEND, COMMIT_END) and seq == 1):
        return None
    every = int(flow) if flow.isdigit() and len(flow) < 20 else 0
    return Control(batch_id, min(every, LARGEST_FLOW) or DEFAULT_FLOW, gap_mode == b"ok", seq, op)


class _Asked(msgspec.Struct):
    """The used part of the request info of another account's service."""

    reply: str = ""


def control_subject(message: PendingMessage) -> bytes:
    """Return the reply subject that places a message in a fast batch, b"" where it is in none.

    One that came through another account's service has a reply of the service; its own stands in a header then.
    """
    reply = message.reply
    if reply.startswith(SERVICE_REPLY) and headers.REQUEST_INFO in message.fields:
        try:
            reply = msgspec.json.decode(message.fields[headers.REQUEST_INFO], type=_Asked).reply.encode()
        except msgspec.DecodeError:
            return b""
    return reply if reply[-len(CONTROL_SUFFIX) :] == CONTROL_SUFFIX else b""
