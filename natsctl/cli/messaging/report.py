"""`--report-subjects`, `--report-subscriptions` and `--graph`: how much comes, in place of what comes."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from natsctl.api.subjects import matches
from natsctl.api.units import format_size, plural
from natsctl.cli import output
from natsctl.cli.live import drawing
from natsctl.cli.messaging.receive import Listening, follow
from natsctl.cli.render.plot import Rate, per_second, render_plots, sized
from natsctl.cli.render.tables import render_table
from natsctl.cli.render.text import count

if TYPE_CHECKING:
    from rich.console import RenderableType

    from natsctl.client.manager import Manager
    from natsctl.client.message import Message
    from natsctl.client.messaging.feed import Feed

REDRAW_S = 0.5
OTHERS = "(others)"
MAX_SUBJECTS = 100_000
"""Subjects that are told apart; those beyond are counted together."""


class Tally:
    """Messages and bytes by name; names are subjects, or the first of `patterns` that a subject matches."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._patterns = patterns
        self.messages: dict[str, int] = {}
        self.bytes: dict[str, int] = {}
        self.total = self.total_bytes = 0

    def banner(self, subjects: tuple[str, ...]) -> None:
        """Nothing: the report says what is counted."""

    def flush(self) -> None:
        """Nothing: the report is drawn in its own time."""

    async def show(self, manager: Manager, number: int, message: Message) -> None:
        """Count one message."""
        name = message.subject
        if self._patterns:
            name = next((one for one in self._patterns if matches(one, name)), name)
        if name not in self.messages and len(self.messages) >= MAX_SUBJECTS:
            name = OTHERS
        size = len(message.body)
        self.messages[name] = self.messages.get(name, 0) + 1
        self.bytes[name] = self.bytes.get(name, 0) + size
        self.total += 1
        self.total_bytes += size

    def top(self, most: int) -> list[tuple[str, int, int]]:
        """Name, messages and bytes of the busiest, most messages first; 0 for all."""
        rows = sorted(self.messages.items(), key=lambda row: (-row[1], row[0]))
        return [(name, number, self.bytes[name]) for name, number in rows[: most or None]]


class View:
    """What is drawn of a tally."""

    def __init__(self, what: str, tally: Tally, most: int, graph: bool) -> None:
        self._what, self._tally, self._most, self._graph = what, tally, most, graph
        self._rates = (Rate("Messages", per_second), Rate("Bytes a second", sized))

    def sample(self) -> None:
        """Take the next point of the graph."""
        now_s = time.monotonic()
        self._rates[0].count(self._tally.total, now_s)
        self._rates[1].count(self._tally.total_bytes, now_s)

    def render(self) -> RenderableType:
        """The picture of this moment."""
        tally = self._tally
        heading = f"{plural(tally.total, 'message')}, {format_size(tally.total_bytes)}"
        if self._graph:
            size = shutil.get_terminal_size((80, 24))
            return render_plots(f"{self._what}: {heading}", self._rates, size.columns, size.lines)
        rows = [(name, count(number), format_size(amount)) for name, number, amount in tally.top(self._most)]
        left = len(tally.messages) - len(rows)
        title = f"{heading}{f', {count(left)} more not shown' if left else ''}"
        return render_table(title, (self._what, "Messages", "Bytes"), rows, right=("Messages", "Bytes"))

    def document(self) -> list[dict[str, Any]]:
        """The same as data."""
        return [
            {"subject": name, "messages": number, "bytes": amount}
            for name, number, amount in self._tally.top(self._most)
        ]


async def report(manager: Manager, feed: Feed, listening: Listening, tally: Tally, view: View, *, json: bool) -> None:
    """Draw the view again and again while a feed lasts; with `json` print it once, when that is over."""
    if json:
        try:
            await follow(manager, feed, listening, tally, may_be_none=True)
        finally:
            output.emit_json(view.document())
        return
    output.log(f"Counting messages on {', '.join(listening.subjects)}; Ctrl-C ends it")
    with drawing() as draw:
        task = asyncio.create_task(_redraw(view, draw))
        try:
            await follow(manager, feed, listening, tally, may_be_none=True)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            view.sample()
            draw(view.render())


async def _redraw(view: View, draw: Any) -> None:
    while True:
        view.sample()
        draw(view.render())
        await asyncio.sleep(REDRAW_S)
