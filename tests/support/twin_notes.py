"""What a client of `tests.support.twins` was told, without what differs from run to run."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from natsctl.testing.process import alike


class Got(NamedTuple):
    """A message that a client received."""

    subject: bytes
    reply: bytes
    header: bytes
    payload: bytes


DROPPED: Final = frozenset({
    "ts", "created", "last_active", "id", "timestamp", "ack_time", "pause_remaining", "first_ts", "last_ts", "cluster",
    "time", "active", "client", "server", "api", "pinned_id", "pinned_ts", "pinned_client_id", "start", "end",
})  # fmt: skip
"""Keys of answers whose values differ from run to run."""


OWN_NAME: Final = re.compile(r"(JS_SRC_|JS_MIRROR_|\$JS\.S\.|\$JS\.M\.)\S+")
"""Names that the server makes for the consumers of sources and mirrors."""

NEVER_USED: Final = frozenset({"num_deleted", "deleted", "first_seq"})
"""What the reference tells of a stream that never held a message: 0 is deleted on disk, a purge makes 1 the first."""


def scrub(value: Any) -> Any:
    """Return an answer without what differs from run to run, its keys in their order."""
    if isinstance(value, dict):
        if "last_seq" in value and not value["last_seq"]:
            value = {k: v for k, v in value.items() if k not in NEVER_USED}
        if "delivered" in value and value["delivered"]["consumer_seq"] == 0:
            value = {**value, "delivered": {"consumer_seq": 0}}  # in memory it moves whenever the reference looks
        return [(k, "" if k in DROPPED else scrub(v)) for k, v in value.items()]
    if isinstance(value, str):
        return OWN_NAME.sub(r"\1", alike(value))
    return [scrub(v) for v in value] if isinstance(value, list) else value


VARYING: Final = (
    (re.compile(rb"(^\$JS\.ACK\.\S+\.)\d{19}\."), rb"\1T."),
    (re.compile(rb"(^\$JS\.FC\.[^.]+\.[^.]+\.).*"), rb"\1X"),
    (re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"), b"T"),
    (re.compile(rb"(\.JS_SRC_|\.JS_MIRROR_)[^.]+"), rb"\1X"),
    (re.compile(rb"(Nats-Pin-Id: )\S+"), rb"\1P"),
    (re.compile(rb"(Nats-Stream-Source: .* )\S+\r\n"), rb"\1I\r\n"),
    (re.compile(rb"(Nats-Consumer-Stalled: ).*"), rb"\1X\r"),
    (re.compile(rb"(Nats-Subject: \$JS\.ACK\.\S+\.)\d{19}\.\d+"), rb"\1T"),
)


def plain(data: bytes) -> bytes:
    """Return a header block or a reply subject without what differs from run to run."""
    for pattern, text in VARYING:
        data = pattern.sub(text, data)
    return alike(data)


def shown(got: Got, in_flight: bool) -> tuple[str, str, str, Any]:
    """Return a message as it can be compared."""
    subject = "" if got.subject.startswith(b"_INBOX.T.") else plain(got.subject).decode()
    payload: Any = got.payload
    if payload[:1] == b"{":
        try:
            payload = scrub(json.loads(payload))
        except ValueError:
            payload = got.payload
    reply = plain(got.reply).decode()
    if in_flight and reply.startswith("$JS.ACK."):
        reply = reply.rpartition(".")[0]
    return subject, reply, plain(got.header).decode("latin-1"), payload


Notes = dict[str, list[Any]]


def noted(inboxes: dict[str, list[Got]], in_flight: bool) -> Notes:
    """Return inboxes as they can be compared, with `in_flight` without the numbers of messages pending."""
    notes = {label: [shown(m, in_flight) for m in messages] for label, messages in inboxes.items() if messages}
    for label in notes:
        if label == "events":
            notes[label].sort(key=repr)
        elif label.startswith("push"):
            notes[label].sort(key=lambda note: note[1].split(".")[2:4])
    return notes


def unequal(ours: Notes, theirs: Notes) -> tuple[Any, Any]:
    """Return only what is unequal of two notes."""
    labels = [label for label in sorted(ours.keys() | theirs.keys()) if ours.get(label) != theirs.get(label)]
    pairs = {label: (ours.get(label), theirs.get(label)) for label in labels}
    return {label: apart(a, b) for label, (a, b) in pairs.items()}, {
        label: apart(b, a) for label, (a, b) in pairs.items()
    }


def apart(mine: Any, other: Any) -> Any:
    """Return the parts of `mine` that `other` has not: pairs of dicts, and messages in lists."""
    if isinstance(mine, list) and isinstance(other, list) and len(mine) == len(other):
        return [apart(a, b) for a, b in zip(mine, other, strict=True) if a != b]
    if isinstance(mine, tuple) and isinstance(other, tuple) and len(mine) == len(other):
        if len(mine) == 2 and mine[0] == other[0]:
            return (mine[0], apart(mine[1], other[1]))
        return tuple(apart(a, b) if a != b else "=" for a, b in zip(mine, other, strict=True))
    return mine
