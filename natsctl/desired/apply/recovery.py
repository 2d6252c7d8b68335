"""The end of a replacement, running or interrupted: one decision for each state of the account.

The phase of the holding stream (holding_stream.py) and the stream together determine the next step:

* `saving`: the stream was not removed. It gets its subjects back.
* `saved`, and the stream is unchanged, on the quiet subject: the same.
* `saved`, and the stream is missing, or partly restored: it is restored with the desired configuration, or with its old
  one if the server refuses that or messages would be missing.
* `saved`, and there is a stream that has everything: it was never removed.
* `saved`, and another client has created a stream of that name. The holding stream stays, and the
  command fails until one of the two is removed.
* `done`: the stream is whole, with its replicas. It gets its subjects and its consumers' replicas.

On a cluster the replicas come before the subjects: if a server dies before it is copied, the holding stream still has
everything, and the stream is restored again.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from natsctl.api.errors import ApiResponseError, ConflictError, ErrCode, NatsctlError
from natsctl.api.units import plural
from natsctl.client.asset_config import normalised
from natsctl.client.backup.archives import fitted, version_for
from natsctl.client.backup.reader import open_backup
from natsctl.client.backup.restore import IncompleteRestoreError, RestoreTransfer, release_name, restore_sent
from natsctl.client.backup.save import IDLE_S
from natsctl.client.backup.transfer import RetryingManager, ignore_progress
from natsctl.desired.apply.holding_stream import MARKER, Holding, HoldingMarker, HoldingPhase, found_in, is_at_work

WANTED: Final = "wanted"
BEFORE: Final = "before"
RELEASED_WITHIN_S: Final = 30.0
"""How long a server may reserve the name of a stream after an interrupted restore."""
CONSUMERS_WITHIN_S: Final = 10.0
"""Time limit for the consumers of a restored stream must appear on a cluster."""
CURRENT_WITHIN_S: Final = 60.0
"""Time limit for the replicas of a restored stream must copy it."""
RESTORES: Final = 3
"""The number of restores of a stream if its servers die."""
AGAIN_AFTER_S: Final = 0.5
COPY: Final = "stream.tar"
_AGES: Final = ("max_age", "allow_msg_ttl")
_LIMITS: Final = ("max_msgs", "max_bytes", "max_msgs_per_subject", "max_age", "retention", "discard")


class RecoveryResult(NamedTuple):
    """The end of a replacement: the configuration that the stream has now, and its information."""

    how: str
    info: dict[str, Any]
    warnings: tuple[str, ...] = ()
    refused: NatsctlError | None = None
    """The reason why the stream has its old configuration."""


class ReplicationError(NatsctlError):
    """The replicas of a restored stream do not receive its messages: the server that has them may have died."""


async def recover(retrying: RetryingManager, concerned: Collection[str] | None = None) -> list[str]:
    """Finish the interrupted replacements of the account; return a sentence for each.

    Raises ConflictError where another process is replacing one of the streams `concerned`, ConflictError and other
    errors if a replacement cannot be finished: its holding stream stays then.
    """
    missing: list[str] = []
    for holding in await found_in(retrying):
        name = holding.marker.stream
        if await is_at_work(retrying, holding.marker):
            text = f"{name} is being replaced by another natsctl"
            if concerned is None or name in concerned:
                raise ConflictError(text, hint="wait until that has ended, and apply again")
        else:
            text = await _recovered(retrying, holding)
        retrying.say(text)
        missing.append(text)
    return missing


async def _recovered(retrying: RetryingManager, holding: Holding) -> str:
    interrupted = f"the replacement of {holding.marker.stream} was interrupted"
    retrying.say(f"{interrupted}: finishing it")
    done = await finish(retrying, holding, WANTED)
    held = plural(int((done.info.get("state") or {}).get("messages") or 0), "message")
    texts = {
        WANTED: f"{interrupted}: finished with {held}, under its new configuration",
        BEFORE: f"{interrupted}: it is as it was before, with {held}",
    }
    refusal = f" (the new one was not possible: {done.refused.text})" if done.refused is not None else ""
    return "; ".join([texts[done.how] + refusal, *done.warnings])


async def finish(retrying: RetryingManager, holding: Holding, aim: str, copy: Path | None = None) -> RecoveryResult:
    """Finish a replacement with the desired or the previous configuration; see the module's table.

    `copy` is a file with the saved stream if there is one. Raises ConflictError, or any error that prevents the
    restore; the holding stream stays then.
    """
    marker = holding.marker
    there = await info_of(retrying, marker.stream)
    if marker.phase is not HoldingPhase.SAVING:
        how = restored_as(marker, there)
        if how and marker.phase is HoldingPhase.SAVED and await _lacking_in_the_end(retrying, marker, there or {}, how):
            await retrying.manager.stream_delete(marker.stream)
            there = None
        elif how:
            try:
                return await _released(retrying, holding, how)
            except ReplicationError:
                await retrying.manager.stream_delete(marker.stream)
                there = None
            except ApiResponseError as failure:
                if how == BEFORE:
                    raise
                done = await _put_in_place(retrying, holding, BEFORE, copy)
                return done._replace(refused=failure)
        elif marker.phase is HoldingPhase.SAVED and there is not None and not _is_untouched(marker, there):
            raise ConflictError(
                f"another stream {marker.stream} was made while {marker.stream} was replaced",
                hint=f"{marker.state.get('messages', 0):,} messages are in stream {holding.name}: remove "
                f"{marker.stream} and apply again to have them back, or remove {holding.name} to give them up",
            )
        if there is None and marker.phase is HoldingPhase.SAVED:
            return await _put_in_place(retrying, holding, aim, copy)
    await give_subjects_back(retrying, marker, there)
    await holding.remove()
    return RecoveryResult(WANTED if marker.phase is HoldingPhase.DONE else BEFORE, there or {})


async def _put_in_place(retrying: RetryingManager, holding: Holding, aim: str, copy: Path | None) -> RecoveryResult:
    """Restore the stream in the desired configuration, else in the previous one."""
    with tempfile.TemporaryDirectory(prefix="natsctl-") as folder:
        if copy is None:
            copy = Path(folder) / COPY
            await holding.read(copy)
        refused: NatsctlError | None = None
        if aim == WANTED:
            try:
                return await _restored_and_released(retrying, holding, WANTED, copy)
            except (ApiResponseError, IncompleteRestoreError) as failure:
                retrying.say(f"{holding.marker.stream} gets its old configuration back: {failure.text}")
                refused = failure
        done = await _restored_and_released(retrying, holding, BEFORE, copy)
        return done._replace(refused=refused)


async def _restored_and_released(retrying: RetryingManager, holding: Holding, how: str, copy: Path) -> RecoveryResult:
    """Restore the stream and release it; again if its server died."""
    for _ in range(RESTORES - 1):
        await _restored(retrying, holding.marker, how, copy)
        try:
            return await _released(retrying, holding, how)
        except ReplicationError as failure:
            retrying.say(f"{failure.text}: restoring it again")
            await retrying.manager.stream_delete(holding.marker.stream)
    await _restored(retrying, holding.marker, how, copy)
    return await _released(retrying, holding, how)


async def _restored(retrying: RetryingManager, marker: HoldingMarker, how: str, copy: Path) -> None:
    """Restore the stream, not yet with its subjects, and compare it with the saved state.

    It has one replica at first: otherwise an empty replica might become leader, and the stream lose its messages.
    Raises IncompleteRestoreError, with nothing left, if messages or consumers are missing.
    """
    config = quiet_config(marker, getattr(marker, how), how)
    until_s = time.monotonic() + RELEASED_WITHIN_S
    while True:
        await _clear(retrying, marker)
        try:
            with open_backup(copy) as backup:
                version = version_for(backup, config, str(retrying.manager.connection.info.get("version") or ""))
                async with fitted(backup, config, version):
                    answer = await restore_sent(retrying, RestoreTransfer(backup, config, IDLE_S, ignore_progress))
            break
        except ApiResponseError as failure:
            if failure.err_code != ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED or time.monotonic() > until_s:
                raise
        retrying.say(f"the server still waits for the rest of {marker.stream} from before")
        await asyncio.sleep(AGAIN_AFTER_S)
        await release_name(retrying.manager, marker.stream)
    if missing := await _lacking_in_the_end(retrying, marker, answer.raw, how):
        await retrying.manager.stream_delete(marker.stream)
        raise IncompleteRestoreError(
            f"{marker.stream} would lose something: {', '.join(missing)}", hint="it is as it was before"
        )


async def _lacking_in_the_end(
    retrying: RetryingManager, marker: HoldingMarker, there: Mapping[str, Any], how: str
) -> list[str]:
    """Return the missing parts of a restored stream; on a cluster its consumers appear a moment later."""
    until_s = time.monotonic() + (CONSUMERS_WITHIN_S if retrying.manager.connection.info.get("cluster") else 0)
    while missing := lacking(marker, there, how, await floors(retrying, marker)):
        if time.monotonic() >= until_s:
            break
        await asyncio.sleep(AGAIN_AFTER_S)
        there = await info_of(retrying, marker.stream) or {}
    return missing


async def _clear(retrying: RetryingManager, marker: HoldingMarker) -> None:
    """Remove the rest of a failed restore: nats-server may leave an empty stream."""
    if restored_as(marker, await info_of(retrying, marker.stream)):
        await retrying.manager.stream_delete(marker.stream)


async def _released(retrying: RetryingManager, holding: Holding, how: str) -> RecoveryResult:
    """Set the replicas of a restored stream, then its subjects, and remove the holding stream.

    Raises ApiResponseError if the server refuses the desired configuration, the stream is removed then;
    ReplicationError if too few replicas receive it.
    """
    marker, config = holding.marker, dict(getattr(holding.marker, how))
    warnings: list[str] = []
    most = int(config.get("num_replicas") or 1)
    try:
        if marker.phase is not HoldingPhase.DONE:
            if most > 1:
                await retrying.manager.stream_update({**quiet_config(marker, config, how), "num_replicas": most})
                if not await _is_copied(retrying, config):
                    raise ReplicationError(f"the replicas of {marker.stream} do not get its messages")
            await holding.mark(HoldingPhase.DONE)
        await retrying.manager.stream_update(config)
    except ApiResponseError:
        if how == WANTED:  # the restored stream goes; no client has reached it
            await holding.mark(HoldingPhase.SAVED)
            await retrying.manager.stream_delete(marker.stream)
        raise
    if most > 1 and not await _give_replicas(retrying, marker, most):
        warnings.append(f"consumers of {marker.stream} have fewer replicas than before")
    info = await info_of(retrying, marker.stream) or {}
    await holding.remove()
    return RecoveryResult(how, info, tuple(warnings))


async def _give_replicas(retrying: RetryingManager, marker: HoldingMarker, most: int) -> bool:
    """Set the replicas that consumers had of their own again; return whether that succeeded."""
    until_s = time.monotonic() + CONSUMERS_WITHIN_S
    while time.monotonic() < until_s:
        left = 0
        for info in await consumers_of(retrying, marker.stream) if marker.consumer_replicas else ():
            config, count = info.get("config") or {}, min(marker.consumer_replicas.get(str(info["name"]), 0), most)
            if int(config.get("num_replicas") or 0) >= count:
                continue
            try:
                config = {**config, "num_replicas": count}
                await retrying.manager.consumer_create(marker.stream, config, action="update")
            except ApiResponseError:  # the server that answers may not know of the stream's own replicas yet
                left += 1
        if not left:
            return True
        await asyncio.sleep(AGAIN_AFTER_S)
    return False


async def _is_copied(retrying: RetryingManager, config: Mapping[str, Any]) -> bool:
    """Wait until every replica on a live server has the stream, and return whether a majority has it."""
    until_s, most, current = time.monotonic() + CURRENT_WITHIN_S, int(config["num_replicas"]), 0
    while time.monotonic() < until_s:
        cluster = (await info_of(retrying, str(config["name"])) or {}).get("cluster") or {}
        replicas = cluster.get("replicas") or []
        there = [replica for replica in replicas if not replica.get("offline")]
        current = bool(cluster.get("leader")) + sum(bool(one.get("current")) for one in there)
        if current > most // 2 and len(replicas) >= most - 1 and all(one.get("current") for one in there):
            return True
        await asyncio.sleep(AGAIN_AFTER_S)
    return current > most // 2


def quiet_config(marker: HoldingMarker, config: Mapping[str, Any], how: str) -> dict[str, Any]:
    """Return a configuration under which no client reaches the stream, with a label for its purpose."""
    label = {**(config.get("metadata") or {}), MARKER: f"{marker.token}:{how}"}
    subjects = {} if config.get("mirror") else {"subjects": [marker.quiet]}
    return {**config, **subjects, "metadata": label, "num_replicas": 1, "sealed": False}


def restored_as(marker: HoldingMarker, there: Mapping[str, Any] | None) -> str:
    """Return the configuration under which an unreleased stream was restored, "" for others."""
    label = str((((there or {}).get("config") or {}).get("metadata") or {}).get(MARKER) or "")
    token, _, how = label.partition(":")
    return how if token == marker.token and how in (WANTED, BEFORE) else ""


def _is_untouched(marker: HoldingMarker, there: Mapping[str, Any]) -> bool:
    """Return whether a stream is still the one to replace: it has everything that was saved of it."""
    if ((there.get("config") or {}).get("subjects") or [""])[0] == marker.quiet:
        return True
    state = there.get("state") or {}
    return all(int(state.get(name) or 0) >= marker.state[name] for name in ("messages", "last_seq"))


async def give_subjects_back(retrying: RetryingManager, marker: HoldingMarker, there: Mapping[str, Any] | None) -> None:
    if ((there or {}).get("config", {}).get("subjects") or [""])[0] == marker.quiet:
        await retrying.manager.stream_update(marker.before)


def lacking(marker: HoldingMarker, there: Mapping[str, Any], how: str, now: Mapping[str, int]) -> list[str]:
    """Return the parts of the saved stream that a restored one lacks, apart from intended removals."""
    said, found = marker.state, there.get("state") or {}
    has = {name: int(found.get(name) or 0) for name in ("messages", "first_seq", "last_seq")}
    missing = [
        f"{word} {has[name]:,} instead of {said[name]:,}"
        for name, word in (("last_seq", "last sequence"), ("messages", "messages"))
        if has[name] < said.get(name, 0)
    ]
    if missing and has["last_seq"] >= said.get("last_seq", 0) and _is_explained(marker, how, has):
        missing = []
    missing += [f"consumer {name}" for name in marker.consumers if name not in now]
    return missing + [
        f"acks of consumer {name} after message {now[name]}"
        for name, floor in marker.consumers.items()
        if now.get(name, floor) < floor
    ]


def _is_explained(marker: HoldingMarker, how: str, has: Mapping[str, int]) -> bool:
    """Return whether messages are missing by age, the oldest first, or by limits that the plan has lowered."""
    before, config = normalised(marker.before), normalised(getattr(marker, how))
    stream_fields = any(before.get(name) != config.get(name) for name in _LIMITS)
    return stream_fields or (any(config.get(name) for name in _AGES) and has["first_seq"] > marker.state["first_seq"])


async def floors(retrying: RetryingManager, marker: HoldingMarker) -> dict[str, int]:
    """Return the durable consumers of the stream, each with its ack floor as a stream sequence."""
    return floors_of(await consumers_of(retrying, marker.stream))


async def consumers_of(retrying: RetryingManager, stream: str) -> list[dict[str, Any]]:
    """Return the server's information about the consumers of a stream; none if it does not exist."""
    try:
        return [one.raw for one in await retrying.manager.consumer_list(stream)]
    except ApiResponseError as failure:
        if failure.err_code != ErrCode.STREAM_NOT_FOUND:
            raise
        return []


def floors_of(infos: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the durable ones among consumers, each with its ack floor as a stream sequence."""
    return {
        info["name"]: int((info.get("ack_floor") or {}).get("stream_seq") or 0)
        for info in infos
        if (info.get("config") or {}).get("durable_name")
    }


async def info_of(retrying: RetryingManager, name: str) -> dict[str, Any] | None:
    answer = await retrying.manager.find_stream(name)
    return None if answer is None else answer.raw
