"""Copies of streams and consumers as rows of a table, with how far each is from the leader's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from natsctl.client.system.replicas import ConsumerReplica, Replica, StreamReplica

STREAM_COLUMNS: Final = (
    "Stream Replica", "Raft", "Account", "Account ID", "Node", "Messages", "Bytes", "Subjects", "Deleted", "Consumers",
    "First", "Last", "Status", "Leader", "Peers",
)  # fmt: skip
CONSUMER_COLUMNS: Final = (
    "Consumer", "Stream", "Raft", "Account", "Account ID", "Node", "Delivered (S,C)", "ACK Floor (S,C)", "Counters",
    "Status", "Leader", "Stream Cluster Leader", "Peers",
)  # fmt: skip
SMALLEST_PERCENT: Final = 0.01


def drift(number: int, leading: int | None) -> str:
    """Return a number and by how many per cent it differs from the leader's, as `990 (-1%)`."""
    if leading is None or number == leading:
        return str(number)
    if leading == 0:
        return f"{number} (+100%)"
    percent = (number - leading) / leading * 100
    if abs(percent) < SMALLEST_PERCENT:
        percent = SMALLEST_PERCENT if percent > 0 else -SMALLEST_PERCENT
    return f"{number} ({f'{percent:+.2f}'.rstrip('0').rstrip('.')}%)"


def stream_row(one: StreamReplica, leader: StreamReplica | None) -> list[str]:
    """Return the cells of a stream's copy, compared with that of the leader where there is one."""
    fields = ("messages", "bytes", "subjects", "deleted", "consumers", "first_seq", "last_seq")
    numbers = [drift(getattr(one, name), None if leader is None else getattr(leader, name)) for name in fields]
    whose = [one.stream, one.raft_group, one.account, one.account_id, _node(one)]
    return [*whose, *numbers, one.status, one.leader, _peers(one)]


def consumer_row(one: ConsumerReplica, leader: ConsumerReplica | None) -> list[str]:
    """Return the cells of a consumer's copy, compared with that of the leader where there is one."""

    def shown(name: str) -> str:
        return drift(getattr(one, name), None if leader is None else getattr(leader, name))

    progress = f"{one.delivered_stream_seq / one.last_seq * 100:.0f}%" if one.last_seq else "0%"
    delivered = (
        f"{shown('delivered_stream_seq')} [{one.first_seq}, {one.last_seq}] {progress}"
        f" | {shown('delivered_consumer_seq')}"
    )
    floor = f"{shown('ack_floor_stream_seq')} | {shown('ack_floor_consumer_seq')}"
    counters = f"(ap:{one.num_ack_pending}, nr:{one.num_redelivered}, nw:{one.num_waiting}, np:{one.num_pending})"
    whose = [one.consumer, one.stream, one.raft_group, one.account, one.account_id, _node(one)]
    return [*whose, delivered, floor, counters, one.status, one.leader, one.stream_leader, _peers(one)]


def _node(one: Replica) -> str:
    """Return the server's name, with a star where it leads."""
    return f"{one.server}*" if one.leads else one.server


def _peers(one: Replica) -> str:
    return " ".join(
        f"{peer.name}(current={str(peer.current).lower()},offline={str(peer.offline).lower()})" for peer in one.peers
    )
