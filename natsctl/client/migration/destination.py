"""The server that streams are moved to: its refusals, the restore of closed streams, and their opening."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from natsctl.api import headers
from natsctl.api.archive.archive import ArchivedConsumer, ArchivedMessage, ArchivedStream
from natsctl.api.archive.archive_v2 import WriterV2
from natsctl.api.archive.s2 import FrameWriter
from natsctl.api.errors import ConflictError, NatsctlError
from natsctl.api.stream import StreamState
from natsctl.api.times import format_time, parse_time
from natsctl.api.units import parse_ttl, plural
from natsctl.client.backup.archives import read_messages, run_in_thread
from natsctl.client.backup.manifest import new_manifest
from natsctl.client.backup.reader import open_backup
from natsctl.client.backup.restore import RestoreOptions, release_name, restore_stream
from natsctl.client.backup.save import SaveOptions, save_stream
from natsctl.client.backup.transfer import RetryingManager
from natsctl.client.backup.writer import BackupWriter
from natsctl.client.manager import STREAM_LEVELS, Manager, required_level_of
from natsctl.client.migration.migration_state import StreamMoved, given, label_of, labelled
from natsctl.client.migration.spool import Digest, Kept, Spool

APPEAR_WITHIN_S: Final = 15.0
CURRENT_WITHIN_S: Final = 120.0
AGAIN_AFTER_S: Final = 0.25
"""Longest waits for a restored stream's consumers on a cluster and for its replicas, and the pause between looks."""
MAX_DIFFERENT: Final = 10_000
"""Differences of one stream that are looked at."""
MAX_FAULTS: Final = 5
"""Differences of one stream that an error names."""


@dataclass(frozen=True, slots=True)
class CopiedContent:
    """Everything that a stream of the origin has: `info` is its information, `expected` the digest of its messages."""

    spool: Spool
    kept: Kept
    expected: Digest
    info: Mapping[str, Any]
    consumers: Sequence[ArchivedConsumer]

    @property
    def state(self) -> StreamState:
        expected, said = self.expected, self.info.get("state") or {}
        state = StreamState(
            messages=expected.messages,
            bytes=int(said.get("bytes") or 0),
            first_seq=expected.first_seq if expected.messages else self.kept.last_seq + 1,
            last_seq=self.kept.last_seq,
            consumer_count=len(self.consumers),
            last_ts=str(said.get("last_ts") or ""),
        )
        if expected.messages:
            state.first_ts, state.last_ts = format_time(expected.first_ts_ns), format_time(expected.last_ts_ns)
        return state

    def write(self, target: Path, config: dict[str, Any]) -> None:
        """Write a backup: the state, the consumers, then the messages of the spool. Raises StorageError."""
        state = self.state
        created_ns = max(parse_time(str(self.info.get("created") or "1970-01-01T00:00:00Z")), 0)
        shutil.rmtree(target, ignore_errors=True)
        frames, end = FrameWriter(), FrameWriter()
        head = ArchivedStream(created_ns=created_ns, state=state)
        with BackupWriter(target, replace=True) as writer:
            writer.write(frames.write(b"".join(WriterV2().beginning(head, self.consumers))) + frames.finish())
            self.spool.write_to(writer, self.kept)
            writer.write(end.write(b"".join(WriterV2().end(state.last_seq, 0))) + end.finish())
            manifest = new_manifest(str(config["name"]), state, "rewritten")
            writer.finish(config, manifest.state, manifest)

    def summary(self, wanted: Mapping[str, Any]) -> StreamMoved:
        """Return the stream as the report shows it; `wanted` is its configuration at the destination."""
        state = self.state
        return StreamMoved(
            stream=str(wanted["name"]),
            messages=state.messages,
            bytes=state.bytes,
            first_seq=state.first_seq,
            last_seq=state.last_seq,
            first_ts=str(state.first_ts or ""),
            last_ts=str(state.last_ts or ""),
            consumers=len(self.consumers),
            pending=sum(len(consumer.progress.pending) for consumer in self.consumers),
            replicas=int(wanted["num_replicas"]),
            sha256=self.expected.sha256,
        )


@dataclass(frozen=True, slots=True)
class MigrationDestination:
    """The server that streams are moved to; 0 `replicas` are those of the origin, placement is not taken along."""

    name: str
    retrying: RetryingManager
    replicas: int = 0
    cluster: str = ""
    tags: tuple[str, ...] = ()

    @property
    def manager(self) -> Manager:
        return self.retrying.manager

    @property
    def clustered(self) -> bool:
        return bool(self.manager.connection.info.get("cluster"))

    async def find(self, stream: str) -> dict[str, Any] | None:
        found = await self.retrying.patiently(lambda: self.manager.find_stream(stream))
        return None if found is None else found.raw

    def wanted(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configuration that a stream gets here."""
        placement = {**given("cluster", self.cluster), **given("tags", list(self.tags))}
        most = (self.replicas or int(config.get("num_replicas") or 1)) if self.clustered else 1
        kept = {key: value for key, value in labelled(config, "").items() if key != "placement"}
        return {**kept, "num_replicas": most, **given("placement", placement)}

    # -- checks

    async def overlaps(self, name: str, subjects: Sequence[str], moved: Iterable[str]) -> list[str]:
        """Return the streams here, except `moved` ones, on a subject of a stream."""
        listings = await asyncio.gather(*(self.manager.stream_names(subject=subject) for subject in subjects))
        others = {other for names in listings for other in names} - {name, *moved}
        return [f"{self.name} has stream {other} on a subject of {name}" for other in sorted(others)]

    async def refusals(self, infos: Mapping[str, Mapping[str, Any]], *, partial: bool) -> list[str]:
        """Return the reasons why the account cannot accept streams; `partial` ones have an unknown size."""
        account = (await self.manager.account_info()).raw
        level = int((account.get("api") or {}).get("level") or 0)
        size = {"file": 0, "memory": 0}
        held = []
        for name, info in infos.items():
            config = info.get("config") or {}
            needed = required_level_of(config, STREAM_LEVELS)
            if needed.level > level:
                held.append(f"{name}: {needed.field} needs API level {needed.level}, {self.name} has {level}")
            size[config.get("storage") or "file"] += int((info.get("state") or {}).get("bytes") or 0)
        if self.replicas > 1 and not self.clustered:
            held.append(f"{self.name} is no cluster, so that --replicas {self.replicas} is not possible")
        if partial:
            return held
        limits = account.get("limits") or {}
        most = int(limits.get("max_streams") or -1)
        if most >= 0 and int(account.get("streams") or 0) + len(infos) > most:
            held.append(f"the account at {self.name} may have {plural(most, 'stream')}")
        for kind, key in (("file", "storage"), ("memory", "memory")):
            room = int(limits.get(f"max_{key}") or -1)
            if room >= 0 and int(account.get(key) or 0) + size[kind] > room:
                held.append(f"the account at {self.name} has too little {key}: {size[kind]:,} bytes are needed")
        return held

    # -- the closed stream

    def closed(self, wanted: Mapping[str, Any], id: str, quiet: str) -> dict[str, Any]:
        """Return the configuration under which a stream is restored: no client reaches it.

        It has one replica: otherwise an empty one might become leader, and the stream lose its messages.
        """
        closed = {**labelled(wanted, id), "num_replicas": 1, "sealed": False}
        closed.pop("sources", None)
        return closed if closed.get("mirror") else {**closed, "subjects": [quiet]}

    async def remove(self, stream: str, id: str) -> None:
        """Remove the closed stream of this migration, and a cluster's reservation for an unfinished restore.

        Raises ConflictError for another stream of that name.
        """
        there = await self.find(stream)
        if there is not None:
            if label_of(there.get("config") or {}) != id:
                raise ConflictError(f"{self.name} has a stream {stream} that was made meanwhile")
            await self.retrying.patiently(lambda: self.manager.stream_delete(stream))
        await release_name(self.manager, stream)

    async def restore(self, content: CopiedContent, config: dict[str, Any], place: Path) -> None:
        """Restore a stream; temporary files in `place` are removed."""
        target = place / "archive"
        await asyncio.to_thread(content.write, target, config)
        try:
            await restore_stream(self.retrying, target, RestoreOptions(config=config))
        finally:
            shutil.rmtree(target, ignore_errors=True)

    async def compare(self, name: str, content: CopiedContent, config: Mapping[str, Any], place: Path) -> None:
        """Raise NatsctlError unless the stream here has every message that it should have."""
        target, kept = place / "check", content.kept
        try:
            await save_stream(self.retrying, name, target, SaveOptions(consumers=False, force=True))
            with open_backup(target) as backup:
                found = await digest_of(lambda: (list(batch) for batch in read_messages(backup)))
                reached = int(((await self.find(name) or {}).get("state") or {}).get("last_seq") or 0)
                if found.sha256 == content.expected.sha256 and reached == kept.last_seq:
                    return
                faults = await run_in_thread(
                    lambda _: differences(content.spool.batches(kept), read_messages(backup), config), _unseen
                )
            if reached < kept.last_seq:
                faults.append(f"the last sequence is {reached:,} instead of {kept.last_seq:,}")
        finally:
            shutil.rmtree(target, ignore_errors=True)
        if faults:
            raise NatsctlError(f"{name} at {self.name} differs: {'; '.join(faults[:MAX_FAULTS])}")

    async def compare_consumers(self, name: str, content: CopiedContent) -> list[str]:
        """Return differences of consumers; raises NatsctlError if one is missing.

        Servers raise an ack floor that lies below the first message.
        """
        wanted, below = content.consumers, content.state.first_seq - 1
        until_s = time.monotonic() + APPEAR_WITHIN_S
        while True:
            listing = await self.manager.consumer_list(name) if wanted else []
            found = {one.value.name: one.value for one in listing}
            absent = [one.name for one in wanted if one.name not in found]
            if not absent or time.monotonic() > until_s:
                break
            await asyncio.sleep(AGAIN_AFTER_S)
        if absent:
            raise NatsctlError(f"{name} at {self.name} lacks consumers: {', '.join(absent)}")
        warnings = []
        for one in wanted:
            there, reached = found[one.name], one.progress
            floors = [max(seq, below) for seq in (there.ack_floor.stream_seq, reached.floor_sseq)]
            if floors[0] != floors[1] or there.num_ack_pending != len(reached.pending):
                warnings.append(
                    f"consumer {one.name}: ack floor {there.ack_floor.stream_seq:,}, {there.num_ack_pending:,} pending"
                    f" instead of {reached.floor_sseq:,}, {len(reached.pending):,}"
                )
        return warnings

    # -- the open stream

    async def open(self, stream: str, id: str, wanted: Mapping[str, Any]) -> None:
        """Give a closed stream its subjects and sources; one that is open stays so. Raises NatsctlError."""
        there = await self.find(stream)
        if there is None:
            raise NatsctlError(f"stream {stream} is no longer at {self.name}")
        if label_of(there.get("config") or {}) == id:
            config = {**wanted, "num_replicas": 1}
            await self.retrying.patiently(lambda: self.manager.stream_update(config))

    async def replicate(self, stream: str, wanted: dict[str, Any]) -> str:
        """Give a stream its replicas, wait until they have its messages, and return why that failed."""
        most = int(wanted["num_replicas"])
        if most < 2:
            return ""
        try:
            await self.retrying.patiently(lambda: self.manager.stream_update(wanted))
            until_s = time.monotonic() + CURRENT_WITHIN_S
            while not await self._is_current(stream, most):
                if time.monotonic() > until_s:
                    return "the replicas are not current yet"
                await asyncio.sleep(AGAIN_AFTER_S)
        except NatsctlError as failure:
            return f"replicas: {failure.text}"
        return ""

    async def _is_current(self, stream: str, most: int) -> bool:
        replicas = ((await self.find(stream) or {}).get("cluster") or {}).get("replicas") or []
        return len(replicas) >= most - 1 and all(replica.get("current") for replica in replicas)


def _unseen(done: int) -> None:
    """Ignore progress."""


async def digest_of(batches: Callable[[], Iterable[list[ArchivedMessage]]]) -> Digest:
    """Return the digest of messages, computed in another thread."""

    def read() -> Digest:
        digest = Digest()
        for batch in batches():
            digest.add(batch)
        return digest

    return await asyncio.to_thread(read)


def differences(
    wanted: Iterable[Sequence[ArchivedMessage]], found: Iterable[Sequence[ArchivedMessage]], config: Mapping[str, Any]
) -> list[str]:
    """Return the differences of messages, the first few in detail.

    Changes by the stream itself do not count: it removes expired messages and marks that, sends scheduled messages
    and replaces messages by them, and copies new messages of a mirror's origin.
    """
    there = (message for batch in found for message in batch)
    faults: list[str] = []
    absent: list[ArchivedMessage] = []
    other, last = next(there, None), 0
    for message in (message for batch in wanted for message in batch):
        last = message.seq
        while other is not None and other.seq < last:
            faults.append(f"message {other.seq:,} is too much")
            other = next(there, None)
        if other is None or other.seq != last:
            absent += [] if _is_expired(message, config) else [message]
        else:
            faults += [] if other == message else [f"message {last:,} differs"]
            other = next(there, None)
        if len(faults) + len(absent) > MAX_DIFFERENT:
            break
    more = [*([other] if other is not None else []), *islice(there, MAX_DIFFERENT)]
    sent = {headers.get(one.header, headers.SCHEDULER) for one in more} | {one.subject for one in more}
    faults += [f"message {one.seq:,} is missing" for one in absent if one.subject not in sent]
    return faults + [f"message {one.seq:,} is too much" for one in more if not _is_made_there(one, config)]


def _is_expired(message: ArchivedMessage, config: Mapping[str, Any]) -> bool:
    age_ns = int(config.get("max_age") or 0)
    if age_ns and message.ts_ns + age_ns <= time.time_ns():
        return True
    ttl_ns = parse_ttl(headers.get(message.header, headers.TTL) or b"") if message.header else 0
    return ttl_ns is None or 0 < ttl_ns <= time.time_ns() - message.ts_ns


def _is_made_there(message: ArchivedMessage, config: Mapping[str, Any]) -> bool:
    """Return whether a stream that listens on nothing has stored a message by itself."""
    made = (headers.MARKER_REASON, headers.SCHEDULER)
    return bool(config.get("mirror")) or any(headers.get(message.header, name) for name in made)
