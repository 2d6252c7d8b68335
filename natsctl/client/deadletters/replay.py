"""Publishing dead letters again, and removing them.

A replay goes on after it was killed. For each message the order is: publish, remove the original on work-queue and
interest streams, remove the advisories, remove the copies. Until the advisories are removed a further run publishes the
message, or its copy, with the same Nats-Msg-Id, and the stream recognizes it within its duplicate window. Copies that
are left without an advisory are removed by the next run. A message that several
consumers gave up is published once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec

from natsctl.api.errors import ApiResponseError, ErrCode
from natsctl.client.deadletters.capture import EVERY_STREAM, CaptureStream, capture_streams, copies_of
from natsctl.client.deadletters.letters import (
    AT_ONCE,
    DeadLetter,
    FailedMessage,
    LetterSource,
    is_counter,
    letters_in,
    replay_headers,
)
from natsctl.client.manager import Manager
from natsctl.client.message import DryRunError, Planned
from natsctl.client.messaging.messages import publish
from natsctl.client.requests import side_by_side

_CONSUMED: Final = ("workqueue", "interest")
"""Retention policies under which a message is removed when its consumers are done with it."""
_MISSING: Final = frozenset((ErrCode.NO_MESSAGE_FOUND, ErrCode.SEQUENCE_NOT_FOUND, ErrCode.STREAM_NOT_FOUND))


class SkippedMessage(msgspec.Struct):
    """A message that was not replayed or not removed, and why."""

    stream: str
    seq: int
    reason: str


class ReplayReport(msgspec.Struct):
    """Outcome of a replay, in messages; `duplicates` of the replayed ones had been stored by an earlier run."""

    replayed: int = 0
    duplicates: int = 0
    removed: int = 0
    """Originals that were removed from work-queue and interest streams."""
    missing: int = 0
    """Messages that do not exist any more, and have no copy."""
    skipped: list[SkippedMessage] = msgspec.field(default_factory=list)


@dataclass(frozen=True)
class ReplayOptions:
    """How to replay: on another subject than the message's own, at most so many messages a second, and in all."""

    to: str = ""
    rate: float = 0.0
    limit: int = 0
    keep: bool = False
    """Whether the dead letters stay in the capture stream."""


Letters = list[DeadLetter]
"""The dead letters of one message."""


def by_message(letters: Iterable[DeadLetter], limit: int = 0) -> list[Letters]:
    """Return dead letters grouped by message, in the order of the streams; at most `limit` messages, 0 for all."""
    groups: dict[tuple[str, int], Letters] = {}
    for letter in letters:
        groups.setdefault((letter.stream, letter.seq), []).append(letter)
    return [groups[place] for place in islice(sorted(groups), limit or None)]


async def replay(
    manager: Manager,
    letters: Sequence[DeadLetter],
    options: ReplayOptions = ReplayOptions(),
    on_progress: Callable[[int], None] = lambda number: None,
) -> ReplayReport:
    """Publish the messages of dead letters again, each once, and remove their dead letters; see the module.

    Messages that the server refuses are reported and stay. Raises UnreachableError if it does not answer, and in a dry
    run DryRunError with the messages that would be published.
    """
    captures = await capture_streams(manager)
    replayer = _Replayer(manager, options, captures)
    groups = by_message(letters, options.limit)
    clock = asyncio.get_running_loop().time
    size = AT_ONCE if not options.rate else max(1, min(AT_ONCE, int(options.rate)))
    begin_s, done = clock(), 0
    for start in range(0, len(groups), size):
        if options.rate:
            await asyncio.sleep(max(0.0, begin_s + done / options.rate - clock()))
        chunk = groups[start : start + size]
        await replayer.replay(chunk)
        done += len(chunk)
        on_progress(done)
    if manager.connection.dry_run:
        report = replayer.report
        effect = {"replayed": len(replayer.planned), "removed": report.removed, "missing": report.missing}
        raise DryRunError(*replayer.planned, effect={**effect, "skipped": len(report.skipped)})
    if not options.keep:
        await remove_orphans(manager, captures)
    return replayer.report


class _Replayer:
    def __init__(self, manager: Manager, options: ReplayOptions, captures: Sequence[CaptureStream]) -> None:
        self._manager, self._options = manager, options
        self._source = LetterSource(manager, captures)
        self._copying = {capture.name for capture in captures if capture.copies}
        self._retention: dict[str, str] = {}
        self.report = ReplayReport()
        self.planned: list[Planned] = []

    async def replay(self, groups: Sequence[Letters]) -> None:
        for stream in {group[0].stream for group in groups} - self._retention.keys():
            await self._source.allows_direct(stream)
            answer = await self._manager.find_stream(stream)
            self._retention[stream] = str(answer.raw["config"].get("retention")) if answer is not None else ""
        await side_by_side(self._one, groups, AT_ONCE)

    async def _one(self, letters: Letters) -> None:
        last = letters[-1]
        stored = await self._source.stored(last)
        message = stored or await self._first_copy(letters)
        if message is None:
            self.report.missing += 1
            return
        subject = self._options.to or message.subject
        if (reason := self._obstacle(message)) is not None:
            self._skip(message, reason)
            return
        headers = replay_headers(message, last.failure, subject)
        consumed = stored is not None and self._retention[last.stream] in _CONSUMED
        if self._manager.connection.dry_run:
            self.planned.append(Planned(subject, message.body, headers))
            self.report.removed += consumed
            return
        try:
            answer = await publish(self._manager, subject, message.body, headers=headers)
        except ApiResponseError as refusal:
            self._skip(message, refusal.text)
            return
        self.report.replayed += 1
        self.report.duplicates += bool(answer.value.duplicate)
        if consumed:
            try:
                removed = await remove_message(self._manager, last.stream, last.seq)
                self.report.removed += removed
            except ApiResponseError as refusal:
                self._skip(message, f"replayed, but not removed: {refusal.text}")
        if not self._options.keep:
            await remove_letters(self._manager, letters, self._copying)

    async def _first_copy(self, letters: Letters) -> FailedMessage | None:
        for letter in letters:
            if (copy := await self._source.copy(letter)) is not None:
                return copy
        return None

    def _obstacle(self, message: FailedMessage) -> str | None:
        if is_counter(message):
            return "a counter would count it twice"
        if not self._options.to and not self._retention[message.stream]:
            return f"Stream {message.stream} does not exist any more: choose another subject with --to"
        return None

    def _skip(self, message: FailedMessage, reason: str) -> None:
        self.report.skipped.append(SkippedMessage(message.stream, message.seq, reason))


async def remove_message(manager: Manager, stream: str, seq: int) -> bool:
    """Remove a message; return False if it does not exist."""
    try:
        await manager.message_delete(stream, seq, no_erase=True)
    except ApiResponseError as failure:
        if failure.err_code not in _MISSING:
            raise
        return False
    return True


async def remove_letters(manager: Manager, letters: Letters, copying: Collection[str]) -> None:
    """Remove dead letters, and their copies from the capture streams in `copying`."""
    for letter in letters:
        for advisory in letter.advisories:
            await remove_message(manager, letter.capture, advisory.entry)
        for subject in letter.copy_subjects() if letter.capture in copying else ():
            await manager.stream_purge(letter.capture, filter=subject)


async def remove_orphans(manager: Manager, captures: Iterable[CaptureStream]) -> None:
    """Remove copies without an advisory: an interrupted run leaves them."""
    for capture in captures:
        if not capture.copies:
            continue
        # Copies first: an advisory is stored before its copy.
        answer = await manager.stream_info(capture.name, subjects_filter=copies_of(EVERY_STREAM))
        if subjects := answer.value.state.subjects:
            kept = {subject for letter in await letters_in(manager, capture) for subject in letter.copy_subjects()}
            for subject in subjects.keys() - kept:
                await manager.stream_purge(capture.name, filter=subject)


class DiscardReport(msgspec.Struct):
    """Outcome of a discard: dead letters, and messages, that were removed."""

    discarded: int = 0
    messages: int = 0
    skipped: list[SkippedMessage] = msgspec.field(default_factory=list)


async def discard(manager: Manager, letters: Sequence[DeadLetter], *, messages: bool = False) -> DiscardReport:
    """Remove dead letters with their copies, and with `messages` the messages in their streams too."""
    captures = await capture_streams(manager)
    copying = {capture.name for capture in captures if capture.copies}
    source = LetterSource(manager, captures)
    report = DiscardReport()

    async def remove(group: Letters) -> None:
        stream, seq = group[0].stream, group[0].seq
        if messages and await source.stored(group[-1]) is not None:
            try:
                removed = await remove_message(manager, stream, seq)
                report.messages += removed
            except ApiResponseError as refusal:
                report.skipped.append(SkippedMessage(stream, seq, refusal.text))
                return
        await remove_letters(manager, group, copying)
        report.discarded += len(group)

    groups = by_message(letters)
    for stream in {group[0].stream for group in groups} if messages else ():
        await source.allows_direct(stream)
    await side_by_side(remove, groups, AT_ONCE)
    await remove_orphans(manager, captures)
    return report
