"""A stream replaced with its messages and consumers: saved, removed, restored under another configuration.

Publishers must not get acks for messages that come after the backup, so that the stream first leaves its subjects for
one that nobody knows; they are told that nobody listens until the new stream does. What is saved says the subjects
that the stream had. From the marker on disk (safekeeping.py) a later run can tell how far an interrupted replacement
got (recovery.py).
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from natsctl.api import endpoints
from natsctl.api.errors import ApiFailure, NatsctlError
from natsctl.api.units import plural
from natsctl.client.account import user_info
from natsctl.client.answer import Answer
from natsctl.client.backup.aside import aside
from natsctl.client.backup.attempts import Lifeline
from natsctl.client.backup.compare import NotWhole, lacking
from natsctl.client.backup.opened import open_backup
from natsctl.client.backup.progress import silent
from natsctl.client.backup.restore import NotPutBack, restore_over
from natsctl.client.backup.rewrite import fitted, version_for
from natsctl.client.backup.save import IDLE_S, SaveOptions, save_stream
from natsctl.client.backup.send import Sending
from natsctl.client.backup.verify import verify
from natsctl.client.preview import Planned, Previewed
from natsctl.plan.apply.conflict import PLAN_AGAIN, Conflict
from natsctl.plan.apply.execution import Done
from natsctl.plan.apply.leftovers import QUIET
from natsctl.plan.apply.safekeeping import Marker, Safekeeping, Where, begin, where_is
from natsctl.plan.apply.sent import merged_config
from natsctl.plan.change import Change
from natsctl.plan.labels import without_server_made


class Keeping:
    """Replaces streams one at a time or side by side, each by way of a folder below `parent`."""

    def __init__(self, lifeline: Lifeline, parent: Path, *, keep_backup: bool = False) -> None:
        self._lifeline, self._parent, self._keep_backup = lifeline, parent, keep_backup
        self._where: Where | None = None

    async def replace(self, change: Change, live: dict[str, Any]) -> Done:
        """Replace a stream; after a failure it is as it was before, or its backup is told of.

        In a dry run raises Previewed with the requests.
        """
        if self._lifeline.manager.connection.dry_run:
            raise _preview(change, live, self._lifeline.manager.connection.target.api_prefix)
        kept = begin(self._parent, await self._marker(change, live))
        try:
            await self._save(kept)
            answer, said = await self._restore(kept)
        except NotPutBack:
            kept.release()
            raise
        except BaseException:
            await self._take_back(kept)
            raise
        return self._ended(kept, answer, await lost_consumers(self._lifeline, kept.marker), said)

    async def _marker(self, change: Change, live: dict[str, Any]) -> Marker:
        before = without_server_made(live.get("config") or {})
        found = await _floors(self._lifeline, change.stream)
        return Marker(
            created=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            where=await self._here(),
            stream=change.stream,
            quiet=f"{QUIET}{secrets.token_hex(8)}" if takes_messages(before) else "",
            before=before,
            wanted=merged_config(change, before),
            consumers=found,
        )

    async def _here(self) -> Where:
        if self._where is None:
            self._where = await whereabouts(self._lifeline)
        return self._where

    async def _save(self, kept: Safekeeping) -> None:
        """Have the stream take no more messages, and save it to its last one."""
        marker, lifeline = kept.marker, self._lifeline
        lifeline.say(f"{marker.stream} is saved to {kept.folder} while it is replaced")
        if marker.quiet:
            await lifeline.manager.stream_update({**marker.before, "subjects": [marker.quiet]})
        await save_stream(lifeline, marker.stream, kept.copy, SaveOptions(config=marker.before))
        verdict = await aside(lambda on_read: verify(kept.copy, on_read), _unseen)
        if not verdict.whole:
            wrong = "; ".join(check.detail for check in verdict.checks if not check.ok)
            raise NotWhole(f"the backup of {marker.stream} is not whole: {wrong}", hint="nothing was replaced")
        await self._check_untouched(kept)

    async def _check_untouched(self, kept: Safekeeping) -> None:
        """Raise Conflict where somebody has had the stream take messages again that the backup has not."""
        marker = kept.marker
        info = (await self._lifeline.manager.stream_info(marker.stream)).raw
        with open_backup(kept.copy) as backup:
            saved = int(backup.state.get("last_seq") or 0)
        fed = marker.before.get("sources") or marker.before.get("mirror")  # what they bring, they bring again
        came = int((info.get("state") or {}).get("last_seq") or 0) > saved and not fed
        if came or (marker.quiet and (info.get("config") or {}).get("subjects") != [marker.quiet]):
            raise Conflict(f"somebody else has changed {marker.stream} while it was saved", hint=PLAN_AGAIN)

    async def _restore(self, kept: Safekeeping) -> tuple[Answer[Any], list[str]]:
        """The stream under its new configuration, and what of it is not as it was, with the reason."""
        marker, connection = kept.marker, self._lifeline.manager.connection
        with open_backup(kept.copy) as backup:
            version = version_for(backup, marker.wanted, str(connection.info.get("version") or ""))
            async with fitted(backup, marker.wanted, version):
                sending = Sending(backup, marker.wanted, IDLE_S, silent)
                answer = await restore_over(self._lifeline, sending, kept.copy)
        return answer, losses(kept, marker.wanted, answer)

    async def _take_back(self, kept: Safekeeping) -> None:
        """Have the stream be as it was, and leave no folder where that has come about."""
        try:
            await give_subjects_back(await self._lifeline.renew(), kept.marker)
        except NatsctlError as failure:
            self._lifeline.say(f"{kept.folder} stays, the next apply begins with it: {failure.text}")
            kept.release()
        else:
            kept.discard()

    def _ended(self, kept: Safekeeping, answer: Answer[Any], lost: list[str], said: list[str]) -> Done:
        """What is to be said of a replacement; the backup goes where nothing is missing."""
        state = answer.raw.get("state") or {}
        warnings = [*said, *lost]
        detail = f"kept {plural(int(state.get('messages') or 0), 'message')}"
        if warnings or self._keep_backup:
            kept.keep_copy()
            return Done(f"{detail}; the backup is in {kept.copy}", tuple(warnings))
        kept.discard()
        return Done(detail)


async def whereabouts(lifeline: Lifeline) -> Where:
    """The account that is worked on."""
    manager = lifeline.manager
    data = await user_info(manager)
    return where_is(manager.connection, str(data.get("account_name") or data.get("account") or ""))


def losses(kept: Safekeeping, config: dict[str, Any], answer: Answer[Any]) -> list[str]:
    """What a restored stream has less than its backup, sentences."""
    with open_backup(kept.copy) as backup:
        try:
            return lacking(backup, config, answer)
        except NotWhole as failure:
            return [failure.text]


async def lost_consumers(lifeline: Lifeline, marker: Marker) -> list[str]:
    """A sentence for each durable consumer that did not come back with its stream, or not to where it was."""
    there = await _floors(lifeline, marker.stream)
    lost = [f"consumer {name} did not come back" for name in marker.consumers if name not in there]
    behind = {name: seq for name, seq in marker.consumers.items() if there.get(name, seq) < seq}
    return lost + [f"consumer {name} was at message {seq}, it is at {there[name]}" for name, seq in behind.items()]


async def _floors(lifeline: Lifeline, stream: str) -> dict[str, int]:
    """The durable consumers of a stream, and up to which message each has had its acks."""
    infos = [one.raw for one in await lifeline.manager.consumer_list(stream)]
    return {
        info["name"]: int((info.get("ack_floor") or {}).get("stream_seq") or 0)
        for info in infos
        if (info.get("config") or {}).get("durable_name")
    }


async def give_subjects_back(manager: Any, marker: Marker) -> bool:
    """Have a stream that was to be replaced listen on its own subjects again; whether it did not."""
    try:
        config = (await manager.stream_info(marker.stream)).raw.get("config") or {}
    except ApiFailure:
        return False
    if not marker.quiet or config.get("subjects") != [marker.quiet]:
        return False
    await manager.stream_update(marker.before)
    return True


def takes_messages(config: dict[str, Any]) -> bool:
    """Whether anybody can publish to a stream."""
    return bool(config.get("subjects")) and not config.get("sealed")


def _preview(change: Change, live: dict[str, Any], prefix: str) -> Previewed:
    """What would be sent: the subjects taken away, the backup, the removal, the restore."""
    before, name = without_server_made(live.get("config") or {}), change.stream
    planned = [
        Planned(endpoints.STREAM_SNAPSHOT.subject(name, prefix=prefix), {"deliver_subject": "_INBOX.>"}),
        Planned(endpoints.STREAM_DELETE.subject(name, prefix=prefix)),
        Planned(
            endpoints.STREAM_RESTORE.subject(name, prefix=prefix),
            {"config": merged_config(change, before), "state": live.get("state")},
        ),
    ]
    if takes_messages(before):
        quiet = {**before, "subjects": [f"{QUIET}*"]}
        planned.insert(0, Planned(endpoints.STREAM_UPDATE.subject(name, prefix=prefix), quiet))
    return Previewed(*planned)


def _unseen(done: int) -> None:
    """Show nothing."""
