"""The server that streams are moved from: which there are, how ingest stops, and how that is taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from natsctl.api import headers
from natsctl.api.archive.archive import ArchivedConsumer
from natsctl.api.consumer import ConsumerInfo
from natsctl.api.errors import ApiResponseError, ConflictError, ErrCode, NotFoundError
from natsctl.api.subjects import matches
from natsctl.api.times import parse_time
from natsctl.api.units import plural
from natsctl.client.backup.configuration import without_server_metadata
from natsctl.client.backup.transfer import RetryingManager
from natsctl.client.manager import Manager
from natsctl.client.migration.migration_state import MigrationMarker, given, given_back, labelled, marker_of
from natsctl.client.migration.spool import Kept, Spool, consumers_in
from natsctl.client.stream_state import sequence_at

FOREVER: Final = "2125-01-01T00:00:00Z"
"""End of the pause of consumers."""
PAUSES_SINCE: Final = 1
"""Minimum API level for pausing consumers."""
SETTLE_S: Final = 0.2
SETTLES: Final = 5
"""Pause between checks of consumers with outstanding acks, and the maximum number of checks."""
OWN_CONSUMERS: Final = "natsctl_"
"""Prefix of consumers that natsctl reads with; one of a killed process stays for a moment."""
MAX_LISTED: Final = 10
"""Names of existing streams in an error."""


@dataclass(frozen=True, slots=True)
class MigrationOrigin:
    """The server that streams are moved from, under the name that the user gave it."""

    name: str
    retrying: RetryingManager

    @property
    def manager(self) -> Manager:
        return self.retrying.manager

    async def find(self, stream: str) -> dict[str, Any] | None:
        found = await self.manager.find_stream(stream)
        return None if found is None else found.raw

    async def info(self, stream: str) -> dict[str, Any]:
        """Return the information of a stream. Raises NotFoundError."""
        found = await self.find(stream)
        if found is None:
            raise NotFoundError(f"stream {stream} is no longer at {self.name}")
        return found

    async def streams(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the named streams, or all, with their information.

        Raises NotFoundError, ConflictError where servers of a cluster do not answer.
        """
        listing = await self.manager.stream_list()
        infos = {str(one.raw["config"]["name"]): dict(one.raw) for one in listing}
        if silent := [*(listing.raw.get("missing") or ()), *(listing.raw.get("offline") or {})]:
            raise ConflictError(f"at {self.name} the servers of {', '.join(silent)} do not answer")
        if absent := [name for name in names if name not in infos]:
            there = ", ".join(sorted(infos)[:MAX_LISTED])
            raise NotFoundError(
                f"there is no stream {', '.join(absent)} at {self.name}", hint=f"there are {there}" if there else ""
            )
        if not infos:
            raise NotFoundError(f"there are no streams at {self.name}")
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

        Its sources start after the messages that it has of them (`continued`). One that a process stopped before is
        left so. Mirrors and sealed streams accept no messages of clients.
        """
        info = await self.info(stream)
        config = dict(info.get("config") or {})
        marker = marker_of(config)
        before = without_server_metadata(given_back(config))
        if marker is None:
            if config.get("sealed") or config.get("mirror"):
                return before
            marker = await self._marker(stream, config, id, destination)
            marker.reached = reached_in(info)
            stopped = labelled(before, msgspec.json.encode(marker).decode())
            stopped.pop("sources", None)
            await self.manager.stream_update({**stopped, "subjects": [quiet]})
        await asyncio.gather(*(self._pause(stream, consumer, FOREVER) for consumer in marker.paused))
        await self._settle(stream)
        return continued(before, marker.reached)

    async def _marker(self, stream: str, config: Mapping[str, Any], id: str, destination: str) -> MigrationMarker:
        level = (await self.manager.account_info()).value.api.level
        infos = [one.raw for one in await self.manager.consumer_list(stream)] if level >= PAUSES_SINCE else []
        return MigrationMarker(
            id=id,
            destination=destination,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            subjects=config.get("subjects"),
            sources=config.get("sources"),
            paused={
                str(info["name"]): str((info.get("config") or {}).get("pause_until") or "")
                for info in infos
                if not str(info["name"]).startswith(OWN_CONSUMERS)
            },
        )

    async def _pause(self, stream: str, consumer: str, until: str) -> None:
        """Pause or resume a consumer if it still exists."""
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
            now = [(info["name"], info.get("ack_floor"), info.get("num_ack_pending")) for info in infos]
            if now == before or not any(info.get("num_ack_pending") for info in infos):
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

    async def stopped(self) -> dict[str, MigrationMarker]:
        listing = await self.manager.stream_list()
        markers = {str(one.raw["config"]["name"]): marker_of(one.raw["config"]) for one in listing}
        return {name: marker for name, marker in markers.items() if marker is not None}

    async def consumers(self, stream: str, spool: Spool, kept: Kept) -> tuple[list[ArchivedConsumer], list[str]]:
        """Return the consumers to restore, and warnings about parts that are not moved."""
        if not await self.manager.consumer_names(stream):
            return [], []
        warnings: list[str] = []
        found = [one for one in await consumers_in(self.retrying, stream) if not one.name.startswith(OWN_CONSUMERS)]
        if self.manager.connection.info.get("cluster"):
            found, warnings = await self._with_pending(stream, found, spool, kept)
        marker = marker_of((await self.info(stream)).get("config") or {})
        waiting = {seq for one in found for seq in (*one.progress.pending, *one.progress.redelivered)}
        there: set[int] = set()
        for batch in spool.batches(kept) if waiting else ():
            there.update(message.seq for message in batch if message.seq in waiting)
        lasting = [one for one in found if one.config.durable_name or not one.config.deliver_subject]
        paused = marker.paused if marker is not None else {}
        if left_out := len(found) - len(lasting):
            warnings.append(f"{plural(left_out, 'consumer')} of connected clients were not moved")
        return [_carried(one, there, kept.last_seq, paused) for one in lasting], warnings

    async def _with_pending(
        self, stream: str, consumers: Sequence[ArchivedConsumer], spool: Spool, kept: Kept
    ) -> tuple[list[ArchivedConsumer], list[str]]:
        """Return a cluster's consumers with their pending messages, and warnings where these are not known.

        Its snapshots put a consumer with any back to its ack floor. Their number is known: either they are all that it
        has delivered after the floor, or they cannot be distinguished from acknowledged ones.
        """
        infos = {one.value.name: one.value for one in await self.manager.consumer_list(stream)}
        waiting = {name: info for name, info in infos.items() if info.num_ack_pending}
        if not waiting:
            return list(consumers), []
        first = min(info.ack_floor.stream_seq for info in waiting.values()) + 1
        last = max(info.delivered.stream_seq for info in waiting.values())
        batches = spool.batches(kept.within(first, last))
        messages = [(one.seq, one.subject.decode("utf-8", "replace")) for batch in batches for one in batch]
        done = [
            with_pending(consumer, waiting[consumer.name], messages) if consumer.name in waiting else consumer
            for consumer in consumers
        ]
        unknown = [one.name for one in done if one.name in waiting and not one.progress.pending]
        return done, [
            f"consumer {name} is reset to its ack floor {waiting[name].ack_floor.stream_seq:,}: the cluster does not"
            f" say which {waiting[name].num_ack_pending:,} messages behind it are pending"
            for name in unknown
        ]


def reached_in(info: Mapping[str, Any]) -> list[int]:
    """Return the last sequence that a stream has of each of its sources, 0 where the server does not say."""
    return [int(source.get("seq") or 0) for source in info.get("sources") or ()]


def continued(config: dict[str, Any], reached: Sequence[int]) -> dict[str, Any]:
    """Return a configuration with sources that start after the stream's sequences of them, 0 if unknown.

    At the destination the origins of sources are different streams for servers, because they were recreated, and would
    be sourced from their beginning.
    """
    sources = config.get("sources") or []
    if len(reached) != len(sources):
        return config
    return {**config, **given("sources", [_behind(source, seq) for source, seq in zip(sources, reached, strict=True)])}


def _behind(source: Mapping[str, Any], seq: int) -> dict[str, Any]:
    if source.get("external") or seq < int(source.get("opt_start_seq") or 0):
        return dict(source)
    kept = {key: value for key, value in source.items() if key != "opt_start_time"}
    return {**kept, "opt_start_seq": seq + 1} if seq else dict(source)


def continued_in(config: dict[str, Any], spool: Spool, kept: Kept) -> dict[str, Any]:
    """Return the same from the headers of the messages in a spool: they name their source and sequence there."""
    sources = config.get("sources") or []
    last: dict[tuple[str, str], int] = {}
    for batch in spool.batches(kept) if sources else ():
        for message in batch:
            fields = (headers.get(message.header, headers.STREAM_SOURCE) or b"").decode("utf-8", "replace").split(" ")
            if len(fields) > 3 and fields[1].isdigit():
                last[fields[0], fields[2]] = int(fields[1])
    return continued(config, [last.get((str(source.get("name")), _filters(source)), 0) for source in sources])


def _filters(source: Mapping[str, Any]) -> str:
    transforms = source.get("subject_transforms") or ()
    return (
        "\f".join(transform.get("src") or ">" for transform in transforms)
        if transforms
        else source.get("filter_subject") or ">"
    )


def with_pending(
    consumer: ArchivedConsumer, info: ConsumerInfo, messages: Sequence[tuple[int, str]]
) -> ArchivedConsumer:
    """Return a consumer that waits for acks of all messages after its ack floor, if it waits for so many."""
    floor, reached, config = info.ack_floor, info.delivered, consumer.config
    filters = [one for one in (config.filter_subject, *(config.filter_subjects or ())) if one]
    seqs = [
        seq
        for seq, subject in messages
        if floor.stream_seq < seq <= reached.stream_seq and (not filters or any(matches(f, subject) for f in filters))
    ]
    if len(seqs) != info.num_ack_pending or config.ack_policy == "none":
        return consumer
    moment_ns = parse_time(reached.last_active) if reached.last_active else 0
    progress = replace(
        consumer.progress,
        delivered_cseq=reached.consumer_seq,
        delivered_sseq=reached.stream_seq,
        pending={seq: (floor.consumer_seq + number, moment_ns) for number, seq in enumerate(seqs, 1)},
    )
    return replace(consumer, progress=progress)


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
