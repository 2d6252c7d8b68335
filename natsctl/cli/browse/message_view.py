"""One message: its place and headers, and its body as text, folded JSON or bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static, Tree

from natsctl.cli.browse.details import FORMS, message_heading, message_hex, message_json, message_text
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from textual.widgets.tree import TreeNode

    from natsctl.api.archive.archive import ArchivedMessage

MAX_NODES: Final = 5_000
"""Values of a JSON document that are shown as a tree."""
OPEN_DEPTH: Final = 2
"""Depth of a document that is unfolded at first."""


class ScrolledText(VerticalScroll):
    """A text that scrolls with the keys of a list too."""

    BINDINGS: ClassVar[list[Any]] = [
        Binding("k", "scroll_up", show=False),
        Binding("j", "scroll_down", show=False),
        Binding("g", "scroll_home", show=False),
        Binding("G", "scroll_end", show=False),
        Binding("space,ctrl+f", "page_down", show=False),
        Binding("ctrl+b", "page_up", show=False),
    ]

    def compose(self) -> ComposeResult:
        yield Static(markup=False)

    def write(self, text: Text | str) -> None:
        self.query_one(Static).update(text)


class JsonTree(Tree[Any]):
    """A JSON document, folded."""

    BINDINGS: ClassVar[list[Any]] = [
        Binding("k", "cursor_up", show=False),
        Binding("j", "cursor_down", show=False),
        Binding("g", "scroll_home", show=False),
        Binding("G", "scroll_end", show=False),
        Binding("l", "toggle_node", show=False),
    ]

    def fill(self, document: Any) -> None:
        self.clear()
        self._left = MAX_NODES
        self.root.data = document
        self.root.set_label(_folded(document))
        self._add(self.root, document, 1)
        self.root.expand()

    def _add(self, node: TreeNode[Any], value: Any, depth: int) -> None:
        pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, below in pairs:
            self._left -= 1
            if self._left < 0:
                node.add_leaf(Text("…"))
                return
            name = safe(str(key))
            if isinstance(below, dict | list) and below:
                child = node.add(Text.assemble((f"{name} ", "bold"), _folded(below)), data=below)
                self._add(child, below, depth + 1)
                if depth < OPEN_DEPTH:
                    child.expand()
            else:
                node.add_leaf(Text.assemble((f"{name}: ", "bold"), _scalar(below)), data=below)


def _folded(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{len(value)}}}"
    return f"[{len(value)}]" if isinstance(value, list) else _scalar(value)


def _scalar(value: Any) -> str:
    return safe(json.dumps(value, ensure_ascii=False))


class MessageView(Vertical):
    """One message; `v` goes on to the next form."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.message: ArchivedMessage | None = None
        self.stream = ""
        self.form = ""

    def compose(self) -> ComposeResult:
        yield Static(id="message-heading", markup=False)
        yield ScrolledText(id="message-text")
        yield JsonTree("", id="message-json")

    def on_mount(self) -> None:
        self.query_one(JsonTree).display = False

    def show(self, message: ArchivedMessage | None, stream: str) -> None:
        """Show a message, as JSON if it is a document and no other form was chosen."""
        if message is self.message:
            return
        self.message, self.stream = message, stream
        self._draw()

    @property
    def shown_form(self) -> str:
        """Return the form of the body: the chosen form, else the best for its content."""
        if self.form or self.message is None:
            return self.form or "text"
        if self.message.payload[:1] in (b"{", b"["):
            try:
                message_json(self.message)
            except ValueError:
                return "text"
            return "json"
        return "text" if _is_text(self.message.payload) else "hex"

    def next_form(self) -> None:
        self.form = FORMS[(FORMS.index(self.shown_form) + 1) % len(FORMS)]
        self._draw()

    @property
    def body(self) -> ScrolledText | JsonTree:
        return self.query_one(JsonTree) if self.query_one(JsonTree).display else self.query_one(ScrolledText)

    def _draw(self) -> None:
        heading, text, tree = (
            self.query_one("#message-heading", Static),
            self.query_one(ScrolledText),
            self.query_one(JsonTree),
        )
        message = self.message
        if message is None:
            heading.update("")
            text.write("")
            return
        form = self.shown_form
        others = " ".join(f"[{name}]" if name == form else name for name in FORMS)
        heading.update(f"{message_heading(message, self.stream)}\nv: {others}")
        had_focus = text.has_focus or tree.has_focus
        shown = form == "json"
        if shown:
            try:
                tree.fill(message_json(message))
            except ValueError as failure:
                shown = False
                text.write(f"not JSON: {failure}")
        elif form == "hex":
            text.write(message_hex(message, self.size.width - 2))
        else:
            text.write(message_text(message) or "(empty)")
        text.display, tree.display = not shown, shown
        text.scroll_home(animate=False)
        if had_focus:
            self.body.focus()


def _is_text(payload: bytes) -> bool:
    try:
        return payload.decode().replace("\r", "").replace("\n", "").replace("\t", "").isprintable()
    except UnicodeDecodeError:
        return False
