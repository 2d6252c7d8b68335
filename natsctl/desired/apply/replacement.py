"""Replacement of a stream with its messages and consumers: saved, removed, restored with another configuration.

Publishers must not get acks for messages that come after the backup, so the stream first moves from its subjects to a
secret one: from then on nothing listens there until the new stream does. The backup goes into a holding stream of the
account (holding_stream.py). Any later run can finish an interrupted replacement from there (recovery.py).
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from natsctl.api import endpoints
from natsctl.api.errors import ConflictError, NatsctlError, file_errors
from natsctl.api.units import plural
from natsctl.client.backup.archives import run_in_thread
from natsctl.client.backup.discovery import verify
from natsctl.client.backup.reader import open_backup
from natsctl.client.backup.restore import IncompleteRestoreError
from natsctl.client.backup.save import SaveOptions, save_stream
from natsctl.client.backup.transfer import RetryingManager
from natsctl.client.message import DryRunError, Planned
from natsctl.desired.apply.changes import PLAN_AGAIN, merged_config
from natsctl.desired.apply.execution import Done
from natsctl.desired.apply.holding_stream import SUBJECTS, Heartbeat, Holding, HoldingMarker, holding_name
from natsctl.desired.apply.recovery import BEFORE, COPY, WANTED, RecoveryResult, consumers_of, finish, floors, floors_of
from natsctl.desired.assets import without_server_made
from natsctl.desired.plan import Change


class Replacement:
    """The replacement of streams, also several at once; backups that are to be kept go to `parent`."""

    def __init__(self, retrying: RetryingManager, parent: Path, *, keep_backup: bool = False) -> None:
        self._retrying, self._parent, self._keep_backup = retrying, parent, keep_backup

    async def replace(self, change: Change, live: dict[str, Any]) -> Done:
        """Replace a stream; after a failure it is as before, or the error names its holding stream.

        In a dry run raises DryRunError with the requests.
        """
        retrying = self._retrying
        if retrying.manager.connection.dry_run:
            raise _preview(change, live, retrying.manager.connection.target.api_prefix)
        marker = await self._marker(change, live)
        alive = Heartbeat(retrying, marker.alive)
        await alive.ensure()
        try:
            return await self._replace(Holding(retrying, marker), alive)
        finally:
            await alive.end()

    async def _replace(self, holding: Holding, alive: Heartbeat) -> Done:
        marker, retrying = holding.marker, self._retrying
        await holding.create()
        with tempfile.TemporaryDirectory(prefix="natsctl-") as folder:
            copy = Path(folder) / COPY
            try:
                await self._save(holding, copy)
                await alive.ensure()
                await retrying.manager.stream_delete(marker.stream)
                done = await finish(retrying, holding, WANTED, copy)
            except BaseException:
                await self._take_back(holding, copy, alive)
                raise
            if done.refused is not None:
                raise done.refused
            return self._ended(marker, done, copy)

    async def _marker(self, change: Change, live: dict[str, Any]) -> HoldingMarker:
        before = without_server_made(live.get("config") or {})
        marker = HoldingMarker(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            token=secrets.token_hex(8),
            stream=change.stream,
            alive=self._retrying.manager.connection.new_inbox(),
            before=before,
            wanted=without_server_made(merged_config(change, before)),
        )
        infos = await consumers_of(self._retrying, change.stream)
        marker.consumers = floors_of(infos)
        replicas = {str(info["name"]): int((info.get("config") or {}).get("num_replicas") or 0) for info in infos}
        marker.consumer_replicas = {name: count for name, count in replicas.items() if count > 1}
        return marker

    async def _save(self, holding: Holding, copy: Path) -> None:
        """Move the stream off its subjects, and save it to its last message."""
        marker, retrying = holding.marker, self._retrying
        retrying.say(f"{marker.stream} is saved to stream {holding.name} while it is replaced")
        if takes_messages(marker.before):
            await retrying.manager.stream_update({**marker.before, "subjects": [marker.quiet]})
        await save_stream(retrying, marker.stream, copy, SaveOptions(config=marker.before))
        verdict = await run_in_thread(lambda on_read: verify(copy, on_read), _unseen)
        if not verdict.whole:
            wrong = "; ".join(check.detail for check in verdict.checks if not check.ok)
            raise IncompleteRestoreError(
                f"the backup of {marker.stream} is not whole: {wrong}", hint="nothing was replaced"
            )
        with open_backup(copy) as backup:
            state = dict(backup.state)
        marker.consumers = await floors(retrying, marker)
        await holding.fill(copy, state)
        await self._check_untouched(marker)

    async def _check_untouched(self, marker: HoldingMarker) -> None:
        """Raise ConflictError if another client let the stream take messages that the backup does not have."""
        info = (await self._retrying.manager.stream_info(marker.stream)).raw
        fed = marker.before.get("sources") or marker.before.get("mirror")  # their messages come again
        came = int((info.get("state") or {}).get("last_seq") or 0) > marker.state["last_seq"] and not fed
        listens = (info.get("config") or {}).get("subjects")
        if came or (takes_messages(marker.before) and listens != [marker.quiet]):
            raise ConflictError(f"another client has changed {marker.stream} while it was saved", hint=PLAN_AGAIN)

    async def _take_back(self, holding: Holding, copy: Path, alive: Heartbeat) -> None:
        """Restore the stream's configuration, and remove the holding stream if that succeeded."""
        try:
            await self._retrying.renew()
            await alive.ensure()
            await finish(self._retrying, holding, BEFORE, copy if copy.is_file() else None)
        except NatsctlError as failure:
            self._retrying.say(f"stream {holding.name} stays, the next apply begins with it: {failure.text}")

    def _ended(self, marker: HoldingMarker, done: RecoveryResult, copy: Path) -> Done:
        state = done.info.get("state") or {}
        detail = f"kept {plural(int(state.get('messages') or 0), 'message')}"
        if self._keep_backup:
            detail += f"; the backup is {self._kept(marker.stream, copy)}"
        return Done(detail, done.warnings)

    def _kept(self, stream: str, copy: Path) -> Path:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
        path = self._parent / f"{holding_name(quote(stream, safe=''))}-{stamp}.tar"
        with file_errors(f"cannot write {path}"):
            self._parent.mkdir(parents=True, exist_ok=True)
            shutil.move(copy, path)
        return path


def takes_messages(config: dict[str, Any]) -> bool:
    return bool(config.get("subjects")) and not config.get("sealed")


def _preview(change: Change, live: dict[str, Any], prefix: str) -> DryRunError:
    """Return the requests: the holding stream, the subjects taken away, the backup, the removal, the restore."""
    before, name = without_server_made(live.get("config") or {}), change.stream
    holding = holding_name(name)
    restored = {"config": merged_config(change, before), "state": live.get("state")}
    made = {"name": holding, "subjects": [f"{SUBJECTS}*"]}
    planned = [
        Planned(endpoints.STREAM_CREATE.subject(holding, prefix=prefix), made),
        Planned(endpoints.STREAM_SNAPSHOT.subject(name, prefix=prefix), {"deliver_subject": "_INBOX.>"}),
        Planned(endpoints.STREAM_DELETE.subject(name, prefix=prefix)),
        Planned(endpoints.STREAM_RESTORE.subject(name, prefix=prefix), restored),
        Planned(endpoints.STREAM_DELETE.subject(holding, prefix=prefix)),
    ]
    if takes_messages(before):
        quiet = {**before, "subjects": [f"{SUBJECTS}*"]}
        planned.insert(1, Planned(endpoints.STREAM_UPDATE.subject(name, prefix=prefix), quiet))
    return DryRunError(*planned)


def _unseen(done: int) -> None:
    """Ignore progress (the default callback)."""
