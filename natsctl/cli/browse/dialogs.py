"""Screens above the browser: a question, the output of a command, and the keys."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from natsctl.cli.browse.message_view import ScrolledText
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.cli.browse.actions import CommandRunner

MAX_OUTPUT: Final = 512 * 1024
"""Characters of a command's output that are kept: the last ones."""
_REDRAW_S: Final = 0.1

KEYS: Final = (
    ("↑ ↓ k j", "move; PgUp PgDn Ctrl-B Ctrl-F: a page; g G: an end"),
    ("Enter → l", "go in: to the pages of an entry, to a message"),
    ("Esc ← h", "go back"),
    ("Tab", "change between left and right; 1 … 8: a list"),
    ("[ ]", "the page before or after"),
    ("/", "filter names, or messages as stream search does"),
    (":", "a natsctl command line; Tab completes, :! is run"),
    ("", "in the terminal"),
    ("f", "follow new messages"),
    ("v", "show a body as text, JSON or bytes"),
    ("#", "go to a message by its sequence"),
    ("o", "open an entry by its name"),
    ("x", "explain why nothing is delivered, stored or seen"),
    ("y", "copy the name, the page or the body"),
    ("e", "edit the configuration in $EDITOR"),
    ("p", "publish a message, or put a key"),
    ("r", "replay a dead letter"),
    ("d", "delete, after a question that shows the loss"),
    ("q", "end; ? shows these keys"),
)


class ClosedByKey(ModalScreen[Any]):
    """A screen that Esc and q close."""

    BINDINGS: ClassVar[list[Any]] = [Binding("escape,q", "leave", show=False)]

    def action_leave(self) -> None:
        self.dismiss(None)


class HelpScreen(ClosedByKey):
    BINDINGS: ClassVar[list[Any]] = [Binding("question_mark", "leave", show=False)]

    def __init__(self, notes: Sequence[str] = ()) -> None:
        super().__init__()
        self._notes = notes

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = "Keys"
            box.border_subtitle = "Esc closes"
            yield ScrolledText()

    def on_mount(self) -> None:
        text = Text()
        for key, meaning in KEYS:
            text.append(f"{key:>10}  ", "bold").append(f"{meaning}\n")
        for note in self._notes:
            text.append(f"\n{note}")
        text.rstrip()
        self.query_one(ScrolledText).write(text)
        self.query_one(ScrolledText).focus()


class ConfirmScreen(ModalScreen[bool]):
    """A question about a loss: its extent, and a yes, or the name that has to be typed."""

    BINDINGS: ClassVar[list[Any]] = [
        Binding("escape", "answer(False)", show=False),
        Binding("n", "answer(False)", show=False),
        Binding("y", "answer(True)", show=False),
    ]

    def __init__(self, question: str, effect: str, typed: str = "") -> None:
        super().__init__()
        self._question, self._effect, self._typed = question, effect, typed

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog danger") as box:
            box.border_title = "Really?"
            yield Static(Text(safe(self._question, block=True), "bold"))
            with ScrolledText(classes="effect") as effect:
                effect.can_focus = False
            if self._typed:
                yield Static(Text(f"Type {safe(self._typed)} and Enter to do it, Esc not to:"))
                yield Input(id="typed")
            else:
                yield Static(Text("y: do it   n, Esc: do not"))

    def on_mount(self) -> None:
        self.query_one(ScrolledText).write(safe(self._effect.strip(), block=True))
        if self._typed:
            self.query_one(Input).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Return whether a key works: letters are typed if there is a word to type."""
        return not (self._typed and action == "answer" and parameters == (True,))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value == self._typed:
            self.dismiss(True)
        else:
            self.query_one("#typed", Input).value = ""
            self.notify(f"that is not {safe(self._typed)}: nothing is done", severity="warning", markup=False)

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class OutputScreen(ClosedByKey):
    """The output of a command line while it runs; closing the screen ends the command.

    The screen's result is the exit status and the output of a command that has ended.
    """

    def __init__(self, runner: CommandRunner, line: Sequence[str], title: str) -> None:
        super().__init__()
        self._runner, self._line, self._title = runner, line, title
        self._output = ""
        self._status: int | None = None
        self._is_drawn = True

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog output") as box:
            box.border_title = safe(self._title)
            box.border_subtitle = "running; Esc ends it"
            yield ScrolledText()

    def on_mount(self) -> None:
        self.query_one(ScrolledText).focus()
        self.set_interval(_REDRAW_S, self._draw)
        self.run_worker(self._run())

    async def _run(self) -> None:
        width = self.query_one(ScrolledText).size.width or self.app.size.width - 6
        try:
            self._status = await self._runner.run(self._line, self._take, max(20, width - 2))
        except OSError as failure:
            self._take(f"cannot run it: {failure}\n")
            self._status = 1
        await asyncio.sleep(0)
        self._draw()
        box = self.query_one(".dialog", Vertical)
        box.border_subtitle = f"{'done' if not self._status else f'exit status {self._status}'}; Esc closes"
        box.set_class(bool(self._status), "danger")

    def _take(self, text: str) -> None:
        self._output = (self._output + text)[-MAX_OUTPUT:]
        self._is_drawn = False

    def _draw(self) -> None:
        if self._is_drawn:
            return
        self._is_drawn = True
        scrolled = self.query_one(ScrolledText)
        follows = scrolled.is_vertical_scroll_end and self._status is None
        scrolled.write(Text.from_ansi(self._output))
        if follows:
            scrolled.scroll_end(animate=False)

    def action_leave(self) -> None:
        self.dismiss(None if self._status is None else (self._status, self._output))
