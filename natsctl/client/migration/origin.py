"""The server that streams are moved from: which there are, how ingest stops, and how that is taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from natsctl.api.archive.archive import ArchivedConsumer
from natsctl.api.errors import ApiResponseError, ErrCode
from natsctl.client.backup.configuration import without_server_metadata
from natsctl.client.backup.transfer import RetryingManager
from natsctl.client.manager import Manager
from natsctl.client.migration.migration_state import (
    Marker,
    MigrationHeldError,
    StreamsNotFoundError,
    given_back,
    labelled,
    marker_of,
)
from natsctl.client.migration.spool import Kept, Spool, consumers_in
from natsctl.client.stream_state import sequence_at

FOREVER: Final = "2125-01-01T00:00:00Z"
"""End of the pause of consumers."""
PAUSES_SINCE: Final = 1
"""API level from which on consumers can be paused."""
SETTLE_S: Final = 0.2
SETTLES: Final = 5
"""Pause between two looks at consumers whose last messages are being acknowledged, and the most looks."""
OWN_CONSUMERS: Final = "natsctl_"
"""Prefix of consumers that natsctl reads with; one of a killed process stays for a moment."""
MAX_LISTED: Final = 10
"""Names of existing streams in an error."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The server that streams are moved from, under the name that the user gave it."""

    name: str
    retrying: RetryingManager

    @property
    def manager(self) -> Manager:
        """Return the requests on the present connection."""
        return self.retrying.manager

    async def find(self, stream: str) -> dict[str, Any] | None:
        """Return the information of a stream, None where it does not exist."""
        found = await self.manager.find_stream(stream)
        return None if found is None else found.raw

    async def info(self, stream: str) -> dict[str, Any]:
        """Return the information of a stream. Raises StreamsNotFoundError."""
        found = await self.find(stream)
        if found is None:
            raise StreamsNotFoundError(f"stream {stream} is no longer at {self.name}")
        return found

    async def streams(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the named streams, or all, with their information.

        Raises StreamsNotFoundError, MigrationHeldError where servers of a cluster do not answer.
        """
        listing = await self.manager.stream_list()
        infos = {str(one.raw["config"]["name"]): dict(one.raw) for one in listing}
        if silent := [*(listing.raw.get("missing") or ()), *(listing.raw.get("offline") or {})]:
            raise MigrationHeldError(f"at {self.name} the servers of {', '.join(silent)} do not answer")
        if absent := [name for name in names if name not in infos]:
            there = ", ".join(sorted(infos)[:MAX_LISTED])
            raise StreamsNotFoundError(
                f"there is no stream {', '.join(absent)} at {self.name}", hint=f"there are {there}" if there else ""
            )
        if not infos:
            raise StreamsNotFoundError(f"there are no streams at {self.name}")
        return {name: infos[name] for name in names or sorted(infos)}

    async def first_of(self, stream: str, sample: int, since_ns: int) -> int:
        """Return the first sequence of the newest `sample` messages (0 for all), and of those since a time."""
        live = await self.manager.stream_info(stream, deleted_details=True)
        state = live.value.state
        start = max(await sequence_at(self.manager, live, since_ns) if since_ns else 1, state.first_seq, 1)
        if sample:
            removed, left, seq = set(state.deleted or ()), sample, state.last_seq + 1
            while left and seq > start:
                seq -= 1
                left -= seq not in removed
            start = max(start, seq)
        return start

    async def stop(self, stream: str, id: str, quiet: str, destination: str) -> dict[str, Any]:
        """Take a stream from its subjects and sources, pause its consumers, and return its configuration before.

        One that a process stopped before is left so. Mirrors and sealed streams accept no messages of clients.
        """
        config = dict((await self.info(stream)).get("config") or {})
        marker = marker_of(config)
        before = without_server_metadata(given_back(config))
        if marker is None:
            if config.get("sealed") or config.get("mirror"):
                return before
            marker = await self._marker(stream, config, id, destination)
            stopped = labelled(before, msgspec.json.encode(marker).decode())
            stopped.pop("sources", None)
            await self.manager.stream_update({**stopped, "subjects": [quiet]})
        await asyncio.gather(*(self._pause(stream, consumer, FOREVER) for consumer in marker.paused))
        await self._settle(stream)
        return before

    async def _marker(self, stream: str, config: Mapping[str, Any], id: str, destination: str) -> Marker:
        level = (await self.manager.account_info()).value.api.level
        infos = [one.raw for one in await self.manager.consumer_list(stream)] if level >= PAUSES_SINCE else []
        return Marker(
            id=id,
            destination=destination,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            subjects=config.get("subjects"),
            sources=config.get("sources"),
            paused={
                str(one["name"]): str((one.get("config") or {}).get("pause_until") or "")
                for one in infos
                if not str(one["name"]).startswith(OWN_CONSUMERS)
            },
        )

    async def _pause(self, stream: str, consumer: str, until: str) -> None:
        """Pause or resume a consumer, which may be gone."""
        try:
            await self.manager.consumer_pause(stream, consumer, until)
        except ApiResponseError as failure:
            if failure.err_code != ErrCode.CONSUMER_NOT_FOUND:
                raise

    async def _settle(self, stream: str) -> None:
        """Wait a moment for the acks of messages that were delivered just before."""
        before: Any = None
        for _ in range(SETTLES):
            infos = [one.raw for one in await self.manager.consumer_list(stream)]
            now = [(one["name"], one.get("ack_floor"), one.get("num_ack_pending")) for one in infos]
            if now == before or not any(one.get("num_ack_pending") for one in infos):
                return
            before = now
            await asyncio.sleep(SETTLE_S)

    async def release(self, stream: str, id: str) -> None:
        """Give a stream that this migration has stopped its subjects, sources and consumers back."""
        config = ((await self.find(stream)) or {}).get("config") or {}
        marker = marker_of(config)
        if marker is not None and marker.id == id:
            await asyncio.gather(*(self._pause(stream, one, until) for one, until in marker.paused.items()))
            await self.manager.stream_update(without_server_metadata(given_back(config)))

    async def stopped(self) -> dict[str, str]:
        """Return the streams that are stopped, each with the id of its migration."""
        listing = await self.manager.stream_list()
        markers = {str(one.raw["config"]["name"]): marker_of(one.raw["config"]) for one in listing}
        return {name: marker.id for name, marker in markers.items() if marker is not None}

    async def consumers(self, stream: str, spool: Spool, kept: Kept) -> tuple[list[ArchivedConsumer], int]:
        """Return the consumers to restore, and how many belong to clients that are connected here."""
        if not await self.manager.consumer_names(stream):
            return [], 0
        found = [one for one in await consumers_in(self.retrying, stream) if not one.name.startswith(OWN_CONSUMERS)]
        marker = marker_of((await self.info(stream)).get("config") or {})
        waiting = {seq for one in found for seq in (*one.progress.pending, *one.progress.redelivered)}
        there: set[int] = set()
        for batch in spool.batches(kept) if waiting else ():
            there.update(message.seq for message in batch if message.seq in waiting)
        lasting = [one for one in found if one.config.durable_name or not one.config.deliver_subject]
        paused = marker.paused if marker is not None else {}
        return [_carried(one, there, kept.last_seq, paused) for one in lasting], len(found) - len(lasting)


def _carried(consumer: ArchivedConsumer, there: set[int], last_seq: int, paused: Mapping[str, str]) -> ArchivedConsumer:
    """Return a consumer as it is restored: with the pause it had before, waiting for acks of messages `there`."""
    until = paused.get(consumer.name, consumer.config.pause_until or "")
    config = replace(consumer.config, pause_until=until or None)
    if config.num_replicas > 1:  # the stream is restored with one, and raised afterwards with its consumers
        config = replace(config, num_replicas=0)
    reached = consumer.progress
    progress = replace(
        reached,
        delivered_sseq=min(reached.delivered_sseq, last_seq),
        floor_sseq=min(reached.floor_sseq, last_seq),
        pending={seq: entry for seq, entry in reached.pending.items() if seq in there},
        redelivered={seq: times for seq, times in reached.redelivered.items() if seq in there},
    )
    return replace(consumer, config=config, progress=progress)
