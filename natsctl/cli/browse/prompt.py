"""The line at the bottom: a filter, a command line with completion, or a name."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from natsctl.cli.framework.candidates import ANY_FILE, Candidate, candidates
from natsctl.cli.render.text import length, safe

MAX_SHOWN: Final = 6
"""Candidates that are shown."""
COMPLETION_S: Final = 1.0
_PAUSE_S: Final = 0.15
"""Pause in typing after which candidates are looked up."""


class PromptLine(Vertical):
    """An input with its candidates above it; hidden until `ask`."""

    BINDINGS: ClassVar[list[Any]] = [
        Binding("escape", "leave", show=False),
        Binding("up", "history(-1)", show=False),
        Binding("down", "history(1)", show=False),
    ]

    class LineEvent(Message):
        """Base class of the line's events."""

        def __init__(self, purpose: str, text: str) -> None:
            super().__init__()
            self.purpose, self.text = purpose, text

    class LineEntered(LineEvent):
        """The line was entered."""

    class LineTyped(LineEvent):
        """The line was changed."""

    class LineLeft(LineEvent):
        """The line was left with Esc."""

    def __init__(self, leading: Callable[[], Sequence[str]], **options: Any) -> None:
        super().__init__(**options)
        self.purpose = ""
        self.before: Widget | None = None
        self._prefix: Sequence[str] = ()
        self._leading = leading
        self._found: list[Candidate] = []
        self._history: dict[str, list[str]] = {}
        self._place = 0

    def compose(self) -> ComposeResult:
        yield Static(id="candidates", markup=False)
        yield Input(id="line")

    def on_mount(self) -> None:
        self.display = False
        self.query_one("#candidates").display = False

    def ask(self, purpose: str, text: str, hint: str, prefix: Sequence[str] | None = None) -> None:
        """Ask for a line; with a `prefix` it is completed as a command line that begins with that."""
        self.purpose, self._prefix = purpose, prefix if prefix is not None else ()
        self._completes = prefix is not None
        self.border_title = purpose
        self._place = len(self._history.setdefault(purpose, []))
        line = self.query_one(Input)
        self.before = self.app.focused
        line.placeholder = hint
        self.display = True
        with line.prevent(Input.Changed):
            line.value = text
        line.cursor_position = len(text)
        line.focus()

    def close(self) -> None:
        self.display = False
        self._found = []
        self.query_one("#candidates").display = False

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if not self.display:
            return
        self.post_message(self.LineTyped(self.purpose, event.value))
        if self._completes:
            self.run_worker(self._look(event.value), exclusive=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        history = self._history[self.purpose]
        if event.value.strip() and history[-1:] != [event.value]:
            history.append(event.value)
        self.close()
        self.post_message(self.LineEntered(self.purpose, event.value))

    def action_leave(self) -> None:
        text = self.query_one(Input).value
        self.close()
        self.post_message(self.LineLeft(self.purpose, text))

    def action_history(self, step: int) -> None:
        history = self._history.get(self.purpose, [])
        place = self._place + step
        if 0 <= place <= len(history):
            self._place = place
            line = self.query_one(Input)
            line.value = history[place] if place < len(history) else ""
            line.cursor_position = len(line.value)

    # -- completion

    async def _look(self, text: str) -> None:
        await asyncio.sleep(_PAUSE_S)
        self._found = await asyncio.to_thread(self._candidates, text)
        shown = self.query_one("#candidates", Static)
        shown.display = bool(self._found)
        rows = self._found[:MAX_SHOWN]
        width = max((length(row.word) for row in rows), default=0)
        lines = Text("\n").join(
            Text.assemble(
                (f"{safe(row.word):<{width}}", "bold"), f"  {safe(row.meaning)}", no_wrap=True, overflow="ellipsis"
            )
            for row in rows
        )
        if len(self._found) > MAX_SHOWN:
            lines.append(f"\n… {len(self._found) - MAX_SHOWN} more")
        shown.update(lines)

    def _candidates(self, text: str) -> list[Candidate]:
        words = _words(text)
        if words is None:
            return []
        line = [*self._leading(), *self._prefix, *words]
        try:
            completions = list(candidates(line, time.monotonic() + COMPLETION_S))
        except Exception:  # a completion never disturbs
            return []
        return [row for row in completions if row.word not in (ANY_FILE, words[-1])]

    async def action_complete(self) -> None:
        """Complete the last argument to the common start of all candidates, else to the first."""
        line = self.query_one(Input)
        if not self._completes or not self.display:
            return
        text = line.value
        self._found = await asyncio.to_thread(self._candidates, text)
        words = _words(text)
        if not self._found or words is None or line.value != text:
            return
        common = _common([row.word for row in self._found])
        word = common if len(common) > len(words[-1]) else self._found[0].word
        ended = " " if len(self._found) == 1 and not word.endswith("=") else ""
        start = text[: len(text) - len(words[-1])] if text.endswith(words[-1]) else text
        line.value = f"{start}{shlex.quote(word) if words[-1] == '' or ' ' in word else word}{ended}"
        line.cursor_position = len(line.value)


def _words(text: str) -> list[str] | None:
    """Split a line; the last argument is being typed. Return None within quotes."""
    text = text.removeprefix("!")
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    return [*words, ""] if not words or text[-1:].isspace() else words


def _common(words: Sequence[str]) -> str:
    first, last = min(words), max(words)
    size = next(
        (place for place, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]),
        min(len(first), len(last)),
    )
    return first[:size]
