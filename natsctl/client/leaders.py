"""Leaders of streams and consumers in a cluster: step-down with a bounded wait, and even distribution."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from natsctl.api import endpoints
from natsctl.api.errors import ApiResponseError, NatsctlError, UnreachableError
from natsctl.client.manager import Manager
from natsctl.client.message import Planned

WAIT_S: Final = 10.0
"""Maximum time for a new leader: elections need 4 to 9 seconds if a server is lost."""
LOOK_EVERY_S: Final = 0.1

Info = Mapping[str, Any]
Announce = Callable[[Info], None]


class ClusterAsset(NamedTuple):
    stream: str
    consumer: str = ""

    @property
    def shown(self) -> str:
        return f"Consumer {self.stream} > {self.consumer}" if self.consumer else f"Stream {self.stream}"

    @property
    def shows_it(self) -> str:
        return f"natsctl con info {self.stream} {self.consumer}" if self.consumer else f"natsctl str info {self.stream}"

    async def evacuate(self, manager: Manager, peer: str) -> Mapping[str, Any]:
        if self.consumer:
            return (await manager.consumer_evacuate(self.stream, self.consumer, peer)).raw
        return (await manager.stream_evacuate(self.stream, peer)).raw

    async def info(self, manager: Manager) -> Info:
        if self.consumer:
            return (await manager.consumer_info(self.stream, self.consumer)).raw
        return (await manager.stream_info(self.stream)).raw

    async def hand_over(
        self, manager: Manager, preferred: str = "", wait_s: float = WAIT_S, announce: Announce | None = None
    ) -> tuple[Info, Info]:
        """Request a step-down of its leader; returns and raises as `hand_over`."""

        async def ask() -> object:
            if self.consumer:
                return await manager.consumer_step_down(self.stream, self.consumer, preferred)
            return await manager.stream_step_down(self.stream, preferred=preferred)

        return await hand_over(lambda: self.info(manager), ask, self.shown, wait_s, announce)

    def planned(self, preferred: str, prefix: str) -> Planned:
        """Return the request that `hand_over` sends, for an API prefix."""
        body = {"placement": {"preferred": preferred}}
        if self.consumer:
            return Planned(endpoints.CONSUMER_LEADER_STEPDOWN.subject(self.stream, self.consumer, prefix=prefix), body)
        return Planned(endpoints.STREAM_LEADER_STEPDOWN.subject(self.stream, prefix=prefix), body)


class Move(NamedTuple):
    """A leader that should hand over to another server."""

    name: str
    leader: str
    target: str


def leader_of(info: Info) -> str:
    """Return the server that leads; "" without a leader or a cluster."""
    return str((info.get("cluster") or {}).get("leader") or "")


def peers_of(info: Info) -> list[str]:
    """Return every server that has a copy, the leader first."""
    cluster = info.get("cluster") or {}
    return [name for name in (leader_of(info), *(replica["name"] for replica in cluster.get("replicas") or ())) if name]


def check_in_cluster(info: Info, what: str) -> None:
    """Raise NatsctlError for an asset of a server that is in no cluster."""
    if not (info.get("cluster") or {}).get("name"):
        raise NatsctlError(
            f"{what} is not clustered", hint="leaders and copies change among the servers of a cluster only"
        )


def check_clustered(info: Info, what: str) -> None:
    """Raise NatsctlError for an asset that no other server could lead."""
    check_in_cluster(info, what)
    if len(peers_of(info)) < 2:
        raise NatsctlError(f"{what} has one copy: no other server can lead it", hint="give it more replicas first")


async def hand_over(
    load: Callable[[], Awaitable[Info]],
    ask: Callable[[], Awaitable[object]],
    what: str,
    wait_s: float = WAIT_S,
    announce: Announce | None = None,
) -> tuple[Info, Info]:
    """Request a step-down of the leader, and return the information before it and once another server leads.

    `announce` is called with the information before, once it is clear that another server can lead. Raises
    NatsctlError, ApiResponseError, and UnreachableError when no other one leads in time; the election continues
    then.
    """
    before = await load()
    check_clustered(before, what)
    if announce is not None:
        announce(before)
    await ask()
    stays = UnreachableError(
        f"{what} is still led by {leader_of(before)} after {wait_s:g}s",
        hint="the election may take longer: look again, or prefer another server",
    )
    return before, await _awaited(load, lambda info: leader_of(info) not in ("", leader_of(before)), wait_s, stays)


async def _awaited(
    load: Callable[[], Awaitable[Info]], done: Callable[[Info], bool], wait_s: float, late: UnreachableError
) -> Info:
    """Return the information once it is as awaited; raises `late` if that takes too long."""
    import asyncio

    until_s = time.monotonic() + wait_s
    while time.monotonic() < until_s:
        await asyncio.sleep(LOOK_EVERY_S)
        try:
            if done(info := await load()):
                return info
        except (ApiResponseError, UnreachableError):
            pass  # no answer during an election
    raise late


def plan_spread(infos: Iterable[tuple[str, Info]]) -> list[Move]:
    """Return the moves after which every server leads about as many: to the least loaded one that has a copy.

    Each entry is a name and its information; assets without a cluster, or with one replica, are not moved.
    """
    movable = [(name, peers_of(info)) for name, info in infos if leader_of(info) and len(peers_of(info)) > 1]
    load = Counter(peers[0] for _, peers in movable)
    for _, peers in movable:
        for peer in peers:
            load.setdefault(peer, 0)
    moves = []
    for name, peers in sorted(movable, key=lambda one: (-load[one[1][0]], one[0])):
        target = min(peers[1:], key=lambda peer: (load[peer], peer))
        if load[peers[0]] - load[target] > 1:
            load[peers[0]] -= 1
            load[target] += 1
            moves.append(Move(name, peers[0], target))
    return moves


async def await_gone(manager: Manager, asset: ClusterAsset, peer: str, wait_s: float = WAIT_S) -> Info:
    """Return the information once a server is no peer of the asset; raises UnreachableError if that takes too long."""
    stays = UnreachableError(
        f"{peer} is still a peer of {asset.shown} after {wait_s:g}s",
        hint=f"the move continues: {asset.shows_it} shows the peers",
    )

    def is_gone(info: Info) -> bool:
        return bool(leader_of(info)) and peer not in peers_of(info)

    return await _awaited(lambda: asset.info(manager), is_gone, wait_s, stays)


def is_moving(info: Info) -> bool:
    """Return whether a stream or consumer is on its way to other servers; nats-server from 2.15 on says so."""
    return bool((info.get("cluster") or {}).get("desired"))


async def await_settled(manager: Manager, asset: ClusterAsset, wait_s: float = WAIT_S) -> Info:
    """Return the information once a stream moves no longer. Raises UnreachableError when that takes too long."""
    text, hint = f"{asset.shown} is still moving after {wait_s:g}s", f"{asset.shows_it} shows how far it is"
    late = UnreachableError(text, hint=hint)
    return await _awaited(lambda: asset.info(manager), lambda info: not is_moving(info), wait_s, late)
