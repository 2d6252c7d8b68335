"""The types of events that have a form of their own: title, facts in order, and the short line of each."""

from __future__ import annotations

from typing import NamedTuple

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


class Kind(NamedTuple):
    """How one type of event is shown.

    `title`, `mark` and `line` may name facts in braces, `mark` and `line` are the short form. Of an event that names a
    client, that is told too; `bodies` are keys of JSON texts shown whole.
    """

    title: str
    fields: Fields
    mark: str
    line: str
    bodies: Fields = ()


KINDS: dict[str, Kind] = {
    "jetstream.metric.v1.consumer_ack": Kind(
        "Acknowledgment Sample",
        (*CONSUMER, *_PLACE, ("Delay", "ack_time")),
        "JS Ack",
        "{stream} ({stream_seq}) > {consumer} ({consumer_seq}): {deliveries} deliveries in {ack_time}",
    ),
    "jetstream.advisory.v1.api_audit": Kind(
        "JetStream API Access",
        (("Server", "server"), ("Subject", "subject")),
        "JS API",
        "{subject} {client.acc}",
        (("Request", "request"), ("Response", "response")),
    ),
    "jetstream.advisory.v1.api_limit_reached": Kind(
        "API Limit Reached",
        (("Server", "server"), ("Dropped Requests", "dropped")),
        "JS API Limit",
        "{server} dropped {dropped}",
    ),
    "jetstream.advisory.v1.stream_action": Kind(
        "Stream {action} Action", (*STREAM, ("Template", "template")), "Stream {action}", "{stream}"
    ),
    "jetstream.advisory.v1.consumer_action": Kind(
        "Consumer {action} Action", CONSUMER, "Consumer {action}", "{stream} > {consumer}"
    ),
    "jetstream.advisory.v1.consumer_group_pinned": Kind(
        "Consumer Group Pinned",
        (*CONSUMER, ("Group", "group"), ("Pinned Id", "pinned_id")),
        "Consumer Group Pinned",
        "{stream} > {consumer} group {group} to {pinned_id}",
    ),
    "jetstream.advisory.v1.consumer_group_unpinned": Kind(
        "Consumer Group Unpinned",
        (*CONSUMER, ("Group", "group"), ("Reason", "reason")),
        "Consumer Group Unpinned",
        "{stream} > {consumer} group {group}: {reason}",
    ),
    "jetstream.advisory.v1.consumer_leader_elected": Kind(
        "Consumer Leader Election", (*CONSUMER, *_RAFT), "Consumer Election", "{stream} > {consumer} leader {leader}"
    ),
    "jetstream.advisory.v1.consumer_pause": Kind(
        "Consumer Pause",
        (*CONSUMER, ("Paused", "paused"), ("Until", "pause_until")),
        "Consumer Pause",
        "{stream} > {consumer} paused: {paused} {pause_until}",
    ),
    "jetstream.advisory.v1.consumer_quorum_lost": Kind(
        "Consumer Quorum Lost", (*CONSUMER, *_RAFT), "Consumer Quorum Lost", "{stream} > {consumer}"
    ),
    "jetstream.advisory.v1.domain_leader_elected": Kind(
        "Domain Leader Election",
        (("Leader", "leader"), ("Cluster", "cluster"), ("Domain", "domain"), ("Replicas", "replicas")),
        "Domain Election",
        "{domain} leader {leader}",
    ),
    "jetstream.advisory.v1.max_deliver": Kind(
        "Delivery Attempts Exceeded",
        (*CONSUMER, *_PLACE),
        "JS Max Deliveries",
        "{stream} ({stream_seq}) > {consumer}: {deliveries} deliveries",
    ),
    "jetstream.advisory.v1.nak": Kind(
        "Delivery NAKed",
        (*CONSUMER, *_PLACE),
        "JS Delivery NAKed",
        "{stream} ({stream_seq}) > {consumer}: {deliveries} deliveries",
    ),
    "jetstream.advisory.v1.terminated": Kind(
        "Delivery Terminated",
        (*CONSUMER, *_PLACE, ("Reason", "reason")),
        "JS Delivery Terminated",
        "{stream} ({stream_seq}) > {consumer}: {deliveries} deliveries {reason}",
    ),
    "jetstream.advisory.v1.restore_create": Kind("Stream Restore Created", STREAM, "Restore Create", "{stream}"),
    "jetstream.advisory.v1.restore_complete": Kind(
        "Stream Restore Completed",
        (*STREAM, *_TRANSFER),
        "Restore Complete",
        "{stream} {bytes} started {start} ended {end} {error}",
    ),
    "jetstream.advisory.v1.snapshot_create": Kind(
        "Stream Snapshot Created",
        (*STREAM, ("Messages", "state.messages"), ("Bytes", "state.bytes"), ("Consumers", "state.consumer_count")),
        "Snapshot Create",
        "{stream} {state.messages} messages of {state.bytes}",
    ),
    "jetstream.advisory.v1.snapshot_complete": Kind(
        "Stream Snapshot Completed",
        (*STREAM, *_TRANSFER),
        "Snapshot Complete",
        "{stream} started {start} ended {end} {error}",
    ),
    "jetstream.advisory.v1.server_out_of_space": Kind(
        "Server Out Of Space",
        (("Server", "server"), ("Server ID", "server_id"), ("Cluster", "cluster"), *STREAM),
        "Server Out Of Space",
        "{server} {stream}",
    ),
    "jetstream.advisory.v1.server_removed": Kind(
        "Server Removed",
        (("Server", "server"), ("Server ID", "server_id"), ("Cluster", "cluster")),
        "Server Removed",
        "{server}",
    ),
    "jetstream.advisory.v1.stream_batch_abandoned": Kind(
        "Stream Batch Abandoned",
        (*STREAM, ("Batch", "batch"), ("Reason", "reason")),
        "Batch Abandoned",
        "{stream} batch {batch}: {reason}",
    ),
    "jetstream.advisory.v1.stream_leader_elected": Kind(
        "Stream Leader Election", (*STREAM, *_RAFT), "Stream Election", "{stream} leader {leader}"
    ),
    "jetstream.advisory.v1.stream_quorum_lost": Kind(
        "Stream Quorum Lost", (*STREAM, *_RAFT), "Stream Quorum Lost", "{stream}"
    ),
    "server.advisory.v1.client_connect": Kind(
        "Client Connection", _WHO, "Connection", "{client.name} {client.host} account {client.acc}"
    ),
    "server.advisory.v1.client_disconnect": Kind(
        "Client Disconnection",
        (*_WHO, ("Reason", "reason"), *_TRAFFIC),
        "Disconnection",
        "{client.name} {client.host} account {client.acc}: {reason}",
    ),
    "server.advisory.v1.account_connections": Kind(
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
    "server.metric.v1.service_latency": Kind(
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
"""By type, without `io.nats.` before it."""
