"""Replacements that were interrupted: brought to their end before anything else is planned.

What a folder (safekeeping.py) and the account say together leaves one thing to do each time:

* the stream listens on the quiet subject: it was being saved. It gets its subjects back.
* the stream is not there, and its backup is whole: it had been removed. It is restored, under the configuration that
  was wanted, or under its old one where the server refuses that.
* the stream is there and lacks nothing of the backup: the replacement was done, or put back.
* the stream is there and lacks messages of the backup: somebody else has made it. The backup stays, and is told of.
* there is no whole backup: nothing had been removed yet.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Final

from natsctl.api.errors import ApiFailure
from natsctl.api.units import plural
from natsctl.client.answer import Answer
from natsctl.client.backup.attempts import Lifeline
from natsctl.client.backup.compare import NotWhole, lacking
from natsctl.client.backup.opened import open_backup
from natsctl.client.backup.restore import NAME_HELD, STREAM_NOT_FOUND, RestoreOptions, restore_stream
from natsctl.plan.apply.keeping import give_subjects_back, losses, lost_consumers, whereabouts
from natsctl.plan.apply.leftovers import MARKER
from natsctl.plan.apply.safekeeping import Safekeeping, found_in

GIVEN_UP_WITHIN_S: Final = 30.0
AGAIN_AFTER_S: Final = 1.0


async def recover(lifeline: Lifeline, parent: Path) -> list[str]:
    """Bring interrupted replacements of this account to their end; a sentence for each, also told as it is done.

    Folders of other accounts are told and left alone, unless `parent` is the very folder. Raises NatsctlError, and
    leaves the folder, where one can not be brought to an end.
    """
    told: list[str] = []
    found = list(found_in(parent))
    here = await whereabouts(lifeline) if found else None
    for kept in found:
        named = (parent / MARKER).is_file()
        if here is None or not (named or here.is_same(kept.marker.where)):
            text = f"an interrupted replacement of {kept.marker.stream} on another server is in {kept.folder}"
            kept.release()
        else:
            text = await _recover(lifeline, kept)
        lifeline.say(text)
        told.append(text)
    return told


def pending(parent: Path) -> list[str]:
    """A sentence for each interrupted replacement that the next apply would bring to its end."""
    told = []
    for kept in found_in(parent):
        told.append(f"the replacement of {kept.marker.stream} was interrupted: apply begins with {kept.folder}")
        kept.release()
    return told


async def _recover(lifeline: Lifeline, kept: Safekeeping) -> str:
    try:
        return await _brought_to_an_end(lifeline, kept)
    except BaseException:
        kept.release()
        raise


async def _brought_to_an_end(lifeline: Lifeline, kept: Safekeeping) -> str:
    name, manager = kept.marker.stream, lifeline.manager
    interrupted = f"the replacement of {name} was interrupted"
    if await give_subjects_back(manager, kept.marker):
        kept.discard()
        return f"{interrupted} before it was removed: it takes messages again as before"
    there = await _info(lifeline, name)
    if not kept.is_saved:
        kept.discard()
        return f"{interrupted} before it was saved: a half-written backup was removed"
    if there is None:
        return await _restored(lifeline, kept, interrupted)
    if _is_whole(kept, there):
        kept.discard()
        return f"{interrupted} when it was done: its backup was removed"
    kept.keep_copy()
    return (
        f"{interrupted}, and somebody else has made {name} meanwhile: what it held is in {kept.copy}, "
        f"natsctl stream restore {kept.copy} --on-existing replace brings it back"
    )


async def _info(lifeline: Lifeline, name: str) -> Answer[Any] | None:
    try:
        return await lifeline.manager.stream_info(name)
    except ApiFailure as failure:
        if failure.err_code != STREAM_NOT_FOUND:
            raise
        return None


def _is_whole(kept: Safekeeping, there: Answer[Any]) -> bool:
    """Whether a stream has come from the backup and lost nothing but what its limits remove."""
    with open_backup(kept.copy) as backup:
        said, found = backup.state, there.raw.get("state") or {}
        if int(found.get("last_seq") or 0) < int(said.get("last_seq") or 0):
            return False
        try:
            lacking(backup, there.raw.get("config") or {}, there)
        except NotWhole:
            return False
    return True


async def _restored(lifeline: Lifeline, kept: Safekeeping, interrupted: str) -> str:
    """Restore a stream that had been removed, and keep the backup where anything is missing."""
    name = kept.marker.stream
    lifeline.say(f"{interrupted} and it is not there: restoring it from {kept.copy}")
    how = "under its new configuration"
    config = kept.marker.wanted
    try:
        answer = await _restore(lifeline, kept, config)
    except ApiFailure as failure:
        if failure.err_code == NAME_HELD:
            raise
        lifeline.say(f"the server refuses the new configuration of {name}: {failure.text}")
        how, config = "as it was before", kept.marker.before
        answer = await _restore(lifeline, kept, config)
    held = plural(int((answer.raw.get("state") or {}).get("messages") or 0), "message")
    text = f"{interrupted}: restored with {held}, {how}"
    if wrong := [*losses(kept, config, answer), *await lost_consumers(lifeline, kept.marker)]:
        kept.keep_copy()
        return f"{text}; {'; '.join(wrong)}; the backup stays in {kept.copy}"
    kept.discard()
    return text


async def _restore(lifeline: Lifeline, kept: Safekeeping, config: dict[str, Any]) -> Answer[Any]:
    """Restore, once the server no longer waits for what the interrupted process was sending."""
    until_s = time.monotonic() + GIVEN_UP_WITHIN_S
    while True:
        try:
            return (await restore_stream(lifeline, kept.copy, RestoreOptions(config=config))).answer
        except NotWhole:
            return await lifeline.manager.stream_info(kept.marker.stream)
        except ApiFailure as failure:
            if failure.err_code != NAME_HELD or time.monotonic() > until_s:
                raise
        lifeline.say(f"the server still waits for the rest of {kept.marker.stream} from before")
        await asyncio.sleep(AGAIN_AFTER_S)
