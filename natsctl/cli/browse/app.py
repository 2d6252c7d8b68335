"""The full-screen application: lists on the left, pages of the selected entry on the right, a line for commands below.

Widgets show the contents of the catalog and of the message pages; keys ask these for more, in workers, so that a slow
server never blocks the screen. A change is a command line of its own (`actions`).
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult, SuspendNotSupported
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.filter import Monochrome, NoColor
from textual.widget import Widget
from textual.widgets import Static

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.cli.browse import actions, cells, details
from natsctl.cli.browse.actions import BrowseTarget, CommandRunner
from natsctl.cli.browse.bars import SectionHeads, TabBar, status_line, title_line
from natsctl.cli.browse.catalog import Catalog
from natsctl.cli.browse.colours import COLOURS
from natsctl.cli.browse.dialogs import ConfirmScreen, HelpScreen, OutputScreen
from natsctl.cli.browse.message_view import MessageView, ScrolledText
from natsctl.cli.browse.prompt import PromptLine
from natsctl.cli.browse.row_list import Cells, RowList, short, sparkline
from natsctl.cli.browse.selection import BrowseSelection
from natsctl.cli.render.page import Page
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.cli.browse.message_pages import MessagePages
    from natsctl.client.manager import Manager

REFRESH_S: Final = 1.0
WIDE: Final = 120
"""Minimum columns for a message next to its list."""
NOTICE_S: Final = 8.0
SEARCH_HINT: Final = "--subject orders.* --since 1h --header Name:value --expression 'json.total > 9' word"


class BrowseApp(App[None]):
    CSS_PATH = Path(__file__).with_name("browse.tcss")
    ENABLE_COMMAND_PALETTE = False
    TITLE = "natsctl browse"
    BINDINGS: ClassVar[list[Any]] = [
        Binding("q,ctrl+c", "quit", show=False),
        Binding("question_mark", "keys", show=False),
        Binding("tab,shift+tab", "other_side", show=False, priority=True),
        Binding("left_square_bracket", "tab(-1)", show=False),
        Binding("right_square_bracket", "tab(1)", show=False),
        Binding("escape,h,left", "back", show=False),
        Binding("slash", "filter", show=False),
        Binding("colon", "command", show=False),
        Binding("number_sign", "sequence", show=False),
        Binding("o", "open_name", show=False),
        Binding("f", "follow", show=False),
        Binding("v", "form", show=False),
        Binding("y", "copy", show=False),
        Binding("x", "explain", show=False),
        Binding("e", "edit", show=False),
        Binding("p", "publish", show=False),
        Binding("r", "replay", show=False),
        Binding("d", "delete", show=False),
        *(Binding(str(number), f"section({number - 1})", show=False) for number in range(1, 10)),
    ]

    def __init__(
        self,
        manager: Manager,
        runner: CommandRunner,
        *,
        read_only: bool = False,
        theme: str = "dark",
        leading: Sequence[str] = (),
    ) -> None:
        super().__init__()
        for colours in COLOURS.values():
            self.register_theme(colours)
        # Without colours nothing but the terminal's own is used; the row with the cursor is reversed.
        self.theme = f"ansi-{theme}" if self.no_color else f"natsctl-{theme}"
        if self.no_color:
            self._filters = [NoColor() if isinstance(each, Monochrome) else each for each in self._filters]
        self.manager = manager
        self.runner = runner
        self.read_only = read_only
        self.catalog = Catalog(manager, self.changed)
        self.selection = BrowseSelection(self.catalog)
        self._leading = list(leading)
        self._pages: MessagePages | None = None
        self._keys: list[tuple[str, int]] | None = None
        self._keys_of = ""
        self._row_fault = ""
        self._is_message_open = False
        self._page_title = ""
        self._follows = False
        self._notice = ""
        self._notice_s = 0.0
        self._is_dirty = False
        self._shown_text = "\0"

    # -- layout

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        with Horizontal(id="sides"):
            with Vertical(id="left"):
                yield SectionHeads(self.action_section, id="heads-above")
                yield RowList(id="names")
                yield SectionHeads(self.action_section, id="heads-below")
            with Vertical(id="right"):
                yield TabBar(self.show_tab, id="tabs")
                yield Static(id="columns", markup=False)
                yield ScrolledText(id="page")
                yield RowList(id="rows")
                yield MessageView(id="message")
        yield PromptLine(lambda: self._leading, id="prompt")
        yield Static(id="status", markup=False)

    def on_mount(self) -> None:
        self.set_class(self.no_color, "no-color")
        self.manager.connection.notify = self.note
        self.query_one("#names", RowList).draw = self._draw_name
        self.query_one("#rows", RowList).draw = self._draw_row
        self.query_one("#names").focus()
        self.query_one("#names", RowList).notice = "asking the server"
        self.set_interval(REFRESH_S, self._tick)
        self.work(self.catalog.attention.check, "attention")
        self._tick()
        self._show()

    def on_resize(self) -> None:
        self.set_class(self.size.width >= WIDE, "wide")
        self.call_after_refresh(self._show)

    def changed(self) -> None:
        """Draw again, once for many answers that come together."""
        if not self._is_dirty:
            self._is_dirty = True
            self.set_timer(0.02, self._show)

    def note(self, text: str) -> None:
        self._notice, self._notice_s = text, self.catalog.clock()
        self.changed()

    # -- work in the background

    def work(self, task: Callable[..., Coroutine[Any, Any, None]], group: str, *arguments: Any) -> None:
        """Run a task instead of the last one of its group; its failure is shown in the status line."""

        async def guarded() -> None:
            try:
                await task(*arguments)
            except NatsctlError as failure:
                self.note(str(failure))
            self.changed()

        worker: Any = guarded
        self.run_worker(worker, group=group, exclusive=True)

    def _is_busy(self, group: str) -> bool:
        return any(worker.group == group and not worker.is_finished for worker in self.workers)

    def _tick(self) -> None:
        if not self._is_busy("names"):
            self.work(self._load, "names")
        if not self._is_busy("facts"):
            self.work(self._refresh, "facts")

    async def _load(self) -> None:
        """Ask for names that are due: of the list on the screen, and once of every other."""
        for section in (self.selection.section, *self.catalog.sections):
            due = section.is_due(self.catalog.clock()) if section is self.selection.section else not section.was_loaded
            if due:
                await section.load()
                if section is self.selection.section:
                    self.work(self._refresh, "facts")

    async def _refresh(self) -> None:
        names, rows = self.selection.names, self.query_one("#names", RowList)
        first = int(rows.scroll_offset.y)
        shown = names[first : first + max(1, rows.size.height)]
        if self.selection.name and self.selection.name not in shown:
            shown.append(self.selection.name)
        await self.selection.section.refresh(shown)
        consumers = self.catalog.consumers
        if self.selection.tab.content == "consumers" and self.selection.stream:
            if consumers.is_due(self.catalog.clock()):
                await consumers.load()
            visible = self.query_one("#rows", RowList).shown
            await consumers.refresh([consumers.names[index] for index in visible if index < len(consumers.names)])
        if self._pages is not None and self.selection.tab.content in ("messages", "objects"):
            await self._follow_messages(self._pages)

    async def _follow_messages(self, pages: MessagePages) -> None:
        before = pages.last_seq
        await pages.look()
        if pages.last_seq < before:  # the stream was purged or created again
            await pages.newest()
        elif self._follows and pages.last_seq > pages.searched_to:
            if pages.last_seq - pages.searched_to > 1_000:
                await pages.newest()
            while pages.last_seq > pages.searched_to:
                await pages.newer()
        if self._follows and self._pages is pages:
            self.query_one("#rows", RowList).show(len(pages.messages), len(pages.messages) - 1)

    async def _open_pages(self, pages: MessagePages, place: str, seq: int = 0) -> None:
        self._row_fault = ""
        try:
            if place == "newest":
                await pages.newest()
            elif place == "oldest":
                await pages.oldest()
            else:
                await pages.show(seq)
        except NatsctlError as failure:
            self._row_fault = str(failure)
        if self._pages is pages:
            cursor = len(pages.messages) - 1 if place == "newest" else 0
            self.query_one("#rows", RowList).show(len(pages.messages), cursor)

    async def _load_keys(self, stream: str) -> None:
        from natsctl.client.explain.evidence import subjects_of

        self._row_fault = ""
        prefix = f"$KV.{self.selection.bucket}."
        try:
            subjects = await subjects_of(self.manager, stream)
        except NatsctlError as failure:
            self._row_fault, subjects = str(failure), {}
        if self._keys_of == stream:
            self._keys = [(key.removeprefix(prefix), number) for key, number in sorted(subjects.items())]

    # -- data of the right side

    def _select_rows(self) -> None:
        stream, content = self.selection.stream, self.selection.tab.content
        self.selection.choose_consumers()
        if content in ("messages", "objects") and stream:
            from natsctl.cli.browse.message_pages import MessagePages, MessageQuery  # half of the time of a start

            text = self.selection.query
            if self._pages is None or (self._pages.stream, self._pages.query.text) != (stream, text):
                self._follows = False
                self._is_message_open = False
                self._pages = MessagePages(self.manager, stream, MessageQuery.parse(text))
                self.query_one("#rows", RowList).show(0, 0, "reading messages")
                self.work(self._open_pages, "messages", self._pages, "newest")
        elif content == "keys" and stream and self._keys_of != stream:
            self._keys_of, self._keys = stream, None
            self.work(self._load_keys, "messages", stream)

    # -- drawing

    def _show(self) -> None:
        self._is_dirty = False
        if not self.screen_stack:
            return
        names = self.selection.names
        rows = self.query_one("#names", RowList)
        place = (
            names.index(self.selection.name)
            if self.selection.name in names
            else min(rows.cursor, max(0, len(names) - 1))
        )
        self.selection.name = names[place] if names else ""
        notice = self.selection.section.fault or (
            ""
            if not self.selection.section.complete
            else f"nothing has {self.selection.name_filter}"
            if self.selection.name_filter
            else self.selection.section.empty
        )
        rows.show(len(names), place if place != rows.cursor else None, notice)
        self._select_rows()
        self._show_heads()
        self._show_right()
        self._show_status()

    def _show_heads(self) -> None:
        sections = self.catalog.sections
        active = sections.index(self.selection.section)
        width = max(10, self.query_one("#left").content_size.width)
        self.query_one("#heads-above", SectionHeads).show(
            sections, range(active + 1), active, width, self.selection.name_filters
        )
        self.query_one("#heads-below", SectionHeads).show(sections, range(active + 1, len(sections)), active, width, {})

    def _show_right(self) -> None:
        tabs, right = self.selection.tabs, self.query_one("#right", Vertical)
        bar = self.query_one("#tabs", TabBar)
        bar.show([tab.title for tab in tabs], tabs.index(self.selection.tab), self._page_title)
        right.border_title = safe(self.selection.heading)
        query = self.selection.query if self.selection.tab.content == "messages" and self.selection.stream else ""
        right.border_subtitle = safe(f"/{query}" if query else "") + (" following" if self._follows else "")
        page, rows, message = (
            self.query_one("#page", ScrolledText),
            self.query_one("#rows", RowList),
            self.query_one("#message", MessageView),
        )
        lists = isinstance(self.selection.tab.content, str) and not self._page_title
        is_message = lists and self.selection.tab.content == "messages"
        wide = self.has_class("wide")
        message.display = is_message and (
            self._is_message_open or (wide and bool(self._pages and self._pages.messages))
        )
        rows.display = lists and (wide or not self._is_message_open)
        page.display = not lists
        columns = self.query_one("#columns", Static)
        columns.display = rows.display
        if rows.display:
            last_seq = self._pages.last_seq if self._pages is not None else 0
            titles = cells.column_titles(self.selection.tab.content, max(10, right.content_size.width), last_seq)
            columns.update(Text(titles, no_wrap=True))
            self._show_rows(rows)
        if page.display and not self._page_title:
            self._show_page(page)
        if message.display and self._pages is not None and self._pages.messages:
            message.show(self._pages.messages[min(rows.cursor, len(self._pages.messages) - 1)], self._pages.stream)

    def _show_page(self, page: ScrolledText) -> None:
        facts = self.selection.section.facts(self.selection.name)
        if not self.selection.name:
            self._write(page, "")
        elif facts.info is not None and callable(self.selection.tab.content):
            width = max(20, self.query_one("#right").content_size.width - 2)
            text = self.selection.tab.content(facts.info).text(width, not self.no_color)
            rest = text.partition("\n\n")[2]
            if self.selection.tab.title == "State" and any(facts.history):
                rest = f"  {short(facts.rate)}/s {sparkline(facts.history, len(facts.history))}\n\n{rest}"
            text = text if self.selection.tab.content is details.explanation else rest
            if facts.fault:
                text = f"{facts.fault}; this is the last state\n\n{text}"
            self._write(page, text)
        else:
            self._write(page, facts.fault or "asking the server")

    def _write(self, page: ScrolledText, text: str) -> None:
        if text != self._shown_text:
            self._shown_text = text
            page.write(Text.from_ansi(text))

    def _show_rows(self, rows: RowList) -> None:
        content = self.selection.tab.content
        if content == "consumers":
            consumers = self.catalog.consumers
            rows.show(
                len(consumers.names),
                None,
                consumers.fault or ("no consumers" if consumers.complete else "asking the server"),
            )
        elif content == "keys":
            rows.show(
                len(self._keys or ()),
                None,
                self._row_fault or ("asking the server" if self._keys is None else "no keys"),
            )
        elif self._pages is not None:
            notice = self._row_fault or ("no messages" if self._pages.at_end else "reading messages")
            if self._pages.query.text and content == "messages" and not self._row_fault and self._pages.at_end:
                notice = "no message passes the filter"
            rows.show(len(self._pages.messages), None, notice)

    def _draw_name(self, index: int, width: int) -> Cells:
        names = self.selection.names
        return cells.name_row(self.selection.section, names[index], width) if index < len(names) else ()

    def _draw_row(self, index: int, width: int) -> Cells:
        content, consumers, pages = self.selection.tab.content, self.catalog.consumers, self._pages
        if content == "consumers":
            names = consumers.names[index : index + 1]
            return cells.consumer_row(names[0], consumers.facts(names[0]), width) if names else ()
        if content == "keys":
            keys = (self._keys or ())[index : index + 1]
            return cells.key_row(*keys[0], width) if keys else ()
        if pages is None or index >= len(pages.messages):
            return ()
        message = pages.messages[index]
        return (
            cells.object_row(message, width)
            if content == "objects"
            else cells.message_row(message, width, pages.last_seq)
        )

    def _show_status(self) -> None:
        connection = self.manager.connection
        if self._notice and self.catalog.clock() - self._notice_s > NOTICE_S and not connection.lost:
            self._notice = ""
        notice = "connection lost: connecting again" if connection.lost else safe(self._notice)
        status = self.query_one("#status", Static)
        status.set_class(connection.lost, "lost")
        status.update(status_line(notice, self.size.width))
        self.query_one("#title", Static).update(title_line(connection, self.read_only, self.size.width))

    # -- moving

    @on(RowList.RowMoved, "#names")
    def _name_moved(self) -> None:
        names, cursor = self.selection.names, self.query_one("#names", RowList).cursor
        if cursor < len(names):
            self.choose(names[cursor])

    def choose(self, name: str) -> None:
        if name == self.selection.name:
            return
        self.selection.name = name
        self._close_page()
        self._is_message_open = False
        self._follows = False
        self.query_one("#rows", RowList).cursor = 0
        self.query_one("#page").scroll_home(animate=False)
        self._show()
        self.work(self._refresh, "facts")

    @on(RowList.RowOpened, "#names")
    def _name_opened(self) -> None:
        self._right_body().focus()

    @on(RowList.RowMoved, "#rows")
    def _row_moved(self) -> None:
        if self._follows and self._pages is not None:
            self._follows = self.query_one("#rows", RowList).cursor >= len(self._pages.messages) - 1
        self.changed()

    @on(RowList.RowEdge, "#rows")
    def _row_edge(self, event: RowList.RowEdge) -> None:
        pages = self._pages
        if pages is None or self.selection.tab.content not in ("messages", "objects") or self._is_busy("messages"):
            return
        if abs(event.step) == 2:
            self.work(self._open_pages, "messages", pages, "oldest" if event.step < 0 else "newest")
        else:
            self.work(self._more, "messages", pages, event.step)

    async def _more(self, pages: MessagePages, step: int) -> None:
        rows = self.query_one("#rows", RowList)
        kept = pages.messages[rows.cursor].seq if pages.messages else 0
        if step < 0 and not pages.at_start:
            if not await pages.older() and not pages.at_start:
                self.note(f"nothing down to sequence {pages.searched_from:,}; up goes on")
        elif step > 0:
            await pages.look()
            if not await pages.newer() and pages.searched_to < pages.last_seq:
                self.note(f"nothing up to sequence {pages.searched_to:,}; down goes on")
        place = next((index for index, message in enumerate(pages.messages) if message.seq >= kept), 0)
        rows.show(len(pages.messages), place)

    @on(RowList.RowOpened, "#rows")
    def _row_opened(self) -> None:
        rows = self.query_one("#rows", RowList)
        content = self.selection.tab.content
        if content == "consumers" and rows.cursor < len(self.catalog.consumers.names):
            name = self.catalog.consumers.names[rows.cursor]
            self.selection.select(self.catalog.consumers, name)
            self.action_section(self.catalog.sections.index(self.catalog.consumers))
        elif content == "keys" and self._keys:
            key = self._keys[rows.cursor][0]
            self.selection.queries[self.selection.stream] = (
                f"--subject {shlex.quote(f'$KV.{self.selection.bucket}.{key}')}"
            )
            self._go_to_tab("messages")
        elif content == "messages":
            self._is_message_open = True
            self._show()
            self.call_after_refresh(lambda: self.query_one("#message", MessageView).body.focus())

    def _go_to_tab(self, content: str) -> None:
        if not self.selection.show_list(content):
            return
        self._close_page()
        self._show()
        self._right_body().focus()

    def _right_body(self) -> Widget:
        message = self.query_one("#message", MessageView)
        if message.display and self._is_message_open:
            return message.body
        rows = self.query_one("#rows", RowList)
        return rows if rows.display else self.query_one("#page", ScrolledText)

    def _is_left(self) -> bool:
        return self.query_one("#names", RowList).has_focus

    async def action_other_side(self) -> None:
        """Give the focus to the other side; in a line, complete it."""
        prompt = self.query_one("#prompt", PromptLine)
        if len(self.screen_stack) > 1:
            return
        if prompt.display:
            await prompt.action_complete()
        else:
            (self._right_body() if self._is_left() else self.query_one("#names")).focus()

    def action_tab(self, step: int) -> None:
        tabs = self.selection.tabs
        self.show_tab((tabs.index(self.selection.tab) + step) % len(tabs))

    def show_tab(self, index: int) -> None:
        was_left = self._is_left()
        self.selection.show_tab(index)
        self._close_page()
        self._is_message_open = False
        self.query_one("#rows", RowList).cursor = 0
        self._show()
        if not was_left:
            self._right_body().focus()
        self.work(self._refresh, "facts")

    def action_section(self, index: int) -> None:
        if index >= len(self.catalog.sections):
            return
        self.selection.choose_consumers()
        self.selection.section = self.catalog.sections[index]
        self._close_page()
        self._is_message_open = False
        names = self.query_one("#names", RowList)
        names.cursor = 0
        names.focus()
        self._show()
        self.work(self._load, "names")
        self.work(self._refresh, "facts")

    def _close_page(self) -> None:
        self._page_title, self._shown_text = "", "\0"

    async def action_back(self) -> None:
        if self._page_title:
            self._close_page()
            self._show()
            self._right_body().focus()
        elif self._is_message_open:
            self._is_message_open = False
            self._show()
            self.query_one("#rows").focus()
        elif not self._is_left():
            self.query_one("#names").focus()
        elif self.selection.name_filters.pop(self.selection.section.title, ""):
            self._show()

    # -- the line at the bottom

    def action_filter(self) -> None:
        prompt = self.query_one("#prompt", PromptLine)
        if not self._is_left() and self.selection.tab.content == "messages" and self.selection.stream:
            prompt.ask(
                "filter messages",
                self.selection.queries.get(self.selection.stream, ""),
                SEARCH_HINT,
                ("stream", "search", self.selection.stream),
            )
        else:
            prompt.ask("filter", self.selection.name_filter, "part of a name")

    def action_command(self) -> None:
        self.query_one("#prompt", PromptLine).ask("natsctl", "", "stream ls", ())

    def action_sequence(self) -> None:
        if self.selection.tab.content == "messages":
            self.query_one("#prompt", PromptLine).ask("sequence", "", "the sequence of a message")

    def action_open_name(self) -> None:
        self.query_one("#prompt", PromptLine).ask("open", "", f"the name of a {self.selection.section.noun.lower()}")

    @on(PromptLine.LineTyped)
    def _typed(self, event: PromptLine.LineTyped) -> None:
        if event.purpose == "filter":
            self.selection.name_filters[self.selection.section.title] = event.text
            self._show()

    @on(PromptLine.LineLeft)
    def _left_prompt(self, event: PromptLine.LineLeft) -> None:
        if event.purpose == "filter":
            self.selection.name_filters.pop(self.selection.section.title, None)
        self._refocus(event.purpose)

    @on(PromptLine.LineEntered)
    def _entered(self, event: PromptLine.LineEntered) -> None:
        text = event.text.strip()
        self._refocus(event.purpose)
        match event.purpose:
            case "filter":
                self.selection.name_filters[self.selection.section.title] = text
            case "filter messages":
                self._set_query(text)
            case "natsctl":
                self.run_line(text)
            case "sequence" if self._pages is not None:
                if text.replace(",", "").isdecimal():
                    self._follows = False
                    self.work(self._open_pages, "messages", self._pages, "seq", int(text.replace(",", "")))
                else:
                    self.note("a sequence is a number")
            case "open" if text:
                self._open_name(text)
        self._show()

    def _refocus(self, purpose: str) -> None:
        before = self.query_one("#prompt", PromptLine).before
        left = self.query_one("#names")
        (left if purpose == "open" or before is None or not before.display else before).focus()
        self._show()

    def _set_query(self, text: str) -> None:
        from natsctl.cli.browse.message_pages import MessageQuery

        try:
            MessageQuery.parse(text)
        except UsageError as failure:
            self.note(str(failure))
            return
        self.selection.queries[self.selection.stream] = text

    def _open_name(self, name: str) -> None:
        self.choose(self.selection.open_name(name))

    # -- keys about the selected entry

    def target(self) -> BrowseTarget:
        """Return the entry that a key is about: of the side that has the focus."""
        catalog, stream = self.catalog, self.selection.stream
        rows = self.query_one("#rows", RowList)
        if not self._is_left() and not self._page_title:
            match self.selection.tab.content:
                case "consumers" if rows.cursor < len(catalog.consumers.names):
                    consumer = catalog.consumers.names[rows.cursor]
                    return BrowseTarget("consumer", consumer, stream, text=consumer)
                case "keys" if self._keys:
                    key = self._keys[rows.cursor][0]
                    return BrowseTarget("key", key, self.selection.bucket, text=key)
                case "objects" | "messages" if self._pages and self._pages.messages:
                    messages = self._pages.messages
                    return self.selection.message_target(messages[min(rows.cursor, len(messages) - 1)])
        return self.selection.target()

    def action_keys(self) -> None:
        notes = ["read-only: : runs every command line with --dry-run"] if self.read_only else []
        self.push_screen(HelpScreen(notes))

    def action_follow(self) -> None:
        if self.selection.tab.content != "messages":
            self._go_to_tab("messages")
        if self._pages is None or self.selection.tab.content != "messages":
            return
        self._follows = not self._follows
        if self._follows:
            self.work(self._open_pages, "messages", self._pages, "newest")
        self._show()

    def action_form(self) -> None:
        message = self.query_one("#message", MessageView)
        if message.display:
            message.next_form()

    def action_copy(self) -> None:
        text = self._shown_text if not self._is_left() and self.query_one("#page").display else self.target().text
        if text:
            plain = Text.from_ansi(text).plain
            self.copy_to_clipboard(plain)
            self.note(f"copied {plain if len(plain) < 40 and plain.isprintable() else f'{len(plain):,} characters'}")

    def action_explain(self) -> None:
        target = self.target()
        work = self._explanation_of(target)
        if work is None:
            self.note("nothing to explain here")
            return

        async def explained() -> None:
            self.note("looking for causes")
            page = details.explanation(await work)
            self._notice = ""
            self.show_page("Explain", page)

        self.work(explained, "explain")

    def _explanation_of(self, target: BrowseTarget) -> Coroutine[Any, Any, Any] | None:
        from natsctl.client.explain.consumer import explain_consumer
        from natsctl.client.explain.message import explain_message
        from natsctl.client.explain.stream import explain_stream
        from natsctl.client.explain.subject import explain_subject

        match target.kind:
            case "stream" | "kv" | "object bucket":
                return explain_stream(self.manager, target.stream)
            case "consumer":
                return explain_consumer(self.manager, target.stream, target.name)
            case "message" | "dead letter":
                return explain_message(self.manager, target.stream, target.seq)
            case "key":
                return explain_subject(self.manager, f"$KV.{target.stream}.{target.name}")
        return None

    def show_page(self, title: str, page: Page) -> None:
        self._page_title = title
        width = max(20, self.query_one("#right").content_size.width - 2)
        self._write(self.query_one("#page", ScrolledText), page.text(width, not self.no_color))
        self._show()
        self.query_one("#page").scroll_home(animate=False)
        self.query_one("#page").focus()

    # -- changes

    def _refuses(self) -> bool:
        if self.read_only:
            self.note("read-only: nothing is changed")
        return self.read_only

    def action_edit(self) -> None:
        line = actions.edit_line(self.target())
        if not line:
            self.note("nothing to edit here")
        elif not self._refuses():
            self._in_terminal(line)

    def _in_terminal(self, line: Sequence[str]) -> None:
        """Run a command line in the terminal itself, and wait for a key at its end."""
        try:
            with self.suspend():
                print(f"$ natsctl {shlex.join(line)}", flush=True)
                status = self.runner.run_in_terminal(line)
                with contextlib.suppress(EOFError, KeyboardInterrupt):
                    input(f"\n[exit status {status}; Enter goes back to the browser] ")
        except SuspendNotSupported:
            self.note("this terminal cannot be left")
            return
        self._reload()

    def _reload(self) -> None:
        for section in self.catalog.sections:
            section.expire()
        self._keys_of = ""
        if self._pages is not None and self.selection.tab.content in ("messages", "objects"):
            self.work(self._reread, "messages", self._pages)
        self._tick()

    async def _reread(self, pages: MessagePages) -> None:
        rows = self.query_one("#rows", RowList)
        first = pages.messages[0].seq if pages.messages else 1
        cursor = rows.cursor
        await pages.look()
        if pages.messages and not pages.at_end:
            await pages.show(first)
        else:
            await pages.newest()
        if self._pages is pages:
            rows.show(len(pages.messages), min(cursor, max(0, len(pages.messages) - 1)))

    def action_publish(self) -> None:
        if not self._refuses():
            self.query_one("#prompt", PromptLine).ask("natsctl", actions.publish_line(self.target()), "", ())

    def action_replay(self) -> None:
        line = actions.replay_line(self.selection.target())
        if not line:
            self.note("only dead letters are replayed")
        elif not self._refuses():
            self.work(self._confirm, "change", line, f"natsctl {shlex.join(line)}", "", "")

    def action_delete(self) -> None:
        target = self.target()
        line = actions.delete_line(target)
        if not line:
            self.note("nothing to delete here")
        elif not self._refuses():
            self.work(self._confirm, "change", line, f"natsctl {shlex.join(line)}", actions.typed_word(target))

    async def _confirm(self, line: Sequence[str], question: str, typed: str = "", flag: str = "--force") -> None:
        """Ask about a command line that loses something, with the output of its dry run, and run it."""
        self.note("asking what would go")
        status, effect = await self.runner.output_of([*line, "--dry-run"], min(self.size.width - 8, 96))
        self._notice = ""
        self._show()
        if status not in (0, 10):
            self.note(effect.strip().splitlines()[-1] if effect.strip() else f"exit status {status}")
            return
        if not await self.push_screen_wait(ConfirmScreen(question, effect, typed)):
            self.note("nothing is changed")
            return
        self.note(f"natsctl {shlex.join(line)}")
        status, output = await self.runner.output_of([*line, flag] if flag else line)
        lines = output.strip().splitlines() or [f"exit status {status}"]
        self.note(lines[-1] if status == 0 else lines[0])
        self._reload()

    def run_line(self, text: str) -> None:
        """Run a command line: its output is shown, or with ! it has the terminal."""
        try:
            line = shlex.split(text.removeprefix("!"))
        except ValueError as failure:
            self.note(str(failure))
            return
        line = line[1:] if line[:1] == ["natsctl"] else line
        if line in (["q"], ["quit"], ["exit"]):
            self.exit()
        elif not line:
            return
        elif line[:1] == ["browse"]:
            self.note("this is natsctl browse")
        elif text.startswith("!"):
            self._in_terminal(line)
        else:
            self.work(self._run_line, "change", line)

    async def _run_line(self, line: Sequence[str]) -> None:
        ended = await self.push_screen_wait(OutputScreen(self.runner, line, f"natsctl {shlex.join(line)}"))
        self._reload()
        if ended is not None and ended[0] == UsageError.exit_code and (needed := actions.needed_consent(ended[1])):
            await self._confirm(line, f"Really {needed.action}?", flag=needed.flag)
