"""Comparison of the replicas of streams and consumers, as each server reports its own in JSZ.

Replicas of one raft group should agree. A short lag while messages arrive is normal; a lasting lag is a fault.
Statuses and their conditions are as in natscli's `server stream-check` and `consumer-check`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from natsctl.client.system.reports import Row, details
from natsctl.client.system.system_account import ServerAnswer

IN_SYNC: Final = "IN SYNC"
JSZ: Final = {"accounts": True, "streams": True, "consumer": True, "raft": True}
"""Body of the JSZ request for the comparison."""


class Peer(msgspec.Struct):
    """Another member of the group, as this server sees it."""

    name: str
    current: bool = False
    offline: bool = False


class Replica(msgspec.Struct, kw_only=True):
    """One server's replica of a stream or consumer; `leader` is a server name, "" where this server knows none."""

    stream: str
    raft_group: str
    account: str
    account_id: str
    server: str
    server_id: str
    leader: str
    peers: list[Peer]
    status: str = IN_SYNC
    health: str = ""

    @property
    def leads(self) -> bool:
        return self.server == self.leader

    @property
    def in_sync(self) -> bool:
        return self.status.startswith(IN_SYNC)


class StreamReplica(Replica):
    """One server's replica of a stream."""

    messages: int
    bytes: int
    subjects: int
    deleted: int
    consumers: int
    first_seq: int
    last_seq: int


class ConsumerReplica(Replica):
    """One server's replica of a consumer; `first_seq` and `last_seq` are its stream's on that server."""

    consumer: str
    delivered_stream_seq: int
    delivered_consumer_seq: int
    ack_floor_stream_seq: int
    ack_floor_consumer_seq: int
    num_ack_pending: int
    num_redelivered: int
    num_waiting: int
    num_pending: int
    first_seq: int
    last_seq: int
    stream_leader: str


_STREAM_FIELDS: Final = {
    "messages": "messages", "bytes": "bytes", "subjects": "num_subjects", "deleted": "num_deleted",
    "consumers": "consumer_count", "first_seq": "first_seq", "last_seq": "last_seq",
}  # fmt: skip
"""Fields of a stream's replica, and the fields of its state."""
_CONSUMER_FIELDS: Final = {name: name for name in ("num_ack_pending", "num_redelivered", "num_waiting", "num_pending")}


def stream_replicas(answers: Iterable[ServerAnswer]) -> list[StreamReplica]:
    """Return every replica of every stream with its status, grouped."""
    found = []
    for answer, account, stream in details(answers):
        fields = _common(answer, account, stream, stream, str(stream.get("stream_raft_group") or ""))
        found.append(StreamReplica(**fields, **_numbers(stream.get("state") or {}, _STREAM_FIELDS)))
    for group in _groups(found, lambda one: one.stream):
        for one in group:
            one.status = _stream_status(one, group)
    return sorted(found, key=lambda one: (one.account, one.stream, one.raft_group, one.server))


def consumer_replicas(answers: Iterable[ServerAnswer]) -> list[ConsumerReplica]:
    """Return every replica of every consumer with its status, grouped."""
    found = []
    for answer, account, stream in details(answers):
        named = {one.get("name"): one.get("raft_group") for one in stream.get("consumer_raft_groups") or ()}
        ends = _numbers(stream.get("state") or {}, {"first_seq": "first_seq", "last_seq": "last_seq"})
        for consumer in stream.get("consumer_detail") or ():
            fields = _common(answer, account, stream, consumer, str(named.get(consumer.get("name")) or ""))
            fields |= ends | _numbers(consumer, _CONSUMER_FIELDS) | {"stream_leader": _leader(answer, stream)}
            for place in ("delivered", "ack_floor"):
                keys = {f"{place}_{key}": key for key in ("stream_seq", "consumer_seq")}
                fields |= _numbers(consumer.get(place) or {}, keys)
            found.append(ConsumerReplica(consumer=str(consumer.get("name") or ""), **fields))
    for group in _groups(found, lambda one: f"{one.stream} {one.consumer}"):
        for one in group:
            one.status = _consumer_status(one, group)
    return sorted(found, key=lambda one: (one.account, one.stream, one.consumer, one.raft_group, one.server))


def _common(answer: ServerAnswer, account: Row, stream: Row, asset: Row, raft_group: str) -> dict[str, Any]:
    cluster = asset.get("cluster") or {}
    return {
        "stream": str(stream.get("name") or ""),
        "raft_group": raft_group or str(cluster.get("raft_group") or ""),
        "account": str(account.get("name") or ""),
        "account_id": str(account.get("id") or ""),
        "server": answer.name,
        "server_id": answer.id,
        "leader": _leader(answer, asset),
        "peers": [
            Peer(str(replica.get("name") or ""), bool(replica.get("current")), bool(replica.get("offline")))
            for replica in cluster.get("replicas") or ()
        ],
    }


def _leader(answer: ServerAnswer, asset: Mapping[str, Any]) -> str:
    """Return the leader of a stream or consumer: without a cluster, the server that answered."""
    cluster = asset.get("cluster")
    return answer.name if cluster is None else str(cluster.get("leader") or "")


def _numbers(part: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    return {name: int(part.get(key) or 0) for name, key in keys.items()}


def _groups(found: list[Any], name: Any) -> list[list[Any]]:
    groups: dict[tuple[str, str, str], list[Any]] = {}
    for one in found:
        groups.setdefault((one.account, name(one), one.raft_group), []).append(one)
    return list(groups.values())


def _raft_status(one: Replica, group: list[Any]) -> str:
    """Return the fault of the group as this server sees it, "" for none."""
    if not one.leader:
        return "LEADERLESS"
    if any(other.leader and other.leader != one.leader for other in group):
        return "MULTILEADER"
    if one.leads and any(peer.name == one.leader for peer in one.peers):
        return "LEADER_IS_FOLLOWER"
    return "MISSING_GROUP" if not one.leads and not one.raft_group else ""


def _stream_status(one: StreamReplica, group: list[StreamReplica]) -> str:
    if wrong := _raft_status(one, group):
        return wrong
    differs = any(
        (other.messages != one.messages and other.bytes != one.bytes)
        or (other.first_seq, other.last_seq) != (one.first_seq, one.last_seq)
        for other in group
    )
    return "UNSYNCED" if differs else IN_SYNC


def _consumer_status(one: ConsumerReplica, group: list[ConsumerReplica]) -> str:
    if wrong := _raft_status(one, group):
        return wrong
    delivered = (one.delivered_stream_seq, one.delivered_consumer_seq)
    floor = (one.ack_floor_stream_seq, one.ack_floor_consumer_seq)
    others = [
        (
            (other.delivered_stream_seq, other.delivered_consumer_seq),
            (other.ack_floor_stream_seq, other.ack_floor_consumer_seq),
        )
        for other in group
    ]
    faults = {
        "UNSYNCED:DELIVERED_AHEAD_OF_STREAM_SEQ": one.last_seq < one.delivered_stream_seq,
        "UNSYNCED:ACKFLOOR_AHEAD_OF_STREAM_SEQ": one.last_seq < one.ack_floor_stream_seq,
        "UNSYNCED:DELIVERED": any(other != delivered for other, _ in others),
        "UNSYNCED:ACK_FLOOR": any(other != floor for _, other in others),
    }
    said = [name for name, there in faults.items() if there] or [IN_SYNC]
    said += ["EMPTY"] if 0 in (*delivered, *floor) else []
    return ",".join(said) + (" / INTERSECT" if one.leads and one.leader == one.stream_leader else "")
