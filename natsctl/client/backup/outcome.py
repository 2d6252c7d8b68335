"""What becomes of an account's streams, and how far they are, when several are under way at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from natsctl.api.errors import NatsctlError
from natsctl.client.backup.document import Document
from natsctl.client.backup.progress import Progress

PARALLEL = 4
"""Streams under way at once, unless the command says otherwise."""


class StreamOutcome(Document):
    """What became of one stream: `action` is "saved", "restored", "replaced", "skipped" or "failed"."""

    stream: str
    action: str
    messages: int = 0
    bytes: int = 0
    archive_bytes: int = 0
    error: str = ""
    warnings: list[str] = msgspec.field(default_factory=list)


class AccountOutcome(Document):
    """What became of an account's streams; `elapsed` in ns, `warnings` those about no stream in particular."""

    folder: str
    streams: list[StreamOutcome] = msgspec.field(default_factory=list)
    elapsed: int = 0
    warnings: list[str] = msgspec.field(default_factory=list)

    @property
    def failed(self) -> list[StreamOutcome]:
        """The streams that were neither saved nor restored."""
        return [one for one in self.streams if one.action == "failed"]

    @property
    def warned(self) -> bool:
        """Whether anything was not quite as it should be."""
        return bool(self.warnings) or any(one.warnings for one in self.streams)


@dataclass(slots=True)
class Overall:
    """How far all streams are together: the share of each stream's archive counts as that share of its bytes."""

    totals: dict[str, int]
    on_change: Callable[[float, float], None]
    done: dict[str, float] = field(default_factory=dict)

    def step(self, name: str) -> Callable[[Progress], None]:
        """What is to be told how far that stream is."""

        def at(progress: Progress) -> None:
            total = self.totals.get(name, 0)
            whole = max(progress.total_bytes, progress.archive_bytes, 1)
            self._at(name, total * progress.archive_bytes / whole)

        return at

    def finished(self, name: str) -> None:
        """Count the stream as done, whatever became of it."""
        self._at(name, self.totals.get(name, 0))

    def _at(self, name: str, done: float) -> None:
        self.done[name] = done
        self.on_change(sum(self.done.values()), sum(self.totals.values()))


def unwatched(done: float, total: float) -> None:
    """Show nothing."""


def failed(name: str, why: str) -> StreamOutcome:
    """The outcome of a stream that was neither saved nor restored."""
    return StreamOutcome(stream=name, action="failed", error=why)


async def side_by_side(
    names: Iterable[str], work: Callable[[str], Awaitable[StreamOutcome]], parallel: int, overall: Overall
) -> list[StreamOutcome]:
    """What became of each, in the order of the names, at most `parallel` at once."""
    gate = asyncio.Semaphore(parallel)

    async def one(name: str) -> StreamOutcome:
        async with gate:
            try:
                return await work(name)
            except NatsctlError as failure:
                return failed(name, failure.text + (f" ({failure.hint})" if failure.hint else ""))
            finally:
                overall.finished(name)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(name)) for name in names]
    return [task.result() for task in tasks]
