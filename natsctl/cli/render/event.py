"""Advisories and metrics as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from natsctl.api.times import is_zero, parse_time
from natsctl.api.units import format_duration, format_size
from natsctl.cli.framework.output import json_text
from natsctl.cli.render.text import body_text, count, local, safe

Fields = tuple[tuple[str, str], ...]
"""Label and key of each fact; dots lead into objects."""

STREAM = (("Stream", "stream"),)
CONSUMER = (("Stream", "stream"), ("Consumer", "consumer"))
_PLACE = (("Stream Sequence", "stream_seq"), ("Consumer Sequence", "consumer_seq"), ("Deliveries", "deliveries"))
_TRANSFER = (("Start", "start"), ("End", "end"), ("Bytes", "bytes"), ("Error", "error"))
_WHO = (("Server", "server.name"), ("Cluster", "server.cluster"), ("Account", "client.acc"), ("User", "client.user"))
_TRAFFIC = (
    ("Messages Received", "received.msgs"),
    ("Bytes Received", "received.bytes"),
    ("Messages Published", "sent.msgs"),
    ("Bytes Published", "sent.bytes"),
)
_RAFT = (("Leader", "leader"), ("Replicas", "replicas"))


class EventKind(NamedTuple):
    """Presentation of one type of event.

    `title`, `mark` and `line` may name facts in braces, `mark` and `line` are the short form. The client of an
    event is shown too; `bodies` are keys of JSON texts shown whole.
    """

    title: str
    fields: Fields
    mark: str
    line: str
    bodies: Fields = ()


KINDS: dict[str, EventKind] = {
    "jetstream.metric.v1.consumer_ack": EventKind(
        "Acknowledgment Sample",
        (*CONSUMER, *_PLACE, ("Delay", "ack_time")),
        "JS Ack",
        "{stream} ({stream_seq}) > {consumer} ({consumer_seq}): {deliveries} deliveries in {ack_time}",
    ),
    "jetstream.advisory.v1.api_audit": EventKind(
        "JetStream API Access",
        (("Server", "server"), ("Subject", "subject")),
        "JS API",
        "{subject} {client.acc}",
        (("Request", "request"), ("Response", "response")),
    ),
    "jetstream.advisory.v1.api_limit_reached": EventKind(
        "API Limit Reached",
        (("Server", "server"), ("Dropped Requests", "dropped")),
        "JS API Limit",
        "{server} dropped {dropped}",
    ),
    "jetstream.advisory.v1.stream_action": EventKind(
        "Stream {action} Action", (*STREAM, ("Template", "template")), "Stream {action}", "{stream}"
    ),
    "jetstream.advisory.v1.consumer_action": EventKind(
        "Consumer {action} Action", CONSUMER, "Consumer {action}", "{stream} > {consumer}"
    ),
    "jetstream.advisory.v1.consumer_group_pinned": EventKind(
        "Consumer Group Pinned",
        (*CONSUMER, ("Group", "group"), ("Pinned Id", "pinned_id")),
        "Consumer Group Pinned",
        "{stream} > {consumer} group {group} to {pinned_id}",
    ),
    "jetstream.advisory.v1.consumer_group_unpinned": EventKind(
        "Consumer Group Unpinned",
        (*CONSUMER, ("Group", "group"), ("Reason", "reason")),
        "Consumer Group Unpinned",
        "{stream} > {consumer} group {group}: {reason}",
    ),
    "jetstream.advisory.v1.consumer_leader_elected": EventKind(
        "Consumer Leader Election", (*CONSUMER, *_RAFT), "Consumer Election", "{stream} > {consumer} leader {leader}"
    ),
    "jetstream.advisory.v1.consumer_pause": EventKind(
        "Consumer Pause",
        (*CONSUMER, ("Paused", "paused"), ("Until", "pause_until")),
        "Consumer Pause",
        "{stream} > {consumer} paused: {paused} {pause_until}",
    ),
    "jetstream.advisory.v1.consumer_quorum_lost": EventKind(
        "Consumer Quorum Lost", (*CONSUMER, *_RAFT), "Consumer Quorum Lost", "{stream} > {consumer}"
    ),
    "jetstream.advisory.v1.domain_leader_elected": EventKind(
        "Domain Leader Election",
        (("Leader", "leader"), ("Cluster", "cluster"), ("Domain", "domain"), ("Replicas", "replicas")),
        "Domain Election",
        "{domain} leader {leader}",
    ),
    "jetstream.advisory.v1.max_deliver": EventKind(
        "Delivery Attempts Exceeded",
        (*CONSUMER, *_PLACE),
        "JS Max Deliveries",
        "{stream} ({stream_seq}) > {consumer}: {deliveries} deliveries",
    ),
    "jetstream.advisory.v1.nak": EventKind(
        "Delivery NAKed",
        (*CONSUMER, *_PLACE),
        "JS Delivery NAKed",
        "{stream} ({stream_seq}) > {consumer}: {deliveries} deliveries",
    ),
    "jetstream.advisory.v1.terminated": EventKind(
        "Delivery Terminated",
        (*CONSUMER, *_PLACE, ("Reason", "reason")),
        "JS Delivery Terminated",
        "{stream} ({stream_seq}) > {consumer}: {deliveries} deliveries {reason}",
    ),
    "jetstream.advisory.v1.restore_create": EventKind("Stream Restore Created", STREAM, "Restore Create", "{stream}"),
    "jetstream.advisory.v1.restore_complete": EventKind(
        "Stream Restore Completed",
        (*STREAM, *_TRANSFER),
        "Restore Complete",
        "{stream} {bytes} started {start} ended {end} {error}",
    ),
    "jetstream.advisory.v1.snapshot_create": EventKind(
        "Stream Snapshot Created",
        (*STREAM, ("Messages", "state.messages"), ("Bytes", "state.bytes"), ("Consumers", "state.consumer_count")),
        "Snapshot Create",
        "{stream} {state.messages} messages of {state.bytes}",
    ),
    "jetstream.advisory.v1.snapshot_complete": EventKind(
        "Stream Snapshot Completed",
        (*STREAM, *_TRANSFER),
        "Snapshot Complete",
        "{stream} started {start} ended {end} {error}",
    ),
    "jetstream.advisory.v1.server_out_of_space": EventKind(
        "Server Out Of Space",
        (("Server", "server"), ("Server ID", "server_id"), ("Cluster", "cluster"), *STREAM),
        "Server Out Of Space",
        "{server} {stream}",
    ),
    "jetstream.advisory.v1.server_removed": EventKind(
        "Server Removed",
        (("Server", "server"), ("Server ID", "server_id"), ("Cluster", "cluster")),
        "Server Removed",
        "{server}",
    ),
    "jetstream.advisory.v1.stream_batch_abandoned": EventKind(
        "Stream Batch Abandoned",
        (*STREAM, ("Batch", "batch"), ("Reason", "reason")),
        "Batch Abandoned",
        "{stream} batch {batch}: {reason}",
    ),
    "jetstream.advisory.v1.stream_leader_elected": EventKind(
        "Stream Leader Election", (*STREAM, *_RAFT), "Stream Election", "{stream} leader {leader}"
    ),
    "jetstream.advisory.v1.stream_quorum_lost": EventKind(
        "Stream Quorum Lost", (*STREAM, *_RAFT), "Stream Quorum Lost", "{stream}"
    ),
    "server.advisory.v1.client_connect": EventKind(
        "Client Connection", _WHO, "Connection", "{client.name} {client.host} account {client.acc}"
    ),
    "server.advisory.v1.client_disconnect": EventKind(
        "Client Disconnection",
        (*_WHO, ("Reason", "reason"), *_TRAFFIC),
        "Disconnection",
        "{client.name} {client.host} account {client.acc}: {reason}",
    ),
    "server.advisory.v1.account_connections": EventKind(
        "Account Connections",
        (
            ("Server", "server.name"),
            ("Account", "acc"),
            ("Connections", "conns"),
            ("Leafnodes", "leafnodes"),
            ("Total Connections", "total_conns"),
            *_TRAFFIC,
            ("Slow Consumers", "slow_consumers"),
        ),
        "Account Connections",
        "{acc} {conns} connections, {leafnodes} leafnodes",
    ),
    "server.metric.v1.service_latency": EventKind(
        "Service Latency",
        (
            ("Start", "start"),
            ("Status", "status"),
            ("Error", "error"),
            ("Service", "responder.name"),
            ("Requestor", "requestor.name"),
            ("Service Time", "service"),
            ("System Time", "system"),
            ("Total Time", "total"),
        ),
        "Service Latency",
        "{requestor.acc} to {responder.acc}: {total}",
    ),
}


TYPE_PREFIX = "io.nats."
MAX_BODY = 4096
"""Characters of a request or response that an audit event shows."""
_FACT = re.compile(r"\{([\w.]+)\}")
_LENGTHS = frozenset(("ack_time", "service", "system", "total"))
_SIZES = frozenset(("bytes",))
_TIMES = frozenset(("start", "end", "pause_until"))


def parse_event(payload: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(payload)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def render_event(subject: str, payload: bytes, now_ns: int) -> str:
    """Return the event as a paragraph: a heading with time and id, then the facts in one column."""
    event = parse_event(payload)
    if event is None:
        return f"\n[{local(now_ns):%H:%M:%S}] Event on {safe(subject)}\n\n{body_text(payload)}"
    kind = kind_of(event)
    heading = f"\n[{_clock(event, now_ns)}] [{safe(str(event.get('id', '')))}] "
    if kind is None:
        text = body_text(json_text(event).encode())
        return f"{heading}{safe(str(event.get('type') or f'Event on {subject}'))}\n\n{text}"
    rows = [*_rows(event, kind), *_client_rows(event)]
    column = max((len(label) for label, _ in rows), default=0) + 4
    lines = [
        heading + _filled(kind.title, event, str.title),
        "",
        *(f"{label:>{column}}: {value}" for label, value in rows),
    ]
    for label, key in kind.bodies:
        text = str(event.get(key) or "")
        cut = f"\n… {count(len(text) - MAX_BODY)} characters more, all of them with -j" if len(text) > MAX_BODY else ""
        lines += ["", f"    {label}:", "", f"      {safe(text[:MAX_BODY]) or 'empty'}{cut}"]
    return "\n".join(lines)


def render_short(subject: str, payload: bytes, now_ns: int) -> str:
    """Return the event on one line: time, kind and main facts."""
    event = parse_event(payload)
    if event is None:
        return f"{local(now_ns):%H:%M:%S} [{safe(subject)}] {safe(payload.decode('utf-8', 'backslashreplace'))}"
    kind = kind_of(event)
    if kind is None:
        rest = {name: value for name, value in event.items() if name not in ("type", "id", "timestamp")}
        return f"{_clock(event, now_ns)} [{safe(str(event.get('type') or subject))}] {safe(json.dumps(rest))}"
    line = " ".join(_filled(kind.line, event).split())
    return f"{_clock(event, now_ns)} [{_filled(kind.mark, event, str.title)}] {line}"


def cloud_event(event: Mapping[str, Any]) -> dict[str, Any]:
    kind = str(event.get("type", ""))
    parts = kind.removeprefix(TYPE_PREFIX).split(".")
    schema = "/".join(parts) + ".json"
    return {
        "type": kind,
        "time": event.get("timestamp"),
        "id": event.get("id"),
        "source": f"urn:nats:{parts[0]}",
        "dataschema": f"https://raw.githubusercontent.com/nats-io/jsm.go/master/schemas/{schema}",
        "specversion": "1.0",
        "subject": parts[1] if len(parts) > 1 else "event",
        "data": dict(event),
    }


def kind_of(event: Mapping[str, Any]) -> EventKind | None:
    return KINDS.get(str(event.get("type", "")).removeprefix(TYPE_PREFIX))


def _clock(event: Mapping[str, Any], now_ns: int) -> str:
    try:
        moment = parse_time(str(event.get("timestamp", "")))
    except ValueError:
        moment = now_ns
    return f"{local(moment):%H:%M:%S}"


def _rows(event: Mapping[str, Any], kind: EventKind) -> list[tuple[str, str]]:
    fields = kind.fields
    rows = []
    if fields[: len(CONSUMER)] == CONSUMER:
        rows.append(("Consumer", f"{safe(str(event.get('stream', '')))} > {safe(str(event.get('consumer', '')))}"))
        fields = fields[len(CONSUMER) :]
    domain = () if ("Domain", "domain") in fields else (("Domain", "domain"),)
    found = [(label, _fact(event, key)) for label, key in (*fields, *domain)]
    return rows + [(label, value) for label, value in found if value]


def _client_rows(event: Mapping[str, Any]) -> list[tuple[str, str]]:
    client = event.get("client")
    if not isinstance(client, dict):
        return []
    name = safe(str(client.get("name") or "unnamed"))
    library = safe(" ".join(str(client[key]) for key in ("lang", "ver") if client.get(key)))
    where = safe(str(client.get("host") or "?"))
    rows = [("Client", f"{name}, id {client.get('id', '?')}, at {where}{f', {library}' if library else ''}")]
    server_event = isinstance(event.get("server"), dict)
    return rows + ([("Account", safe(str(client["acc"])))] if client.get("acc") and not server_event else [])


def _filled(text: str, event: Mapping[str, Any], change: Callable[[str], str] = str) -> str:
    return _FACT.sub(lambda found: change(_fact(event, found[1])), text)


def _fact(event: Mapping[str, Any], path: str) -> str:
    value: Any = event
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    key = path.rpartition(".")[2]
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return format_duration(value) if key in _LENGTHS else format_size(value) if key in _SIZES else count(value)
    if key in _TIMES and isinstance(value, str):
        return _time(value)
    if isinstance(value, list):
        return safe(", ".join(_entry(one) for one in value))
    return safe(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _entry(value: Any) -> str:
    return str(value.get("name", json.dumps(value))) if isinstance(value, dict) else str(value)


def _time(text: str) -> str:
    if is_zero(text):
        return ""
    try:
        return local(parse_time(text)).isoformat(" ", "milliseconds")
    except ValueError:
        return safe(text)
