"""Migration of streams to another server: copied while clients go on, then cut over.

Servers assign sequences and times themselves, and keep given ones only in a restore. So the messages are first copied
to a folder of this machine (spool.py), as often as wanted. The cutover stops ingest at the origin, copies the rest,
restores one archive of each stream at the destination, closed, compares every message, and opens the destination. Each
stream goes through the phases of `migration_state.Phase`:

* `copying`: nothing is changed on either side.
* `stopped`: at the origin the stream listens on a subject of its own and takes nothing from sources, its consumers are
  paused; the label in its metadata has all that is needed to undo this, also from another machine. At the destination
  it may be there under the same label, not yet with its subjects.
* `verified`: it is there with every message.
* `opening`: recorded for all streams together once all are verified. Until then a failure takes everything back; from
  then on the cutover only goes forward, as clients may have published to the first of them.
* `done`: the stream has its subjects, sources and replicas at the destination. The origin stays stopped.

A killed process leaves one of these phases; the next one continues there.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from natsctl.api import endpoints
from natsctl.api.errors import ConflictError, NatsctlError
from natsctl.client.backup.account_backup import PARALLEL, ignore_overall, in_order
from natsctl.client.backup.configuration import without_server_metadata
from natsctl.client.message import DryRunError, Planned
from natsctl.client.migration.destination import MAX_FAULTS, CopiedContent, MigrationDestination, digest_of
from natsctl.client.migration.migration_state import (
    SUBJECTS,
    MigrationFolder,
    MigrationMarker,
    MigrationPhase,
    MigrationRecord,
    MigrationReport,
    StreamMoved,
    given_back,
    label_of,
    marker_of,
)
from natsctl.client.migration.origin import MigrationOrigin, continued, continued_in, reached_in
from natsctl.client.migration.spool import Kept, Spool, copy_stream, kept_of
from natsctl.client.requests import side_by_side

CAUGHT_UP: Final = 1_000
"""Maximum messages of a pass for the copy to be near enough to the end, and the maximum passes to get there."""
PASSES: Final = 10
_TAKE_BACK_HINT: Final = "--cutover finishes it, --abort takes it back"


@dataclass(frozen=True, slots=True)
class MigrationOptions:
    """Options of a run; empty `streams` are all of the account.

    With `sample` (messages of each stream) or `since_ns` the origin is not stopped, and only the newest are copied.
    """

    streams: tuple[str, ...] = ()
    sample: int = 0
    since_ns: int = 0
    parallel: int = PARALLEL

    @property
    def partial(self) -> bool:
        return bool(self.sample or self.since_ns)


class Migration:
    def __init__(
        self, origin: MigrationOrigin, destination: MigrationDestination, path: Path, options: MigrationOptions
    ) -> None:
        self.origin, self.destination, self.options = origin, destination, options
        self.folder = MigrationFolder(path, origin.name, destination.name)
        self.on_progress: Callable[[float, float], None] = ignore_overall
        """Called with the messages that are copied, or in a cutover verified, and with the number of all."""
        self._began_s = time.monotonic()
        self._done: dict[str, int] = {}
        self._total = 0
        self._verifies = False

    @property
    def _id(self) -> str:
        return self.folder.state.id

    def _record(self, name: str) -> MigrationRecord:
        return self.folder.record(name)

    def _quiet(self, name: str) -> str:
        return f"{SUBJECTS}{self._id}.{name}"

    # -- checks

    async def _chosen(self) -> dict[str, dict[str, Any]]:
        """Return the streams still to move with their information. Raises as `_check`."""
        infos = await self.origin.streams(self.options.streams)
        for name, info in infos.items():
            record = self._record(name)
            if record.phase is MigrationPhase.DONE and record.created != info.get("created"):  # it was made again
                del self.folder.state.streams[name]
        infos = {name: info for name, info in infos.items() if self._record(name).phase is not MigrationPhase.DONE}
        await self._check(infos)
        self._total = sum(int((info.get("state") or {}).get("messages") or 0) for info in infos.values())
        return infos

    async def _check(self, infos: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise ConflictError with everything that prevents the migration."""
        held: list[str] = []
        for name, info in infos.items():
            config = info.get("config") or {}
            if self.options.partial:
                config = given_back(config)
            elif (label := label_of(config)) and f'"{self._id}"' not in label:
                held.append(f"another migration has stopped {name} at {self.origin.name}")
            there = await self.destination.find(name)
            if there is not None and label_of(there.get("config") or {}) != self._id:
                left = " of an earlier migration" if marker_of(there.get("config") or {}) else ""
                held.append(f"{self.destination.name} has a stream {name}{left}")
            held += await self.destination.overlaps(name, given_back(config).get("subjects") or (), infos)
        fresh = {name: info for name, info in infos.items() if self._record(name).phase is MigrationPhase.COPYING}
        held += await self.destination.refusals(fresh, partial=self.options.partial)
        if held:
            more = f"; and {len(held) - MAX_FAULTS} more" if len(held) > MAX_FAULTS else ""
            raise ConflictError("; ".join(held[:MAX_FAULTS]) + more, hint="nothing was changed")

    def _preview(self, infos: Mapping[str, Mapping[str, Any]], *, cutover: bool) -> None:
        """Raise DryRunError with the changes in a dry run."""
        if not self.origin.manager.connection.dry_run:
            return
        states = [info.get("state") or {} for info in infos.values()]
        effect: dict[str, Any] = {"origin": self.origin.name, "destination": self.destination.name}
        effect |= {name: sum(int(state.get(name) or 0) for state in states) for name in ("messages", "bytes")}
        raise DryRunError(*self._planned(infos, cutover), effect={**effect, "streams": sorted(infos)})

    def _planned(self, infos: Mapping[str, Mapping[str, Any]], cutover: bool) -> Iterator[Planned]:
        out, into = (side.manager.connection.target.api_prefix for side in (self.origin, self.destination))
        for name, info in infos.items():
            wanted = self.destination.wanted(without_server_metadata(given_back(info.get("config") or {})))
            if cutover:
                stopped = {"name": name, "subjects": [self._quiet(name)]}
                yield Planned(endpoints.STREAM_UPDATE.subject(name, prefix=out), stopped)
            if cutover or self.options.partial:
                yield Planned(endpoints.STREAM_RESTORE.subject(name, prefix=into), {"config": wanted})

    # -- copying

    async def copy(self) -> MigrationReport:
        """Copy the messages of every stream to the folder, while clients go on; nothing else is changed."""
        if waiting := self.folder.streams_in(MigrationPhase.STOPPED, MigrationPhase.VERIFIED, MigrationPhase.OPENING):
            names = ", ".join(waiting[:MAX_FAULTS])
            raise ConflictError(f"the cutover of {names} was interrupted", hint=_TAKE_BACK_HINT)
        infos = await self._chosen()
        self._preview(infos, cutover=False)
        self.folder.save()
        await side_by_side(self._copy_one, infos, self.options.parallel)
        return self._report("copied", infos)

    async def _copy_one(self, name: str) -> None:
        with self.folder.spool(name) as spool:
            for _ in range(PASSES):
                before = spool.messages
                info = await self._pass(name, spool)
                if spool.messages - before < CAUGHT_UP:
                    break
            state, config = info.get("state") or {}, info.get("config") or {}
            now = (await self.origin.info(name)).get("state") or {}
            self._record(name).moved = StreamMoved(
                stream=name,
                messages=int(state.get("messages") or 0),
                bytes=int(state.get("bytes") or 0),
                behind=max(0, int(now.get("last_seq") or 0) - spool.reached),
                first_seq=int(state.get("first_seq") or 0),
                last_seq=spool.reached,
                first_ts=str(state.get("first_ts") or ""),
                last_ts=str(state.get("last_ts") or ""),
                consumers=int(state.get("consumer_count") or 0),
                replicas=int(self.destination.wanted(config)["num_replicas"]),
            )
            self.folder.save()

    async def _pass(self, name: str, spool: Spool) -> dict[str, Any]:
        """Copy a stream up to its present end; a recreated stream is copied from its beginning."""
        record = self._record(name)
        created = str((await self.origin.info(name)).get("created") or "")
        if record.created != created:
            spool.clear()
            record.created = created
            self.folder.save()
        if self.options.partial and not spool.reached:
            spool.start_at(await self.origin.first_of(name, self.options.sample, self.options.since_ns))
        return await copy_stream(self.origin.retrying, name, spool, lambda _: self._at(name, spool.messages))

    def _at(self, name: str, messages: int, *, verified: bool = False) -> None:
        if verified == self._verifies:
            self._done[name] = messages
            self.on_progress(sum(self._done.values()), max(self._total, sum(self._done.values())))

    async def take_sample(self) -> MigrationReport:
        """Make the newest messages of every stream, and its consumers, a stream at the destination."""
        if opening := self.folder.streams_in(MigrationPhase.OPENING):
            return await self._sampled(opening)
        infos = await self._chosen()
        self._preview(infos, cutover=False)
        self.folder.save()
        for name in infos:
            shutil.rmtree(self.folder.place(name), ignore_errors=True)
        try:
            await self._restore_all(infos)
        except BaseException:
            await self._undo(infos)
            raise
        return await self._sampled(infos)

    async def _sampled(self, names: Iterable[str]) -> MigrationReport:
        report = await self._open_all(names, "sampled")
        self.folder.clear()
        return report

    # -- the cutover

    async def cut_over(self) -> MigrationReport:
        """Stop ingest at the origin, copy the rest, verify, and open the destination; or take everything back."""
        if opening := self.folder.streams_in(MigrationPhase.OPENING):
            return await self._open_all(opening, "moved")
        interrupted = self.folder.streams_in(MigrationPhase.STOPPED, MigrationPhase.VERIFIED)
        infos = await self._chosen()
        if unnamed := [name for name in interrupted if name not in infos]:
            raise ConflictError(
                f"the cutover of {', '.join(unnamed[:MAX_FAULTS])} was interrupted", hint="name it too, or --abort"
            )
        self._preview(infos, cutover=True)
        self.folder.save()
        if not interrupted:
            await side_by_side(self._copy_one, infos, self.options.parallel)
            self.folder.state.stopped_ns = time.time_ns()
        try:
            for name in infos:
                record = self._record(name)
                record.phase = MigrationPhase.STOPPED if record.phase is MigrationPhase.COPYING else record.phase
            self.folder.save()
            await side_by_side(self._stop, self.folder.streams_in(MigrationPhase.STOPPED), len(infos))
            await self._restore_all(infos)
        except BaseException:
            await self._undo(infos)
            raise
        return await self._open_all(infos, "moved")

    async def _stop(self, name: str) -> None:
        config = await self.origin.stop(name, self._id, self._quiet(name), self.destination.name)
        self._record(name).config = config
        self.folder.save()

    async def _restore_all(self, infos: Mapping[str, Mapping[str, Any]]) -> None:
        """Restore and verify every stream, copied streams before their copies."""
        self._done, self._verifies = {}, not self.options.partial
        groups, circle = in_order({name: info.get("config") or {} for name, info in infos.items()})
        for group in [*groups, circle]:
            await side_by_side(self._restore_one, group, self.options.parallel)

    async def _restore_one(self, name: str) -> None:
        """Copy the rest of a stream, restore it at the destination, and compare both."""
        record, side = self._record(name), self.destination
        if record.phase is MigrationPhase.VERIFIED:
            return
        if self.options.partial:
            info = await self.origin.info(name)
            record.config = without_server_metadata(given_back(info.get("config") or {}))
            record.config = continued(record.config, reached_in(info))
        with self.folder.spool(name) as spool:
            content, warnings = await self._content(name, spool)
            record.config = await asyncio.to_thread(continued_in, record.config, spool, content.kept)
            wanted = side.wanted(record.config)
            await side.remove(name, self._id)
            await side.restore(content, side.closed(wanted, self._id, self._quiet(name)), self.folder.place(name))
            await side.compare(name, content, record.config, self.folder.place(name))
            moved = content.summary(wanted)
            moved.warnings = warnings + await side.compare_consumers(name, content)
        record.moved, record.phase = moved, MigrationPhase.VERIFIED
        self.folder.save()
        self._at(name, moved.messages, verified=True)

    async def _content(self, name: str, spool: Spool) -> tuple[CopiedContent, list[str]]:
        """Return the contents of the stream, and warnings about parts that are not moved."""
        kept, info = await self._rest(name, spool)
        expected = await digest_of(lambda: spool.batches(kept))
        if not self.options.partial and expected.messages != int((info.get("state") or {}).get("messages") or 0):
            spool.clear()  # removed while they were copied, and not listed
            kept, info = await self._rest(name, spool)
            expected = await digest_of(lambda: spool.batches(kept))
        consumers, warnings = await self.origin.consumers(name, spool, kept)
        return CopiedContent(spool, kept, expected, info, consumers), warnings

    async def _rest(self, name: str, spool: Spool) -> tuple[Kept, dict[str, Any]]:
        """Copy until nothing is missing, and return the sequences that the stream has and its information."""
        for _ in range(PASSES):
            await self._pass(name, spool)
            found = await kept_of(self.origin.manager, name, spool)
            if found is None:
                spool.clear()
                info = await self._pass(name, spool)
                removed = [seq for segment in spool.segments for seq in segment.gone]
                first = int((info.get("state") or {}).get("first_seq") or 0)
                return Kept(max(first, 1), spool.reached, removed), info
            kept, info = found
            if spool.reached >= kept.last_seq or self.options.partial or (info.get("config") or {}).get("mirror"):
                break
        kept.last_seq = min(kept.last_seq, spool.reached)
        return kept, info

    async def _undo(self, names: Iterable[str]) -> None:
        """Leave both sides as they were; --abort can finish what fails here."""
        for name in names:
            try:
                await self._take_back(name)
            except NatsctlError as failure:
                self.origin.retrying.say(f"{name} was not taken back, --abort does it: {failure.text}")

    async def _take_back(self, name: str) -> None:
        """Remove a closed stream from the destination, and release the origin's."""
        for side in (self.origin, self.destination):
            await side.retrying.renew()
        await self.destination.remove(name, self._id)
        if not self.options.partial:
            await self.origin.release(name, self._id)
        self._record(name).phase = MigrationPhase.COPYING
        self.folder.save()

    async def abort(self) -> MigrationReport:
        """Revert an interrupted cutover, also one from another folder or machine."""
        own = self.folder.streams_in(MigrationPhase.STOPPED, MigrationPhase.VERIFIED)
        moved = self.folder.streams_in(MigrationPhase.OPENING, MigrationPhase.DONE)
        stopped = {name: marker for name, marker in (await self.origin.stopped()).items() if name not in moved}
        if stopped and not own:
            self.folder.state.id = self._stopped_for_here(stopped)
        names = sorted({*own, *(name for name, marker in stopped.items() if marker.id == self._id)})
        found = [(name, await self.destination.find(name)) for name in names]
        opened = [name for name, there in found if there and label_of(there.get("config") or {}) != self._id]
        if opened := self.folder.streams_in(MigrationPhase.OPENING) + opened or (moved if not names else []):
            names_open = ", ".join(opened[:MAX_FAULTS])
            raise ConflictError(
                f"{self.destination.name} is open: clients may have published to {names_open} there",
                hint="--cutover finishes an interrupted migration; the way back is another one, from there to here",
            )
        if self.origin.manager.connection.dry_run:
            raise DryRunError(effect={"streams": names})
        for name in names:
            await self._take_back(name)
        return self._report("taken back", names)

    def _stopped_for_here(self, stopped: Mapping[str, MigrationMarker]) -> str:
        """Return the id of the migration to this destination that has stopped streams; raises ConflictError.

        Streams that were stopped for another destination may be open there, and clients publish to them.
        """
        side = self.destination.name
        found = next((marker.id for marker in stopped.values() if marker.destination == side), None)
        if found is None:
            name, marker = next(iter(stopped.items()))
            raise ConflictError(
                f"{name} was stopped to be moved to {marker.destination}, not to {side}",
                hint=f"--to {marker.destination} takes that back",
            )
        return found

    # -- the end

    async def _open_all(self, names: Iterable[str], action: str) -> MigrationReport:
        chosen, state = sorted(names), self.folder.state
        for name in chosen:
            self._record(name).phase = MigrationPhase.OPENING
        self.folder.save()
        await side_by_side(self._open, chosen, len(chosen))
        pause = time.time_ns() - state.stopped_ns if state.stopped_ns else 0
        await side_by_side(self._replicate, chosen, self.options.parallel)
        for name in chosen:
            self._record(name).phase = MigrationPhase.DONE
            shutil.rmtree(self.folder.place(name), ignore_errors=True)
        state.stopped_ns = 0
        self.folder.save()
        report = self._report(action, chosen)
        report.pause = pause
        return report

    async def _open(self, name: str) -> None:
        await self.destination.open(name, self._id, self.destination.wanted(self._record(name).config))

    async def _replicate(self, name: str) -> None:
        record = self._record(name)
        why = await self.destination.replicate(name, self.destination.wanted(record.config))
        if why and record.moved is not None:
            record.moved.warnings.append(why)

    def _report(self, action: str, names: Iterable[str]) -> MigrationReport:
        found = []
        for name in sorted(names):
            record = self._record(name)
            moved = record.moved or StreamMoved(stream=name)
            moved.phase = record.phase
            found.append(moved)
        return MigrationReport(
            action=action,
            origin=self.origin.name,
            destination=self.destination.name,
            folder=str(self.folder.path),
            streams=found,
            messages=sum(one.messages for one in found),
            elapsed=int((time.monotonic() - self._began_s) * 1e9),
        )
