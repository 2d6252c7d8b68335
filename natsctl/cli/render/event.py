"""Advisories and metrics in the long form: a heading with time and id, then the facts in one column."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from natsctl.api.times import parse_time
from natsctl.api.units import format_duration, format_size
from natsctl.cli.render.values import body_text, count, local, safe


class Kind(NamedTuple):
    """How one type of event is shown: its title and, in order, (label, key) of what it tells."""

    title: str
    fields: tuple[tuple[str, str], ...]


_DELIVERY = (("Stream Sequence", "stream_seq"), ("Consumer Sequence", "consumer_seq"), ("Deliveries", "deliveries"))
_TRANSFER = (("Start", "start"), ("End", "end"), ("Bytes", "bytes"), ("Error", "error"))

KINDS: dict[str, Kind] = {
    "metric.v1.consumer_ack": Kind("Acknowledgment Sample", (*_DELIVERY, ("Delay", "ack_time"))),
    "advisory.v1.api_audit": Kind("JetStream API Access", (("Server", "server"), ("Subject", "subject"))),
    "advisory.v1.api_limit_reached": Kind("API Limit Reached", (("Server", "server"), ("Dropped", "dropped"))),
    "advisory.v1.consumer_action": Kind("Consumer Action", (("Action", "action"),)),
    "advisory.v1.consumer_group_pinned": Kind(
        "Consumer Group Pinned", (("Group", "group"), ("Pinned Id", "pinned_id"))
    ),
    "advisory.v1.consumer_group_unpinned": Kind("Consumer Group Unpinned", (("Group", "group"), ("Reason", "reason"))),
    "advisory.v1.consumer_leader_elected": Kind("Consumer Leader Election", (("Leader", "leader"),)),
    "advisory.v1.consumer_pause": Kind("Consumer Pause", (("Paused", "paused"), ("Until", "pause_until"))),
    "advisory.v1.consumer_quorum_lost": Kind("Consumer Quorum Lost", ()),
    "advisory.v1.max_deliver": Kind("Delivery Attempts Exceeded", _DELIVERY),
    "advisory.v1.nak": Kind("Message Naked", _DELIVERY),
    "advisory.v1.terminated": Kind("Message Terminated", (*_DELIVERY, ("Reason", "reason"))),
    "advisory.v1.restore_complete": Kind("Stream Restore Completed", _TRANSFER),
    "advisory.v1.restore_create": Kind("Stream Restore Started", _TRANSFER),
    "advisory.v1.snapshot_complete": Kind("Stream Snapshot Completed", _TRANSFER),
    "advisory.v1.snapshot_create": Kind("Stream Snapshot Started", _TRANSFER),
    "advisory.v1.stream_action": Kind("Stream Action", (("Action", "action"),)),
    "advisory.v1.stream_batch_abandoned": Kind("Batch Abandoned", (("Batch", "batch"), ("Reason", "reason"))),
    "advisory.v1.stream_leader_elected": Kind("Stream Leader Election", (("Leader", "leader"),)),
    "advisory.v1.stream_quorum_lost": Kind("Stream Quorum Lost", ()),
}
TYPE_PREFIX = "io.nats.jetstream."


def render_event(subject: str, payload: bytes, now_ns: int) -> str:
    """The event as a paragraph; one of an unknown type, or that is no JSON object, is shown as it is."""
    event = _object(payload)
    if event is None:
        return f"\n[{local(now_ns):%H:%M:%S}] Event on {safe(subject)}\n\n{body_text(payload)}"
    kind = KINDS.get(str(event.get("type", "")).removeprefix(TYPE_PREFIX))
    heading = f"[{local(_moment(event, now_ns)):%H:%M:%S}] [{safe(str(event.get('id', '')))}] "
    if kind is None:
        return (
            f"\n{heading}{safe(str(event.get('type', 'Event')))}\n\n{body_text(json.dumps(event, indent=2).encode())}"
        )
    rows = [*_subject_rows(event), *_rows(event, kind)]
    column = max((len(label) for label, _ in rows), default=0) + 4
    return "\n".join([f"\n{heading}{kind.title}", "", *(f"{label:>{column}}: {value}" for label, value in rows)])


def _object(payload: bytes) -> Mapping[str, Any] | None:
    try:
        event = json.loads(payload)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _moment(event: Mapping[str, Any], now_ns: int) -> int:
    try:
        return parse_time(str(event.get("timestamp", "")))
    except ValueError:
        return now_ns


def _subject_rows(event: Mapping[str, Any]) -> list[tuple[str, str]]:
    stream, consumer = event.get("stream"), event.get("consumer")
    if stream and consumer:
        return [("Consumer", f"{safe(str(stream))} > {safe(str(consumer))}")]
    return [("Stream", safe(str(stream)))] if stream else []


def _rows(event: Mapping[str, Any], kind: Kind) -> list[tuple[str, str]]:
    return [(label, _value(key, event[key])) for label, key in kind.fields if event.get(key) not in (None, "")]


def _value(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if key == "ack_time":
            return format_duration(value)
        return format_size(value) if key == "bytes" else count(value)
    return safe(value if isinstance(value, str) else json.dumps(value))
